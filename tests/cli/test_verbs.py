"""What each verb does and prints, on a real store."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from journal.cli.log import _described
from journal.cli.opening import load_app
from journal.core.ports import Delta
from journal.worlds.postgres import drop_schema
from tests.cli.conftest import Cli, objects


def worked(cli: Cli, *submits: tuple[str, ...]) -> None:
    """Submit each, and let a worker work until nothing is left."""
    for submit in submits:
        assert cli("submit", *submit).exit_code == 0
    assert cli("worker", "--until-idle").exit_code == 0


def test_submit_prints_the_run_and_a_worker_carries_it_out(cli: Cli) -> None:
    submitted = cli("submit", "support", "hello")
    assert submitted.exit_code == 0
    run = submitted.stdout.strip()
    assert len(run) == 20
    assert cli("worker", "--until-idle").exit_code == 0
    shown = cli("show", run)
    assert (shown.exit_code, f"run {run} · agent support · succeeded" in shown.stdout) == (0, True)
    for cell in ("shout#1", "pay#1", "look#1", "attempt 1", "finished"):
        assert cell in shown.stdout


def test_values_are_shown_on_request(cli: Cli) -> None:
    worked(cli, ("support", "hello", "--run", "r"))
    assert "HELLO" not in cli("show", "r").stdout
    assert 'output: "looked at HELLO"' in cli("show", "r", "--values").stdout
    assert "HELLO" not in cli("show", "r", "--json").stdout + cli("log", "r", "--json").stdout
    assert "HELLO" in cli("show", "r", "--json", "--values").stdout
    assert "HELLO" in cli("log", "r", "--json", "--values").stdout


def test_show_gives_one_object(cli: Cli) -> None:
    worked(cli, ("support", "hello", "--run", "r"))
    (found,) = objects(cli("show", "r", "--json"))
    assert found["info"]["status"] == "succeeded"
    state = found["state"]
    assert [(c["number"], c["key"], c["outcome"]["status"]) for c in state["calls"]] == [
        (1, "shout#1", "ok"),
        (2, "pay#1", "ok"),
        (3, "look#1", "ok"),
    ]
    assert [a["ending"] for a in state["turns"][0]["attempts"]] == ["finished"]


def test_show_upto_draws_it_as_it_was(cli: Cli) -> None:
    worked(cli, ("support", "hello", "--run", "r"))
    (found,) = objects(cli("show", "r", "--json", "--upto", "2"))
    assert (found["state"]["head"], found["state"]["turns"][0]["status"]) == (2, "pending")


def test_large_values_come_out_of_their_blobs(cli: Cli) -> None:
    worked(cli, ("support", "x" * 100_000, "--run", "r"))
    assert "X" * 100_000 in cli("show", "r", "--json", "--values").stdout
    assert (
        f'output: "{"X" * 1_999}… (100,002 bytes, whole with --json)' in cli("show", "r", "--values").stdout
    )


def test_the_same_submit_is_one_turn(cli: Cli) -> None:
    first, second = (cli("submit", "support", "hello", "--run", "r") for _ in range(2))
    assert first.stdout == second.stdout == "r\n"
    assert cli("submit", "support", "more", "--run", "r", "--key", "second").exit_code == 0
    (found,) = objects(cli("runs", "--json"))
    assert found["turns"] == 2


def test_input_is_text_unless_it_is_said_to_be_json(cli: Cli) -> None:
    worked(cli, ("support", "42", "--run", "t"), ("count", '{"a": 1, "b": 2}', "--input-json", "--run", "j"))
    assert '"looked at 42"' in cli("show", "t", "--values").stdout
    assert "output: 3" in cli("show", "j", "--values").stdout


def test_input_from_stdin(cli: Cli) -> None:
    assert cli("submit", "support", "-", "--run", "r", stdin="from a pipe").exit_code == 0
    assert "from a pipe" in cli("show", "r", "--values").stdout


def test_input_of_a_declared_type_is_checked_before_it_is_written(cli: Cli) -> None:
    refused = cli("submit", "order", '{"id": "seven"}', "--input-json", "--run", "r")
    assert refused.exit_code == 2
    assert "does not fit its type" in refused.stderr
    assert cli("show", "r").exit_code == 6  # not even an empty store
    as_text = cli("submit", "order", '{"id": 7}', "--run", "r")
    assert (as_text.exit_code, "--input-json" in as_text.stderr) == (2, True)
    assert cli("submit", "order", '{"id": 7}', "--input-json", "--run", "r").exit_code == 0


def test_runs_filters_and_pages(cli: Cli) -> None:
    worked(cli, ("support", "one", "--run", "a"), ("count", "{}", "--input-json", "--run", "b"))
    cli("submit", "support", "three", "--run", "c")

    def names(*options: str) -> list[str]:
        return [found["run"] for found in objects(cli("runs", "--json", *options))]

    assert names() == ["c", "b", "a"]
    assert names("--agent", "support") == ["c", "a"]
    assert names("--status", "succeeded") == ["b", "a"]
    page = objects(cli("runs", "--json", "--limit", "2"))
    assert names("--before", str(page[-1]["position"])) == ["a"]
    text = cli("runs", "--limit", "2")
    assert text.stdout.splitlines()[0].split() == ["RUN", "AGENT", "STATUS", "TURNS", "RECORDS", "CREATED"]
    assert f"journal runs --app app --before {page[-1]['position']}" in text.stderr


def test_runs_where_there_are_none(cli: Cli) -> None:
    cli("migrate")
    empty = cli("runs")
    assert (empty.exit_code, empty.stdout) == (0, "")
    assert empty.stderr.startswith("no runs in sqlite:/")
    for narrow in (("--agent", "nobody"), ("--status", "failed"), ("--before", "1")):
        assert cli("runs", *narrow).stderr.startswith("no such runs in sqlite:/")


@pytest.mark.parametrize(
    "verb",
    [
        ("runs",), ("show", "r"), ("log", "r"), ("log", "r", "--follow"), ("stats",), ("workers",), ("retry", "r"),
        ("cancel", "r"), ("archive", "--older", "1d", "--to", "sqlite:cold.db"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_who_only_looks_makes_no_store(cli: Cli, home: Path, verb: tuple[str, ...]) -> None:
    before = sorted(home.rglob("*"))
    for app in ("app:journal", None):
        found = cli(*verb, "--world", f"sqlite:{home}/typo/journal.db", app=app)
        assert (found.exit_code, found.stdout) == (6, "")
        assert f"sqlite:{home}/typo/journal.db: there is no store here, and none was made" in found.stderr
    assert [path for path in sorted(home.rglob("*")) if "__pycache__" not in path.parts] == before


def test_who_only_looks_makes_no_schema(cli: Cli, postgres_server: str) -> None:
    mark = "&" if "?" in postgres_server else "?"
    url = f"{postgres_server}{mark}schema=absent_{os.getpid()}"
    for _ in range(2):
        found = cli("runs", "--world", url)
        assert (found.exit_code, "there is no store here" in found.stderr) == (6, True), found.output
    try:
        assert cli("migrate", "--world", url).exit_code == 0
        assert cli("runs", "--world", url).exit_code == 0
    finally:
        asyncio.run(drop_schema(url))


def test_log_prints_records_in_order_and_goes_on_from_an_offset(cli: Cli) -> None:
    worked(cli, ("support", "hello", "--run", "r"))
    lines = objects(cli("log", "r", "--json"))
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert (lines[0]["type"], lines[-1]["type"]) == ("run.created", "turn.finished")
    assert lines[1]["body"]["input"] == {"size": 7}
    for place in ("3", lines[2]["offset"]):
        assert objects(cli("log", "r", "--json", "--after", place)) == lines[3:]
    assert len(cli("log", "r").stdout.splitlines()) == len(lines)


def test_retry_carries_a_failed_turn_on(cli: Cli, home: Path) -> None:
    worked(cli, ("support", "fail", "--run", "r"))
    assert cli("show", "r", "--exit-status").exit_code == 1
    source = (home / "app.py").read_text()
    (home / "mended.py").write_text(source.replace('raise ValueError("no")', "pass"))
    assert cli("retry", "r", app="mended").stdout == "r\n"
    assert cli("worker", "--until-idle", app="mended").exit_code == 0
    shown = cli("show", "r", app="mended")
    assert "succeeded · 1 turn · 2 attempts" in shown.stdout
    assert "set aside by record" in shown.stdout
    assert "carries on" in shown.stdout


def test_cancel_is_heard_by_the_next_worker(cli: Cli) -> None:
    cli("submit", "support", "hello", "--run", "r")
    assert cli("cancel", "r", "--reason", "no longer wanted").stdout == "r\n"
    assert cli("worker", "--until-idle").exit_code == 0
    assert "no longer wanted" in cli("show", "r").stdout
    assert cli("show", "r", "--exit-status").exit_code == 7


def test_cancel_where_nothing_is_going_on(cli: Cli) -> None:
    worked(cli, ("support", "hello", "--run", "r"))
    found = cli("cancel", "r", "--json")
    assert (found.exit_code, objects(found)) == (0, [{"asked": False, "run": "r", "turn": None}])


def test_wait_prints_the_output_of_a_turn_that_has_ended(cli: Cli) -> None:
    worked(cli, ("support", "hello", "--run", "r"), ("count", '{"a": 2}', "--input-json", "--run", "n"))
    assert cli("submit", "support", "hello", "--run", "r", "--wait").stdout == "looked at HELLO\n"
    (found,) = objects(cli("submit", "count", '{"a": 2}', "--input-json", "--run", "n", "--wait", "--json"))
    assert found == {"run": "n", "turn": "start", "status": "succeeded", "output": 2}


def test_check_lists_tools_and_where_their_policies_come_from(cli: Cli) -> None:
    (found,) = objects(cli("check", "--json"))
    assert [(t["name"], t["policy"], t["source"], t["agent"]) for t in found["tools"]] == [
        ("look", "safe", "marker", None),
        ("look", "never", "agent map (look)", "count"),
        ("pay", "never", "marker", None),
    ]
    assert [agent["name"] for agent in found["agents"]] == ["count", "order", "support"]
    assert "log.persistent" in found["capabilities"]
    assert found["world"].startswith("sqlite:/")
    assert any("pay_*" in remark for remark in found["remarks"])


def test_check_as_text(cli: Cli) -> None:
    found = cli("check", "app:journal", app=None)
    assert found.exit_code == 0
    assert [line.split() for line in found.stdout.splitlines() if line.startswith("pay")] == [
        ["pay", "never", "marker", "app"]
    ]


def test_check_finds_tools_of_a_harness(cli: Cli, home: Path) -> None:
    pytest.importorskip("agents")
    (home / "harness.py").write_text(
        "from agents import Agent, function_tool\n"
        "from journal import Journal, safe\n"
        "journal = Journal('sqlite:journal.db', tools={'note_*': 'safe'})\n"
        "@safe\n@function_tool\ndef get_order(id: str) -> str:\n    return id\n"
        "@function_tool\ndef refund(id: str) -> str:\n    return id\n"
        "agent = Agent(name='x', tools=[get_order, refund, function_tool(lambda id: id, name_override='note_it')])\n"
        "@journal.agent\nasync def support(turn, prompt: str) -> str:\n    return prompt\n"
    )
    (found,) = objects(cli("check", "--json", app="harness"))
    assert [(t["name"], t["policy"], t["source"]) for t in found["tools"]] == [
        ("get_order", "safe", "marker"),
        ("note_it", "safe", "journal map (note_*)"),
        ("refund", "never", "default"),
    ]


def test_check_without_an_application_looks_at_the_store(cli: Cli) -> None:
    found = cli("check", "--world", "memory:", app=None)
    assert (found.exit_code, "memory:" in found.stdout, "no application" in found.stderr) == (0, True, True)


def test_options_stand_before_or_after_the_verb(cli: Cli, home: Path) -> None:
    cli("--world", f"sqlite:{home}/other.db", "submit", "support", "hello", "--run", "r")
    cli("migrate")
    assert cli("show", "r").exit_code == 4
    assert cli("show", "r", "--world", "sqlite:other.db").exit_code == 0
    assert cli("show", "r", "--world", "sqlite:other.db", "--namespace", "else").exit_code == 4
    assert json.loads(cli("--json", "show", "r", "--world", "sqlite:other.db").stdout)["info"]["run"] == "r"


def test_a_module_with_one_journal_is_an_application(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_app("app") is load_app("app:journal")


def test_check_says_what_the_store_lacks_and_what_would_provide_it(cli: Cli) -> None:
    found = cli("check", "--world", "memory:", app=None)
    assert "\n              not log.persistent" in found.stdout
    assert "sqlite:path/to/file.db keeps it" in found.stdout
    (report,) = objects(cli("check", "--json"))
    assert [note.partition(":")[0] for note in report["notes"]] == ["not multi_host"]


def test_a_store_without_a_name_is_printed_with_one_colon(cli: Cli) -> None:
    refused = cli("show", "nope", "--world", "memory:", app=None)
    assert "is not in memory: check" in refused.stderr


def test_a_piece_of_output_names_its_call_or_none() -> None:
    """As records do: what the handler itself shows is of no call."""
    pieces = [Delta(call=call, number=1, data=b'"x"', seq=4, sub=1) for call in ("", "look#1")]
    assert [_described(piece, True)["call"] for piece in pieces] == [None, "look#1"]

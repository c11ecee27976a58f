"""`journal show` and `journal log` give inputs whole that the log holds as differences."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli, objects

APP = """
from journal import Journal, Turn, io

journal = Journal("sqlite:journal.db")


async def ask(messages: list[dict[str, str]]) -> str:
    io.report({"stop_reason": "end_turn", "usage": {"input_tokens": 20, "output_tokens": 5}})
    return f"reply {len(messages)} " + "again " * 50


@journal.agent
async def talk(turn: Turn, size: int) -> int:
    messages = [{"content": "x" * size, "role": "system"}]
    for number in range(4):
        messages.append({"content": f"question {number} " + "why " * 50, "role": "user"})
        messages.append({"content": await turn.model(ask, messages), "role": "assistant"})
    return len(messages)
"""


def asked(size: int, number: int) -> dict[str, Any]:
    """The input of the call `number`, from 1, by hand."""
    messages = [{"content": "x" * size, "role": "system"}]
    for n in range(number):
        if n:
            messages.append({"content": f"reply {len(messages)} " + "again " * 50, "role": "assistant"})
        messages.append({"content": f"question {n} " + "why " * 50, "role": "user"})
    return {"messages": messages}


@pytest.fixture(params=[1500, 100_000], ids=["inline", "in a blob"])
def size(request: pytest.FixtureRequest, home: Path, cli: Cli) -> int:
    """Of the first message of run `r`."""
    (home / "app.py").write_text(APP)
    size: int = request.param
    assert cli("submit", "talk", str(size), "--input-json", "--run", "r").exit_code == 0
    assert cli("worker", "--until-idle").exit_code == 0
    return size


@pytest.fixture(params=["store", "file"])
def name(request: pytest.FixtureRequest, cli: Cli, size: int) -> str:
    """Of the run, or of the file it was exported to."""
    if request.param == "store":
        return "r"
    assert cli("export", "r", "-o", "r.jsonl").exit_code == 0
    return "./r.jsonl"


def inputs(found: Any) -> list[Any]:
    return [item["body"]["input"] for item in objects(found) if item["type"] == "call.intent"]


def test_verify_finds_nothing_wrong(cli: Cli, name: str) -> None:
    assert cli("verify", name).exit_code == 0


def test_replay_shows_where_an_input_differs(cli: Cli, name: str, home: Path, size: int) -> None:
    assert cli("replay", name).exit_code == 0
    (home / "app.py").write_text(APP.replace('"role": "assistant"', '"role": "tool"'))
    found = cli("replay", name)
    assert found.exit_code == 3
    assert 'input.messages[2].role: recorded "assistant", now "tool"' in found.stdout


def test_diff_shows_inputs_as_they_were_asked(cli: Cli, name: str, home: Path, size: int) -> None:
    (home / "app.py").write_text(APP.replace("question {number}", "query {1000 + number // 2}"))
    assert cli("submit", "talk", str(size), "--input-json", "--run", "other").exit_code == 0
    assert cli("worker", "--until-idle").exit_code == 0
    found = objects(cli("diff", name, "other", "--json"))[0]["partings"]
    shown = [parting["left"] for parting in found if parting["how"] == "input"]
    assert len(shown) == 4
    assert all('"content":"question 0 why' in text for text in shown), "the part that differs"
    for number, text in enumerate(shown, 1):
        whole = len(json.dumps(asked(size, number), separators=(",", ":")))
        assert f"{whole:,} bytes" in text


def test_log_shows_whole_inputs(cli: Cli, name: str, size: int) -> None:
    shown = inputs(cli("log", name, "--json", "--values"))
    assert shown[1:] == [asked(size, number) for number in (2, 3, 4)]
    if size == 1500:
        assert shown[0] == asked(size, 1)


def test_log_from_the_middle_shows_them_too(cli: Cli, name: str, size: int) -> None:
    everything = objects(cli("log", name, "--json"))
    third = next(item["seq"] for item in everything if item["call"] == "ask#3")
    shown = inputs(cli("log", name, "--json", "--values", "--after", str(third - 1)))
    assert shown == [asked(size, number) for number in (3, 4)]


def test_without_values_it_tells_sizes(cli: Cli, name: str, size: int) -> None:
    shown = inputs(cli("log", name, "--json"))
    whole = len(json.dumps(asked(size, 2), separators=(",", ":")))
    assert (shown[1]["size"], shown[1]["builds_on"]) == (whole, "ask#1")
    assert shown[1]["new"]["size"] < 600


def test_show_puts_inputs_together_and_says_why_replies_ended(cli: Cli, name: str, size: int) -> None:
    (state,) = objects(cli("show", name, "--json", "--values"))
    calls = state["state"]["calls"]
    assert [call["input"]["json"] for call in calls] == [asked(size, number) for number in (1, 2, 3, 4)]
    outcome = calls[0]["outcome"]
    assert (outcome["finish"], outcome["raw_finish"]) == ("stop", "end_turn")
    assert outcome["usage"] == {"input_tokens": 20, "output_tokens": 5}
    (plain,) = objects(cli("show", name, "--json"))
    assert all(call["input"].get("json") is None for call in plain["state"]["calls"])
    assert "ok, stop, 20 input + 5 output tokens" in cli("show", name).stdout

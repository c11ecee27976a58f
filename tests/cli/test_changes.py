"""What calls changed of documents, files and checkpoints, as the command line tells it; exported ones too."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from journal.core.ids import new_batch_id
from journal.core.ports import Batch, Keyed, Wake, World
from journal.worlds.contract.harness import raw
from tests.cli.conftest import Cli, objects
from tests.cli.test_bundles import without_extras
from tests.cli.test_fork import in_world

APP = """
from journal import Journal, Turn, VirtualWorkspace, define_doc, io, step

journal = Journal("sqlite:journal.db")
Todo = define_doc("todo", 1, list[str])


@step
async def write(n: int) -> int:
    await io.files.write("/notes.txt", "n" * n)
    await io.files.write(f"/{n}.bin", "x" * (100_000 if n == 2 else 1))
    io.docs.update(Todo, lambda items: [*items, f"item {n}"])
    return n


@step
async def tidy() -> None:
    await io.files.delete("/1.bin")


@step
def nothing() -> None:
    return None


@journal.agent(workspace=VirtualWorkspace(), docs=[Todo])
async def work(turn: Turn, _: None) -> str:
    await turn.step(write, 1)
    await turn.checkpoint("plan", {"left": ["a", "b"]})
    await turn.step(write, 2)
    await turn.checkpoint("plan", {"left": ["b"]})
    await turn.checkpoint("note", "done", sequence=7)
    await turn.step(tidy)
    await turn.step(nothing)
    return "ok"
"""


DIRECTORY = """
from pathlib import Path

from journal import DirectoryWorkspace, Journal, Turn, io, step

journal = Journal("sqlite:journal.db")


@step
async def write(n: int) -> None:
    async with io.files.directory() as directory:
        Path(directory.path, "a").write_text(str(n))
        Path(directory.path, str(n)).write_text("x")


@journal.agent(workspace=DirectoryWorkspace("files"))
async def work(turn: Turn, _: None) -> None:
    await turn.step(write, 1)
    await turn.step(write, 2)
"""


@pytest.fixture
def ran(cli: Cli, home: Path) -> Path:
    (home / "app.py").write_text(APP)
    assert cli("submit", "work", "null", "--input-json", "--run", "r").exit_code == 0
    assert cli("worker", "--until-idle").exit_code == 0
    assert cli("export", "r", "-o", "r.jsonl").exit_code == 0
    return home


def test_show_marks_what_a_call_changed(cli: Cli, ran: Path) -> None:
    lines = cli("show", "r").stdout.splitlines()
    (first,) = (line for line in lines if "write#1" in line)
    assert "ok, files: +2, doc todo" in first
    (second,) = (line for line in lines if "write#2" in line)
    assert "ok, files: +1 ~1, doc todo" in second
    (third,) = (line for line in lines if "tidy#1" in line)
    assert "ok, files: -1" in third
    assert "    holds 1 document, 2 files, 3 checkpoints" in lines


def test_show_at_a_call_is_the_run_as_that_call_found_it(cli: Cli, ran: Path) -> None:
    shown = cli("show", "r", "--at", "2").stdout
    assert ("write#1" in shown, "write#2" in shown) == (True, False)
    assert "    holds 1 document, 2 files, 1 checkpoint\n" in shown
    assert "holds" not in cli("show", "r", "--at", "1").stdout
    assert cli("show", "r", "--at", "9").exit_code == 2
    assert cli("show", "r", "--at", "1", "--upto", "3").exit_code == 2


def test_checkpoints_are_printed(cli: Cli, ran: Path) -> None:
    shown = cli("checkpoints", "r")
    assert shown.exit_code == 0
    heads = [line.partition("  ")[0] for line in shown.stdout.splitlines() if ", record " in line]
    assert heads == ["note 7", "plan 1", "plan 2"]
    (told,) = objects(cli("checkpoints", "r", "--json"))
    assert [(each["name"], each["sequence"], each["payload"]) for each in told] == [
        ("note", 7, "done"), ("plan", 1, {"left": ["a", "b"]}), ("plan", 2, {"left": ["b"]}),
    ]  # fmt: skip
    assert all({"seq", "time", "size"} <= each.keys() for each in told)
    (told,) = objects(cli("checkpoints", "./r.jsonl", "plan", "--at", "2", "--json"))
    assert [each["payload"] for each in told] == [{"left": ["a", "b"]}]


@pytest.mark.parametrize(
    ("verb", "name", "what"),
    [("docs", "nope", "document"), ("files", "/nope", "file"), ("checkpoints", "nope", "checkpoint")],
)
def test_what_is_named_and_not_there_is_4(cli: Cli, ran: Path, verb: str, name: str, what: str) -> None:
    absent = cli(verb, "r", name)
    assert (absent.exit_code, absent.stdout) == (4, "")
    assert (
        absent.stderr
        == f"error: run 'r' has no {what} '{name}': journal {verb} --app app r lists what it has\n"
    )
    (told,) = objects(cli(verb, "./r.jsonl", name, "--json"))
    assert told["error"]["exit_code"] == 4


def test_what_is_not_there_yet_is_told_with_its_call(cli: Cli, ran: Path) -> None:
    for verb, name in (("docs", "todo"), ("files", "/2.bin"), ("checkpoints", "note")):
        absent = cli(verb, "r", name, "--at", "1")
        assert (absent.exit_code, f"'{name}' by call 1: " in absent.stderr) == (4, True), absent.stderr
        none = cli(verb, "r", "--at", "1")
        assert (none.exit_code, "was written by then\n" in none.stderr) == (0, True), none.stderr


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("book/ch2.md", "it is relative: give it from the root, as in '/book/ch2.md'"),
        ("../x", "it is relative: paths begin at the root, with a /"),
    ],
)
def test_a_path_that_no_file_can_have_is_refused_as_such(cli: Cli, ran: Path, path: str, why: str) -> None:
    refused = cli("files", "r", path)
    assert (refused.exit_code, refused.stderr) == (2, f"error: path {path!r} is refused: {why}\n")


@pytest.mark.parametrize("verb", ["docs", "files", "checkpoints", "show"])
def test_one_more_than_the_last_call_is_how_it_stands(cli: Cli, ran: Path, verb: str) -> None:
    assert cli(verb, "r", "--at", "5").stdout == cli(verb, "r").stdout
    assert cli(verb, "r", "--at", "6").exit_code == 2


def test_log_shows_checkpoints_as_json(cli: Cli, ran: Path) -> None:
    line = next(line for line in cli("log", "r").stdout.splitlines() if "checkpoint.written" in line)
    assert '"payload":{"size":18}' in line, line
    line = next(
        line for line in cli("log", "r", "--values").stdout.splitlines() if "checkpoint.written" in line
    )
    assert '"payload":{"left":["a","b"]}' in line


@pytest.mark.parametrize("run", ["r", "./r.jsonl"])
def test_diff_tells_what_changed_between_two_calls(cli: Cli, ran: Path, run: str) -> None:
    told = cli("diff", run, "2", "4")
    assert told.exit_code == 1
    lines = told.stdout.splitlines()
    assert lines[:2] == [
        "   2  step   write#2: ok, files: +1 ~1, doc todo",
        "   3  step   tidy#1: ok, files: -1",
    ]
    assert [line.partition(":")[0] for line in lines[2:] if not line.startswith(" ")] == [
        "~ document todo", "- file /1.bin", "+ file /2.bin", "~ file /notes.txt", "+ checkpoint note 7",
        "+ checkpoint plan 2",
    ]  # fmt: skip
    assert '    [1]: (nothing) → "item 2"' in lines
    assert '    {"left":["b"]}' in lines
    assert any(line.startswith("~ file /notes.txt: 1 bytes, ") and " → 2 bytes, " in line for line in lines)
    (found,) = objects(cli("diff", run, "2", "4", "--json"))
    assert [call["number"] for call in found["calls"]] == [2, 3]
    assert ("file", "/1.bin", "-") in [(c["what"], c["name"], c["sign"]) for c in found["changes"]]


def test_diff_of_calls_that_changed_nothing_is_0(cli: Cli, ran: Path) -> None:
    same = cli("diff", "r", "4", "5")  # one more than the last: as it stands
    assert (same.exit_code, same.stdout.splitlines()[-1]) == (
        0,
        "documents, files and checkpoints are the same",
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("4", "2"), "name the earlier one first"),
        (("2", "9"), "has no call 9; it has 4"),
        (("r", "2"), "write RUN N M, or RUN_A RUN_B"),
        (
            ("2", "x"),
            "'x' is no whole number: give the number of a call (journal show RUN has them, from 1 on), such as 3",
        ),
    ],
)
def test_diff_refuses_what_names_no_calls(cli: Cli, ran: Path, arguments: tuple[str, ...], says: str) -> None:
    refused = cli("diff", "r", *arguments)
    assert (refused.exit_code, says in refused.stderr) == (2, True), refused.stderr


def test_an_exported_file_needs_the_base_package_only_and_brings_its_blobs(ran: Path) -> None:
    away = ran / "away"
    away.mkdir()
    (ran / "r.jsonl").rename(away / "r.jsonl")
    listed = json.loads(without_extras(away, "files", "r.jsonl", "--at", "3", "--json").stdout)
    assert [(file["path"], file["size"]) for file in listed] == [
        ("/1.bin", 1), ("/2.bin", 100_000), ("/notes.txt", 2),
    ]  # fmt: skip
    read = without_extras(away, "files", "r.jsonl", "/2.bin", "--at", "3")
    assert (read.returncode, read.stdout) == (0, "x" * 100_000), read.stderr
    assert without_extras(away, "files", "r.jsonl", "/1.bin").returncode == 4  # deleted
    for args in (("docs", "r.jsonl", "--at", "2"), ("checkpoints", "r.jsonl"), ("show", "r.jsonl")):
        done = without_extras(away, *args)
        assert (done.returncode, done.stderr.startswith("exported, ") or not done.stderr) == (0, True)
    assert without_extras(away, "diff", "r.jsonl", "1", "4").returncode == 1
    assert [path.name for path in away.iterdir()] == ["r.jsonl"]


def test_log_shows_what_is_in_a_record_of_a_later_version(cli: Cli, ran: Path) -> None:
    async def add(world: World) -> None:
        body = msgspec.msgpack.encode(
            {"v": 9, "said": b'{"to":"you"}', "token": b"\x01\x02", "more": [1, "x"]}
        )
        record = raw("r", body, kind="call.teleported", turn="start", key="later#1")
        await world.append(Batch("r", new_batch_id(), Keyed("newer", b"digest"), (record,), queue=Wake()))

    in_world("sqlite:journal.db", add)
    line = cli("log", "r", "--values").stdout.splitlines()[-1]
    assert '"body":{"v":9,"said":{"to":"you"},"token":"0102","more":[1,"x"]}' in line
    assert "has the unknown type 'call.teleported'" in line
    assert "you" not in cli("log", "r").stdout.splitlines()[-1]


def test_of_a_directory_too(cli: Cli, home: Path) -> None:
    """Its files are read under its root; where that is away, there are snapshots to name."""
    (home / "app.py").write_text(DIRECTORY)
    assert cli("submit", "work", "null", "--input-json", "--run", "r").exit_code == 0
    assert cli("worker", "--until-idle").exit_code == 0
    lines = cli("show", "r").stdout.splitlines()
    (second,) = (line for line in lines if "write#2" in line)
    assert re.search(r"ok, files: 3 in snapshot [0-9a-f]{8}\b", second), second
    assert "    holds 3 files" in lines
    assert cli("files", "r", "/a").stdout == "2"
    assert cli("files", "r", "/a", "--at", "2").stdout == "1"
    assert cli("files", "r", "/a", "--at", "1").exit_code == 4
    told = objects(cli("diff", "r", "2", "3", "--json"))[0]["changes"]
    assert [(each["what"], each["name"], each["sign"]) for each in told] == [
        ("file", "/2", "+"),
        ("file", "/a", "~"),
    ]
    (home / "files").rename(home / "away")
    (told,) = objects(cli("diff", "r", "2", "3", "--json"))[0]["changes"]
    assert (told["name"], told["sign"]) == ("/", "~")
    assert told["before"].startswith("files: 2, 2 bytes, snapshot ")

"""Names that stand for nothing, and files that cannot be taken: it is said what is not there, and nothing is made."""

from pathlib import Path

import pytest

from tests.cli.conftest import Cli


@pytest.mark.parametrize("verb", ["show", "log", "docs", "files", "checkpoints", "verify"])
@pytest.mark.parametrize("name", ["order.jsonl", "away/order.jsonl", "order.json"])
def test_a_file_that_is_not_there_is_told_as_a_file(cli: Cli, home: Path, verb: str, name: str) -> None:
    absent = cli(verb, name)
    assert absent.exit_code == 6
    assert (
        f"there is no file '{name}' here, and there is no store that could have such a run" in absent.stderr
    )
    cli("submit", "support", "x")
    absent = cli(verb, name)
    assert absent.exit_code == 4
    assert f"run '{name}' is not in sqlite:" in absent.stderr
    assert f"and there is no file '{name}' here" in absent.stderr


def test_a_name_that_is_no_run_id_is_a_file(cli: Cli, home: Path) -> None:
    absent = cli("show", "my order.jsonl")
    assert (absent.exit_code, "my order.jsonl: it cannot be read" in absent.stderr) == (6, True)
    cli("submit", "support", "x")
    assert cli("show", "my order").exit_code == 2


def test_a_file_that_is_no_export_is_told_as_that(cli: Cli, home: Path) -> None:
    absent = cli("show", "app.py")
    assert (absent.exit_code, "the file 'app.py' is no exported run" in absent.stderr) == (6, True)
    cli("submit", "support", "x")
    absent = cli("show", "app.py")
    assert (absent.exit_code, "and the file 'app.py' is no exported run" in absent.stderr) == (4, True)


def test_a_run_that_is_not_there_is_told_as_a_run(cli: Cli, home: Path) -> None:
    assert "file" not in cli("show", "order-42").stderr
    cli("submit", "support", "x")
    assert "file" not in cli("show", "order-42").stderr


@pytest.fixture
def file(cli: Cli, home: Path) -> Path:
    """An exported run of three calls, and no store."""
    cli("submit", "order", '{"id": 1}', "--input-json", "--run", "o")
    cli("submit", "support", "x", "--run", "r")
    assert cli("worker", "--until-idle").exit_code == 0
    assert cli("export", "r", "-o", "r.jsonl").exit_code == 0
    assert cli("export", "o", "-o", "o.jsonl").exit_code == 0
    for left in home.glob("journal.db*"):
        left.unlink()
    return home / "r.jsonl"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("fork", "r.jsonl", "--at", "99"), 2, "has no call 99; it has 3"),
        (("fork", "r.jsonl", "--at", "1", "--as", "r"), 2, "another id"),
        (("fork", "r.jsonl", "--at", "1", "--as", "-x"), 2, "is refused"),
        (("fork", "o.jsonl", "--at", "1", "--input", '{"id": "x"}'), 2, "it does not fit its type"),
        (("fork", "r.jsonl", "--at", "1", "--namespace", "else"), 2, "--namespace default"),
        (("fork", "none.jsonl", "--at", "1"), 6, "there is no file 'none.jsonl' here"),
        (("import", "r.jsonl", "--namespace", "else"), 2, "--namespace default"),
        (("import", "none.jsonl"), 6, "it cannot be read"),
    ],
)
def test_a_file_that_is_refused_leaves_no_store_behind(
    cli: Cli, file: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    refused = cli(*arguments, "--world", "sqlite:new.db")
    assert (refused.exit_code, says in refused.stderr) == (code, True), refused.output
    assert list(file.parent.glob("new.db*")) == []
    assert list(file.parent.glob("journal.db*")) == []


def test_a_file_that_is_taken_makes_a_store(cli: Cli, file: Path) -> None:
    made = cli("fork", "r.jsonl", "--at", "4", "--world", "sqlite:new.db")
    assert (made.exit_code, made.stdout) == (0, "r@4\n"), made.output
    assert cli("fork", "r.jsonl", "--at", "99", "--world", "sqlite:new.db").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("copy", "sqlite:journal.db", "sqlite:new.db", "--run", "nope"), 1, "'nope' is not in sqlite:"),
        (
            ("copy", "sqlite:journal.db", "sqlite:new.db", "--run", "nope", "--freeze"),
            1,
            "nothing was made there",
        ),
        (
            ("copy", "sqlite:journal.db", "sqlite:new.db", "--namespace", "else"),
            0,
            "no runs; nothing was made there",
        ),
        (("submit", "nobody", "x", "--world", "sqlite:new.db"), 2, "it has had no run in this store"),
        (
            ("submit", "support", "x", "--run", "no such", "--unchecked", "--world", "sqlite:new.db"),
            2,
            "is refused",
        ),
        (
            ("submit", "support", "x", "--key", "-k", "--unchecked", "--world", "sqlite:new.db"),
            2,
            "is refused",
        ),
        (
            ("submit", "nobody", "x", "--app", "app", "--world", "sqlite:new.db"),
            2,
            "registered: count, order, support",
        ),
        (("submit", "order", "x", "--app", "app", "--world", "sqlite:new.db"), 2, "it was taken as text"),
    ],
)
def test_what_is_refused_leaves_no_store_behind(
    cli: Cli, home: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    cli("submit", "support", "x")
    refused = cli(*arguments, app=None)
    assert (refused.exit_code, says in refused.output) == (code, True), refused.output
    assert list(home.glob("new.db*")) == []


def test_a_copy_of_which_one_run_is_there_is_made(cli: Cli, home: Path) -> None:
    cli("submit", "support", "x", "--run", "here")
    copied = cli("copy", "sqlite:journal.db", "sqlite:new.db", "--run", "nope", "--run", "here", app=None)
    assert copied.exit_code == 1
    assert [line.split()[:2] for line in copied.stdout.splitlines()] == [
        ["failed", "nope"],
        ["copied", "here"],
    ]

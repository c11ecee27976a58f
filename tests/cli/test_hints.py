"""Commands that messages name are run as they are printed, on the store that the message is about."""

import re
import shlex
from pathlib import Path

import pytest

from journal import Journal, Turn, TurnFailed
from journal.core.hints import directed, options
from tests.cli.conftest import Cli, objects

COMMAND = re.compile(r"journal ((?:show|retry|runs)\b[^;)(]*?)(?= has its calls| goes on|$|[;)(])")


@pytest.mark.parametrize(
    ("text", "more", "found"),
    [
        ("see journal show r", "--world sqlite:x", "see journal show --world sqlite:x r"),
        (
            "(journal runs); journal retry r",
            "--app app",
            "(journal runs --app app); journal retry --app app r",
        ),
        ("journal show --world redis://h r", "--app app", "journal show --world redis://h r"),
        ("journal runs --before 3", "--namespace n", "journal runs --namespace n --before 3"),
        ("journal copy, journal checks, a journal show", "", "journal copy, journal checks, a journal show"),
        ("journal copy A B, journal checks", "--app app", "journal copy A B, journal checks"),
        (
            "journal show RUN says; journal fork) again",
            "--app app",
            "journal show RUN says; journal fork) again",
        ),
        ("(see journal show --help)", "--app app", "(see journal show --help)"),
    ],
)
def test_options_stand_behind_the_verb(text: str, more: str, found: str) -> None:
    assert directed(text, more) == found
    assert directed(found, more) == found


def test_options_are_written_as_a_shell_reads_them() -> None:
    told = options(app=None, world="sqlite:my store.db", namespace="a")
    assert told == "--world 'sqlite:my store.db' --namespace a"
    assert options(app=None) == ""


@pytest.mark.parametrize(
    "named",
    [
        ("--world", "sqlite:other.db"),
        ("--world", "sqlite:other store.db", "--namespace", "ours"),
        ("--app", "app", "--namespace", "ours"),
        ("--app", "app"),
    ],
)
def test_what_the_command_line_prints_is_run_as_printed(cli: Cli, named: tuple[str, ...]) -> None:
    submitted = cli("submit", "support", "fail", "--run", "r", "--unchecked", *named, app=None)
    assert submitted.exit_code == 0, submitted.output
    worked = cli("worker", "--until-idle", *named, app="app")
    assert worked.exit_code == 0, worked.output
    waited = cli("submit", "support", "fail", "--run", "r", "--unchecked", "--wait", *named, app=None)
    assert waited.exit_code == 1, waited.output
    shown = cli("retry", "r", *named, app=None)
    assert shown.exit_code == 0, shown.output
    hints = [hint for said in (submitted, waited, shown) for hint in COMMAND.findall(said.stderr)]
    assert len(hints) >= 3, (submitted.stderr, waited.stderr, shown.stderr)
    for hint in hints:
        again = cli(*shlex.split(hint), app=None)
        assert again.exit_code in (0, 2), (hint, again.output)  # 2: it has been retried by now


def test_without_a_name_nothing_is_added(cli: Cli, home: Path) -> None:
    (home / "pyproject.toml").touch()
    said = cli("submit", "support", "x", "--run", "r", "--unchecked", app=None)
    assert said.stderr.endswith("journal show r\n")


def test_json_says_the_same(cli: Cli) -> None:
    cli("submit", "support", "x", "--world", "sqlite:other.db")
    refused = cli("show", "nope", "--json", "--world", "sqlite:other.db")
    assert "(journal runs --world sqlite:other.db)" in objects(refused)[-1]["error"]["message"]
    assert "(journal runs --world sqlite:other.db)" in refused.stderr


def test_a_password_stays_home(cli: Cli) -> None:
    refused = cli("show", "r", "--world", "redis://me:secret@127.0.0.1:1/0")
    assert (refused.exit_code, "secret" in refused.output) == (6, False)


def test_what_a_program_raises_names_its_store(cli: Cli, home: Path) -> None:
    journal = Journal("sqlite:mine.db", namespace="ours")

    @journal.agent
    async def stumble(turn: Turn, _: None) -> None:
        raise ValueError("no")

    with pytest.raises(TurnFailed) as failed:
        stumble.run_sync(None, run_id="r")
    (show, retry) = COMMAND.findall(str(failed.value))
    assert show == f"show --world sqlite:{home}/mine.db --namespace ours r"
    for hint in (show, retry):
        again = cli(*shlex.split(hint), app=None)
        assert again.exit_code == 0, (hint, again.output)


def test_what_a_program_raises_of_the_default_store_names_none(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNAL_WORLD", "sqlite:mine.db")
    for url in (None, "sqlite:mine.db"):
        journal = Journal(url)

        @journal.agent
        async def stumble(turn: Turn, _: None) -> None:
            raise ValueError("no")

        with pytest.raises(TurnFailed, match=r"\(journal show r has its calls; journal retry r goes on"):
            stumble.run_sync(None, run_id="r")

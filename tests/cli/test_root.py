"""The command itself: light, complete, and at ease with pipes."""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from journal.cli.root import VERBS
from tests.cli.conftest import Cli

HEAVY = {"structlog", "rich", "agents", "openai", "pydantic", "httpx", "sqlite3", "opentelemetry"}
PROBE = """
import json, sys
from journal.cli import main
try:
    main(["--help"])
except SystemExit:
    pass
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
"""


def test_help_loads_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stderr)) & HEAVY == set()
    for verb in VERBS:
        assert f"  {verb} " in done.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_the_list_of_verbs_says_what_each_says_itself(verb: str) -> None:
    command = import_module(f"journal.cli.{verb}").command
    assert command.help.partition("\n\n")[0].partition("; a worker")[0].rstrip(".") == VERBS[verb].rstrip(".")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(cli: Cli, verb: str) -> None:
    shown = cli(verb, "--help", app=None)
    assert (shown.exit_code, shown.stdout.startswith(f"Usage: journal {verb} ")) == (0, True)


def test_without_a_verb_it_shows_the_help(cli: Cli) -> None:
    assert cli(app=None).stdout.startswith("Usage: journal ")


def test_the_version(cli: Cli) -> None:
    assert cli("--version", app=None).stdout.startswith("durable-journal ")


def test_a_reader_that_has_seen_enough_is_no_failure(cli: Cli, home: Path) -> None:
    for number in range(3):
        cli("submit", "support", "x", "--run", f"r{number}")
    command = [sys.executable, "-m", "journal.cli", "--app", "app", "runs", "--json"]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(command, cwd=home, stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_colours_only_on_a_terminal_and_only_if_wanted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from journal.cli import main

    runner = CliRunner()
    runner.invoke(main, ["--app", "app", "submit", "support", "x", "--run", "r"])
    assert "\x1b[" not in runner.invoke(main, ["--app", "app", "runs"]).stdout
    assert "\x1b[" in runner.invoke(main, ["--app", "app", "runs"], color=True).stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in runner.invoke(main, ["--app", "app", "runs"]).stdout


def test_completion_knows_the_verbs(home: Path) -> None:
    environment = os.environ | {
        "_JOURNAL_COMPLETE": "bash_complete",
        "COMP_WORDS": "journal ru",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "journal.cli"], env=environment, capture_output=True, text=True, cwd=home
    )
    assert done.stdout.split() == ["plain,runs"]

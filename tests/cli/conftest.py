"""A small application in a directory of its own, and the command line called in this process."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from journal.cli import main

APP = '''
from dataclasses import dataclass

from journal import Journal, Turn, never, safe, step, tool

journal = Journal("sqlite:journal.db", tools={"pay_*": "never"})


@tool(replay="safe")
def look(text: str) -> str:
    """Look something up."""
    return f"looked at {text}"


@never
async def pay(amount: int) -> int:
    return amount


@step
def shout(text: str) -> str:
    return text.upper()


@journal.agent
async def support(turn: Turn, prompt: str) -> str:
    loud = await turn.step(shout, prompt)
    if prompt == "fail":
        await turn.step(stumble)
    await turn.tool(pay, 3)
    return (await turn.tool(look, loud)).value


@journal.agent(tools={"look": "never"})
async def count(turn: Turn, numbers: dict[str, int]) -> int:
    return sum(numbers.values())


@dataclass
class Order:
    id: int


@journal.agent
async def order(turn: Turn, given: Order) -> int:
    return given.id


def stumble() -> None:
    raise ValueError("no")
'''


@pytest.fixture(autouse=True)
def _no_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    """An application that is changed within a second, to one as long, must not be taken for what it was."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with `app.py` in it, to be in; what the command line changes in this process is undone."""
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for variable in ("JOURNAL_APP", "JOURNAL_WORLD", "NO_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    yield tmp_path
    sys.modules.pop("app", None)


Cli = Callable[..., Result]


@pytest.fixture
def cli(home: Path) -> Cli:
    """`cli("show", "order-42")`: the result of that command line, with `app` as the application."""

    def call(*args: str, app: str | None = "app", stdin: str | None = None) -> Result:
        sys.modules.pop("app", None)  # as in a process of its own: what a call set on the journal is not kept
        given = [*args] if app is None else ["--app", app, *args]
        return CliRunner().invoke(main, given, input=stdin, catch_exceptions=False, env=dict(os.environ))

    return call


def objects(result: Result) -> list[Any]:
    """What a command with ``--json`` printed, line by line."""
    return [json.loads(line) for line in result.stdout.splitlines()]

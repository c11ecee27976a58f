"""Values given by hand are checked against the types that the application declares, before anything is appended."""

from pathlib import Path

import pytest

from tests.cli.conftest import Cli

APP = """
from dataclasses import dataclass

from pydantic import BaseModel

from journal import Journal, Turn, never, step, tool

journal = Journal("sqlite:journal.db")


@dataclass
class Receipt:
    id: str
    cents: int


class Order(BaseModel):
    id: int


@never
def plain() -> dict[str, int]:
    raise TimeoutError


@tool(replay="never", name="rich")
def rich_tool() -> Receipt:
    raise TimeoutError


@never
def untyped():
    raise TimeoutError


@journal.agent
async def work(turn: Turn, which: str) -> str:
    fn = {"plain": plain, "rich": rich_tool, "untyped": untyped, "inner": _inner()}[which]
    return str((await turn.tool(fn)).value)


def _inner():
    def inner() -> int:
        raise TimeoutError
    return inner


@journal.agent
async def total(turn: Turn, numbers: dict[str, int]) -> int:
    return sum(numbers.values())


@journal.agent
async def order(turn: Turn, given: Order) -> int:
    return given.id
"""


@pytest.fixture
def app(home: Path) -> Path:
    (home / "app.py").write_text(APP)
    return home


def records(cli: Cli, run: str) -> int:
    return len(cli("log", run, "--json").stdout.splitlines())


@pytest.mark.parametrize(
    ("which", "said", "path", "reason"),
    [
        ("plain", '{"secret": "7"}', "[...]", "Expected `int`, got `str`"),
        ("plain", "[1]", "", "Expected `object`, got `array`"),
        ("rich", '{"id": "r", "cents": "7"}', "cents", "Expected `int`, got `str`"),
        ("rich", '{"cents": 7}', "", "missing required field `id`"),
        ("inner", '"x"', None, None),
    ],
)
def test_a_settled_value_of_another_type_is_refused(
    cli: Cli, app: Path, which: str, said: str, path: str | None, reason: str | None
) -> None:
    cli("submit", "work", which, "--run", "r")
    cli("worker", "--until-idle")
    before = records(cli, "r")
    refused = cli("retry", "r", "--settle", f"1={said}")
    if reason is None:
        assert refused.exit_code == 0
        assert "no function 'inner' is at the top of the application's modules" in refused.stderr
        return
    assert refused.exit_code == 2
    assert reason in refused.stderr
    assert f"--settle 1 (the result of {which!r}){f' at {path}' if path else ''}: " in refused.stderr
    assert records(cli, "r") == before


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ("plain", '{"secret": 7}'),
        ("rich", '{"id": "r", "cents": 7}'),
        ("untyped", '"anything"'),
        ("plain", "did-not-run"),
    ],
)
def test_a_settled_value_that_fits_is_taken(cli: Cli, app: Path, which: str, said: str) -> None:
    cli("submit", "work", which, "--run", "r")
    cli("worker", "--until-idle")
    taken = cli("retry", "r", "--settle", f"1={said}")
    assert (taken.exit_code, "unchecked" in taken.stderr) == (0, False), taken.output


def test_without_an_application_it_is_said_that_nothing_was_checked(cli: Cli, app: Path) -> None:
    cli("submit", "work", "plain", "--run", "r")
    cli("worker", "--until-idle")
    taken = cli("retry", "r", "--settle", '1="x"', "--world", "sqlite:journal.db", app=None)
    assert taken.exit_code == 0
    assert "the value is taken unchecked for call 1: no application is named (--app)" in taken.stderr


@pytest.mark.parametrize(
    ("agent", "first", "other", "says"),
    [
        ("total", '{"a": 1}', '{"a": "x"}', "--input at [...]: Expected `int`, got `str`"),
        ("order", '{"id": 1}', '{"id": "x"}', "--input at id: it does not fit its type"),
    ],
)
def test_another_input_of_another_type_is_refused(
    cli: Cli, app: Path, agent: str, first: str, other: str, says: str
) -> None:
    cli("submit", agent, first, "--input-json", "--run", "r")
    cli("worker", "--until-idle")
    refused = cli("fork", "r", "--at", "1", "--as", "s", "--input", other)
    assert (refused.exit_code, says in refused.stderr) == (2, True), refused.output
    assert cli("show", "s").exit_code == 4


def test_another_input_of_a_pydantic_model_is_taken(cli: Cli, app: Path) -> None:
    with_call = APP.replace("    return given.id", "    await turn.step(str, 1)\n    return given.id")
    (app / "app.py").write_text(with_call)
    cli("submit", "order", '{"id": 1}', "--input-json", "--run", "r")
    cli("worker", "--until-idle")
    forked = cli("fork", "r", "--at", "1", "--as", "s", "--input", '{"id": 2}')
    assert forked.exit_code == 0, forked.output
    cli("worker", "--until-idle")
    assert "output: 2" in cli("show", "s", "--values").stdout

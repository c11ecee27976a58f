"""An agent that is run from within a turn of another, in the same journal or in another one of the same event loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from journal import Journal, NotInTurn, Turn, io
from journal.core.errors import InvalidOptions

pytestmark = pytest.mark.anyio
whose: ContextVar[str] = ContextVar("whose", default="nobody's")


@asynccontextmanager
async def told() -> AsyncIterator[str]:
    yield whose.get()


@pytest.fixture(params=["one journal", "two on a store", "two stores"])
def journals(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Journal, Journal]:
    outer = Journal(f"memory:{tmp_path.name}", resources=told)
    if request.param == "one journal":
        return outer, outer
    name = tmp_path.name if request.param == "two on a store" else f"{tmp_path.name}-other"
    return outer, Journal(f"memory:{name}", resources=told)


def inside(journal: Journal) -> Any:
    """An agent that tells what it sees."""

    @journal.agent
    async def inner(turn: Turn, count: int) -> list[Any]:
        async def add(number: int) -> int:
            return number + 1

        for seen in (turn.now, turn.uuid, turn.random, turn.is_cancel_requested):
            seen()
        async with turn.timeout(60):
            added = await turn.step(add, count)
        with pytest.raises(NotInTurn):
            io.emit("for nobody")
        return [added, whose.get()]

    return inner


@pytest.mark.parametrize("place", ["step", "thread", "handler"])
async def test_it_does_not_see_whose_call_runs_it(place: str, journals: tuple[Journal, Journal]) -> None:
    outside, inside_of = journals
    inner = inside(inside_of)

    @outside.agent
    async def outer(turn: Turn, count: int) -> list[Any]:
        whose.set("the outer handler's")

        async def ask(count: int) -> list[Any]:
            return list(await inner.run(count, run_id="inner"))

        def ask_there(count: int) -> list[Any]:
            return list(inner.run_sync(count, run_id="inner"))

        match place:
            case "step":
                return await turn.step(ask, count)
            case "thread":
                return await turn.step(ask_there, count)
            case _:
                return await ask(count)

    async with outside, inside_of:
        assert await outer.run(1, run_id="outer") == [2, "nobody's"]
        assert await outer.run(1, run_id="outer") == [2, "nobody's"]


async def test_a_journal_that_a_handler_opens_keeps_nothing_of_it(journals: tuple[Journal, Journal]) -> None:
    outside, inside_of = journals
    inner = inside(inside_of)

    @inside_of.agent
    async def deps(turn: Turn, _: None) -> str:
        return str(turn.deps)

    @outside.agent
    async def outer(turn: Turn, count: int) -> None:
        whose.set("the outer handler's")
        await asyncio.gather(*(inner.run(number, run_id=f"inner-{number}") for number in range(count)))
        assert await deps.run(None, run_id="deps") == "nobody's"

    async with outside, inside_of:
        await outer.run(20, run_id="outer")
        assert await deps.run(None, run_id="later") == "nobody's"


@pytest.mark.parametrize("how", ["run", "in a step", "submitted", "itself"])
async def test_a_turn_that_would_wait_for_its_own_run_is_told(
    how: str, journals: tuple[Journal, Journal]
) -> None:
    outside, inside_of = journals

    @outside.agent
    async def talk(turn: Turn, text: str) -> str:
        if text == "next":
            return text
        run = turn.run_id

        async def ask() -> str:
            return await talk.run("next", run_id=run, key="next")

        async def wait() -> object:
            match how:
                case "run":
                    return await ask()
                case "in a step":
                    return await turn.step(ask)
                case "submitted":
                    return await (await talk.submit("next", run_id=run, key="next")).result()
                case _:
                    return await talk.run(text, run_id=run)

        with pytest.raises(InvalidOptions, match="of its own run"):
            await wait()
        return "told"

    async with outside, inside_of:
        assert await talk.run("first", run_id="r", timeout=30) == "told"
        assert await talk.run("next", run_id="r", key="next", timeout=30) == "next"


async def test_it_may_wait_for_a_run_of_that_name_elsewhere_and_for_what_has_ended(tmp_path: Path) -> None:
    here, there = Journal(f"memory:{tmp_path.name}"), Journal(f"memory:{tmp_path.name}-other")

    @there.agent
    async def inner(turn: Turn, text: str) -> str:
        return text

    @here.agent
    async def talk(turn: Turn, text: str) -> list[str]:
        before = [] if text == "first" else await talk.run("first", run_id=turn.run_id, key="first")
        return [*before, await inner.run(text, run_id=turn.run_id, key=text)]

    async with here, there:
        assert await talk.run("first", run_id="r", key="first") == ["first"]
        assert await talk.run("second", run_id="r", key="second") == ["first", "second"]

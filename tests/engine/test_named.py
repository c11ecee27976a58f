"""A key names one call; asked for again after that was cancelled, it names another one: SEMANTICS 3."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from journal import Journal, Turn, TurnFailed, step
from tests.engine.test_diverging import in_doubt
from tests.engine.test_order import twice

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}" if request.param == "memory" else f"sqlite:{tmp_path / 'j.db'}"


async def note(said: str) -> str:
    return said


def named(fn: Any) -> Any:
    return step(fn).options(key="k")


async def limited(call: Any) -> str:
    try:
        async with asyncio.timeout(0.2):
            return str(await call)
    except TimeoutError:
        return "timeout"


async def test_each_asking_after_a_cancelled_one_has_its_own_outcome(url: str) -> None:
    tries: list[str] = []

    async def flaky(name: str) -> str:
        tries.append(name)
        if len(tries) < 3:
            await asyncio.Event().wait()
        return "ok"

    async def handler(turn: Turn) -> list[str]:
        said = []
        for _ in range(4):
            said.append(await limited(turn.step(named(flaky), "x")))
            await turn.step(note, said[-1])
        return said

    live, replayed = await twice(url, handler)
    assert live == replayed == ["timeout", "timeout", "ok", "ok"]
    assert tries == ["x", "x", "x"]


async def test_the_second_asking_in_doubt_is_tried_again_behind_the_first(url: str) -> None:
    tries: list[str] = []
    started: list[asyncio.Event] = []

    async def flaky() -> str:
        tries.append("flaky")
        if len(tries) == 2:
            started[-1].set()
        if len(tries) < 3:
            await asyncio.Event().wait()
        return "ok"

    async def handler(turn: Turn, inside: asyncio.Event) -> list[str]:
        started.append(inside)
        first = await limited(turn.step(named(flaky)))
        return [first, await turn.model(named(flaky))]

    async with Journal(url):
        journal, work = await in_doubt(url, handler, handler)
        async with journal:
            assert await work.run(None, run_id="r") == ["timeout", "ok"]
    assert len(tries) == 3


async def test_whoever_has_joined_a_call_that_is_cancelled_asks_for_it_anew(url: str) -> None:
    """Nobody has cancelled them."""
    tries: list[str] = []

    async def rates() -> str:
        tries.append("rates")
        if len(tries) == 1:
            await asyncio.Event().wait()
        return "rates"

    async def handler(turn: Turn) -> list[str]:
        async def patient() -> str:
            return await turn.step(named(rates))

        said = list(await asyncio.gather(limited(turn.step(named(rates))), patient(), patient()))
        await turn.step(note, f"{said}")
        return said

    live, replayed = await twice(url, handler)
    assert live == replayed == ["timeout", "rates", "rates"]
    assert len(tries) == 2


async def test_a_key_that_could_be_counted_is_refused() -> None:
    async with Journal("memory:") as journal:

        @journal.agent
        async def work(turn: Turn, _: None) -> None:
            await turn.step(step(note).options(key="k@again2"), "x")

        with pytest.raises(TurnFailed, match="given by counting"):
            await work.run(None)

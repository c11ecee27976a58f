"""Threads: a sync call runs on one and may show output from there; the turn itself belongs to its event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from journal import Journal, Turn, UsageError, io, tool
from journal.core.ports import Claim, Delta, World
from journal.worlds import open_world

pytestmark = pytest.mark.anyio


async def test_a_sync_call_shows_its_output_before_its_outcome(url: str) -> None:
    @tool(replay="safe")
    def look() -> str:
        for n in range(3):
            io.emit({"n": n})
        return "ok"

    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        return (await turn.tool(look)).value

    async with journal:
        handle = await work.submit(None)
        assert await handle.settle(5, serve=True) == "ok"
        events = [event async for event in handle.events()]
    kinds = [event.type for event in events]
    assert [event.data for event in events if event.type == "delta"] == [{"n": n} for n in range(3)]
    assert kinds.index("call.outcome") > max(place for place, kind in enumerate(kinds) if kind == "delta")


async def test_output_that_is_on_its_way_stands_before_the_outcome() -> None:
    """A store that is slow to take it does not let the outcome pass."""
    begun = asyncio.Event()

    class Slow:
        def __init__(self, inner: World) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        async def publish(self, claim: Claim, deltas: list[Delta]) -> bool:
            begun.set()
            await asyncio.sleep(0.1)
            return await self._inner.publish(claim, deltas)

    @asynccontextmanager
    async def slow() -> AsyncIterator[Any]:
        async with open_world("memory:") as world:
            yield Slow(world)

    async def look() -> str:
        io.emit("piece")
        await begun.wait()
        return "ok"

    journal = Journal(slow)

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        return await turn.step(look)

    async with journal:
        handle = await work.submit(None)
        assert await handle.settle(5, serve=True) == "ok"
        kinds = [event.type async for event in handle.events()]
    assert kinds.index("delta") < kinds.index("call.outcome")


async def test_a_handler_shows_output_from_any_thread(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> int:
        await asyncio.to_thread(turn.emit, "piece")
        await asyncio.sleep(0)  # whatever asked for it on the loop has run by then
        return await turn.step(one)

    async with journal:
        handle = await work.submit(None)
        assert await handle.settle(5, serve=True) == 1
        assert [event.data async for event in handle.events() if event.type == "delta"] == ["piece"]


async def one() -> int:
    return 1


@pytest.mark.parametrize(
    "use",
    [
        lambda turn: turn.now(),
        lambda turn: turn.uuid(),
        lambda turn: turn.random(),
        lambda turn: asyncio.run(turn.step(one)),
    ],
)
async def test_a_turn_is_used_in_its_event_loop_alone(url: str, use: Callable[[Turn], Any]) -> None:
    """Elsewhere it would name its calls in another order each time; what was asked there leaves nothing behind."""
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> int:
        with pytest.raises(UsageError, match=r"another thread.*await its calls there"):
            await asyncio.to_thread(use, turn)
        return await turn.step(one)

    async with journal:
        assert await work.run(None, run_id="r") == 1
        assert [r.key for r in await journal.read("r") if r.key is not None] == ["one#1"] * 2

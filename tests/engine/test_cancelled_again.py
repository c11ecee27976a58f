"""A task that is cancelled again and again ends where it was cancelled first, and the log says so."""

import asyncio

import anyio
import pytest

from journal import Journal, Turn, TurnFailed, never
from journal.core.ports import Answer, Batch
from journal.worlds.memory import MemoryWorld
from tests.engine.test_order import twice

pytestmark = pytest.mark.anyio


async def one(name: str) -> str:
    await asyncio.sleep(0)
    return name


@never
async def pay() -> str:
    return "paid"


async def test_a_scope_of_anyio_that_cancels_through_gather_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cancels in each pass of the loop, and gather hands that on to calls that wait for their place."""
    monkeypatch.setattr("journal.engine.order._MOST_PASSES", 10**9)  # not because nothing came to rest
    journal = Journal("memory:")

    @journal.agent
    async def work(turn: Turn, given: None) -> str:
        async def child() -> None:
            await asyncio.gather(turn.step(one, "beside"), turn.race(turn.step(one, "racing")))

        async with anyio.create_task_group() as group:
            group.start_soon(child)
            await turn.step(one, "host")
            group.cancel_scope.cancel()
        return "done"

    async with journal, asyncio.timeout(60):
        assert await work.run(None) == "done"


@pytest.mark.parametrize("passes", [0, 1, 2, 3, 4])
async def test_a_call_that_is_cancelled_twice_is_cancelled_on_replay_too(passes: int) -> None:
    journal = Journal("memory:")

    @journal.agent
    async def work(turn: Turn, given: None) -> str:
        async def child() -> str:
            try:
                return (await turn.tool(pay)).status
            except asyncio.CancelledError:
                return "cancelled"

        task = asyncio.create_task(child())
        for _ in range(passes):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        try:
            said = await task
        except asyncio.CancelledError:
            said = "never began"
        said = await turn.step(one, said)
        if turn.attempt == 1:
            raise RuntimeError
        return said

    async with journal, asyncio.timeout(60):
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        assert await (await journal.retry("r")).settle(5, serve=True)


async def test_a_timeout_runs_out_in_a_group_that_is_cancelled_before_the_block_has_heard_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The group cancels in each pass; whether the block raises `TimeoutError` is not to rest on how many there are."""
    plain = MemoryWorld.append

    async def later(world: MemoryWorld, batch: Batch) -> Answer:
        if any(record.type == "call.outcome" and record.key == "t1/endless#1" for record in batch.records):
            await asyncio.sleep(0.3)
        return await plain(world, batch)

    monkeypatch.setattr(MemoryWorld, "append", later)
    has_heard = asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            has_heard.set()

    async def handler(turn: Turn) -> list[str]:
        said: list[str] = []

        async def child() -> None:
            try:
                async with turn.timeout(0.01):
                    await turn.step(endless)
            except TimeoutError:
                said.append("out of time")

        async with anyio.create_task_group() as group:
            group.start_soon(child)
            await turn.step(has_heard.wait)
            group.cancel_scope.cancel()
        await turn.step(one, str(said))
        return said

    assert await twice("memory:", handler) == (["out of time"],) * 2

"""A task that is cancelled again and again ends where it was cancelled first, and the log says so."""

import asyncio

import anyio
import pytest

from journal import Journal, Turn, TurnFailed, never

pytestmark = pytest.mark.anyio


async def one(name: str) -> str:
    await asyncio.sleep(0)
    return name


@never
async def pay() -> str:
    return "paid"


async def test_a_scope_of_anyio_that_cancels_through_gather_ends() -> None:
    """It cancels in each pass of the loop, and gather hands that on to calls that wait for their place."""
    journal = Journal("memory:")

    @journal.agent
    async def work(turn: Turn, given: None) -> str:
        async def child() -> None:
            await asyncio.gather(turn.step(one, "beside"))

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

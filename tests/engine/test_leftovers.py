"""What a handler, a race or a timeout leaves running when it ends: it ends there too, the same on each replay."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from journal import Turn
from journal.core.ports import Answer, Batch
from journal.worlds.memory import MemoryWorld
from tests.engine.test_offline import again, ran
from tests.engine.test_order import twice

pytestmark = pytest.mark.anyio


async def one(name: str, passes: int = 0) -> str:
    for _ in range(passes):
        await asyncio.sleep(0)
    return name


async def endless() -> None:
    await asyncio.Event().wait()


async def test_a_task_that_has_its_outcome_as_the_handler_ends_asks_for_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = MemoryWorld.append
    go, is_under_way, has_ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def later(world: MemoryWorld, batch: Batch) -> Answer:
        answer = await plain(world, batch)
        if any(record.type == "call.outcome" and record.key == "t1/wait#1" for record in batch.records):
            is_under_way.set()
            await has_ended.wait()
        return answer

    monkeypatch.setattr(MemoryWorld, "append", later)

    async def handler(turn: Turn, given: Any) -> str:
        async def beside() -> None:
            await turn.step(go.wait)
            await turn.step(one, "second")

        task = asyncio.create_task(beside())
        await turn.step(one, "first")
        go.set()
        await is_under_way.wait()
        has_ended.set()
        return f"done, and {task.done()}"

    log = await ran(handler)
    assert (await again(handler, log)).verdict == "same"
    assert "t1/one#1" not in [record.key for record in log.records]


@pytest.mark.parametrize("passes", [1, 3, 10, 30])
async def test_a_task_that_makes_its_first_call_when_the_handler_has_ended(passes: int) -> None:
    """While others are waited for: it is too late, in each attempt."""

    async def handler(turn: Turn, given: Any) -> str:
        async def late() -> None:
            for _ in range(passes):
                await asyncio.sleep(0)
            await turn.step(one, "late")

        async def slow_to_end() -> None:
            try:
                await turn.step(endless)
            finally:
                for _ in range(50):
                    await asyncio.sleep(0)

        running = [asyncio.create_task(slow_to_end()), asyncio.create_task(late())]
        await asyncio.sleep(0)
        return f"done, and {len(running)} go on"

    log = await ran(handler)
    assert (await again(handler, log)).verdict == "same"
    assert not [record for record in log.records if record.type == "call.outcome"]


async def test_a_race_that_is_cancelled_twice_leaves_no_branch_running() -> None:
    async def handler(turn: Turn) -> list[str]:
        said: list[str] = []

        async def branch(name: str) -> None:
            try:
                await turn.step(endless)
            finally:
                await turn.step(one, name, 5)
                said.append(name)

        racing = asyncio.create_task(turn.race(branch("a"), branch("b")))
        await turn.step(one, "", 3)
        racing.cancel()
        await asyncio.sleep(0)
        racing.cancel()
        with suppress(asyncio.CancelledError):
            await racing
        return [*said, "cancelled"]

    assert await twice("memory:", handler) == (["a", "b", "cancelled"],) * 2


async def test_a_block_that_is_cancelled_as_its_timeout_runs_out_ends_once_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = MemoryWorld.append
    durable: list[str | None] = []
    is_under_way = asyncio.Event()

    async def later(world: MemoryWorld, batch: Batch) -> Answer:
        if any(record.key == "t1/@timeout#1" for record in batch.records):
            is_under_way.set()
            await asyncio.sleep(0.1)
        answer = await plain(world, batch)
        durable.extend(record.key for record in batch.records)
        return answer

    monkeypatch.setattr(MemoryWorld, "append", later)

    async def handler(turn: Turn) -> bool:
        async def limited() -> None:
            async with turn.timeout(0.01):
                await is_under_way.wait()

        task = asyncio.create_task(limited())
        await is_under_way.wait()
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait({task})
        return "t1/@timeout#1" in durable

    assert await twice("memory:", handler) == (True, True)


async def test_a_timeout_that_did_not_run_out_does_not_in_a_replay_that_is_slower() -> None:
    pauses = [0.0, 0.3]

    async def handler(turn: Turn, given: Any) -> str:
        async with turn.timeout(0.1):
            await turn.step(one, "a")
            await asyncio.sleep(pauses.pop(0))
        return "in time"

    assert (await again(handler, await ran(handler))).verdict == "same"

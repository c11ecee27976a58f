"""A key asked for twice, and one of those who asked is cancelled: the same on replay (SEMANTICS 3)."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from journal import Turn, io, step, tool
from journal.core.ports import Answer, Batch
from journal.worlds.memory import MemoryWorld
from tests.engine.test_cancelled import limited, quick
from tests.engine.test_order import twice

pytestmark = pytest.mark.anyio


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}"


class Slow:
    """A call under a key that ends when it is let through: `gates` one after the other, each for one run of it."""

    def __init__(self, gates: int = 1, **options: Any) -> None:
        self.gates = [asyncio.Event() for _ in range(gates)]
        self.runs: list[str] = []
        self.options = options

    async def act(self, n: int) -> int:
        gate = self.gates[min(len(self.runs), len(self.gates) - 1)]
        self.runs.append(io.idempotency_key)
        await gate.wait()
        return n

    def __call__(self, turn: Turn) -> Awaitable[Any]:
        if "replay" in self.options:
            return turn.tool(tool(self.act, **self.options).options(key="one"), 1)
        return turn.step(step(self.act).options(key="one"), 1)


async def told(turn: Turn, who: str, slow: Slow, seen: list[str]) -> None:
    """Ask for it in a task of its own, and let a step say how it ended."""
    await turn.step(quick, len(who))
    try:
        said = str(getattr(result := await slow(turn), "status", result))
    except asyncio.CancelledError:
        said = "cancelled"
    seen.append(f"{who} {said}")
    await turn.step(quick, len(said))


async def began(turn: Turn) -> None:
    """Return once a task that was just started has asked for what it asks for second."""
    for n in range(2):
        await turn.step(quick, n)


async def test_who_joined_is_out_of_time(url: str) -> None:
    slow = Slow()

    async def handler(turn: Turn) -> list[str]:
        seen: list[str] = []
        first = asyncio.create_task(told(turn, "first", slow, seen))
        await began(turn)
        seen.append(await limited(0.05, slow(turn)))
        slow.gates[0].set()
        await first
        return seen

    assert await twice(url, handler) == (["out of time", "first 1"],) * 2
    assert len(slow.runs) == 1


async def test_who_joined_is_cancelled_when_the_outcome_is_there(url: str) -> None:
    """Between the outcome and whoever joined: both are ready to run in the same pass of the loop."""
    slow = Slow()

    async def handler(turn: Turn) -> list[str]:
        seen: list[str] = []

        async def first() -> None:
            await turn.step(quick, 0)
            await slow(turn)
            if turn.attempt == 1:  # as whatever is quicker then
                joiner.cancel()

        started = asyncio.create_task(first())
        await began(turn)
        joiner = asyncio.create_task(told(turn, "joiner", slow, seen))
        again = asyncio.get_running_loop().call_later(0.05, joiner.cancel) if turn.attempt > 1 else None
        slow.gates[0].set()
        await asyncio.gather(started, joiner)
        if again is not None:
            again.cancel()
        return seen

    assert await twice(url, handler) == (["joiner cancelled"],) * 2


@pytest.mark.parametrize("passes", range(2, 8))
@pytest.mark.parametrize("cancels", [1, 2, 6])
async def test_who_joined_is_cancelled_and_cancels_the_first_over_it(
    url: str, passes: int, cancels: int
) -> None:
    """The first has its outcome by then, or has not; the log is to say it in the order in which the code heard it."""

    async def handler(turn: Turn) -> str:
        async def joining() -> str:
            named = step(quick).options(key="one")
            first = asyncio.create_task(turn.step(named, 1))
            await asyncio.sleep(0)
            try:
                return str(await turn.step(named, 1))
            except asyncio.CancelledError:
                first.cancel()
                return "cancelled"

        joiner = asyncio.create_task(joining())
        for _ in range(passes):
            await asyncio.sleep(0)
        for _ in range(cancels):
            joiner.cancel()
            await asyncio.sleep(0)
        try:
            said = await joiner
        except asyncio.CancelledError:
            said = "cancelled again"
        await turn.step(quick, len(said))
        return said

    live, replayed = await twice(url, handler)
    assert live == replayed


async def test_the_first_is_cancelled_and_who_joined_makes_it_anew(url: str) -> None:
    slow = Slow(gates=2)

    async def handler(turn: Turn) -> list[str]:
        seen: list[str] = []
        first = asyncio.create_task(told(turn, "first", slow, seen))
        await began(turn)
        joined = [asyncio.create_task(told(turn, "joiner" + "!" * n, slow, seen)) for n in (1, 2)]
        await turn.step(quick, 0)
        first.cancel()
        slow.gates[1].set()
        await asyncio.gather(first, *joined)
        return sorted(seen)

    assert await twice(url, handler) == (["first cancelled", "joiner! 1", "joiner!! 1"],) * 2
    assert len(slow.runs) == 2
    assert len(set(slow.runs)) == 1, "the same call, for the service"


async def test_asked_again_after_it_was_cancelled(url: str) -> None:
    slow = Slow(gates=3)
    slow.gates[2].set()

    async def handler(turn: Turn) -> list[str]:
        seen = [await limited(0.05, slow(turn)) for _ in range(3)]
        await turn.step(quick, len(seen))
        return seen

    assert await twice(url, handler) == (["out of time", "out of time", "in time"],) * 2
    assert len(slow.runs) == 3


async def test_of_a_never_call_all_hear_that_it_is_unknown(url: str) -> None:
    slow = Slow(replay="never")

    async def handler(turn: Turn) -> list[str]:
        seen: list[str] = []
        first = asyncio.create_task(told(turn, "first", slow, seen))
        await began(turn)
        joined = asyncio.create_task(told(turn, "joiner", slow, seen))
        await turn.step(quick, 0)
        first.cancel()
        await asyncio.gather(first, joined)
        await told(turn, "later", slow, seen)
        return sorted(seen)

    assert await twice(url, handler) == (["first cancelled", "joiner unknown", "later unknown"],) * 2
    assert len(slow.runs) == 1


async def test_nothing_acts_before_the_log_says_that_an_outcome_was_not_seen(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that follows may be lazy; who dies in it must find on the next replay that it was asked for."""
    plain = MemoryWorld.append
    durable: list[str | None] = []

    async def later(world: MemoryWorld, batch: Batch) -> Answer:
        if any(record.key == "t1/quick#1" and record.type == "call.outcome" for record in batch.records):
            await asyncio.sleep(0.3)
        answer = await plain(world, batch)
        durable.extend(record.key for record in batch.records)
        return answer

    monkeypatch.setattr(MemoryWorld, "append", later)

    async def follow() -> bool:
        return "t1/quick#1@cancelled" in durable

    async def handler(turn: Turn) -> tuple[str, bool]:
        return await limited(0.1 if turn.attempt == 1 else 0.5, turn.step(quick, 1)), await turn.step(follow)

    assert await twice(url, handler) == (("out of time", True),) * 2

"""Interleavings found on paper, at the port, on every world of ours."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from journal.core.errors import InvalidValue
from journal.core.ports import (
    Answer,
    Batch,
    Committed,
    Duplicate,
    LogRegressed,
    StaleClaim,
    Unknown,
    World,
)
from journal.worlds.contract import ContractHarness
from journal.worlds.contract.harness import (
    Holder,
    begin,
    claim_all,
    committed,
    hold,
    raw,
    seqs,
    signal,
    submit,
)
from tests.contract.faults import DelayingWorld
from tests.contract.harnesses import opening_of

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis", "cluster"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ContractHarness]:
    async with opening_of(request, tmp_path) as harness:
        yield harness


async def _keys(holder: Holder) -> list[str | None]:
    return [record.key for record in await holder.world.read("r", after=2)]


async def test_the_old_backend_commits_after_a_read_said_absent(harness: ContractHarness) -> None:
    async with harness.open() as world:
        await begin(world, "r")
        holder, network = await hold(world, "r"), DelayingWorld(world)
        batch = holder.batch(holder.outcome("paid"))
        network.is_cut = True
        assert isinstance(await network.append(batch), Unknown)
        assert await _keys(holder) == [], "a read says absent"
        (landed,) = await network.land()
        assert isinstance(landed, Committed)
        network.is_cut = False
        assert await network.append(batch) == Duplicate(landed, True)
        assert await _keys(holder) == ["paid"]


async def test_the_old_backend_commits_after_the_second_offer(harness: ContractHarness) -> None:
    async with harness.open() as world:
        await begin(world, "r")
        holder, network = await hold(world, "r"), DelayingWorld(world)
        batch = holder.batch(holder.outcome("paid"))
        network.is_cut = True
        assert isinstance(await network.append(batch), Unknown)
        network.is_cut = False
        again = committed(await network.append(batch))
        assert await network.land() == [Duplicate(again, True)]
        assert await _keys(holder) == ["paid"]


async def test_an_unanswered_submit_is_one_turn(harness: ContractHarness) -> None:
    async with harness.open() as world:
        network = DelayingWorld(world)
        network.is_cut = True
        first = submit("r")
        assert isinstance(await network.append(first), Unknown)
        assert await world.run("r") is None, "a read says absent"
        network.is_cut = False
        committed(await network.append(submit("r")))  # the client asks again, under another batch id
        (late,) = await network.land()
        assert isinstance(late, Duplicate)
        info = await world.run("r")
        assert info is not None
        assert (info.head, info.turns) == (2, 1)


async def test_an_unanswered_batch_holds_back_the_next(harness: ContractHarness) -> None:
    async with harness.open() as world:
        await begin(world, "r")
        holder, network = await hold(world, "r"), DelayingWorld(world)
        n = holder.batch(holder.outcome("n"))
        after = holder.batch(holder.outcome("n+1"), prev=n.id)
        network.is_cut = True
        assert isinstance(await network.append(n), Unknown)
        network.is_cut = False
        assert await network.append(after) == LogRegressed(2)
        await network.land()
        committed(await network.append(after))
        assert await _keys(holder) == ["n", "n+1"]


async def test_the_answer_to_an_intent_is_lost_and_another_takes_over(harness: ContractHarness) -> None:
    async with harness.open() as world, harness.open() as other:
        await begin(world, "r")
        holder, network = await hold(world, "r", lease_seconds=30), DelayingWorld(world)
        intent = holder.batch(holder.outcome("refund"))
        network.is_cut = True
        assert isinstance(await network.append(intent), Unknown)
        (landed,) = await network.land()
        await harness.advance(31)
        successor = await hold(other, "r")
        assert successor.claimed.head == 3
        network.is_cut = False
        assert isinstance(landed, Committed)
        assert await network.append(intent) == Duplicate(landed, False), "it is told, and does not act"


async def test_an_intent_that_lands_after_the_takeover_is_refused(harness: ContractHarness) -> None:
    async with harness.open() as world, harness.open() as other:
        await begin(world, "r")
        holder, network = await hold(world, "r", lease_seconds=30), DelayingWorld(world)
        intent = holder.batch(holder.outcome("refund"))
        network.is_cut = True
        assert isinstance(await network.append(intent), Unknown)
        await harness.advance(31)
        successor = await hold(other, "r")
        await successor.record("other")
        assert await network.land() == [StaleClaim(1, 2)]
        network.is_cut = False
        assert await network.append(intent) == StaleClaim(1, 2)
        assert await _keys(holder) == ["other"]


async def test_a_signal_offered_twice_answers_once(harness: ContractHarness) -> None:
    async with harness.open() as world:
        await begin(world, "r")
        network = DelayingWorld(world)
        network.is_cut = True
        await network.append(signal("r", "approve"))
        await network.append(signal("r", "approve"))
        first, second = await network.land()
        assert second == Duplicate(committed(first), True)


async def test_a_thousand_timers_are_due_at_once_after_a_time_without_workers(
    harness: ContractHarness,
) -> None:
    """FAULTS 20: each is given to one of those who come, once."""
    async with harness.open() as world, harness.open() as other:
        due = harness.clock.time() + 60  # type: ignore[attr-defined]  # ours have one
        offers = [world.append(submit(f"r{n}", due_at=due)) for n in range(1000)]
        for offered in offers:
            committed(await offered)
        assert await claim_all(world) == []
        await harness.advance(3600)
        found: list[str] = []

        async def take(at: World) -> None:
            while claimed := await claim_all(at, limit=50, lease_seconds=600):
                found.extend(one.claim.run for one in claimed)

        await asyncio.gather(*(take(at) for at in (world, other) * 2))
        assert sorted(found) == sorted(f"r{n}" for n in range(1000))


POISON: dict[str, Callable[[str], Any]] = {
    "a lone surrogate": lambda run: replace(raw(run, b"x"), turn="\ud800"),
    "a number that does not fit": lambda run: replace(raw(run, b"x"), checksum=2**64),
    "a body of the wrong type": lambda run: replace(raw(run, b"x"), body=["no", "bytes"]),
}


@pytest.mark.parametrize("harness", ["postgres", "redis", "cluster"], indirect=True)
@pytest.mark.parametrize("poison", POISON)
@pytest.mark.parametrize("place", [0, 57, 99])
async def test_one_poison_value_in_a_group_of_a_hundred(
    harness: ContractHarness, poison: str, place: int
) -> None:
    """FAULTS 5 and 54. (SQLite has its own, of what can come to it.)"""
    async with harness.open() as world:
        for number in range(100):
            await begin(world, f"r{number}")
        holders = [await hold(world, f"r{number}") for number in range(100)]
        batches = [holder.batch(holder.outcome()) for holder in holders]
        run = holders[place].run
        batches[place] = holders[place].batch(holders[place].outcome(), POISON[poison](run))
        answers = await asyncio.gather(*(offer(world, batch) for batch in batches), return_exceptions=True)
        refused = answers.pop(place)
        assert isinstance(refused, InvalidValue), refused
        assert all(isinstance(answer, Committed) for answer in answers)
        assert await seqs(world, run) == [1, 2], "nothing of it is there"
        await holders[place].record()


async def offer(world: World, batch: Batch) -> Answer:
    return await world.append(batch)

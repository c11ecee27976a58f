"""A store that is set back to an older copy of itself: a failover to a replica that lacks the tail, or a restore."""

import asyncio
from dataclasses import dataclass

import anyio

from journal.core.errors import WorldError
from journal.core.ports import Answer, Batch, LogRegressed, StaleClaim, Unknown, World
from journal.worlds.contract.harness import Holder, begin, hold, info_of, seqs, submit


@dataclass
class Copied:
    """What the copy has."""

    ahead: Holder
    """It will have appended more than the copy has."""
    expired: Holder
    """Its lease is over."""


@dataclass
class Tail:
    """What the copy has not."""

    successor: Holder
    run: str


async def begin_copied(world: World, *, runs: tuple[str, str] = ("ahead", "taken")) -> Copied:
    for run in runs:
        await begin(world, run)
    ahead = await hold(world, runs[0], lease_seconds=3.0)
    await ahead.record("copied#1")
    expired = await hold(world, runs[1], lease_seconds=0.01)
    await expired.record("copied#1")
    return Copied(ahead, expired)


async def go_on_alone(world: World, copy: Copied, *, run: str = "new") -> Tail:
    for number in range(3):
        await copy.ahead.record(f"lost#{number}")
    successor = await hold(world, copy.expired.run, lease_seconds=600)
    await successor.record("lost#1")
    await begin(world, run)
    return Tail(successor, run)


async def check_older_copy(world: World, copy: Copied, tail: Tail) -> None:
    """Whoever is ahead of the log is told, and so is who held what somebody else holds now under the same epoch."""
    ahead, successor = copy.ahead, tail.successor
    assert await settle(world, ahead.batch(ahead.outcome("next#1"))) == LogRegressed(3)
    assert await world.run(tail.run) is None
    other = await hold(world, successor.run)
    assert other.claim.epoch == successor.claim.epoch == 2
    assert other.claim != successor.claim
    assert await settle(world, successor.batch(successor.outcome("next#1"))) == StaleClaim(2, 2)
    await other.record("next#1")
    assert await seqs(world, other.run) == [1, 2, 3, 4]
    with anyio.fail_after(20):
        while not (
            claimed := await world.claim(
                worker="w", limit=1, lease_seconds=30, agents=None, reads=1, run=ahead.run
            )
        ).claimed:
            await asyncio.sleep(0.1)
    taken = Holder(world, claimed.claimed[0])
    await taken.record("next#1")
    assert await settle(world, ahead.batch(ahead.outcome("late#1"))) == StaleClaim(1, 2)
    assert await seqs(world, ahead.run) == [1, 2, 3, 4]
    assert await settle(world, submit(tail.run)) is not None
    assert (await info_of(world, tail.run)).head == 2


async def settle(world: World, batch: Batch) -> Answer:
    """Offer it until the door answers."""
    with anyio.fail_after(60):
        while True:
            try:
                if not isinstance(answer := await world.append(batch), Unknown):
                    return answer
            except WorldError:
                pass  # nobody has taken over yet
            await asyncio.sleep(0.05)

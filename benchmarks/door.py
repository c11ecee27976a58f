"""The door alone, without engine and handler: one record of 500 bytes a batch, under a claim."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter, time

import msgspec

from benchmarks.raw import ROW_BYTES
from journal.core.codec import seal
from journal.core.ids import BatchIds, new_batch_id
from journal.core.ports import Batch, Claim, Committed, Create, Held, Keyed, Submit, World
from journal.core.records import MIN_READER, CallOutcome, RunCreated, TurnSubmitted
from journal.worlds import open_world

DIGEST = bytes(16)
VALUE = b'"' + b"x" * (ROW_BYTES - 100) + b'"'


class Holder:
    """Holds one run, and appends to it as fast as the door answers."""

    def __init__(self, world: World, claim: Claim) -> None:
        self._world = world
        self._claim = claim
        self._ids = BatchIds()
        self._prev: bytes | None = None
        self._count = 0

    async def append(self) -> None:
        """One more record."""
        run = self._claim.run
        self._count += 1
        record = seal(run, CallOutcome(status="ok", value=VALUE), turn="start", key=f"step#{self._count}")
        batch = Batch(run, self._ids.next(), Held(self._claim, self._prev), (record,))
        answer = await self._world.append(batch)
        if not isinstance(answer, Committed):
            raise TypeError(f"the door answered {answer}")
        self._prev = batch.id

    async def fill(self, count: int, *, at_once: int = 500) -> None:
        """So many more records, many a batch."""
        run = self._claim.run
        for _ in range(count // at_once):
            records = tuple(
                seal(run, CallOutcome(status="ok", value=VALUE), turn="start", key=f"fill#{number}")
                for number in range(at_once)
            )
            batch = Batch(run, self._ids.next(), Held(self._claim, self._prev), records)
            answer = await self._world.append(batch)
            if not isinstance(answer, Committed):
                raise TypeError(f"the door answered {answer}")
            self._prev = batch.id

    async def append_for(self, seconds: float) -> int:
        """How many batches were answered within `seconds`."""
        begun, first = perf_counter(), self._count
        while perf_counter() - begun < seconds:
            await self.append()
        return self._count - first


@asynccontextmanager
async def holders(url: str, count: int) -> AsyncIterator[list[Holder]]:
    """`count` claimed runs in a fresh world."""
    async with open_world(url) as world:
        for number in range(count):
            await world.append(_begun(f"bench-{number}"))
        given = await world.claim(
            worker="bench", limit=count, lease_seconds=600, agents=None, reads=MIN_READER
        )
        if len(given.claimed) != count:
            raise ValueError(msgspec.json.encode(given))
        yield [Holder(world, claimed.claim) for claimed in given.claimed]


async def let_wait(url: str, count: int, *, at_once: int = 2_000) -> None:
    """So many runs that are due in a week: each has its place in every index, that of the queue too."""
    due_at = time() + 7 * 86_400.0
    async with open_world(url) as world:
        for first in range(0, count, at_once):
            numbers = range(first, min(first + at_once, count))
            answers = await asyncio.gather(
                *(world.append(_begun(f"waiting-{number}", due_at)) for number in numbers)
            )
            if not all(isinstance(answer, Committed) for answer in answers):
                raise TypeError(f"the door answered {set(answers)}")


def _begun(run: str, due_at: float | None = None) -> Batch:
    created = seal(run, RunCreated(agent="bench", nonce=bytes(16)))
    submitted = seal(run, TurnSubmitted(input=b"null", input_digest=DIGEST), turn="start")
    return Batch(
        run,
        new_batch_id(),
        Keyed("start", DIGEST),
        (submitted,),
        Create("bench", created, MIN_READER),
        queue=Submit("start", due_at=due_at),
    )


async def append_rate(team: list[Holder], seconds: float) -> float:
    """Appends a second of all holders at once."""
    begun = perf_counter()
    counts = await asyncio.gather(*(holder.append_for(seconds) for holder in team))
    return sum(counts) / (perf_counter() - begun)

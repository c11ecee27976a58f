"""Holders that append as fast as it goes, through whatever happens to the store."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio

from journal.core.ids import BatchIds
from journal.core.ports import Answer, Batch, Committed, Duplicate, Held, Progress, Unknown, World
from journal.core.records import Record
from journal.worlds.contract.harness import begin, hold, raw

LEASE_SECONDS = 600.0
PAUSE_SECONDS = 0.01


@dataclass
class Load:
    """What some holders did, and what they were told."""

    world: World
    acknowledged: dict[str, list[tuple[bytes, int, int]]] = field(default_factory=dict)
    """Run → (batch, first, last)."""
    unknown: int = 0
    duplicates: int = 0
    is_over: bool = False

    async def settle(self, batch: Batch) -> Answer:
        """Offer it until the door answers."""
        while isinstance(answer := await self.world.append(batch), Unknown):
            self.unknown += 1
            await asyncio.sleep(PAUSE_SECONDS)
        return answer

    async def work(self, run: str) -> None:
        """Submit a turn, claim it, and append until it is over."""
        await begin(self.world, run)
        holder = await hold(self.world, run, lease_seconds=LEASE_SECONDS)
        ids, prev = BatchIds(), None
        found = self.acknowledged.setdefault(run, [])
        while not self.is_over:
            records = (raw(run, b"intent", turn="t1", key="k"), raw(run, b"outcome" * 30, turn="t1", key="k"))
            batch = Batch(run, ids.next(), Held(holder.claim, prev), records, queue=Progress())
            answer = await self.settle(batch)
            if isinstance(answer, Duplicate):
                self.duplicates += 1
                assert answer.claim_valid
                answer = answer.original
            assert isinstance(answer, Committed), answer
            prev = batch.id
            found.append((batch.id, answer.first, answer.last))

    async def run(self, count: int, disturb: Callable[[], Awaitable[None]]) -> None:
        """Append for `count` runs while `disturb` does its worst. It begins once every run is held."""
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(self.work(f"r{number}"))
            while len(self.acknowledged) < count:
                await asyncio.sleep(0.005)
            await disturb()
            self.is_over = True

    async def until(self, count: int) -> None:
        """Wait for so many more acknowledged batches."""
        wanted = self.count() + count
        with anyio.fail_after(60):
            while self.count() < wanted:
                await anyio.sleep(0.005)

    def count(self) -> int:
        return sum(len(found) for found in self.acknowledged.values())

    async def check(self, world: World | None = None) -> int:
        """Nothing acknowledged is missing, nothing is there twice, nothing else is there. How many batches."""
        for run, found in self.acknowledged.items():
            records: list[Record] = []
            while page := await (world or self.world).read(run, after=len(records)):
                records += page
            assert [record.seq for record in records] == list(range(1, len(records) + 1))
            expected = [batch for batch, first, last in found for _ in range(first, last + 1)]
            assert [record.batch for record in records[2:]] == expected
            assert [seq for _, first, last in found for seq in range(first, last + 1)] == [
                record.seq for record in records[2:]
            ]
        return self.count()

"""Holders that append as fast as it goes, through whatever happens to the server."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from journal.core.ids import BatchIds
from journal.core.ports import Batch, Committed, Duplicate, Held, Progress, Unknown, World
from journal.worlds.contract.harness import Holder, begin, hold, raw

LEASE_SECONDS = 600.0


@dataclass
class Load:
    """What some holders did, and what they were told."""

    world: World
    acknowledged: dict[str, list[tuple[bytes, int]]] = field(default_factory=dict)
    """Of each run: batch ids and the seq of their last record, as answered."""
    unknown: int = 0
    duplicates: int = 0
    stop: bool = False

    async def run(self, count: int, disturb: Callable[[], Awaitable[None]]) -> None:
        """Append for `count` runs while `disturb` does its worst."""
        holders = []
        for number in range(count):
            await begin(self.world, f"r{number}")
            holders.append(await hold(self.world, f"r{number}", lease_seconds=LEASE_SECONDS))
        async with asyncio.TaskGroup() as group:
            for holder in holders:
                group.create_task(self._work(holder))
            await disturb()
            self.stop = True

    async def _work(self, holder: Holder) -> None:
        ids, prev = BatchIds(), None
        told = self.acknowledged.setdefault(holder.run, [])
        while not self.stop:
            records = (raw(holder.run, b"x" * 250), raw(holder.run, b"y" * 250))
            batch = Batch(holder.run, ids.next(), Held(holder.claim, prev), records, queue=Progress())
            answer = await self.world.append(batch)
            while isinstance(answer, Unknown):
                self.unknown += 1
                await asyncio.sleep(0.01)
                answer = await self.world.append(batch)
            if isinstance(answer, Duplicate):
                self.duplicates += 1
                assert answer.claim_valid
                answer = answer.original
            assert isinstance(answer, Committed), answer
            told.append((batch.id, answer.last))
            prev = batch.id

    async def check(self, world: World) -> int:
        """Nothing acknowledged is lost, nothing is there twice; how many batches that were."""
        total = 0
        for run, told in self.acknowledged.items():
            records = await world.read(run, limit=1_000_000)
            assert [record.seq for record in records] == list(range(1, len(records) + 1))
            batches = [record.batch for record in records[2:]]
            assert batches[::2] == batches[1::2], "a batch is whole"
            assert len(set(batches)) * 2 == len(batches), "no batch is there twice"
            assert batches[::2] == [batch for batch, _ in told]
            assert [last for _, last in told] == list(range(4, len(records) + 1, 2))
            total += len(told)
        return total

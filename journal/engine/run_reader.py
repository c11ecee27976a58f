"""What the application reads of a run, and changes at just the head that it has read."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from journal.core.clock import Clock
from journal.core.codec import Blob, seal
from journal.core.errors import InvalidOptions, RunGone, RunNotFound
from journal.core.ids import new_batch_id, new_token
from journal.core.ports import Batch, HeadMoved, Keyed, World
from journal.core.records import Body, Record
from journal.engine.offering import offer
from journal.engine.snapshots import PAGE, Reader, before_turn
from journal.replay.snapshot import Folded

if TYPE_CHECKING:
    from journal.engine.journal import Journal

UPDATE_SECONDS = 30.0
"""How long an edit looks for its place between those of others."""
_chance = random.SystemRandom()


class RunReader:
    """What one run's records come to, read as far as its log went."""

    def __init__(self, world: World, run: str) -> None:
        self.world = world
        self.run = run
        self._reader = Reader(world, run)

    @property
    def folded(self) -> Folded:
        """What stands by what was read."""
        return self._reader.folded

    @property
    def head(self) -> int:
        """Seq of the last record that was read."""
        return self._reader.head

    async def add(self, record: Record) -> None:
        """Take in the next record."""
        await self._reader.add((record,))

    async def read_on(self, upto: int | None = None) -> None:
        """Read what is new, up to record `upto`. Raises `RunNotFound` and `RunGone`."""
        if upto is not None and not (type(upto) is int and upto >= 1):
            raise InvalidOptions(f"upto={upto!r}: a record of the log, and those are numbered from 1")
        if self.head == 0 and upto is None:
            await self._begin()
        else:
            await self._go_on(upto)
        if self.head == 0:
            info = await self.world.run(self.run)
            if info is not None and info.moved_to is not None:
                raise RunGone(run_id=self.run, to=info.moved_to)
            raise RunNotFound(run_id=self.run, world=self.world.url)
        if upto is not None and upto > self.head:
            raise InvalidOptions(f"upto={upto}: the log of run {self.run!r} ends with record {self.head}")

    async def _begin(self) -> None:
        """Read from the latest snapshot on."""
        info = await self.world.run(self.run)
        after = 0 if info is None else info.head
        if info is not None and info.turn is not None:
            turn = await self.world.turn(self.run, info.turn)
            after = after if turn is None else turn.submitted
        await self._reader.read(before_turn(after))

    async def _go_on(self, upto: int | None) -> None:
        while limit := PAGE if upto is None else max(0, min(PAGE, upto - self.head)):
            page = await self.world.read(self.run, after=self.head, limit=limit)
            await self._reader.add(page)
            if len(page) < limit:
                break

    async def append(
        self,
        kind: str,
        make: Callable[[], Awaitable[tuple[Body, tuple[Blob, ...]]]],
        clock: Clock,
        busy: Callable[[], Exception],
    ) -> None:
        """Append what `make` makes of all that is in the log; it is made again where somebody else came first.

        Raises what `busy` gives after `UPDATE_SECONDS`.
        """
        until = clock.boottime() + UPDATE_SECONDS
        while True:
            await self.read_on()
            body, blobs = await make()
            author = Keyed(f"{kind}:{new_token().hex()}", b"")
            record = seal(self.run, body)
            batch = Batch(self.run, new_batch_id(), author, (record,), at_head=self.head, blobs=blobs)
            if not isinstance(await offer(self.world, batch, clock), HeadMoved):
                return
            if clock.boottime() > until:
                raise busy()
            await asyncio.sleep(_chance.uniform(0, 0.005))


async def reader_of(journal: "Journal", run_id: str) -> RunReader:
    """A reader of that run of the journal's store."""
    return RunReader((await journal.runtime()).world, run_id)

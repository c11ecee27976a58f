"""What the application reads of a run, and changes at just the head that it has read."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from journal.core.clock import Clock
from journal.core.codec import Blob, seal
from journal.core.errors import InvalidOptions, RunGone, RunNotFound
from journal.core.ids import new_batch_id, new_token
from journal.core.ports import Batch, HeadMoved, Keyed, World
from journal.core.records import Body, Record
from journal.engine.offering import offer

if TYPE_CHECKING:
    from journal.engine.journal import Journal

UPDATE_SECONDS = 30.0
"""How long an edit looks for its place between those of others."""
_PAGE = 500
_chance = random.SystemRandom()


class Fold(Protocol):
    """What records come to."""

    def add(self, record: Record, /) -> None:
        """Take in the next record."""
        ...


F = TypeVar("F", bound=Fold)


class RunReader(Generic[F]):
    """A fold of one run, read as far as its log went."""

    def __init__(self, world: World, run: str, fold: F) -> None:
        self.world = world
        self.run = run
        self.fold = fold
        self.head = 0

    def add(self, record: Record) -> None:
        """Take in the next record."""
        self.fold.add(record)
        self.head = record.seq

    async def read_on(self, upto: int | None = None) -> Record | None:
        """Read what is new, up to record `upto`; the last one. Raises `RunNotFound` and `RunGone`."""
        if upto is not None and upto < 1:
            raise InvalidOptions(f"at={upto}: records are numbered from 1")
        last: Record | None = None
        while limit := _PAGE if upto is None else max(0, min(_PAGE, upto - self.head)):
            page = await self.world.read(self.run, after=self.head, limit=limit)
            for last in page:
                self.add(last)
            if len(page) < limit:
                break
        if self.head == 0:
            info = await self.world.run(self.run)
            if info is not None and info.moved_to is not None:
                raise RunGone(run_id=self.run, to=info.moved_to)
            raise RunNotFound(run_id=self.run, world=self.world.url)
        return last

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


async def reader_of(journal: "Journal", run_id: str, fold: F) -> RunReader[F]:
    """A reader of that run of the journal's store."""
    return RunReader((await journal.runtime()).world, run_id, fold)

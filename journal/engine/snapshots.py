"""What a run's records come to, read from its latest snapshot on: who finds one, who reads on from it, who makes one.

Every attempt that folds the log says in its `turn.started` which snapshot it began with, and again in `turn.finished`,
where the next turn looks for it. Has it read many records since, it makes another: of what stood when the turn began,
from what it read and nothing else. A snapshot that is missing, damaged or of a later format is as good as none.
"""

import asyncio
from collections.abc import Callable, Iterable

from journal.core.codec import Blob, open_record
from journal.core.errors import LogError
from journal.core.records import Record, Snapshot, TurnFinished, TurnStarted
from journal.engine.digest import Source
from journal.engine.log import logger
from journal.replay.snapshot import MOST_BYTES, Folded, SnapshotOutdated, restored

PAGE = 500
_BACK = 20
"""Records before a turn among which a snapshot is looked for: the end of the turn before, and what came in between."""


def before_turn(submitted: int) -> int:
    """Behind which record a snapshot is looked for, for a turn that was submitted there."""
    return max(0, submitted - 1 - _BACK)


def _ignore(_: object) -> None:
    """Nobody wants the records themselves."""


class Reader:
    """Folds one run as it reads it.

    `turn` is who wants to know, as of when it began: no snapshot that covers records of its work serves it. None: of
    interest is only what stands.
    """

    def __init__(self, source: Source, run: str, *, turn: str | None = None) -> None:
        self.folded = Folded()
        self.head = 0
        """Seq of the last record that was taken in."""
        self.snapshot: Snapshot | None = None
        """That with which it began, or the one that it made."""
        self.made: Blob | None = None
        """The bytes of that."""
        self._source = source
        self._run = run
        self._turn = turn
        self._has_begun = False
        """Whether the turn's work was seen."""

    async def read(self, after: int, give: Callable[[list[Record]], object] = _ignore) -> None:
        """Take in all there is, with a snapshot that is named soon behind record `after` where one serves.

        `give` is given the records behind that one. Raises what reading raises.
        """
        page = await self._source.read(self._run, after=after, limit=PAGE)
        if after:
            await self._begin_with(self._latest(page))
        self.head = self.folded.covered
        await self._read_on(after)
        while True:
            await self.add(page)
            give(page)
            if len(page) < PAGE:
                break
            await asyncio.sleep(0)
            page = await self._source.read(self._run, after=page[-1].seq, limit=PAGE)
        self._make(self.head)

    async def add(self, records: Iterable[Record]) -> None:
        """Take in the next ones."""
        for record in records:
            if record.seq <= self.head:
                continue
            if record.type == TurnStarted.TYPE and record.turn == self._turn:
                self._make(self.head)
            try:
                self.folded.add(record)
            except SnapshotOutdated:
                await self._begin_again()
                self.folded.add(record)
            self.head = record.seq

    async def _read_on(self, upto: int) -> None:
        while self.head < upto:
            limit = min(PAGE, upto - self.head)
            page = await self._source.read(self._run, after=self.head, limit=limit)
            await self.add(page)
            if len(page) < limit:
                break
            await asyncio.sleep(0)

    async def _begin_again(self) -> None:
        upto, self.head = self.head, 0
        self.folded, self.snapshot = Folded(), self.snapshot if self.made else None
        await self._read_on(upto)

    def _make(self, upto: int) -> None:
        """The snapshot of what stood when the turn began, if it pays."""
        if self._turn is None or self._has_begun:
            return
        self._has_begun = True
        if self.folded.is_due(upto - self.folded.covered):
            self.snapshot, self.made = self.folded.snapshot(upto)

    def _latest(self, records: Iterable[Record]) -> Snapshot | None:
        """Of those that `records` name, the latest that serves."""
        found: Snapshot | None = None
        has_begun = False
        for record in records:
            is_own = record.turn == self._turn
            if record.type not in (TurnStarted.TYPE, TurnFinished.TYPE) or (has_begun and not is_own):
                continue
            has_begun = has_begun or is_own
            try:
                body = open_record(record)
            except LogError:
                continue  # whoever needs that record will say so
            assert isinstance(body, TurnStarted | TurnFinished)
            named = body.snapshot
            if (
                named is not None
                and 0 < named.upto < record.seq
                and (found is None or found.upto < named.upto)
            ):
                found = named
        return found

    async def _begin_with(self, snapshot: Snapshot | None) -> None:
        if snapshot is None or snapshot.size > MOST_BYTES:
            return
        reason = "it is damaged, or of a later format"
        try:
            folded = restored(snapshot, await self._source.get_blob(self._run, snapshot.blob))
        except LogError as error:
            folded, reason = None, str(error)
        if folded is None:
            logger().warning("a snapshot is not read", run=self._run, record=snapshot.upto, reason=reason)
        else:
            self.folded, self.snapshot = folded, snapshot

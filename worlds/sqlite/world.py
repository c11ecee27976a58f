"""The SQLite world: the ports, put together from the parts of this folder.

Writes go through `writer.py` in groups; reads are short statements on connections of their own; waiting is
`bells.py`. The world belongs to the event loop that opened it.
"""

import asyncio
import json
import os
import sqlite3
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

import anyio
from anyio import to_thread
from msgspec.structs import replace

from journal.core.clock import Clock
from journal.core.codec import Blob
from journal.core.errors import RunGone, WorldUnavailable
from journal.core.ports import (
    START,
    AgentStats,
    Answer,
    Batch,
    Claim,
    Claims,
    Delta,
    Item,
    RunImage,
    RunInfo,
    RunQuery,
    SweepPolicy,
    TurnInfo,
    WorkerInfo,
    parse_offset,
)
from journal.core.records import Record
from journal.worlds.sqlite import roster
from journal.worlds.sqlite.bells import Bells, Signs, look_around_with
from journal.worlds.sqlite.claims import Search, Taking, wish
from journal.worlds.sqlite.connection import StoreFile, connect, world_error
from journal.worlds.sqlite.deltas import Publishing
from journal.worlds.sqlite.locks import Holder
from journal.worlds.sqlite.reads import CHUNK, Page, Reader
from journal.worlds.sqlite.renewer import SqliteRenewer
from journal.worlds.sqlite.statements import SQL
from journal.worlds.sqlite.sweep import Sweep
from journal.worlds.sqlite.transaction import Transactor
from journal.worlds.sqlite.transfer import Lease, Transfers, read_image
from journal.worlds.sqlite.writer import GROUP_ROWS, Writer

NOTES = ("not multi_host: it is a file of one host; postgresql:// and redis:// serve many",)
CAPABILITIES = frozenset(
    {
        "log.persistent",
        # One file, no replica: there is no failover that could lose an acknowledged tail.
        "log.survives_failover",
        "multi_process",
        "retention",
        "stream.deltas",
    }
)
INLINE_BUSY_SECONDS = 0.25
"""How long a read in the event loop waits for a lock; readers meet one only while a log is being recovered."""

T = TypeVar("T")


class SqliteWorld:
    """A `World` over one file, bound to one namespace and to the event loop that opened it."""

    def __init__(
        self,
        transactor: Transactor,
        holder: Holder,
        *,
        path: Path,
        url: str,
        namespace: str,
        clock: Clock,
        busy_seconds: float,
    ) -> None:
        self.url = url
        self.namespace = namespace
        self.capabilities = CAPABILITIES
        self.notes: tuple[str, ...] = NOTES
        self._path = path
        self._clock = clock
        self._busy_seconds = busy_seconds
        self._is_open = True
        self._file = StoreFile(path, url)
        self._reads = connect(path, busy_seconds=INLINE_BUSY_SECONDS)
        self._spare: list[sqlite3.Connection] = []
        door = transactor.door
        self._search = Search(namespace, clock, holder)
        self._taking = Taking(door, self._search, holder)
        self._publishing = Publishing(door)
        self._sweep = Sweep(door)
        self._transfers = Transfers(door, url)
        self._roster = roster.Roster(door)
        self._reader = Reader(namespace, url)
        self._bells = Bells(look_around_with(transactor, self._file, lambda: writer.is_busy))
        self._bells.read_signs = signs_reader(self._reads, namespace)
        self._bells.find_dead = _dead_finder(self._reads, self._search)
        writer = Writer(
            transactor,
            busy_seconds=busy_seconds,
            on_change=self._bells.ring,
            on_append=self._bells.ring_run,
        )
        self._writer = writer
        self._holder = holder
        self._work_seen = 0
        self._finalizer = weakref.finalize(
            self, _let_go, os.getpid(), writer, holder, self._reads, self._spare
        )

    # Log

    def append(self, batch: Batch) -> "asyncio.Future[Answer]":
        """See `Log.append`."""
        return self._writer.append(batch)

    async def read(self, run: str, *, after: int = 0, limit: int = 500) -> list[Record]:
        """See `Log.read`. In short pieces, between which the event loop turns."""
        after = max(after, 0)
        found: list[Record] = []
        while True:
            wanted = min(CHUNK, limit - len(found))
            piece = self._read_some(run, after + len(found), wanted)
            found += piece
            if len(piece) < CHUNK or len(found) >= limit:
                return found
            await asyncio.sleep(0)

    def _read_some(self, run: str, after: int, limit: int) -> list[Record]:
        def read(connection: sqlite3.Connection) -> list[Record]:
            place = self._reader.find(connection, run, self._clock.time())
            return self._reader.records(connection, place, run, after, limit) if limit > 0 else []

        return self._inline(read)

    async def run(self, run: str) -> RunInfo | None:
        """See `Log.run`."""
        return self._inline(lambda connection: self._reader.info(connection, run, self._clock.time()))

    async def turn(self, run: str, turn: str) -> TurnInfo | None:
        """See `Log.turn`."""

        def read(connection: sqlite3.Connection) -> TurnInfo | None:
            place = self._reader.look(connection, run, self._clock.time())
            return None if place is None else self._reader.turn(connection, place, turn)

        return self._inline(read)

    async def runs(self, query: RunQuery) -> list[RunInfo]:
        """See `Log.runs`."""
        return await self._aside(lambda connection: self._reader.list(connection, query))

    async def get_blob(self, run: str, blob: str) -> bytes:
        """See `Log.get_blob`."""
        now = self._clock.time()
        return await self._aside(lambda connection: self._reader.blob(connection, run, blob, now))

    async def sweep(self, policy: SweepPolicy) -> int:
        """See `Log.sweep`."""
        return await self._sweep.run(policy, self._submit_alone)

    # Transfer

    async def image(self, run: str) -> RunImage:
        """See `Transfer.image`."""
        now = self._clock.time()

        def read(connection: sqlite3.Connection) -> tuple[RunImage, Lease | None]:
            return read_image(connection, self.namespace, run, now=now, url=self.url)

        image, lease = await self._aside(read)
        is_held = lease is not None and self._search.lease_left(*lease) > 0
        return replace(image, held=is_held, abandoned=lease is not None and not is_held)

    async def build(self, image: RunImage, records: Sequence[Record], blobs: Sequence[Blob]) -> int:
        """See `Transfer.build`."""
        head: int = await self._submit_alone(self._transfers.build, (image, records, blobs))
        return head

    async def settle(self, run: str, *, is_live: bool) -> None:
        """See `Transfer.settle`."""
        await self._submit_alone(self._transfers.settle, (run, is_live))

    # Queue

    async def claim(
        self,
        *,
        worker: str,
        limit: int,
        lease_seconds: float,
        agents: Collection[str] | None,
        reads: int,
        run: str | None = None,
    ) -> Claims:
        """See `Queue.claim`. While nothing can be claimed, writers are not disturbed."""
        asked = wish(limit=limit, lease_seconds=lease_seconds, agents=agents, reads=reads, run=run)
        seen = self._bells.work_count
        self._file.check_identity()
        found = self._inline(lambda connection: self._search.find(connection, asked))
        claims = Claims((), found.next_seconds)
        if found.rids and limit > 0:
            claims = await self._writer.submit(self._taking.claim, asked, rows=limit, size=0)
        if run is None:
            self._work_seen = seen
        return claims

    def open_renewer(self) -> SqliteRenewer:
        """See `Queue.open_renewer`."""
        self._check_open()
        try:
            return SqliteRenewer(
                self._path,
                url=self.url,
                namespace=self.namespace,
                clock=self._clock,
                busy_seconds=self._busy_seconds,
            )
        except sqlite3.Error as error:
            raise world_error(error, self.url) from error

    async def wait_for_work(self, timeout_seconds: float) -> None:
        """See `Queue.wait_for_work`. Work that came between the last claim and this ends it at once, once."""
        if self._is_open:
            self._bells.notice()
        if self._is_open and self._work_seen == self._bells.work_count:
            with self._bells.listen_for_work() as bell, anyio.move_on_after(timeout_seconds):
                await bell.wait()
        else:
            await asyncio.sleep(0)
        self._work_seen = self._bells.work_count

    async def beat(self, info: WorkerInfo) -> None:
        """See `Queue.beat`."""
        await self._writer.submit(self._roster.beat, info, rows=1, size=0, is_lazy=True)

    async def leave(self, worker: str) -> None:
        """See `Queue.leave`."""
        await self._writer.submit(self._roster.leave, worker, rows=1, size=0, is_lazy=True)

    async def workers(self) -> list[WorkerInfo]:
        """See `Queue.workers`."""
        return self._inline(lambda connection: roster.workers(connection, self.namespace, self._clock.time()))

    async def stats(self) -> list[AgentStats]:
        """See `Queue.stats`."""
        now = self._clock.time()
        return await self._aside(lambda connection: roster.stats(connection, self.namespace, now))

    # Stream

    async def publish(self, claim: Claim, deltas: Sequence[Delta]) -> bool:
        """See `Stream.publish`."""
        size = sum(len(delta.data) for delta in deltas)
        is_held: bool = await self._writer.submit(
            self._publishing.publish, (claim, deltas), rows=len(deltas) + 1, size=size, is_lazy=True
        )
        return is_held

    async def follow(self, run: str, *, offset: str = START) -> AsyncIterator[Item]:
        """See `Stream.follow`. A slow reader takes page after page at its own pace; nothing is kept for it."""
        place = parse_offset(offset)
        with self._bells.listen(run) as bell:
            while True:
                # Listen, then look: what lands between the look and the wait rings the bell.
                bell.clear()
                page = self._page(run, place)
                for item in page.items:
                    place = (item.seq, item.sub if isinstance(item, Delta) else 0)
                    yield item
                if page.is_over and page.moved_to is not None:
                    raise RunGone(run_id=run, to=page.moved_to)
                if page.is_over:
                    return
                if page.has_all:
                    await bell.wait()

    def _page(self, run: str, place: tuple[int, int]) -> Page:
        self._file.check_identity()
        return self._inline(lambda connection: self._reader.page(connection, run, place, self._clock.time()))

    async def aclose(self) -> None:
        """See `World.aclose`. Followers of this world are told that it was closed."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            with anyio.CancelScope(shield=True):
                await self._bells.aclose()
                await self._writer.aclose()
        finally:
            self._finalizer()

    # How statements are run

    def _inline(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """A short read, in the event loop: a change of thread would cost more."""
        self._check_open()
        try:
            return read(self._reads)
        except sqlite3.Error as error:
            raise world_error(error, self.url) from error

    async def _aside(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """A read that may take long, on a worker thread."""
        self._check_open()

        def run() -> T:
            connection = (
                self._spare.pop() if self._spare else connect(self._path, busy_seconds=self._busy_seconds)
            )
            try:
                return read(connection)
            finally:
                if self._is_open:
                    self._spare.append(connection)
                else:
                    connection.close()

        try:
            return await to_thread.run_sync(run)
        except sqlite3.Error as error:
            raise world_error(error, self.url) from error

    def _submit_alone(self, apply: Callable[[Any], Any], argument: object) -> "asyncio.Future[Any]":
        return self._writer.submit(apply, argument, rows=GROUP_ROWS, size=0)

    def _check_open(self) -> None:
        if not self._is_open:
            raise WorldUnavailable("it was closed here: open it again", world=self.url)


def signs_reader(connection: sqlite3.Connection, namespace: str) -> Callable[[list[str]], Signs]:
    """How far runs have come, by that connection."""

    def read(runs: list[str]) -> Signs:
        rows = connection.execute(SQL["signs"], (json.dumps(runs), namespace)).fetchall()
        return {row[0]: row[1:] for row in rows}

    return read


def _dead_finder(connection: sqlite3.Connection, search: Search) -> Callable[[], frozenset[int]]:
    return lambda: frozenset(search.dead_holders(connection))


def _let_go(
    pid: int, writer: Writer, holder: Holder, reads: sqlite3.Connection, spare: list[sqlite3.Connection]
) -> None:
    """Close what `aclose` has not: also the end of a world whose event loop was closed before it."""
    if os.getpid() != pid:
        return  # a forked child: the connections are its parent's, and must not even be closed here
    writer.stop()
    holder.close()
    reads.close()
    while spare:
        spare.pop().close()

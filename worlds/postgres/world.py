"""The Postgres world: the ports, put together from the parts of this folder.

Appends go through `writer.py` in groups; reads and claims are single statements on a small pool; waiting is
`bells.py`. The world belongs to the event loop that opened it.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence

import anyio

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
from journal.worlds.postgres.address import Address
from journal.worlds.postgres.bells import WORK_SECONDS, Bells, Signs
from journal.worlds.postgres.capabilities import Findings
from journal.worlds.postgres.claims import Claiming
from journal.worlds.postgres.listening import Listener, Ringer
from journal.worlds.postgres.places import Places
from journal.worlds.postgres.pool import Pool
from journal.worlds.postgres.reads import Reader
from journal.worlds.postgres.renewer import PostgresRenewer
from journal.worlds.postgres.roster import Roster
from journal.worlds.postgres.sweep import Sweep
from journal.worlds.postgres.transfer import Transfers
from journal.worlds.postgres.writer import Connection, Writer


class PostgresWorld:
    """A `World` over one schema of a server, bound to one namespace and to the event loop that opened it."""

    def __init__(
        self,
        connection: Connection,
        address: Address,
        *,
        namespace: str,
        clock: Clock | None,
        findings: Findings,
    ) -> None:
        self.url = address.url
        self.namespace = namespace
        self.capabilities = findings.capabilities
        self.notes = findings.notes
        """Why it does not declare more."""
        self._address = address
        self._clock = clock
        self._is_open = True
        self._places = Places(namespace)
        self._pool = Pool(address)
        # Through a pooler one can be heard, and does not hear.
        is_listening = address.is_notified and not address.is_pooled
        listener = Listener(address, namespace) if is_listening else None
        self._reader = Reader(self._pool, namespace, address.url, clock, listener)
        self._claiming = Claiming(self._pool, self._places, clock)
        self._sweep = Sweep(self._pool, namespace, clock)
        self._transfers = Transfers(self._pool, self._reader, self._places, address.url)
        self._roster = Roster(self._pool, namespace, clock)
        self._ringer = Ringer(address, namespace) if address.is_notified else None
        self._bells = Bells(self._places, self._read_signs, listener)
        self._writer = Writer(connection, address, self._places, clock=clock, on_change=self._ring)
        self._work_seen = 0

    async def prepare(self) -> None:
        """Make the connection that it was given ready for appends."""
        await self._writer.prepare()

    # Log

    def append(self, batch: Batch) -> "asyncio.Future[Answer]":
        """See `Log.append`."""
        return self._writer.append(batch)

    async def read(self, run: str, *, after: int = 0, limit: int = 500) -> list[Record]:
        """See `Log.read`."""
        self._check_open()
        return await self._reader.records(run, max(after, 0), limit)

    async def run(self, run: str) -> RunInfo | None:
        """See `Log.run`."""
        self._check_open()
        return await self._reader.info(run)

    async def turn(self, run: str, turn: str) -> TurnInfo | None:
        """See `Log.turn`."""
        self._check_open()
        return await self._reader.turn(run, turn)

    async def runs(self, query: RunQuery) -> list[RunInfo]:
        """See `Log.runs`."""
        self._check_open()
        return await self._reader.list(query)

    async def get_blob(self, run: str, blob: str) -> bytes:
        """See `Log.get_blob`."""
        self._check_open()
        return await self._reader.blob(run, blob)

    async def sweep(self, policy: SweepPolicy) -> int:
        """See `Log.sweep`."""
        self._check_open()
        gone = await self._sweep.run(policy)
        if gone:
            self._bells.ring_all()
        return len(gone)

    # Transfer

    async def image(self, run: str) -> RunImage:
        """See `Transfer.image`."""
        self._check_open()
        return await self._transfers.image(run)

    async def build(self, image: RunImage, records: Sequence[Record], blobs: Sequence[Blob]) -> int:
        """See `Transfer.build`."""
        self._check_open()
        head = await self._transfers.build(image, records, blobs)
        self._ring([image.run], False)
        return head

    async def settle(self, run: str, *, is_live: bool) -> None:
        """See `Transfer.settle`."""
        self._check_open()
        is_due = await self._transfers.settle(run, is_live=is_live)
        self._ring([run], is_due)

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
        """See `Queue.claim`."""
        self._check_open()
        seen = self._bells.work_count
        claims = await self._claiming.claim(
            limit=limit, lease_seconds=lease_seconds, agents=agents, reads=reads, run=run
        )
        if claims.claimed:
            names = [claimed.claim.run for claimed in claims.claimed]
            is_more_left = claims.next_due_seconds == 0
            self._ring(names, is_more_left)  # for whoever came too late for the first bell
        if run is None:
            self._work_seen = seen
        return claims

    def open_renewer(self) -> PostgresRenewer:
        """See `Queue.open_renewer`. It connects when it is first used."""
        self._check_open()
        return PostgresRenewer(self._address, self.namespace, self._clock)

    async def wait_for_work(self, timeout_seconds: float) -> None:
        """See `Queue.wait_for_work`. Work that came between the last claim and this ends it at once, once."""
        if self._is_open and self._work_seen == self._bells.work_count:
            with self._bells.listen_for_work() as bell:
                with anyio.move_on_after(min(timeout_seconds, WORK_SECONDS)):
                    await bell.wait()
        else:
            await asyncio.sleep(0)
        self._work_seen = self._bells.work_count

    async def beat(self, info: WorkerInfo) -> None:
        """See `Queue.beat`."""
        self._check_open()
        await self._roster.beat(info)

    async def leave(self, worker: str) -> None:
        """See `Queue.leave`."""
        self._check_open()
        await self._roster.leave(worker)

    async def workers(self) -> list[WorkerInfo]:
        """See `Queue.workers`."""
        self._check_open()
        return await self._roster.workers()

    async def stats(self) -> list[AgentStats]:
        """See `Queue.stats`."""
        self._check_open()
        return await self._roster.stats()

    # Stream

    async def publish(self, claim: Claim, deltas: Sequence[Delta]) -> bool:
        """See `Stream.publish`."""
        return await self._writer.publish(claim, list(deltas))

    async def follow(self, run: str, *, offset: str = START) -> AsyncIterator[Item]:
        """See `Stream.follow`. A slow reader takes page after page at its own pace; nothing is kept for it."""
        place = parse_offset(offset)
        with self._bells.listen(run) as bell:
            while True:
                # Listen, then look: what lands between the look and the wait rings the bell.
                bell.clear()
                self._check_open()
                page = await self._reader.page(run, place)
                for item in page.items:
                    place = (item.seq, item.sub if isinstance(item, Delta) else 0)
                    yield item
                if page.is_over and page.moved_to is not None:
                    raise RunGone(run_id=run, to=page.moved_to)
                if page.is_over:
                    return
                if page.has_all:
                    await bell.wait()

    async def aclose(self) -> None:
        """See `World.aclose`. Followers of this world are told that it was closed."""
        if not self._is_open:
            return
        self._is_open = False
        with anyio.CancelScope(shield=True):
            await self._bells.aclose()
            await self._writer.aclose()
            if self._ringer is not None:
                await self._ringer.aclose()
            await self._pool.aclose()

    # What others are told

    def _ring(self, runs: list[str], has_work: bool) -> None:
        self._bells.ring(runs, has_work)
        if self._ringer is not None:
            self._ringer.ring([self._places.lock(run) for run in runs], has_work)

    async def _read_signs(self, runs: list[str]) -> Signs:
        rows = await self._pool.fetch("signs", {"namespace": self.namespace, "runs": runs})
        return {row[0]: row[1:] for row in rows}

    def _check_open(self) -> None:
        if not self._is_open:
            raise WorldUnavailable("it was closed here: open it again", world=self.url)

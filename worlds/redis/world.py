"""The Redis world: the ports, put together from the parts of this folder.

Everything but renewing goes over the wire (`wire.py`), and waiting is `bells.py`. The world belongs to
the event loop that opened it.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any

import anyio

from journal.core.clock import Clock
from journal.core.codec import Blob
from journal.core.errors import InvalidValue, RunGone, WorldUnavailable
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
from journal.worlds.redis.address import Address
from journal.worlds.redis.bells import BACKUP_SECONDS, Bells
from journal.worlds.redis.calls import Cut, ignored
from journal.worlds.redis.claims import Claiming, wish
from journal.worlds.redis.door import answer_reader, append_command
from journal.worlds.redis.keys import Keys
from journal.worlds.redis.library import function
from journal.worlds.redis.reads import CHUNK, Reader
from journal.worlds.redis.renewer import RedisRenewer
from journal.worlds.redis.roster import Roster
from journal.worlds.redis.server import Findings
from journal.worlds.redis.sweep import Sweep
from journal.worlds.redis.transfer import Transfers
from journal.worlds.redis.wire import Wire

_PUBLISH = function("publish")


class RedisWorld:
    """A `World` over one server, bound to one namespace and to the event loop that opened it."""

    def __init__(
        self, wire: Wire, address: Address, findings: Findings, *, namespace: str, clock: Clock | None
    ) -> None:
        self.url = address.shown
        self.namespace = namespace
        self.capabilities = findings.capabilities
        self.notes = findings.notes
        """Why it does not declare more."""
        self._address = address
        self._wire = wire
        self._clock = clock
        self._keys = Keys(address.prefix, namespace, address.partitions)
        self._reader = Reader(wire, self._keys, self._now, namespace=namespace, url=self.url)
        self._claiming = Claiming(wire, self._keys)
        self._sweep = Sweep(wire, self._keys)
        self._transfers = Transfers(wire, self._keys, self._reader, self._now, url=self.url)
        self._roster = Roster(wire, self._keys)
        self._bells = Bells(address, wire, self._keys.indexes)
        self._work_seen = 0
        self._is_open = True

    def _at(self) -> str:
        """The time for a function: empty, for the server's, unless a clock was given."""
        return "" if self._clock is None else repr(self._clock.time())

    async def _now(self) -> float:
        if self._clock is not None:
            return self._clock.time()
        seconds, micros = await self._wire.call(("TIME",))
        return int(seconds) + int(micros) / 1_000_000

    # Log

    def append(self, batch: Batch) -> "asyncio.Future[Answer]":
        """See `Log.append`."""
        try:
            command = append_command(batch, self._keys.of_run(batch.run), self._at())
            return self._wire.call(command, cut=Cut.UNKNOWN, decode=answer_reader(batch))
        except Exception as error:  # noqa: BLE001 - whatever cannot be encoded: the batch is at fault, and its author is told
            refusal = InvalidValue(
                what="batch", path="", reason=f"the store cannot take it ({type(error).__name__}: {error})"
            )
            refusal.__cause__ = error
            future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            future.set_exception(refusal)
            return future

    async def read(self, run: str, *, after: int = 0, limit: int = 500) -> list[Record]:
        """See `Log.read`. In pieces, between which the event loop turns."""
        after = max(after, 0)
        found: list[Record] = []
        while True:
            wanted = min(CHUNK, limit - len(found))
            piece = await self._reader.records(run, after + len(found), wanted)
            found += piece
            if len(piece) < CHUNK or len(found) >= limit:
                return found

    async def run(self, run: str) -> RunInfo | None:
        """See `Log.run`."""
        return await self._reader.info(run)

    async def turn(self, run: str, turn: str) -> TurnInfo | None:
        """See `Log.turn`."""
        return await self._reader.turn(run, turn)

    async def runs(self, query: RunQuery) -> list[RunInfo]:
        """See `Log.runs`."""
        return await self._reader.runs(query)

    async def get_blob(self, run: str, blob: str) -> bytes:
        """See `Log.get_blob`."""
        return await self._reader.blob(run, blob)

    async def sweep(self, policy: SweepPolicy) -> int:
        """See `Log.sweep`."""
        return await self._sweep.run(policy, await self._now(), self._at())

    # Transfer

    async def image(self, run: str) -> RunImage:
        """See `Transfer.image`."""
        return await self._transfers.image(run)

    async def build(self, image: RunImage, records: Sequence[Record], blobs: Sequence[Blob]) -> int:
        """See `Transfer.build`."""
        return await self._transfers.build(image, records, blobs, self._at())

    async def settle(self, run: str, *, is_live: bool) -> None:
        """See `Transfer.settle`."""
        await self._transfers.settle(run, is_live=is_live, at=self._at())

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
        asked = wish(limit=limit, lease_seconds=lease_seconds, agents=agents, reads=reads)
        if run is not None:
            return await self._claiming.claim_run(run, asked, self._at())
        await self._bells.hear_work()
        seen = self._bells.work_count
        claims, has_more = await self._claiming.claim(asked, self._at())
        if has_more and claims.claimed:
            # For whoever waits, and came too late for the first bell.
            ignored(self._wire.call(("SPUBLISH", self._keys.indexes[0], "")))
        elif not has_more:
            self._work_seen = seen
        return claims

    def open_renewer(self) -> RedisRenewer:
        """See `Queue.open_renewer`."""
        self._check_open()
        return RedisRenewer(self._address, self._keys, self._at)

    async def wait_for_work(self, timeout_seconds: float) -> None:
        """See `Queue.wait_for_work`. Work that came between the last claim and this ends it at once, once."""
        if self._is_open and self._work_seen == self._bells.work_count:
            with (
                self._bells.listen_for_work() as bell,
                anyio.move_on_after(min(timeout_seconds, BACKUP_SECONDS)),
            ):
                await self._bells.hear_work()
                await bell.wait()
        else:
            await asyncio.sleep(0)
        self._work_seen = self._bells.work_count

    async def beat(self, info: WorkerInfo) -> None:
        """See `Queue.beat`."""
        await self._roster.beat(info, self._at())

    async def leave(self, worker: str) -> None:
        """See `Queue.leave`."""
        await self._roster.leave(worker)

    async def workers(self) -> list[WorkerInfo]:
        """See `Queue.workers`."""
        return await self._roster.workers(self._at())

    async def stats(self) -> list[AgentStats]:
        """See `Queue.stats`."""
        return await self._roster.stats(self._at())

    # Stream

    async def publish(self, claim: Claim, deltas: Sequence[Delta]) -> bool:
        """See `Stream.publish`."""
        keys = self._keys.of_run(claim.run)
        parts: list[Any] = [b"FCALL", _PUBLISH, 2, keys.hash, keys.deltas, self._at()]
        parts += (claim.epoch, claim.token, keys.stream)
        for delta in deltas:
            parts += (f"{delta.number} {delta.call}", delta.data)
        return bool(await self._wire.call(tuple(parts), cut=Cut.FAILED))

    async def follow(self, run: str, *, offset: str = START) -> AsyncIterator[Item]:
        """See `Stream.follow`. A slow reader takes page after page at its own pace; nothing is kept for it."""
        place = parse_offset(offset)
        channel = self._keys.of_run(run).stream
        with self._bells.listen(channel) as bell:
            await self._bells.hear(channel)
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
                    with anyio.move_on_after(BACKUP_SECONDS):
                        await bell.wait()

    async def aclose(self) -> None:
        """See `World.aclose`. Followers of this world are told that it was closed."""
        if not self._is_open:
            return
        self._is_open = False
        with anyio.CancelScope(shield=True):
            await self._bells.aclose()
            await self._wire.aclose()

    def _check_open(self) -> None:
        if not self._is_open:
            raise WorldUnavailable("it was closed here: open it again", world=self.url)

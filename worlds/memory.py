"""The memory world: a real world, and the reference the others are compared with.

Everything the ports promise except persistence: what is in it dies with the process, and it says so by
declaring neither `log.persistent` nor `multi_process`. `memory:` is private to the one who opens it;
`memory:name` is one store for the whole process, on whatever event loop or thread, until `forget(name)`.
The rules live in `door.py` and `queue.py`; here is only where things are kept and who is told of them.
"""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl

import anyio
import anyio.lowlevel
from msgspec.structs import replace

from journal.core.clock import Clock, SystemClock
from journal.core.codec import Blob
from journal.core.errors import CorruptRecord, RunGone, RunNotFound, WorldUnavailable
from journal.core.ids import new_token
from journal.core.ports import (
    ROSTER_SECONDS,
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
    agents_match,
    parse_offset,
)
from journal.core.records import Record
from journal.worlds import memory_transfer
from journal.worlds.memory_bells import WORK, Key
from journal.worlds.memory_store import Run, Store
from journal.worlds.url_parameters import check_parameters

PAGE = 256
"""Items a follower takes at a time."""

NOTES = (
    "not log.persistent, log.survives_failover, multi_process, multi_host: it ends with its process; "
    "sqlite:path/to/file.db keeps it",
)
CAPABILITIES = frozenset({"retention", "stream.deltas"})

_shared: dict[str, Store] = {}


def forget(name: str) -> None:
    """Drop the store `memory:name`; worlds that have it open keep it until they close."""
    _shared.pop(name, None)


@asynccontextmanager
async def open_memory(
    url: str = "memory:", *, namespace: str = "default", clock: Clock | None = None
) -> AsyncIterator["MemoryWorld"]:
    """Open the memory world of `url`: `memory:` is private, `memory:name` is shared within the process."""
    name, _, query = url.partition(":")[2].partition("?")
    check_parameters(dict(parse_qsl(query, keep_blank_values=True)), (), world=url)
    store = _shared.setdefault(name, Store()) if name else Store()
    world = MemoryWorld(store, url=f"memory:{name}", namespace=namespace, clock=clock or SystemClock())
    try:
        yield world
    finally:
        await world.aclose()


class MemoryWorld:
    """A `World` over one `Store`, bound to one namespace. Belongs to the event loop that opened it."""

    def __init__(self, store: Store, *, url: str, namespace: str, clock: Clock) -> None:
        self.url = url
        self.namespace = namespace
        self.capabilities = CAPABILITIES
        self.notes = NOTES
        self._store = store
        self._clock = clock
        self._is_open = True
        self._work_seen = store.work_count

    # Log

    def append(self, batch: Batch) -> asyncio.Future[Answer]:
        """See `Log.append`. The batch is decided before this returns; the answer comes a pass of the loop later."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        if not self._is_open:
            future.set_exception(self._closed())
            return future
        answer = self._store.append((self.namespace, batch.run), batch, self._clock.time())
        # Not at once: a chain of appends that never suspends would starve every other task.
        loop.call_soon(_settle, future, answer)
        return future

    async def read(self, run: str, *, after: int = 0, limit: int = 500) -> list[Record]:
        """See `Log.read`."""
        with self._store.lock:
            return self._find(run).records[max(after, 0) : max(after, 0) + limit]

    async def run(self, run: str) -> RunInfo | None:
        """See `Log.run`."""
        with self._store.lock:
            found = self._look(run)
            return found.info() if found else None

    async def turn(self, run: str, turn: str) -> TurnInfo | None:
        """See `Log.turn`."""
        with self._store.lock:
            found = self._look(run)
            return found.turns.get(turn) if found else None

    async def runs(self, query: RunQuery) -> list[RunInfo]:
        """See `Log.runs`."""
        page: list[RunInfo] = []
        with self._store.lock:
            self._check_open()
            order = self._store.order
            end = len(order)
            if query.before is not None:
                end = bisect_left(order, query.before, key=lambda run: run.position)
            for place in range(end - 1, -1, -1):
                run = order[place]
                if len(page) >= query.limit:
                    break
                if run.namespace != self.namespace:
                    continue
                if query.agent is not None and run.agent != query.agent:
                    continue
                info = run.info()
                if query.status is None or info.status == query.status:
                    page.append(info)
        return page

    async def get_blob(self, run: str, blob: str) -> bytes:
        """See `Log.get_blob`."""
        with self._store.lock:
            data = self._find(run).blobs.get(blob)
        if data is None:
            raise CorruptRecord(run_id=run, seq=0, reason=f"its blob {blob} is missing")
        return data

    async def sweep(self, policy: SweepPolicy) -> int:
        """See `Log.sweep`."""
        self._check_open()
        return self._store.sweep(self.namespace, policy, self._clock.time())

    # Transfer

    async def image(self, run: str) -> RunImage:
        """See `Transfer.image`."""
        with self._store.lock:
            return memory_transfer.image_of(self._find(run), boot=self._clock.boottime())

    async def build(self, image: RunImage, records: Sequence[Record], blobs: Sequence[Blob]) -> int:
        """See `Transfer.build`."""
        self._check_open()
        return memory_transfer.build(
            self._store,
            (self.namespace, image.run),
            image,
            records,
            blobs,
            url=self.url,
            now=self._clock.time(),
        )

    async def settle(self, run: str, *, is_live: bool) -> None:
        """See `Transfer.settle`."""
        with self._store.lock:
            found = self._find(run)
            memory_transfer.settle(self._store, (self.namespace, run), found, is_live=is_live, url=self.url)

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
        wall, boot = self._clock.time(), self._clock.boottime()

        def is_wanted(key: Key, found: Run) -> bool:
            return (
                key[0] == self.namespace
                and (run is None or key[1] == run)
                and agents_match(found.agent, agents)
                and found.min_reader <= reads
            )

        with self._store.lock:
            ready, soonest = self._store.claimable(is_wanted, wall=wall, boot=boot)
            claimed = tuple(
                found.take(new_token(), boot=boot, lease_seconds=lease_seconds) for found in ready[:limit]
            )
            if len(ready) > limit:
                soonest = 0.0
                if claimed:
                    self._store.ring_work()  # whoever waits, and came too late for the first bell
            else:
                if claimed:
                    soonest = min(lease_seconds, lease_seconds if soonest is None else soonest)
                if run is None:
                    self._work_seen = self._store.work_count
        return Claims(claimed, soonest)

    def open_renewer(self) -> "MemoryRenewer":
        """See `Queue.open_renewer`."""
        self._check_open()
        return MemoryRenewer(self._store, self.namespace, self._clock)

    async def wait_for_work(self, timeout_seconds: float) -> None:
        """See `Queue.wait_for_work`. Work that came between the last claim and this ends it at once, once."""
        if self._is_open and self._work_seen == self._store.work_count:
            with self._store.bells.listen(WORK) as bell, anyio.move_on_after(timeout_seconds):
                await bell.wait()
        else:
            await anyio.lowlevel.checkpoint()
        self._work_seen = self._store.work_count

    async def beat(self, info: WorkerInfo) -> None:
        """See `Queue.beat`."""
        self._check_open()
        with self._store.lock:
            self._store.roster[self.namespace, info.worker] = replace(info, seen=self._clock.time())

    async def leave(self, worker: str) -> None:
        """See `Queue.leave`."""
        self._check_open()
        with self._store.lock:
            self._store.roster.pop((self.namespace, worker), None)

    async def workers(self) -> list[WorkerInfo]:
        """See `Queue.workers`."""
        self._check_open()
        since = self._clock.time() - ROSTER_SECONDS
        with self._store.lock:
            roster = self._store.roster
            for key in [key for key, info in roster.items() if info.seen < since]:
                del roster[key]
            return [roster[key] for key in sorted(roster) if key[0] == self.namespace]

    async def stats(self) -> list[AgentStats]:
        """See `Queue.stats`."""
        self._check_open()
        return self._store.stats(self.namespace, self._clock.time())

    # Stream

    async def publish(self, claim: Claim, deltas: Sequence[Delta]) -> bool:
        """See `Stream.publish`."""
        self._check_open()
        return self._store.publish((self.namespace, claim.run), claim, deltas, self._clock.time())

    async def follow(self, run: str, *, offset: str = START) -> AsyncIterator[Item]:
        """See `Stream.follow`."""
        place = parse_offset(offset)
        key = (self.namespace, run)
        with self._store.bells.listen(key) as bell:
            while True:
                # Listen, then look: what lands between the look and the wait rings the bell.
                bell.clear()
                with self._store.lock:
                    found = self._look(run)
                    page = found.behind(place, PAGE) if found else []
                    is_over = found is not None and found.is_closed and len(page) < PAGE
                    moved_to = found.moved_to if found else None
                for item in page:
                    place = (item.seq, item.sub if isinstance(item, Delta) else 0)
                    yield item
                if is_over and moved_to is not None:
                    raise RunGone(run_id=run, to=moved_to)
                if is_over:
                    return
                if not page:
                    await bell.wait()

    async def aclose(self) -> None:
        """See `World.aclose`. Followers of this world are told that it was closed."""
        self._is_open = False
        self._store.bells.ring_all()

    # What may be seen

    def _look(self, run: str) -> Run | None:
        self._check_open()
        key = (self.namespace, run)
        grave = self._store.grave(key, self._clock.time())
        if grave is not None:
            raise RunGone(run_id=run, to=grave.to)
        return self._store.runs.get(key)

    def _find(self, run: str) -> Run:
        found = self._look(run)
        if found is None:
            raise RunNotFound(run_id=run, world=self.url)
        return found

    def _check_open(self) -> None:
        if not self._is_open:
            raise self._closed()

    def _closed(self) -> WorldUnavailable:
        return WorldUnavailable("it was closed here: open it again", world=self.url)


def _settle(future: asyncio.Future[Answer], answer: Answer) -> None:
    if not future.done():  # its awaiter was cancelled; the batch stands all the same
        future.set_result(answer)


class MemoryRenewer:
    """A `Renewer` of the memory world: callable from any thread."""

    def __init__(self, store: Store, namespace: str, clock: Clock) -> None:
        self._store, self._namespace, self._clock = store, namespace, clock

    def renew(self, claims: Sequence[Claim], lease_seconds: float) -> set[Claim]:
        """See `Renewer.renew`."""
        until = self._clock.boottime() + lease_seconds
        renewed: set[Claim] = set()
        with self._store.lock:
            for claim in claims:
                run = self._store.runs.get((self._namespace, claim.run))
                if run is not None and run.holds(claim):
                    run.lease_until = until
                    renewed.add(claim)
        return renewed

    def close(self) -> None:
        """See `Renewer.close`."""

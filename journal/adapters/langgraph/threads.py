"""Where threads live: each in a run of its own, appended from outside a claim, so that graphs need no turn.

A turn's own run would be the natural place, but a thread outlives it, is written by graphs that run without one, and
by several processes; see docs/decisions/0006. What a turn writes carries the claim it works under, and the
fold leaves out what came under an older one.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from journal.core import values
from journal.core.codec import Blob, open_record, seal
from journal.core.errors import ClaimLost, InvalidId
from journal.core.ids import check_id, new_batch_id, new_token
from journal.core.ports import Batch, Committed, Create, Duplicate, Keyed, RunQuery
from journal.core.records import (
    MIN_READER,
    BlobRef,
    Body,
    Packed,
    RunCreated,
    ThreadCheckpoint,
    ThreadHolder,
    ThreadWrites,
)
from journal.engine.offering import offer
from journal.engine.runtime import Runtime
from journal.replay.thread import ThreadFold

AGENT = "langgraph.thread"
"""The agent name of threads' runs; no worker has one like it."""
_PREFIX = "thread/"
_THREAD = "thread_id"
_KEPT_THREADS = 64
"""Folds kept in memory, of those used last."""
_PAGE = 500


def run_of(thread: str) -> str:
    """The run that `thread` lives in. Thread ids that are no run ids are named by their digest."""
    run = f"{_PREFIX}{thread}"
    try:
        if "=" not in thread[:1]:
            return check_id(run)
    except InvalidId:
        pass  # LangGraph allows any text
    return f"{_PREFIX}={values.digest(thread.encode(errors='surrogatepass')).hex()}"


class Thread:
    """One thread's fold, kept up with its run."""

    def __init__(self, runtime: Runtime, thread: str) -> None:
        self.id = thread
        self.run = run_of(thread)
        self.fold = ThreadFold()
        self._runtime = runtime
        self._lock = asyncio.Lock()

    async def refresh(self) -> ThreadFold:
        """The fold after everything that is durable by now."""
        async with self._lock:
            await self._read_on()
        return self.fold

    async def append(self, bodies: Sequence[Body], blobs: Sequence[Blob] = ()) -> None:
        """Append `bodies`, all or none, in the order in which this was called.

        Raises `ClaimLost` if they were written for a turn that another holder has taken over: they count for nothing.
        """
        async with self._lock:
            world, clock = self._runtime.world, self._runtime.clock
            batch_id = new_batch_id()
            records = tuple(seal(self.run, body) for body in bodies)
            digest = values.digest(b"".join(record.body for record in records))
            batch = Batch(
                self.run,
                batch_id,
                Keyed(f"thread:{batch_id.hex()}", digest),
                records,
                create=Create(AGENT, seal(self.run, self._created()), MIN_READER),
                blobs=tuple(blobs),
            )
            answer = await offer(world, batch, clock)
            committed = answer.original if isinstance(answer, Duplicate) else answer
            assert isinstance(committed, Committed)
            before = committed.last - len(bodies)
            if before == self.fold.head or (self.fold.head == 0 and before == 1):
                for place, body in enumerate(bodies, before + 1):
                    self.fold.apply(body, place)
            else:
                await self._read_on()
        for body in bodies:
            if isinstance(body, ThreadCheckpoint | ThreadWrites) and body.holder is not None:
                self._check(body.holder)

    def _check(self, holder: ThreadHolder) -> None:
        if not self.fold.is_held_by(holder):
            raise ClaimLost(run_id=holder.run, reason="another holder of it works on the thread")

    def _created(self) -> RunCreated:
        return RunCreated(
            agent=AGENT,
            nonce=new_token(),
            namespace=self._runtime.journal.namespace,
            metadata={_THREAD: self.id},
            min_reader=MIN_READER,
        )

    async def _read_on(self) -> None:
        world = self._runtime.world
        if self.fold.head == 0 and await world.run(self.run) is None:
            return
        while page := await world.read(self.run, after=self.fold.head, limit=_PAGE):
            for record in page:
                self.fold.add(record)
            if len(page) < _PAGE:
                return

    async def load(self, packed: Packed) -> tuple[str, bytes]:
        """A value as the serializer wrote it."""
        if isinstance(packed.data, BlobRef):
            return packed.kind, await self._runtime.world.get_blob(self.run, packed.data.blob)
        return packed.kind, packed.data


class Threads:
    """The threads of a store, as one event loop sees them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._known: OrderedDict[str, Thread] = OrderedDict()
        self._used: dict[str, int] = {}

    @property
    def is_closing(self) -> bool:
        """Whether the store behind them closes."""
        return self._runtime.is_closing

    @asynccontextmanager
    async def open(self, thread: str) -> AsyncIterator[Thread]:
        """`thread`, the same object for all who have it open at once: its lock orders what they write."""
        found = self._known.get(thread)
        if found is None:
            found = self._known[thread] = Thread(self._runtime, thread)
        self._known.move_to_end(thread)
        self._used[thread] = self._used.get(thread, 0) + 1
        try:
            yield found
        finally:
            self._used[thread] -= 1
            if not self._used[thread]:
                del self._used[thread]
            idle = [name for name in self._known if name not in self._used]
            for name in idle[: max(0, len(self._known) - _KEPT_THREADS)]:
                del self._known[name]

    async def all(self) -> list[str]:
        """Ids of all threads in the store."""
        found: list[str] = []
        before: int | None = None
        while page := await self._runtime.world.runs(RunQuery(agent=AGENT, before=before)):
            found += [await self._id_of(info.run) for info in page]
            before = page[-1].position
        return found

    async def _id_of(self, run: str) -> str:
        if not run.startswith(f"{_PREFIX}="):
            return run.removeprefix(_PREFIX)
        created = open_record((await self._runtime.world.read(run, limit=1))[0])
        assert isinstance(created, RunCreated)
        return created.metadata[_THREAD]

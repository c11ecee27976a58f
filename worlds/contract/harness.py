"""What a world under test is reached through, and the few moves that every case is made of."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeVar
from unittest import SkipTest

import anyio

from journal.core.codec import Blob, checksum, seal
from journal.core.ids import new_batch_id
from journal.core.ports import (
    START,
    Answer,
    Batch,
    Block,
    Claimed,
    Close,
    Committed,
    Create,
    Delta,
    Duplicate,
    Finish,
    Held,
    Item,
    Keyed,
    Park,
    QueueChange,
    Release,
    Retry,
    RunInfo,
    Submit,
    Wake,
    World,
)
from journal.core.records import (
    CallOutcome,
    CancelRequested,
    NewRecord,
    RunClosed,
    RunCreated,
    TurnBlocked,
    TurnFinished,
    TurnRetried,
    TurnStarted,
    TurnStatus,
    TurnSubmitted,
)

PATIENCE_SECONDS = 20.0
"""How long a case waits for something that must happen: real time, for a loaded machine."""


class ContractHarness(Protocol):
    """One fresh store, and the time it lives in. Every case gets a harness of its own."""

    is_persistent: bool
    """Whether what was acknowledged is still there after every world over the store was closed."""

    can_step_wall: bool
    """Whether `step_wall` works (a server's clock cannot be stepped)."""

    def open(self, *, namespace: str = "default") -> AbstractAsyncContextManager[World]:
        """One more world over the same store, as another worker would open it."""
        ...

    async def advance(self, seconds: float) -> None:
        """Let time pass for the store and all its worlds."""
        ...

    async def step_wall(self, seconds: float) -> None:
        """Step the wall clock alone, as an administrator or NTP would."""
        ...


class ContractCases:
    """What the classes of cases share. A case is an async method `test_…(self, harness)`; its docstring quotes
    the promise."""

    @staticmethod
    def skip(reason: str) -> None:
        """End the case: this world does not claim what it is about."""
        raise SkipTest(reason)


# Offers from outside ---------------------------------------------------------------------------------


def raw(
    run: str,
    body: bytes,
    *,
    kind: str = "test.raw",
    turn: str | None = None,
    key: str | None = None,
    key_id: str | None = None,
) -> NewRecord:
    """A record of any bytes: bodies are opaque to a world."""
    return NewRecord(kind, turn, key, body, checksum(run, kind, turn, key, key_id, body), key_id)


def creation(run: str, *, agent: str = "agent", min_reader: int = 1) -> Create:
    """Creates `run`."""
    return Create(agent, seal(run, RunCreated(agent=agent, nonce=b"n" * 16)), min_reader)


def submit(
    run: str,
    turn: str = "t1",
    *,
    agent: str = "agent",
    min_reader: int = 1,
    priority: int = 0,
    due_at: float | None = None,
    digest: bytes = b"digest",
    at_head: int | None = None,
) -> Batch:
    """A turn submitted from outside; creates the run if it is absent. Each call draws a batch id."""
    record = seal(run, TurnSubmitted(input=b'"hello"', input_digest=digest), turn=turn)
    return Batch(
        run,
        new_batch_id(),
        Keyed(f"submit:{turn}", digest),
        (record,),
        create=creation(run, agent=agent, min_reader=min_reader),
        at_head=at_head,
        queue=Submit(turn, priority, due_at),
    )


def signal(run: str, key: str = "signal", *, digest: bytes = b"digest", at_head: int | None = None) -> Batch:
    """Something from outside that wakes the run."""
    record = seal(run, CancelRequested(reason=key))
    return Batch(run, new_batch_id(), Keyed(key, digest), (record,), at_head=at_head, queue=Wake())


def retry(run: str, turn: str = "t1", *, key: str = "retry") -> Batch:
    """A failed or blocked turn is sent on."""
    return Batch(
        run, new_batch_id(), Keyed(key, b"digest"), (seal(run, TurnRetried(), turn=turn),), queue=Retry(turn)
    )


def close(run: str) -> Batch:
    """The run takes nothing more."""
    return Batch(run, new_batch_id(), Keyed("close", b"digest"), (seal(run, RunClosed()),), queue=Close())


# Offers of a holder ----------------------------------------------------------------------------------


class Holder:
    """Whoever has the claim: makes batches as the engine does, each naming the one before."""

    def __init__(self, world: World, claimed: Claimed) -> None:
        self.world = world
        self.claimed = claimed
        self.claim = claimed.claim
        self.run = claimed.claim.run
        self.turn = claimed.turn or "t1"
        self.prev: bytes | None = None

    def batch(
        self,
        *records: NewRecord,
        queue: QueueChange | None = None,
        at_head: int | None = None,
        prev: bytes | None = None,
        blobs: tuple[Blob, ...] = (),
    ) -> Batch:
        """A batch under the claim; `prev` defaults to the last answered one."""
        author = Held(self.claim, self.prev if prev is None else prev)
        return Batch(self.run, new_batch_id(), author, records, at_head=at_head, queue=queue, blobs=blobs)

    async def offer(self, batch: Batch) -> Answer:
        """Offer it, and remember it once it is in the log."""
        answer = await self.world.append(batch)
        if isinstance(answer, Committed | Duplicate):
            self.prev = batch.id
        return answer

    async def change(self, queue: QueueChange, *records: NewRecord, at_head: int | None = None) -> Committed:
        """A batch that must be taken."""
        return committed(await self.offer(self.batch(*records, queue=queue, at_head=at_head)))

    def started(self) -> NewRecord:
        return seal(self.run, TurnStarted(worker="w", attempt=1), turn=self.turn)

    def outcome(self, key: str = "step#1") -> NewRecord:
        return seal(self.run, CallOutcome(status="ok", value=b"1"), turn=self.turn, key=key)

    async def start(self) -> Committed:
        return committed(await self.offer(self.batch(self.started())))

    async def record(self, key: str = "step#1") -> Committed:
        return committed(await self.offer(self.batch(self.outcome(key))))

    async def park(self, due_at: float | None = None) -> Committed:
        return await self.change(Park(due_at), raw(self.run, b"", kind="turn.suspended", turn=self.turn))

    async def finish(self, status: TurnStatus = "succeeded") -> Committed:
        record = seal(self.run, TurnFinished(status=status), turn=self.turn)
        return await self.change(Finish(self.turn, status), record)

    async def block(self) -> Committed:
        record = seal(
            self.run, TurnBlocked(reason="divergence", detail="asked for another call"), turn=self.turn
        )
        return await self.change(Block(), record)

    async def release(self, delay_seconds: float = 0.0) -> Committed:
        return await self.change(Release(delay_seconds))


def committed(answer: Answer) -> Committed:
    """The answer, which must be that the batch was taken."""
    assert isinstance(answer, Committed), f"expected Committed, the door answered {answer}"
    return answer


Error = TypeVar("Error", bound=Exception)


async def refusal(kind: type[Error], attempt: Awaitable[object]) -> Error:
    """What `attempt` raises, which must be of that kind."""
    try:
        result = await attempt
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}, got {result!r}")


async def begin(
    world: World,
    run: str,
    turn: str = "t1",
    *,
    agent: str = "agent",
    min_reader: int = 1,
    priority: int = 0,
    due_at: float | None = None,
) -> Committed:
    """Submit a turn; it must be taken."""
    batch = submit(run, turn, agent=agent, min_reader=min_reader, priority=priority, due_at=due_at)
    return committed(await world.append(batch))


async def info_of(world: World, run: str = "r") -> RunInfo:
    """The run, which must exist."""
    info = await world.run(run)
    assert info is not None
    return info


async def claim_all(
    world: World,
    *,
    limit: int = 100,
    lease_seconds: float = 30.0,
    agents: set[str] | None = None,
    reads: int = 1,
    run: str | None = None,
) -> list[Claimed]:
    """What a claim brings."""
    claims = await world.claim(
        worker="w", limit=limit, lease_seconds=lease_seconds, agents=agents, reads=reads, run=run
    )
    assert len(claims.claimed) <= limit, "a claim brought more than its limit"
    return list(claims.claimed)


async def hold(world: World, run: str, *, lease_seconds: float = 30.0) -> Holder:
    """Claim that run; it must be claimable."""
    claimed = await claim_all(world, lease_seconds=lease_seconds, run=run)
    assert [c.claim.run for c in claimed] == [run], f"{run} must be claimable, the claim brought {claimed}"
    return Holder(world, claimed[0])


async def next_due(world: World, *, agents: set[str] | None = None) -> float | None:
    """`next_due_seconds` of a claim that must bring nothing."""
    claims = await world.claim(worker="w", limit=10, lease_seconds=30.0, agents=agents, reads=1)
    assert claims.claimed == (), f"nothing is claimable, the claim brought {claims.claimed}"
    return claims.next_due_seconds


async def seqs(world: World, run: str) -> list[int]:
    """Seqs of the whole log."""
    return [record.seq for record in await world.read(run, limit=100_000)]


# Watching --------------------------------------------------------------------------------------------


def place(item: Item) -> tuple[int, int]:
    """Its offset, as numbers."""
    return item.seq, item.sub if isinstance(item, Delta) else 0


class Watcher:
    """A follower in a task: what it saw so far, and a way to wait for more."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.has_ended = False
        self.error: Exception | None = None
        self._changed = anyio.Event()

    async def watch(self, world: World, run: str, offset: str = START) -> None:
        """Follow until the end."""
        try:
            async for item in world.follow(run, offset=offset):
                self.items.append(item)
                self._ring()
        except Exception as error:  # noqa: BLE001 - handed to whoever waits
            self.error = error
        self.has_ended = True
        self._ring()

    def _ring(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, is_enough: Callable[[], bool]) -> None:
        """Wait until that holds."""
        while not is_enough():
            assert not self.has_ended, f"the follower ended early: {self.error}, after {self.places()}"
            await self._changed.wait()

    async def until_count(self, count: int) -> None:
        """Wait until so many items were seen."""
        await self.until(lambda: len(self.items) >= count)

    async def until_end(self) -> None:
        """Wait until the follower has ended by itself."""
        while not self.has_ended:
            await self._changed.wait()

    def places(self) -> list[tuple[int, int]]:
        return [place(item) for item in self.items]


@asynccontextmanager
async def watching(world: World, run: str, offset: str = START) -> AsyncIterator[Watcher]:
    """A follower that runs beside the case, and is left at its end."""
    watcher = Watcher()
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(watcher.watch, world, run, offset)
            yield watcher
            group.cancel_scope.cancel()


async def follow_all(world: World, run: str, offset: str = START) -> list[Item]:
    """Everything behind `offset` of a closed run."""
    with anyio.fail_after(PATIENCE_SECONDS):
        return [item async for item in world.follow(run, offset=offset)]


async def at_once(*offers: Awaitable[Answer]) -> list[Answer]:
    """Await offers that were all made before the first was awaited."""
    return [await offer for offer in offers]

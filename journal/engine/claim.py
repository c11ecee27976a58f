"""A held run: the one place through which its holder appends.

One commit is in flight per run; what is handed in meanwhile goes with the next one, in the order in which it was
handed in, so that the log holds a prefix of what was started. A commit is never withdrawn: an answer that is
lost is asked for again with the same batch, until the door answers or the bound runs out. Whatever says
that the claim is gone is fatal to it, at once and for everyone who waits.

What rests on all that is in the log (an edit of a document) is made at the last moment, for a batch that lands at just
that head; if somebody else appended meanwhile, it is made again. Long since a batch, its answers and those who wait
for it are one state, read best in one place.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import anyio
import msgspec

from journal.core.clock import Clock
from journal.core.codec import Blob
from journal.core.errors import ClaimLost, HandlerAborted, WorldUnavailable
from journal.core.ids import BatchIds
from journal.core.ports import (
    Answer,
    Batch,
    Block,
    Claimed,
    Committed,
    Duplicate,
    Finish,
    HeadMoved,
    Held,
    Progress,
    QueueChange,
    Release,
    Unknown,
    World,
)
from journal.core.records import NewRecord

LAZY_SECONDS = 0.005
"""How long a lazy intent may wait for its outcome to ride with."""
UNKNOWN_SECONDS = 60.0
"""How long an unanswered batch is offered again before the turn is given up here; longer while its lease lasts."""
ENDING_SECONDS = 5.0
"""How long it is when the turn is to stop here anyway."""
BLOB_BYTES = 32 * 1024 * 1024
"""How much of blobs a batch carries, about: stores take no statement of any size, and leases are to outlast each."""
_Waiter = asyncio.Future[Any]
_FIRST_DELAY, _LONGEST_DELAY = 0.01, 1.0
_LANDING = "__journal_landing__"


def landing_of(cancellation: BaseException) -> int | None:
    """How manieth it landed, whose commit was cancelled; None: it did not."""
    return getattr(cancellation, _LANDING, None)


class Flusher:
    """Sees to it that lazy records do not wait long; one timer for all runs, since most of them need none."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Holding, bytes | None] = {}
        """With the batch that had landed last when they were last seen to buffer."""
        self._is_set = False

    def watch(self, holding: "Holding") -> None:
        """This one has begun to buffer: look after it until it is seen not to."""
        holding.is_watched = True
        self._waiting[holding] = b""
        if not self._is_set:
            self._is_set = True
            self._loop.call_later(LAZY_SECONDS / 2, self._look)

    def _look(self) -> None:
        for holding, landed in list(self._waiting.items()):
            if not holding.has_buffered:
                holding.is_watched = False
                del self._waiting[holding]
            elif landed == holding.prev_batch:  # nothing has taken along what waited then
                holding.flush_lazy()
            else:
                self._waiting[holding] = holding.prev_batch
        self._is_set = bool(self._waiting)
        if self._is_set:
            self._loop.call_later(LAZY_SECONDS / 2, self._look)


class _Asking(msgspec.Struct):
    """A batch that is offered again until the door answers; times of the boot clock."""

    batch: bytes
    """Its id."""
    since: float
    until: float
    delay: float
    """Seconds before the next time."""


class _Taken(msgspec.Struct, frozen=True):
    """What a batch at a head was packed of."""

    batch: Batch
    plain: int
    """How many of its records were there before."""
    late: "list[Late]"
    waiters: list[_Waiter]
    """Who waited for those."""


class Late:
    """A record that is made when its batch is packed, since it rests on everything before it in the log."""

    def __init__(
        self, make: Callable[[bool], tuple[NewRecord, tuple[Blob, ...]]], landed: Callable[[int], None]
    ) -> None:
        self.make = make
        """Told whether it is the first of its batch, which rests on nothing but the log."""
        self.landed = landed
        """Told the seq at which it landed, before anybody who waits."""
        self.waiter: _Waiter | None = None


class Holding:
    """A claim in use. Not safe for threads, except `trusted_until`."""

    def __init__(
        self, world: World, clock: Clock, claimed: Claimed, flusher: "Flusher", *, trusted_until: float
    ) -> None:
        self.world = world
        self.claimed = claimed
        self.claim = claimed.claim
        self.run = claimed.claim.run
        self.trusted_until = trusted_until
        """Boot clock; counted from when the claim was asked for."""
        self.last = claimed.head
        self.prev_batch: bytes | None = None
        self.lost: BaseException | None = None
        self.on_lost: Callable[[], None] | None = None
        self.on_foreign: Callable[[int, int], None] | None = None
        """Told of seqs (after, up to) that others appended."""
        self.progress_due = claimed.takeovers > 0
        self.is_ending = False
        """Whether the turn stops here anyway: a store that is away is not waited for much longer."""
        self.unread = 0
        """How many times others appended what has not been read yet: nothing late is made before."""
        self.is_watched = False
        """Whether the flusher looks after what is buffered."""
        self._flusher = flusher
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._ids = BatchIds()
        self._records: list[NewRecord] = []
        self._blobs: list[Blob] = []
        self._waiters: list[_Waiter] = []
        self._late: list[Late] = []
        self._behind: list[asyncio.Future[None]] = []
        """Who waits until it was."""
        self._queue: QueueChange | None = None
        self._flight: list[_Waiter] | None = None
        """Who waits for the batch that is under way; None: none is."""
        self._asking: _Asking | None = None
        """For the batch that was offered again last."""
        self._is_over = False
        self._landings = 0
        self._taken: _Taken | None = None
        """What is in flight, where it rests on its head."""

    # What the engine calls --------------------------------------------------------------------------

    def check_trust(self) -> None:
        """Raise `ClaimLost` if the claim may have run out; called just before every act."""
        if self.lost is not None:
            raise self._lost_error()
        if self._clock.boottime() >= self.trusted_until:
            self.lose(ClaimLost(run_id=self.run, reason="it could not be renewed before its lease ran out"))
            raise self._lost_error()

    def buffer(self, record: NewRecord, blob: Blob | None = None) -> None:
        """Append lazily: with the next commit, or within `LAZY_SECONDS`."""
        self._records.append(record)
        if not self.is_watched:
            self._flusher.watch(self)
        if blob is not None:
            self._blobs.append(blob)

    def carry(self, blob: Blob) -> None:
        """Let it ride with whatever is appended next."""
        if self.lost is None:
            self._blobs.append(blob)

    def commit(
        self, record: NewRecord | None = None, blob: Blob | None = None, *, queue: QueueChange | None = None
    ) -> Coroutine[Any, Any, int]:
        """Append `record` behind everything buffered; await it, at once, until all of it is durable.

        It returns how manieth it landed. What was handed in is never withdrawn: a cancellation meanwhile is delivered
        after the door has answered. Raises `ClaimLost` or `HandlerAborted`.
        """
        if self.lost is not None:
            raise self._lost_error()
        if queue is not None:
            if self._queue is not None and not isinstance(self._queue, Progress):
                return self._commit_behind(record, blob, queue)
            self._queue = queue
        if record is not None:
            self._records.append(record)
        if blob is not None:
            self._blobs.append(blob)
        if self._flight is not None or (len(self._blobs) > 1 and self._is_heavy()):
            waiter: _Waiter = self._loop.create_future()
            self._waiters.append(waiter)
            if self._flight is None:
                self._send()
            return self._wait(waiter)
        return self._offer_alone(self._pack())

    async def _commit_behind(self, record: NewRecord | None, blob: Blob | None, queue: QueueChange) -> int:
        """`commit`, once the queue change that waits there already has landed: one a batch.

        Progress gives way: what gives the claim back says more.
        """
        while self._queue is not None and not isinstance(self._queue, Progress):
            before: _Waiter = self._loop.create_future()
            self._waiters.append(before)
            await self._wait(before)
        return await self.commit(record, blob, queue=queue)

    async def commit_late(self, late: Late, *, queue: Progress | None = None) -> int:
        """`commit`, for a record that is made when all before it is known."""
        if self.lost is not None:
            raise self._lost_error()
        self._queue = self._queue or queue
        late.waiter = self._loop.create_future()
        is_alone = not self._late and self._may_be_late() and not self._is_heavy()
        self._late.append(late)
        if self._flight is not None:
            return await self._wait(late.waiter)
        if is_alone:
            batch = self._pack_late()
            self._under_way.pop()  # our own
            return await self._offer_alone(batch)
        self._send()
        return await self._wait(late.waiter)

    async def _offer_alone(self, batch: Batch) -> int:
        """Take the store's answer from its own future, some passes of the loop sooner; we land behind the others."""
        waiter = self.world.append(batch)
        if type(waiter) is not asyncio.Future:
            waiter = asyncio.ensure_future(waiter)
        try:
            answer = await waiter
        except asyncio.CancelledError as error:
            told: _Waiter = self._loop.create_future()  # what the store's own does not tell
            self._under_way.append(told)
            self._answered(batch, waiter)
            await self._outlast(told, error)
            raise
        except Exception:  # noqa: BLE001 - of the store; `_answered` makes of it what it is
            answer = None
        if type(answer) is Committed:
            self._landed(batch, answer)
            landing = self._landings = self._landings + 1
            return landing
        self._under_way.append(waiter)
        self._answered(batch, waiter)
        if self.lost is not None:
            raise self._lost_error()
        if (again := self._wait_again(waiter)) is not None:  # unanswered: the batch is on offer again
            return await self._wait(again)
        return self._landings

    def caught_up(self) -> None:
        """What others appended was read, as `on_foreign` had asked for."""
        self.unread -= 1
        if not self.unread:
            self._wake()
        if self._late and not self.unread and self._flight is None and self.lost is None:
            self._send()

    async def until_read(self) -> None:
        """Return once all that others appended before what landed last was read, or the claim is lost."""
        while self.unread and self.lost is None:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._behind.append(waiter)
            await waiter

    def _wake(self) -> None:
        behind, self._behind = self._behind, []
        for waiter in behind:
            if not waiter.done():
                waiter.set_result(None)

    async def _wait(self, waiter: _Waiter) -> int:
        try:
            landing: int = await waiter
        except asyncio.CancelledError as error:
            await self._outlast(waiter, error)
            raise
        return landing

    async def _outlast(self, waiter: _Waiter, cancellation: asyncio.CancelledError) -> None:
        """We were cancelled: wait for the door's answer all the same, and let the cancellation tell the landing."""
        with anyio.CancelScope(shield=True):
            while (again := self._wait_again(waiter)) is not None:
                waiter = again
                try:
                    await waiter
                except asyncio.CancelledError:
                    continue
                break
        if waiter.done() and (waiter.cancelled() or waiter.exception() is None):
            landing = getattr(waiter, _LANDING, None) if waiter.cancelled() else waiter.result()
            setattr(cancellation, _LANDING, landing)

    def _wait_again(self, given_up: _Waiter) -> _Waiter | None:
        """Another future for what that one waited for; None: the door has answered already."""
        for waiters in (self._flight or [], self._waiters):
            for place, waiter in enumerate(waiters):
                if waiter is given_up:
                    waiters[place] = self._loop.create_future()
                    return waiters[place]
        for late in self._late:
            if late.waiter is given_up:
                late.waiter = self._loop.create_future()
                return late.waiter
        return None

    def lose(self, error: BaseException) -> None:
        """Nothing more is appended under this claim; everyone who waits is told, what is in flight excepted."""
        self.lost = self.lost or error
        self._records, self._blobs = [], []
        waiters, self._waiters = self._waiters, []
        late, self._late = self._late, []
        self._refuse(waiters + [one.waiter for one in late if one.waiter is not None])
        self._wake()
        on_lost, self.on_lost = self.on_lost, None
        if on_lost is not None:
            on_lost()

    def _refuse(self, waiters: list[_Waiter]) -> None:
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(self._lost_error())

    @property
    def has_buffered(self) -> bool:
        """Whether lazy records wait."""
        return bool(self._records)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is buffered or under way."""
        return self._flight is None and not self._records

    @property
    def is_over(self) -> bool:
        """Whether the claim was given back with a batch that landed."""
        return self._is_over

    # The commit --------------------------------------------------------------------------------------

    def flush_lazy(self) -> None:
        """Commit what is buffered, if nothing has taken it along meanwhile."""
        if self._records and self.lost is None and self._flight is None:
            self._send()

    def _send(self) -> None:
        """Offer everything that was handed in."""
        if self._is_heavy():
            self._offer(self._pack_ahead())
        elif self._late and self._may_be_late():
            self._offer(self._pack_late())
        elif self._records or self._waiters or self._queue is not None:
            self._offer(self._pack())

    def _may_be_late(self) -> bool:
        """Whether all is known that lies before what is made late."""
        return not self.unread and (self._queue is None or isinstance(self._queue, Progress))

    def _is_heavy(self) -> bool:
        """Whether blobs go ahead, since there are too many of them for one batch."""
        return len(self._blobs) > 1 and sum(len(blob.data) for blob in self._blobs) > BLOB_BYTES

    def _pack_ahead(self) -> Batch:
        """The first of the blobs, alone: what refers to them comes behind, and if it does not come they do no harm."""
        size = count = 0
        while count < len(self._blobs) and size < BLOB_BYTES:
            size += len(self._blobs[count].data)
            count += 1
        ahead, self._blobs = self._blobs[:count], self._blobs[count:]
        self._flight = []
        return Batch(self.run, self._ids.next(), Held(self.claim, self.prev_batch), blobs=tuple(ahead))

    def _pack_late(self) -> Batch:
        """Everything that was handed in, and behind it what is made only now, at just this head."""
        plain, late, self._late = len(self._records), self._late, []
        waiters = list(self._waiters)
        for place, one in enumerate(late):
            if place and self._is_heavy():
                late, self._late = late[:place], late[place:]
                break
            record, blobs = one.make(place == 0)
            self._records.append(record)
            self._blobs += blobs
            assert one.waiter is not None
            self._waiters.append(one.waiter)
        batch = msgspec.structs.replace(self._pack(), at_head=self.last)
        self._taken = _Taken(batch, plain, late, waiters)
        return batch

    def _again(self, batch: Batch, head: int) -> None:
        """Somebody else appended first: read that, and make the late ones anew."""
        taken, self._taken = self._taken, None
        if taken is None or self.on_foreign is None:
            self._give_up(self._gone(f"the head moved to {head}"))
            return
        # Whoever was cancelled meanwhile waits on another future than he came with.
        everybody, self._flight = self._under_way, None
        for one, waiter in zip(taken.late, everybody[len(taken.waiters) :], strict=True):
            one.waiter = waiter
        self._records = [*batch.records[: taken.plain], *self._records]
        self._blobs = [*batch.blobs, *self._blobs]  # those of the late ones too: a blob more does no harm
        self._waiters = [*everybody[: len(taken.waiters)], *self._waiters]
        self._late = [*taken.late, *self._late]
        self._queue = self._queue or batch.queue
        self._foreign(self.last, head)
        self.last = head
        if not self.unread:
            self._send()

    def saw(self, head: int) -> None:
        """The log ends there, as somebody read while nothing was under way."""
        if head > self.last:
            self._foreign(self.last, head)
            self.last = head

    def _foreign(self, after: int, upto: int) -> None:
        if self.on_foreign is not None:
            self.unread += 1
            self.on_foreign(after, upto)

    def _pack(self) -> Batch:
        """Everything that was handed in, as the batch that is under way from now on."""
        batch = Batch(
            self.run,
            self._ids.next(),
            Held(self.claim, self.prev_batch),
            tuple(self._records),
            None,
            None,
            self._queue,
            tuple(self._blobs),
        )
        self._flight = self._waiters
        self._records, self._blobs, self._waiters, self._queue = [], [], [], None
        return batch

    @property
    def _under_way(self) -> list[_Waiter]:
        """Who waits for the batch that is."""
        assert self._flight is not None
        return self._flight

    def _offer(self, batch: Batch) -> None:
        asyncio.ensure_future(self.world.append(batch)).add_done_callback(partial(self._answered, batch))

    def _answered(self, batch: Batch, future: asyncio.Future[Answer]) -> None:
        if (
            future.cancelled()
        ):  # by whoever waited for it, or by a store that closes: what became of it is unknown
            self._ask_again(batch, "the wait for its answer was cancelled")
        elif isinstance(error := future.exception(), WorldUnavailable):
            # The store is away, for longer than it waits itself. What ran is not run again, so its outcome is kept.
            self._ask_again(batch, error.reason)
        elif error is not None:
            self._give_up(HandlerAborted(run_id=self.run, cause=error))
        else:
            match future.result():
                case Committed() as committed:
                    self._landed(batch, committed)
                case Duplicate(original=original, claim_valid=True):
                    self._landed(batch, original)
                case Duplicate():
                    # What was offered is durable, but nobody acts without a claim that holds.
                    self._give_up(self._gone("another holder took over"))
                case Unknown(reason=reason):
                    self._ask_again(batch, reason)
                case HeadMoved(head=head):
                    self._again(batch, head)
                case refusal:
                    self._give_up(self._gone(f"the store answered {refusal}"))

    def _landed(self, batch: Batch, committed: Committed) -> None:
        waiters, self._flight = self._flight, None
        self.prev_batch = batch.id
        if batch.queue is not None:
            self._is_over = isinstance(batch.queue, Finish | Block | Release)
        if batch.records:
            if committed.first != self.last + 1:
                self._foreign(self.last, committed.first - 1)
            self.last = committed.last
            if self._taken is not None:
                taken, self._taken = self._taken, None
                for seq, late in enumerate(taken.late, committed.last - len(taken.late) + 1):
                    late.landed(seq)
        for waiter in waiters or ():
            self._landings += 1
            if not waiter.done():
                waiter.set_result(self._landings)
            elif waiter.cancelled():
                setattr(waiter, _LANDING, self._landings)  # in this very pass: `_outlast` tells it
        if (self._waiters or self._late) and self.lost is None:
            self._send()

    def _give_up(self, error: BaseException) -> None:
        waiters, self._flight = self._under_way, None
        self.lost = self.lost or error
        self._refuse(waiters)
        self.lose(error)

    def _gone(self, reason: str) -> ClaimLost:
        return ClaimLost(run_id=self.run, reason=reason)

    def _ask_again(self, batch: Batch, reason: str) -> None:
        now = self._clock.boottime()
        asking = self._asking
        if asking is None or asking.batch != batch.id:
            until = max(now + UNKNOWN_SECONDS, self.trusted_until)
            asking = self._asking = _Asking(batch.id, now, until, _FIRST_DELAY)
        if now > (asking.since + ENDING_SECONDS if self.is_ending else asking.until):
            seconds = f"{now - asking.since:.0f} s"
            error = WorldUnavailable(
                f"no answer for {seconds} ({reason}); the turn is left to whoever claims it next",
                world=self.world.url,
            )
            self._give_up(HandlerAborted(run_id=self.run, cause=error))
            return
        self._loop.call_later(asking.delay, self._offer, batch)
        asking.delay = min(asking.delay * 2, _LONGEST_DELAY)

    def _lost_error(self) -> BaseException:
        """A fresh exception each time: one instance must not be raised in several tasks."""
        match self.lost:
            case HandlerAborted(cause=cause):
                return HandlerAborted(run_id=self.run, cause=cause)
            case ClaimLost(args=(message, *_)) as lost:
                fresh = ClaimLost(run_id=lost.run_id, reason="")
                fresh.args = (message,)
                return fresh
            case other:
                return ClaimLost(run_id=self.run, reason=str(other))

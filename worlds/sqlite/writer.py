"""Group commit: what waits at the same moment goes to the disk together, and is durable by one sync.

One batch alone, on a quick disk, with the turnstile free, is committed in the event loop: two changes of thread
cost more than the sync. Everything else goes to one writer thread; what comes while it is busy forms the next group.
A group that fails over its contents is halved until the part at fault stands alone. Next: `transaction.py`.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from anyio import to_thread

from journal.core.errors import WorldBusy, WorldError, WorldUnavailable
from journal.core.ports import Answer, Batch, Committed, Unknown, batch_bytes
from journal.worlds.sqlite.door import Changes
from journal.worlds.sqlite.transaction import Landing, Member, Transactor, Unsure

GROUP_ROWS = 512
GROUP_BYTES = 8 * 1024 * 1024
INLINE_SECONDS = 0.001
"""A commit that took longer is not repeated in the event loop: the disk is slow, or busy."""

TURN_SECONDS = 0.004
"""For how long lone appends may be answered on the spot before the loop turns."""
SPLIT_FROM = 8
"""So many runs at work, or more, work in two halves."""
UNDER_WAY_SECONDS = 0.002
"""How long the loop stands by until the thread has begun."""
HELD_PASSES = 5
"""Passes of the loop for which the second half waits at most: being answered, waking and appending take three."""

LEAVE_SECONDS = 5.0
"""How long closing waits for the thread, which may hang behind another process."""


class _Job:
    """A group on its way to the writer thread. It starts, or is withdrawn; never both."""

    def __init__(self, members: list[Member]) -> None:
        self.members = members
        self._lock = threading.Lock()
        self._is_decided = False
        self._is_under_way = threading.Event()
        self.say_under_way = self._is_under_way.set
        self.wait_under_way = self._is_under_way.wait

    def settle(self) -> bool:
        """True for the first to ask: the thread that starts it, or the loop that gives up on it."""
        with self._lock:
            was_decided, self._is_decided = self._is_decided, True
        return not was_decided


class Writer:
    """All writes of one world but renewals. Its methods belong to the event loop."""

    def __init__(
        self,
        transactor: Transactor,
        *,
        busy_seconds: float,
        on_change: Callable[[Changes], None],
        on_append: Callable[[str], None],
    ) -> None:
        self._transactor = transactor
        self._append = transactor.door.append
        self._busy_seconds = busy_seconds
        self._on_change = on_change
        self._on_append = on_append
        self._loop = asyncio.get_running_loop()
        self._pending: deque[Member] = deque()
        self._is_scheduled = False
        self._job: _Job | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._overdue = 0
        self._last_seconds = 0.0
        self._is_alone = False
        """Whether the last group was of one: then the next is committed as it comes, and does not wait for company."""
        self._is_delivering = False
        self._turned_at = 0.0
        self._held: tuple[list[Member], list[Any]] | None = None
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._idle: asyncio.Future[None] | None = None
        self._is_closed = False

    @property
    def is_busy(self) -> bool:
        """Whether the connection belongs to the writer thread at this moment."""
        return self._job is not None

    def append(self, batch: Batch) -> asyncio.Future[Answer]:
        """Offer `batch` to the door: on the spot if that is quicker than waiting, else in the next group."""
        if (
            self._is_alone
            and self._last_seconds < INLINE_SECONDS
            and not (self._is_delivering or self._pending or self._job or self._is_closed)
        ):
            started = time.perf_counter()
            answer = self._transactor.try_append(batch)
            if answer is not None:
                ended = time.perf_counter()
                self._last_seconds = ended - started
                future: asyncio.Future[Answer] = self._loop.create_future()
                # Now and then an answer takes its way through the loop: appends that never suspend would starve
                # every other task.
                if ended - self._turned_at < TURN_SECONDS:
                    future.set_result(answer)
                    self._on_append(batch.run)
                else:
                    self._is_delivering = True
                    self._loop.call_soon(self._answer_alone, future, batch.run, answer)
                return future
        return self._enter(
            Member(
                self._append,
                batch,
                self._loop.create_future(),
                len(batch.records) + 1,
                batch_bytes(batch),
                True,
                False,
            )
        )

    def submit(
        self,
        apply: Callable[[Any], Any],
        argument: object,
        *,
        rows: int,
        size: int,
        is_lazy: bool = False,
    ) -> asyncio.Future[Any]:
        """Run `apply(argument)` in the next transaction; the future has its result once that is durable."""
        return self._enter(Member(apply, argument, self._loop.create_future(), rows, size, False, is_lazy))

    def _enter(self, member: Member) -> asyncio.Future[Any]:
        """Let it wait for the next group."""
        if self._is_closed:
            member.future.set_exception(
                WorldUnavailable("it was closed here: open it again", world=self._transactor.url)
            )
            return member.future
        self._pending.append(member)
        if not self._is_scheduled and self._job is None:
            self._is_scheduled = True
            self._loop.call_soon(self._flush)
        return member.future

    def _flush(self) -> None:
        self._is_scheduled = False
        if self._job is not None or not self._pending:
            return
        members = self._take_group()
        self._is_alone = len(members) == 1 and not self._pending
        if self._is_alone:
            landing = self._try_commit(members[0])
            if landing is not None:
                self._answer(members, landing.answers, landing.changes)
                return
        self._hand_over(members)
        self._let_go()

    def _try_commit(self, member: Member) -> Landing | None:
        """Commit in the event loop, if that takes no longer than changing threads."""
        if self._last_seconds >= INLINE_SECONDS:
            return None
        started = time.perf_counter()
        landing = self._transactor.try_commit(member)
        if landing is not None:
            self._last_seconds = time.perf_counter() - started
        return landing

    def _answer_alone(self, future: asyncio.Future[Answer], run: str, answer: Committed) -> None:
        self._is_delivering = False
        self._turned_at = time.perf_counter()
        if not future.done():  # its awaiter was cancelled; the batch stands all the same
            future.set_result(answer)
        self._on_append(run)

    def _take_group(self) -> list[Member]:
        pending = self._pending
        if sum([m.rows for m in pending]) <= GROUP_ROWS and sum([m.size for m in pending]) <= GROUP_BYTES:
            group = list(pending)
            pending.clear()
            return group
        group = [pending.popleft()]
        rows, size = group[0].rows, group[0].size
        while pending:
            rows += pending[0].rows
            size += pending[0].size
            if rows > GROUP_ROWS or size > GROUP_BYTES:
                break
            group.append(pending.popleft())
        return group

    # The writer thread

    def _hand_over(self, members: list[Member]) -> None:
        if self._thread is None:
            # A daemon: if another process hangs with the turnstile in its hand, we must still be able to exit.
            self._thread = threading.Thread(
                target=_work,
                args=(self._jobs, self._transactor, self._loop, self._landed),
                name="journal-sqlite-writer",
                daemon=True,
            )
            self._thread.start()
        self._job = _Job(members)
        self._watch = self._loop.call_later(self._busy_seconds, self._give_up)
        self._jobs.put(self._job)
        if len(members) >= SPLIT_FROM:
            # The thread cannot begin while we compute: an interpreter is handed over only after 5 ms. So let it get to
            # where SQLite works and Python is free; from there on both of us go on.
            self._job.wait_under_way(UNDER_WAY_SECONDS)

    def _landed(self, job: _Job, landing: Landing | None, seconds: float) -> None:
        """The thread is done with `job`; without a landing, it was withdrawn."""
        if self._watch is not None:
            self._watch.cancel()
        self._job = None
        self._overdue = 0
        if landing is not None:
            self._last_seconds = seconds
            self._deliver(job.members, landing)
        if self._pending and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._flush)
        self._check_idle()

    def _give_up(self) -> None:
        """The turnstile has not opened within the bound: those who wait are told, and nothing of theirs was written."""
        job = self._job
        if job is None:
            return
        if job.settle():
            _refuse(job.members, self._busy())
        else:
            _refuse([self._pending.popleft() for _ in range(self._overdue)], self._busy())
        # Whoever waits behind it has not waited so long: those get the bound too.
        self._overdue = len(self._pending)
        self._watch = self._loop.call_later(self._busy_seconds, self._give_up)
        self._check_idle()

    def _busy(self) -> WorldBusy:
        return WorldBusy(
            f"another process has kept it locked for {self._busy_seconds:g} s: see who has the file open (fuser), "
            "and whether that process hangs",
            world=self._transactor.url,
        )

    # Answers

    def _deliver(self, members: list[Member], landing: Landing) -> None:
        """Answer a group so that of all who are at work one half computes while the other is on its way to the disk.

        Runs that are all answered together come back together: then the loop and the disk wait for each other in turn.
        So those who wait already go first; if they are too few, some of the group join them before the others go on.
        """
        answers, waiting = landing.answers, len(self._pending)
        leading = (len(members) - waiting) // 2
        if len(members) + waiting < SPLIT_FROM or self._is_closed:
            self._answer(members, answers, landing.changes)
        elif leading < SPLIT_FROM // 2:
            self._flush()
            self._answer(members, answers, landing.changes)
        else:
            self._held = (members[leading:], answers[leading:])
            self._answer(members[:leading], answers[:leading], landing.changes)
            self._loop.call_soon(self._let_go, HELD_PASSES)

    def _let_go(self, passes: int = 0) -> None:
        """Answer the second half: when the first has gone to the disk, or is not heard of for some passes."""
        if self._held is None:
            return
        if passes:
            self._loop.call_soon(self._let_go, passes - 1)
            return
        members, answers = self._held
        self._held = None
        self._answer(members, answers, [])

    def _answer(self, members: list[Member], answers: list[Any], changes: list[Changes]) -> None:
        for member, answer in zip(members, answers, strict=True):
            future = member.future
            if future.done():
                continue  # its awaiter was cancelled; the batch stands all the same
            if type(answer) is Committed:
                future.set_result(answer)
            elif isinstance(answer, Unsure):
                if member.is_batch:
                    future.set_result(Unknown(answer.reason))
                else:
                    future.set_exception(WorldUnavailable(answer.reason, world=self._transactor.url))
            elif isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        for change in changes:
            self._on_change(change)

    # The end

    async def aclose(self) -> None:
        """Finish what was submitted, then end the thread and close the connection."""
        self._is_closed = True
        self._let_go()
        if self._pending or self._job is not None:
            self._idle = self._loop.create_future()
            self._flush()
            self._check_idle()
            await self._idle
        if self._watch is not None:
            self._watch.cancel()
        await to_thread.run_sync(self.stop, LEAVE_SECONDS)

    def _check_idle(self) -> None:
        if self._idle is not None and not self._idle.done():
            # A job that was given up still occupies its thread, and holds nobody's batch.
            is_stuck = self._job is not None and all(m.future.done() for m in self._job.members)
            if not self._pending and (self._job is None or is_stuck):
                self._idle.set_result(None)

    def stop(self, wait_seconds: float = 0.0) -> None:
        """Close the connection, by the thread if there is one: it may be in the middle of a commit."""
        self._is_closed = True
        if self._thread is None:
            self._transactor.close()
        else:
            self._jobs.put(None)
            if wait_seconds:  # a finalizer may run on any thread, that one too
                self._thread.join(wait_seconds)


def _work(
    jobs: SimpleQueue[_Job | None],
    transactor: Transactor,
    loop: asyncio.AbstractEventLoop,
    landed: Callable[[_Job, Landing | None, float], None],
) -> None:
    """The writer thread. One call into the loop a group: each costs a system call and a change of thread."""
    while (job := jobs.get()) is not None:
        landing, seconds = transactor.commit(job.members, may_start=job.settle, under_way=job.say_under_way)
        try:
            loop.call_soon_threadsafe(landed, job, landing, seconds)
        except RuntimeError:
            pass  # the loop was closed while we committed: nobody is left to be told
    transactor.close()


def _refuse(members: list[Member], error: WorldError) -> None:
    for member in members:
        if not member.future.done():
            member.future.set_exception(error)

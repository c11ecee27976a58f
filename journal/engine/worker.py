"""`Worker`: claims runs of a journal and carries them on, several at once, until it is stopped.

Each slot claims for itself, so a long turn never leaves the others idle. Stopping: no more claims; turns have
`grace_seconds` to end; then those without a call under way are released, the others are marked draining and
cancelled, so that whoever takes them over does not count a crash.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from journal.core.errors import InvalidOptions, WorldError
from journal.core.ports import ROSTER_SECONDS, Claimed, WorkerInfo

if TYPE_CHECKING:
    from journal.engine.journal import Journal
    from journal.engine.runtime import Runtime

SUSPECT_TAKEOVERS = 3
"""Takeovers without progress after which a turn is worked on with nothing else beside it."""
_POLL_SECONDS = 1.0
_GLANCE_SECONDS = 0.02
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
_BEAT_SECONDS = ROSTER_SECONDS / 6
_LEAVE_SECONDS = 1.0


class Worker:
    """Made by `Journal.worker`."""

    def __init__(
        self, journal: "Journal", *, concurrency: int, agents: set[str] | None, grace_seconds: float
    ) -> None:
        if concurrency < 1:
            raise InvalidOptions("concurrency is at least 1")
        self.journal = journal
        self.concurrency = concurrency
        self.agents = agents
        self.grace_seconds = grace_seconds
        self.is_stopping = False
        self.busy = 0
        """Slots that are working on a turn."""
        self.worked = 0
        """Turns that were worked on, whatever became of them."""
        self.is_answered = True
        """Whether the store took the last claim or heartbeat that it was asked for."""
        self.held = 0
        """With `until_idle`: runs of its agents that others held when it had nothing more to do."""
        self.held_seconds: float | None = None
        """When the first lease of them ends, where the store says so."""
        self._due_seconds: float | None = None
        self._claiming = asyncio.Lock()
        self._empty_until = 0.0
        """Boot clock: until when nothing falls due, as the last claim said."""
        self._suspects: set[str] = set()
        """Runs that were taken over several times without an outcome, and are worked on here."""
        self._stopped = asyncio.Event()

    async def run(self, *, until_idle: bool = False) -> None:
        """Work until `stop` is called; with `until_idle`, until nothing is due and nothing is running here.

        A turn that is due later, or held by somebody else, does not count as work to wait for.
        """
        runtime = await self.journal.runtime()
        runtime.log.info(
            "worker started", concurrency=self.concurrency, agents=sorted(self.agents or runtime.agents)
        )
        async with anyio.create_task_group() as group:
            group.start_soon(self._stop_after_grace, runtime)
            group.start_soon(self._say_so, runtime)
            async with anyio.create_task_group() as slots:
                for _ in range(self.concurrency):
                    slots.start_soon(self._slot, runtime, until_idle)
            group.cancel_scope.cancel()
        await self._take_leave(runtime)
        runtime.log.info("worker stopped", worked=self.worked)

    def stop(self) -> None:
        """Claim nothing more and wind down; `run` returns once that is done. Safe to call again."""
        self.is_stopping = True
        self._stopped.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Worker"]:
        """Work in the background of a ``with`` block; leaving it stops the worker and waits for it."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.run)
            try:
                yield self
            finally:
                self.stop()

    async def _slot(self, runtime: "Runtime", until_idle: bool) -> None:
        pause = _FIRST_PAUSE
        while not self.is_stopping and not runtime.is_closing:
            try:
                async with self._claiming:  # one asks at a time; the others wait without load
                    await self._until_no_suspect(runtime)
                    claimed = await self._next(runtime, until_idle)
                    if claimed is not None and claimed[0].takeovers > SUSPECT_TAKEOVERS:
                        self._suspects.add(claimed[0].claim.run)
                        await self._until_quiet(runtime)
                pause = _FIRST_PAUSE
            except WorldError as error:
                self.is_answered = False
                runtime.log.error("claiming failed", error=type(error).__qualname__, seconds=pause)
                await self._sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            if claimed is None:
                continue
            self.busy += 1
            try:
                await runtime.work(*claimed)
            finally:
                self.busy -= 1
                self.worked += 1
                self._suspects.discard(claimed[0].claim.run)
            if failed := runtime.resources_failed:
                # It is this process that cannot begin a turn; others, which may, find what it gave back.
                await self._sleep(min(_FIRST_PAUSE * 2 ** min(failed, 20), _LONGEST_PAUSE))

    async def _until_no_suspect(self, runtime: "Runtime") -> None:
        """A turn that may be what kills workers is worked on alone until it has made progress: it kills nobody else."""
        while self._suspects and not self.is_stopping:
            self._suspects -= runtime.progressing
            await self._sleep(_GLANCE_SECONDS)

    async def _until_quiet(self, runtime: "Runtime") -> None:
        """Give what is under way beside a suspect a moment to end."""
        until = runtime.clock.boottime() + self.journal.lease_seconds / 4
        while self.busy and runtime.clock.boottime() < until and not self.is_stopping:
            await self._sleep(_GLANCE_SECONDS)

    async def _next(self, runtime: "Runtime", until_idle: bool) -> tuple[Claimed, float] | None:
        if self.is_stopping:
            return None
        seconds = self._empty_until - runtime.clock.boottime()
        self._empty_until = 0.0
        if seconds <= 0:
            claims, asked = await runtime.claim(agents=self.agents)
            self.is_answered = True
            due = self._due_seconds = claims.next_due_seconds
            seconds = _POLL_SECONDS if due is None else min(due, _POLL_SECONDS)
            if claims.claimed:
                # What is due meanwhile rings: the next slot need not ask again.
                self._empty_until = runtime.clock.boottime() + seconds
                return claims.claimed[0], asked
        if until_idle and not self.busy:
            await self._count_held(runtime)
            self.stop()
            return None
        waiting = asyncio.ensure_future(runtime.world.wait_for_work(0.05 if until_idle else seconds))
        stopping = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            stopping.cancel()
        return None

    async def _count_held(self, runtime: "Runtime") -> None:
        """What others hold: their leases may end after we have."""
        agents = set(runtime.agents) if self.agents is None else self.agents
        found = [stats for stats in await runtime.world.stats() if stats.agent in agents]
        self.held = sum(stats.held for stats in found)
        if not any(stats.later for stats in found):
            self.held_seconds = self._due_seconds

    async def _sleep(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._stopped.wait()

    async def _say_so(self, runtime: "Runtime") -> None:
        """Be listed by `journal workers`, for as long as this runs."""
        started = runtime.clock.time()
        while True:
            info = WorkerInfo(
                worker=runtime.worker_id,
                version=runtime.version,
                slots=self.concurrency,
                busy=self.busy,
                agents=tuple(sorted(runtime.agents if self.agents is None else self.agents)),
                started=started,
            )
            try:
                await runtime.world.beat(info)
                self.is_answered = True
            except WorldError as error:
                self.is_answered = False
                runtime.log.warning("the store does not take our heartbeat", error=type(error).__qualname__)
            await asyncio.sleep(_BEAT_SECONDS)

    async def _take_leave(self, runtime: "Runtime") -> None:
        try:
            with anyio.move_on_after(_LEAVE_SECONDS):
                await runtime.world.leave(runtime.worker_id)
        except WorldError:
            pass  # it will be forgotten for its silence

    async def _stop_after_grace(self, runtime: "Runtime") -> None:
        await self._stopped.wait()
        deadline = asyncio.get_running_loop().time() + self.grace_seconds
        while self.busy and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - seconds at most
            await asyncio.sleep(0.02)
        for attempt in runtime.attempts:
            attempt.holding.is_ending = True
        for attempt in list(runtime.attempts):
            if attempt.acting:
                await attempt.drain()
            attempt.halt("shutdown")

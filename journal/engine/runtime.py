"""A journal at work in one event loop: the open store, the claims, the turns that run here.

Opened by the first await that needs it. One task, the keeper, owns everything: when the journal is closed, or the
loop is torn down under it, the keeper stops the turns (which give their runs back), then the renewals, then
the resources, then the store.
"""

import asyncio
import os
import socket
import traceback
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from itertools import chain
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc

from journal.core.clock import Clock
from journal.core.codec import open_record
from journal.core.errors import (
    ControlFlow,
    HandlerAborted,
    InvalidOptions,
    JournalError,
    RunNotFound,
    TurnNotFound,
)
from journal.core.ports import Claimed, Claims, Release, World
from journal.core.records import MIN_READER, Record, TurnBlocked, TurnFinished
from journal.engine.attempt import Attempt, Ended
from journal.engine.capabilities import check_capabilities
from journal.engine.claim import Flusher, Holding
from journal.engine.context import CallContext
from journal.engine.log import logger
from journal.engine.opening import open_attempt
from journal.engine.renewal import Renewals
from journal.engine.scope import attempt_of, outside

if TYPE_CHECKING:
    from journal.engine.agent import Agent
    from journal.engine.journal import Journal

_LOOK_SECONDS = 0.5
_STOP_SECONDS = 5.0
_POLL_SECONDS = 1.0
_UNAWAITED_POLL_SECONDS = 10.0
"""For a turn that nobody here waits for any more: there may be many, parked for long."""
_SAY_SO_SECONDS = 3.0
"""So long another holder is waited for without a word."""
_COULD_NOT_START_SECONDS = 1.0
"""How long a run is left alone by all that could not be started (its resources failed): no hot loop."""
_UNSEEN = Ended()
Waiters = set[asyncio.Future[Ended]]


class Runtime:
    """What a `Journal` is in one loop of one process."""

    def __init__(self, journal: "Journal", clock: Clock) -> None:
        self.journal = journal
        self.clock = clock
        self.version = journal.version
        self.agents: dict[str, Agent[Any, Any]] = journal.agents
        self.worker_id = f"{socket.gethostname()}:{os.getpid()}:{os.urandom(3).hex()}"
        self.log = logger().bind(worker=self.worker_id)
        self.is_closing = False
        self.world: World
        self.attempts: set[Attempt] = set()
        self.on_act: Callable[[CallContext], None] | None = None
        """Told of each act just before it begins, and of each probe (`number` 0): for tests that kill there."""
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._stop = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._group: anyio.abc.TaskGroup
        self._resource_group: anyio.abc.TaskGroup
        self._renewals: Renewals
        self._resources: asyncio.Future[Any] | None = None
        self.resources_failed = 0
        """How often on end the resources could not be had."""
        self._served: dict[str, dict[str, Waiters]] = {}
        """By run, the turns that this process works on until they have ended; who waited for one may be gone."""
        self._looking = False
        self._flusher = Flusher()
        self._asked: asyncio.Queue[tuple[Callable[..., Coroutine[Any, Any, Any]], tuple[Any, ...]]]
        self._asked = asyncio.Queue()

    # Life --------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the store; every caller waits for the same opening."""
        if self._keeper is None:
            self._keeper = outside().run(self._loop.create_task, self._keep(), name="journal keeper")
        await asyncio.shield(self._ready)

    async def close(self) -> None:
        """Stop the turns that run here, then let everything go."""
        if self._keeper is None:
            return
        self.is_closing = True
        self._stop.set()
        await asyncio.wait({self._keeper})
        if not self._keeper.cancelled() and (error := self._keeper.exception()) is not None:
            raise error

    def abandon(self) -> None:
        """Renew nothing any more: the loop was stopped for good, and what was held is to fall to others."""
        self._renewals.abandon()

    async def _keep(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                self.world = await stack.enter_async_context(self.journal.open_world())
                check_capabilities(self.journal.requires, self.world, self.agents)
                self._resource_group = await stack.enter_async_context(anyio.create_task_group())
                stack.callback(self._resource_group.cancel_scope.cancel)
                self._renewals = Renewals(self.world.open_renewer, self.clock, self.journal.lease_seconds)
                stack.push_async_callback(self._renewals.stop)
                async with anyio.create_task_group() as self._group:
                    self._group.start_soon(self._start_for_callbacks)
                    self._ready.set_result(None)
                    try:
                        await self._stop.wait()
                    finally:
                        self.is_closing = True
                        self._group.cancel_scope.cancel()
                        await self._stop_attempts()
        except Exception as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)
        finally:
            self.is_closing = True
            self.journal.forget(self)
            for turns in self._served.values():
                for waiter in chain.from_iterable(turns.values()):
                    waiter.cancel()

    async def _stop_attempts(self) -> None:
        """Stop the turns, those of workers in other tasks too, and wait while they give their runs back."""
        with anyio.move_on_after(_STOP_SECONDS, shield=True):
            while self.attempts:
                for attempt in list(self.attempts):
                    attempt.halt("shutdown")
                await asyncio.sleep(0.01)

    def spawn(self, fn: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
        """Run `fn` beside the turns; it ends with the journal. May be called by a callback of the loop too."""
        if asyncio.current_task() is None:
            self._asked.put_nowait((fn, args))
        else:
            outside().run(self._group.start_soon, fn, *args)

    async def _start_for_callbacks(self) -> None:
        """Start what callbacks ask for: a task group takes it from tasks only."""
        while True:
            fn, args = await self._asked.get()
            self._group.start_soon(fn, *args)

    async def resources(self) -> Any:
        """What the journal's `resources` gives this process, entered once."""
        if self.journal.resources is None:
            return None
        if self._resources is None:
            self._resources = self._loop.create_future()
            self._resource_group.start_soon(self._hold_resources, self._resources)
        return await asyncio.shield(self._resources)

    async def _hold_resources(self, ready: "asyncio.Future[Any]") -> None:
        assert self.journal.resources is not None
        try:
            async with self.journal.resources() as deps:
                ready.set_result(deps)
                self.resources_failed = 0
                await anyio.sleep_forever()
        except Exception as error:
            if ready.done():
                raise
            self._resources = None  # the next turn tries again
            self.resources_failed += 1
            ready.set_exception(error)

    # Working -----------------------------------------------------------------------------------------

    async def claim(self, *, agents: "set[str] | None", run: str | None = None) -> tuple[Claims, float]:
        """Claim one run; (what came, boot clock when it was asked for)."""
        asked = self.clock.boottime()
        known = set(self.agents) if agents is None else agents
        asking = self._loop.create_task(
            self.world.claim(
                worker=self.worker_id,
                limit=1,
                lease_seconds=self.journal.lease_seconds,
                agents=known,
                reads=MIN_READER,
                run=run,
            )
        )
        try:
            return await asyncio.shield(asking), asked
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):  # what was given to us meanwhile goes back
                for claimed in (await asking).claimed:
                    holding = self._hold(claimed, asked)
                    await self._release(holding, 0.0)
            raise

    async def work(self, claimed: Claimed, asked: float, written: tuple[Record, ...] = ()) -> None:
        """Carry on with a run that was just claimed, until its turn ended here in whichever way.

        `written`: what this process appended to it just before, if anything.
        """
        holding = self._hold(claimed, asked)
        self._renewals.add(holding)
        try:
            if claimed.taken_over:
                self.log.info("turn taken over", run=holding.run, takeovers=claimed.takeovers)
            attempt = await open_attempt(self, holding, written)
            if attempt is None:
                return
            self.attempts.add(attempt)
            self._watch_outside()
            try:
                await attempt.run()
            finally:
                self.attempts.discard(attempt)
                await attempt.files.close(attempt.ended)
        except ControlFlow as error:
            if claimed.turn is not None:
                self.turn_lost(holding.run, claimed.turn, error)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await self._release(holding, _COULD_NOT_START_SECONDS)
            if isinstance(error, Exception) and claimed.turn is not None:
                self.turn_lost(holding.run, claimed.turn, error)
                self.log.error("turn could not start", run=holding.run, **_told(error))
                return
            raise
        finally:
            self._renewals.remove(holding)

    def _hold(self, claimed: Claimed, asked: float) -> Holding:
        trusted_until = asked + self.journal.lease_seconds
        return Holding(self.world, self.clock, claimed, self._flusher, trusted_until=trusted_until)

    @property
    def progressing(self) -> set[str]:
        """Runs whose present attempt has recorded an outcome, or is no takeover."""
        return {attempt.holding.run for attempt in self.attempts if not attempt.holding.progress_due}

    async def _release(self, holding: Holding, delay_seconds: float) -> None:
        """Best effort: a lease that runs out does the same."""
        holding.is_ending = True
        if holding.lost is None and not holding.is_over:
            try:
                await holding.commit(queue=Release(delay_seconds=delay_seconds))
            except (ControlFlow, Exception) as error:  # noqa: BLE001 - must not mask the first error
                self.log.warning("release failed", run=holding.run, error=type(error).__qualname__)

    def _watch_outside(self) -> None:
        if not self._looking:
            self._looking = True
            self.spawn(self._look_outside)

    async def _look_outside(self) -> None:
        """See what others appended to runs whose holder is silent: a cancel is delivered within a second."""
        try:
            while self.attempts:
                await asyncio.sleep(_LOOK_SECONDS)
                for attempt in list(self.attempts):
                    try:
                        await attempt.look_outside()
                    except Exception as error:  # noqa: BLE001 - looked for again in half a second
                        self.log.warning("looking outside failed", error=type(error).__qualname__)
        finally:
            self._looking = False

    # Waiting for turns ---------------------------------------------------------------------------------

    def turn_ended(self, run: str, turn: str, ended: Ended = _UNSEEN) -> None:
        """The turn finished or is blocked."""
        for waiter in self._served.get(run, {}).pop(turn, ()):
            if not waiter.done():
                waiter.set_result(ended)

    def turn_lost(self, run: str, turn: str, error: BaseException | None) -> None:
        """The turn stopped here without an end. Those who wait are told only if waiting on makes no sense."""
        cause = error.cause if isinstance(error, HandlerAborted) else error
        if isinstance(cause, Exception):
            for waiter in self._served.get(run, {}).pop(turn, ()):
                if not waiter.done():
                    waiter.set_exception(cause)

    async def until_ended(
        self, run: str, turn: str, *, serve: bool, written: tuple[Record, ...] | None = None
    ) -> Ended:
        """Return once the turn finished or is blocked, wherever it is worked. `serve`: work on it here too.

        `written`: what has just been appended to submit it, which spares looks at the store.
        """
        if self.is_closing:
            raise asyncio.CancelledError  # as those hear of it who have waited longer
        try:
            if written is None and await self._has_ended(run, turn):
                return _UNSEEN
        except asyncio.CancelledError:
            if serve and not self.is_closing:
                self.serve(run, turn)
            raise
        self._refuse_own(run, turn)
        if not serve:
            return await self._follow_to_end(run, turn)
        waiter: asyncio.Future[Ended] = self._loop.create_future()
        waiters = self.serve(run, turn, written or ())
        waiters.add(waiter)
        try:
            return await waiter
        finally:
            waiters.discard(waiter)

    def serve(self, run: str, turn: str, written: tuple[Record, ...] = ()) -> Waiters:
        """Work on that turn until it has ended, awaited or not; those who wait for it."""
        turns = self._served.get(run)
        if turns is None:
            turns = self._served[run] = {}
            self.spawn(self._serve, run, written)
        return turns.setdefault(turn, set())

    def _refuse_own(self, run: str, turn: str) -> None:
        """Whoever waits is within a turn of that run itself: it would be for ever, since turns come one by one."""
        attempt = attempt_of()
        if attempt is None or attempt.is_over or attempt.holding.run != run:
            return
        if (attempt.runtime.world.url, attempt.runtime.journal.namespace) == (
            self.world.url,
            self.journal.namespace,
        ):
            raise InvalidOptions(
                f"turn {attempt.turn_id!r} of run {run!r} would wait for turn {turn!r} of its own run, which cannot "
                "end before it has: submit it and return, or use another run_id"
            )

    async def _has_ended(self, run: str, turn: str) -> bool:
        info = await self.world.turn(run, turn)
        if info is not None and info.finished is not None:
            return True
        state = await self.world.run(run)
        if state is None:
            raise RunNotFound(run_id=run, world=self.world.url)
        if info is None:
            raise TurnNotFound(run_id=run, turn_id=turn)
        return state.closed or (state.status == "blocked" and state.turn == turn)

    async def _follow_to_end(self, run: str, turn: str) -> Ended:
        state = await self.world.run(run)
        if state is None:
            raise RunNotFound(run_id=run, world=self.world.url)
        offset = f"{state.head:016d}_{0:016d}"
        stream = self.world.follow(run, offset=offset)
        if await self._has_ended(run, turn):
            return _UNSEEN
        async for item in stream:
            if isinstance(item, Record) and item.turn == turn:
                if item.type == TurnBlocked.TYPE:
                    break
                if item.type == TurnFinished.TYPE and isinstance(body := open_record(item), TurnFinished):
                    return Ended(None, body)
        return _UNSEEN

    async def _serve(self, run: str, written: tuple[Record, ...]) -> None:
        """Work on `run` until those of its turns have ended that were asked for here."""
        turns = self._served[run]
        since: float | None = self.clock.boottime()
        try:
            while True:
                claims, asked = await self.claim(agents=None, run=run)
                if claims.claimed:
                    await self.work(claims.claimed[0], asked, written)
                    written = ()  # should it not have been the log after all, the next attempt reads
                    since = self.clock.boottime()
                elif since is not None and self.clock.boottime() >= since + _SAY_SO_SECONDS:
                    await self._say_who_is_waited_for(run)
                    since = None
                for turn in list(turns):
                    if await self._has_ended(run, turn):
                        self.turn_ended(run, turn)
                if not turns:
                    break  # no await since this was looked up: nobody can slip in
                if not claims.claimed:
                    await self._wait_to_claim(turns, claims.next_due_seconds)
        except Exception as error:  # noqa: BLE001 - told to those who wait
            for turn, waiters in list(turns.items()):
                if not waiters:
                    self.log.warning(
                        "turn is not worked on here any more", run=run, turn=turn, **_told(error)
                    )
                self.turn_lost(run, turn, error)
        del self._served[run]

    async def _wait_to_claim(self, turns: dict[str, Waiters], due_seconds: float | None) -> None:
        """Until one of them may be claimable; longer where nobody waits for any, as long as that is so."""
        until = self.clock.boottime() + _UNAWAITED_POLL_SECONDS
        while True:
            begun = self.clock.boottime()
            longest = _POLL_SECONDS if due_seconds is None else min(due_seconds, _POLL_SECONDS)
            await self.world.wait_for_work(longest)
            now = self.clock.boottime()
            if now < begun + longest or longest < _POLL_SECONDS or any(turns.values()) or now >= until:
                return
            due_seconds = None if due_seconds is None else due_seconds - (now - begun)

    async def _say_who_is_waited_for(self, run: str) -> None:
        """Say why nothing happens here: a holder that died may have a while of its lease left."""
        state = await self.world.run(run)
        if state is not None and state.status == "running":
            self.log.warning(
                "another worker holds the run, and is waited for; if it died, its lease must end first",
                run=run,
                lease_seconds=self.journal.lease_seconds,
            )


def _told(error: Exception) -> dict[str, str]:
    """What a log line says of it: where it was raised, and its text if that is of our own writing."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    told = {"error": type(error).__qualname__, "where": f"{last.filename}:{last.lineno}"}
    return {**told, "reason": str(error)} if isinstance(error, JournalError) else told

"""The order of replay: recorded outcomes reach the handler as they lie in the log, each once all else is at rest.

Races, `as_completed` and timeouts take another branch if outcomes come all at once. So a recorded outcome is released
when it is the next one in the log, every call that had begun by then was asked for again, and the attempt is idle:
nothing of it is ready to run in two passes of the loop on end. What is live is handed out by the same rule, behind all
that is recorded, so that the first run and every replay see the same order. That goes for the end of a call whichever
it is: one that is cancelled meanwhile ends by that, at its place in the log. Next: `calls.py` asks here before it hands
an outcome out, `outside.py` for what is observed. Long since who waits for what, and when that may come, is one state.
"""

import asyncio
import math
from bisect import insort
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio

from journal.core.errors import Diverged
from journal.engine.pending import Pending
from journal.engine.ready import ready_of, watch_tasks
from journal.replay.history import TURN_CANCELLED, CallHistory, Event, is_cancelled, is_task
from journal.replay.interventions import began
from journal.replay.matcher import Asked, asked_call, recorded_call

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt

REPLAY_STALL_SECONDS = 10.0
"""How long a replay waits for the code to do what it did, beyond the time it took then; after that the two diverge."""
MOST_PATIENCE_SECONDS = 120.0
"""How long a replay waits at most for pauses of the code itself: what took longer then is told as a divergence."""
_PACE_SECONDS = 10.0
"""How long a replay holds outcomes back in all, for what the handler did besides its calls and was over before them."""
_BLIND_PASSES = 100
"""Passes after which an attempt counts as idle in an event loop that does not show what is ready (uvloop)."""
_IDLE_PASSES = 2
_RESTLESS_PASSES = 20
"""Passes after which it is looked at closely what does not rest."""
_MOST_PASSES = 1000
"""Passes after which an attempt that never rests, since something of it spins, is handed the next all the same."""
_EAGER_TASKS: Collection[Any] = getattr(asyncio.tasks, "_eager_tasks", ())
"""Tasks that run as they are made, in the frame of whoever makes them, as long as they do (Python 3.12 and later)."""


class Order:
    """What is still to be released in one attempt. Belongs to its event loop."""

    def __init__(self, attempt: "Attempt") -> None:
        self._attempt = attempt
        self._loop = attempt.loop
        self._due = deque(attempt.history.events())
        self._keys = {event.key for event in self._due}
        """Of what is due; what was dropped is skipped when its turn comes."""
        self._asked: dict[str, asyncio.Future[None]] = {}
        self._holding: tuple[str, asyncio.TimerHandle] | None = None
        """The call that is waited for before the next event may come."""
        self._cancelled: set[str] = set()
        """Those that the code has cancelled again, and whose turn it is not yet."""
        self._live: list[tuple[int, asyncio.Future[None]]] = []
        """By landing (`Holding.commit`)."""
        self._acting: list[tuple[Asked, asyncio.Future[None], float]] = []
        """Calls that are to act, and wait for all that is recorded before that seq."""
        self._is_past = False
        """Whether every recorded call was asked for, and every outcome released."""
        self._unasked: asyncio.TimerHandle | None = None
        self._ready = ready_of(self._loop)
        if self._ready is None:
            watch_tasks(self._loop)
        self._bearing: set[asyncio.Task[Any]] = set()
        """Tasks that were cancelled, and wait all the same."""
        self._passes = self._restless = 0
        self._is_ticking = False
        self._begun = self._loop.time()
        self._stall: asyncio.TimerHandle | None = None
        self._released_at = attempt.history.attempt_began(self._due[0].seq) if self._due else 0.0
        """When what was released last was recorded, by the store's clock."""
        self.advanced_at = self._begun
        """When it was released, on the loop's clock."""
        self.pending = Pending(attempt, self._loop, self._stir) if self._due else None
        self._pace: asyncio.TimerHandle | None = None
        self._pace_left = _PACE_SECONDS

    def is_clear(self) -> bool:
        """Whether what is live now may be handed out at once."""
        if self._due or self._live:
            return False
        return not (self._has_ready() if self._ready is None else self._ready.holds(self._attempt))

    @property
    def missing(self) -> str | None:
        """The key of what must be released next, where somebody waits behind it and the code has not asked for it."""
        if not self._due or not self._is_awaited() or self._due[0].key in self._asked:
            return None
        return self._due[0].key

    @property
    def is_to_be_cancelled(self) -> bool:
        """Whether the handler was given the turn's cancellation later than what was released so far."""
        return TURN_CANCELLED in self._keys

    @property
    def is_to_come(self) -> bool:
        """Whether the code has something that is due still to ask for, or to cancel."""
        return any(
            event.key not in (self._cancelled if event.is_cancelled else self._asked)
            for event in self._due
            if event.key in self._keys and not event.is_late
        )

    def release(self, key: str) -> bool:
        """Whether the event under that key may come at once: it was released or dropped before, or is next, at rest."""
        if key not in self._keys:
            return True
        event = self._due[0]
        if event.key != key or self._asked or event.is_cancelled or self._has_ready():
            return False
        if _EAGER_TASKS and asyncio.current_task() in _EAGER_TASKS:
            return False  # whoever has begun it is in the midst of doing so, and goes on first
        if self._holder(event) is not None or (not self._attempt.is_alone and self._early(event)):
            return False
        self._advance()
        if self._live or self._acting:
            self._stir()
        return True

    async def released(self, key: str) -> None:
        """Return when it is the turn of the event under that key. Raises `Diverged` if what comes before does not."""
        if not self.release(key):
            await self._at_its_place(key, None)

    async def interrupted(self, key: str) -> None:
        """`released` for what is no answer to the code, but comes over it: always at rest."""
        await self._at_its_place(key, None)

    async def _at_its_place(self, key: str, cancellation: asyncio.CancelledError | None) -> None:
        """Wait until it is the turn of that event; then raise the cancellation that came before it, if one did."""
        try:
            while key in self._keys:
                future = self._asked[key] = self._loop.create_future()
                self._stir()
                try:
                    await self._outlasting(future, cancellation)
                except asyncio.CancelledError as error:
                    if self._attempt.is_leaving:
                        raise
                    cancellation = cancellation or error
        finally:
            self._asked.pop(key, None)
            self.drop(key)
        if cancellation is not None:
            raise cancellation

    def put_off_cancellation(self) -> None:
        """The running task was cancelled where it was not by the log: it goes on, and hears of that behind the call.

        A timeout of the code's own runs from the replay on, and may be over before a recorded outcome has come to its
        place. A block that ends with that outcome takes the cancellation back, as it does when it comes too late.
        """
        task = asyncio.current_task()
        assert task is not None, "calls are made in tasks"
        self._loop.call_soon(_cancel_again, task, task.cancelling())

    async def cancelled(self, key: str, time: float) -> None:
        """Wait for the code to cancel the call as it did before, until that was recorded. Raises `Diverged`."""
        self._asked[key] = future = self._loop.create_future()
        timer = self._loop.call_later(self._patience(time), self._not_cancelled, key)
        self._stir()
        try:
            await future
        except asyncio.CancelledError as error:
            timer.cancel()
            self._cancelled.add(key)
            if not self._attempt.is_leaving:
                await self._at_its_place(key, error)
            raise
        finally:
            timer.cancel()
            self._asked.pop(key, None)
            self.drop(key)

    async def live(self, landing: int) -> None:
        """Return when it is the turn of what was recorded as that landing. Raises `Diverged` as `released` does."""
        cancellation: asyncio.CancelledError | None = None
        while True:
            future = self._loop.create_future()
            try:
                await self._wait_live(landing, future, cancellation)
                break
            except asyncio.CancelledError as error:
                cancellation = cancellation or error
                if not landing or self._attempt.is_leaving or not future.cancelled():
                    break
        if cancellation is not None:
            raise cancellation

    async def _wait_live(
        self, landing: int, future: "asyncio.Future[None]", cancellation: asyncio.CancelledError | None
    ) -> None:
        place = landing, future
        insort(self._live, place, key=_landing)
        self._stir()
        try:
            await self._outlasting(future, cancellation)
        finally:
            self._live.remove(place)

    async def _outlasting(
        self, future: "asyncio.Future[None]", cancellation: asyncio.CancelledError | None
    ) -> None:
        """Wait; once cancelled, hear of it no more: scopes of anyio cancel again in each pass of the loop."""
        if cancellation is None:
            await future
            return
        with self.bearing_cancellations():
            while not future.done():
                try:
                    await asyncio.wait({future})  # which leaves it alone: it keeps its place
                except asyncio.CancelledError:  # through `asyncio.gather`, which knows no shield
                    if self._attempt.is_leaving:
                        raise
        await future

    @contextmanager
    def bearing_cancellations(self) -> Iterator[None]:
        """Shield the running task; whoever cancels it all the same, again and again, does not count as unrest."""
        task = asyncio.current_task()
        assert task is not None, "calls are made in tasks"
        is_first = task not in self._bearing
        self._bearing.add(task)
        try:
            with anyio.CancelScope(shield=True):
                yield
        finally:
            if is_first:
                self._bearing.discard(task)

    async def drained(self) -> None:
        """Return once all that is recorded was released. Raises `Diverged` as `released` does."""
        if self._due:
            await self.live(0)

    async def passed(self, asked: Asked, before: float = math.inf) -> None:
        """Return once all that is recorded before that seq was released and asked for: what acts does so behind it.

        A call that is in no record waits for everything; one in doubt for what lies before its intent, since its act
        may have set going what lies behind. Raises `Diverged` if the code does not ask for what is recorded.
        """
        if (self._is_past or self._has_passed(before)) and not self._is_held(asked):
            return
        place = asked, self._loop.create_future(), before
        self._acting.append(place)
        self._stir()
        try:
            await place[1]
        finally:
            self._acting.remove(place)

    def claimed(self) -> None:
        """The code has asked for a recorded call."""
        if self._acting or self._holding is not None:
            self._let_go()
            self._stir()

    def _has_passed(self, before: float) -> bool:
        is_released = not self._due or self._due[0].seq > before
        has_passed = is_released and self._attempt.history.expected(before) is None
        self._is_past = has_passed and before == math.inf
        return has_passed

    def _is_held(self, asked: Asked) -> bool:
        """Whether the turn's cancellation comes first."""
        if asked.key == TURN_CANCELLED:
            return False
        if self._due:
            return self._due[0].key == TURN_CANCELLED
        return self._attempt.cancellation.is_pending and self._attempt.history.expected(math.inf) is None

    def drop(self, key: str) -> None:
        """Nobody waits for that event any more: the next one may come."""
        self._keys.discard(key)
        self._skip()
        self._stir()

    # When it is idle ---------------------------------------------------------------------------------

    def _stir(self) -> None:
        """Look whether the next event may be released, as long as somebody waits."""
        self._passes = self._restless = 0
        if not self._is_ticking and self._is_awaited():
            self._is_ticking = True
            self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        self._is_ticking = False
        if not self._is_awaited():
            return
        self._restless += 1
        self._passes = 0 if self._is_restless() else self._passes + 1
        is_idle = self._passes >= (_BLIND_PASSES if self._ready is None else _IDLE_PASSES)
        if is_idle or self._restless >= _MOST_PASSES:
            self._rest()
        else:
            self._is_ticking = True
            self._loop.call_soon(self._tick)

    def _is_awaited(self) -> bool:
        return bool((self._asked and self._due) or self._live or self._acting)

    def _has_ready(self) -> bool:
        """Whether anything of this attempt is about to run; where the loop does not show it, whether it may be."""
        if self._ready is None:
            return not self._attempt.is_alone
        return self._ready.holds(self._attempt)

    def _is_restless(self) -> bool:
        if self._ready is None or not self._has_ready():
            return False
        if self._restless < _RESTLESS_PASSES:
            return True
        return self._ready.holds_besides(self._attempt, self._bearing)

    def _rest(self) -> None:
        """The attempt is idle: it waits for the next event, or for something else than us."""
        for asked, acting, before in self._acting:
            if not acting.done() and self._has_passed(before) and not self._is_held(asked):
                acting.set_result(None)
                self._stir()
                return
        if not self._due:
            self._rest_behind()
            return
        event = self._due[0]
        future = self._asked.get(event.key)
        held_by = self._holder(event)
        if held_by is not None and (held_by.key != event.key or event.is_cancelled):
            self._hold(held_by)
            return
        if event.is_cancelled and future is None:
            self.drop(event.key)  # the code has been given up on
            return
        if event.key == TURN_CANCELLED and future is not None and (left := self._left_of_pause(event)) > 0:
            self._loop.call_later(left, self._stir)
            return
        if future is not None and (not event.is_cancelled or event.key in self._cancelled):
            if (seconds := self._early(event)) > 0:
                self._hold_back(seconds)
                return
            self._advance()
            if not future.done():
                future.set_result(None)
            self._stir()
            return
        if event.is_late and future is None:
            self.drop(event.key)
            return
        if self._stall is None:
            self._stall = self._loop.call_later(self._patience(event.time), self._stalled, event)

    def _left_of_pause(self, event: Event) -> float:
        """Seconds until the handler must be where it was given the cancellation, if nothing shows that it is."""
        return 0.0 if len(self._asked) > 1 or self._acting else self._left_until(event)

    def _early(self, event: Event) -> float:
        """Seconds to wait with it, since the handler pauses or has a thread at work, which was over by then; else 0.

        Both take as long as they did, while what is recorded comes at once.
        """
        if self._pace_left <= 0 or self.pending is None:
            return 0.0
        left = self._left_until(event)
        return self.pending.seconds(min(left, self._pace_left)) if left > 0 else 0.0

    def _left_until(self, event: Event) -> float:
        """Seconds by which it would come sooner after what was released last than it did then."""
        before = max(self._released_at, self._attempt.history.attempt_began(event.seq))
        pause = min(event.time - before, MOST_PATIENCE_SECONDS)
        return pause - (self._loop.time() - self.advanced_at)

    def _hold_back(self, seconds: float) -> None:
        if self._pace is not None:
            self._pace.cancel()
        self._pace = self._loop.call_later(seconds, self._paced, self._loop.time())

    def _paced(self, since: float) -> None:
        self._pace_left -= self._loop.time() - since
        self._stir()

    def _holder(self, event: Event) -> CallHistory | None:
        """A call that had begun before the event, and that the code has not asked for again yet."""
        call = self._attempt.history.first_unasked()
        return call if call is not None and began(call) < event.seq else None

    def _hold(self, call: CallHistory) -> None:
        """Give the code time to ask for `call`. One that was cancelled may not come: then go on without it."""
        if self._holding is not None and self._holding[0] == call.key:
            return
        self._let_go()
        timer = self._loop.call_later(self._patience(call.intent_time), self._not_come, call)
        self._holding = call.key, timer

    def _let_go(self) -> None:
        if self._holding is not None:
            self._holding[1].cancel()
            self._holding = None

    def _not_come(self, call: CallHistory) -> None:
        self._holding = None
        history = self._attempt.history
        if history.is_claimed(call.key) or not self._is_awaited():
            self._stir()
        elif is_cancelled(call):
            history.give_up(call.key)
            self.drop(call.key)
        else:
            self._refuse(call.key, self._waiting())

    def _waiting(self) -> "list[asyncio.Future[None]]":
        """Everybody who waits for what is recorded."""
        waiting = [*self._asked.values(), *(future for _, future in self._live)]
        return waiting + [future for _, future, _ in self._acting]

    def _rest_behind(self) -> None:
        """All outcomes were released: what is live comes."""
        if not self._live:
            self._watch_unasked()
            return
        live = self._live[0][1]
        if not live.done():
            live.set_result(None)
        self._stir()

    def _watch_unasked(self) -> None:
        """A recorded call without an outcome was not asked for yet: give the code as long as it took then."""
        if self._unasked is not None:
            self._unasked.cancel()
        history = self._attempt.history
        key = next(
            (key for *_, before in self._acting if (key := history.expected(before)) is not None), None
        )
        if key is not None:
            patience = self._patience(history.calls[key].intent_time)
            self._unasked = self._loop.call_later(patience, self._not_asked, key)

    def _not_asked(self, key: str) -> None:
        history = self._attempt.history
        waiting = [future for _, future, before in self._acting if history.expected(before) == key]
        if waiting:
            self._refuse(key, waiting)

    def _patience(self, time: float) -> float:
        """Seconds until the code must have come to what it came to at that time of the store's clock.

        Its own pauses began with the replay, and take as long as they did.
        """
        then = min(time - self._attempt.history.started_at, MOST_PATIENCE_SECONDS)
        left = then - (self._loop.time() - self._begun)
        return max(0.0, left, time - (self._released_at or time)) + REPLAY_STALL_SECONDS

    def _advance(self) -> None:
        event = self._due.popleft()
        self._keys.discard(event.key)
        self._released_at, self.advanced_at = event.time, self._loop.time()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        self._skip()

    def _skip(self) -> None:
        """Forget what was dropped."""
        while self._due and self._due[0].key not in self._keys:
            self._due.popleft()

    # When it does not come ---------------------------------------------------------------------------

    def _stalled(self, event: Event) -> None:
        self._stall = None
        if not self._due or self._due[0] is not event:
            self._stir()
            return
        if event.key not in self._asked and not self._attempt.history.is_claimed(event.key):
            self._refuse(event.key, self._waiting())
        elif not event.is_cancelled:
            self._stir()

    def _not_cancelled(self, key: str) -> None:
        if key in self._asked:
            self._refuse(key, [self._asked[key]], ending="cancelled")

    def _refuse(self, key: str, waiting: "list[asyncio.Future[None]]", **more: str) -> None:
        call = self._attempt.history.calls.get(key)
        recorded = {**(recorded_call(call) if call is not None else {"key": key}), **more}
        asked = {"key": key} if more else self._in_place_of(key)
        for future in waiting:
            if not future.done():
                future.set_exception(Diverged(call=key, recorded=recorded, asked=asked))

    def _in_place_of(self, key: str) -> dict[str, Any] | None:
        """A new call that was most likely meant to be that one: the same function, in a task from the same place."""
        parent, name = _outside_of_task(key)
        new = next(
            (asked for asked, *_ in self._acting if _outside_of_task(asked.key) == (parent, name)), None
        )
        call = self._attempt.history.calls.get(key)
        if new is None or call is None or call.intent is None:
            return None
        is_moved = call.intent.input_digest == new.input_digest  # into a task, or out of one
        return asked_call(new) if is_moved else {**asked_call(new), "key": key}


def _cancel_again(task: "asyncio.Task[object]", cancelling: int) -> None:
    """Deliver a cancellation that was put off, unless it was taken back meanwhile."""
    if not task.done() and task.cancelling() >= cancelling > 0:
        task.uncancel()
        task.cancel()


def _outside_of_task(key: str) -> tuple[str, str]:
    """The scope that the task of the call was started in, if it is of one, and what the call is named there."""
    scope, _, name = key.rpartition("/")
    parent, _, last = scope.rpartition("/")
    return parent if is_task(last) else scope, name


def _landing(place: "tuple[int, asyncio.Future[None]]") -> int:
    return place[0]

"""What a handler sees that is no call: the clock, chance, a race's winner, a timeout, whether it was asked to stop.

Each is *observed*: recorded when the code asks, and answered from the log on replay. The record rides with the next
commit, so whatever rests on it lies behind it in the log. Chance needs no record: it follows from the turn's seed and
the scope. Keys count in the scope as those of calls do, and begin with ``@``.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import msgspec

from journal.core import values
from journal.core.codec import seal
from journal.core.errors import ControlFlow, Diverged, InvalidOptions
from journal.core.records import NewRecord, Observed
from journal.engine.context import in_call
from journal.engine.scope import Scope, current_scope, enter_root
from journal.tools.io import current_call

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt

R = TypeVar("R")
_encode_number = msgspec.json.Encoder().encode


def scope_of(attempt: "Attempt", what: str) -> Scope:
    """The scope of the running task, for `what` to be observed in. Raises `NotInTurn` and `InvalidOptions`."""
    if current_call.get() is not None and in_call() is not None:
        raise InvalidOptions(
            f"{what} was used inside a call, which does not run again on replay: use it in the handler, and pass what "
            "it gives; a call may read clocks and chance by itself"
        )
    return current_scope(what, attempt)


def _observation(attempt: "Attempt", key: str, value: bytes) -> NewRecord:
    return seal(attempt.holding.run, Observed(value=value), turn=attempt.turn_id, key=key)


def _observe(attempt: "Attempt", key: str, seen: Any) -> Any:
    """What was seen under `key`: then, if the log holds it, else now."""
    known = attempt.history.observed.get(key)
    if known is not None:
        return values.decode(known.value)
    attempt.holding.buffer(_observation(attempt, key, values.encode(seen)))
    return seen


def now(attempt: "Attempt") -> datetime:
    """The wall clock, in UTC."""
    key = scope_of(attempt, "turn.now").next_key("@now")
    if (known := attempt.history.observed.get(key)) is not None:
        return datetime.fromtimestamp(values.decode(known.value), UTC)
    seen = attempt.clock.time()
    # `values.encode`, for what is always a plain number: clocks are looked at often.
    attempt.holding.buffer(_observation(attempt, key, _encode_number(seen)))
    return datetime.fromtimestamp(seen, UTC)


def chance(attempt: "Attempt", what: str) -> random.Random:
    """The scope's own source of chance, the same in every attempt."""
    scope = scope_of(attempt, what)
    if scope.chance is None:
        submitted = attempt.history.submitted
        seed = submitted.seed if submitted is not None and submitted.seed else attempt.nonce.hex()
        digest = values.digest(f"{seed}\0{attempt.turn_id}\0{scope.path}".encode())
        scope.chance = random.Random(digest)  # noqa: S311 - to be repeated, not to be secret
    return scope.chance


def uuid(attempt: "Attempt") -> UUID:
    """A version 4 UUID."""
    return UUID(int=chance(attempt, "turn.uuid").getrandbits(128), version=4)


def seen(attempt: "Attempt", what: str, name: str, now: Any) -> Any:
    """What the handler sees under `name` by `what`: `now`, and on replay what it was then."""
    return _observe(attempt, scope_of(attempt, what).next_key(name), now)


def is_cancel_requested(attempt: "Attempt") -> bool:
    """Whether somebody asked for the turn to be cancelled."""
    key = scope_of(attempt, "turn.is_cancel_requested").next_key("@cancel")
    return bool(_observe(attempt, key, attempt.cancellation.is_asked))


def patched(attempt: "Attempt", name: str) -> bool:
    """Whether the code may go the new way: not while there is history of before."""
    key = scope_of(attempt, "turn.patched").next_key(f"@patch:{name}")
    if key in attempt.history.observed:
        return True
    if attempt.history.unclaimed() is not None:
        return False
    return bool(_observe(attempt, key, True))


# Races -----------------------------------------------------------------------------------------------


async def race(attempt: "Attempt", branches: tuple[Awaitable[R], ...]) -> tuple[int, R]:
    """Run all of `branches`; (place, result) of the first to end. The others are cancelled, and awaited."""
    if not branches:
        raise InvalidOptions("turn.race needs at least one branch")
    scope = scope_of(attempt, "turn.race")
    key = scope.next_key("@race")
    known = attempt.history.observed.get(key)
    if known is not None and int(values.decode(known.value)) >= len(branches):
        for branch in branches:
            if asyncio.iscoroutine(branch):
                branch.close()
        raise _without_winner(attempt, key, int(values.decode(known.value)), len(branches))
    tasks = [
        asyncio.ensure_future(_branch(attempt, f"{key}/{place}", branch))
        for place, branch in enumerate(branches)
    ]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if known is not None:
            winner = int(values.decode(known.value))
            if not tasks[winner].done():
                await asyncio.wait({tasks[winner]})
        else:
            winner = next(place for place, task in enumerate(tasks) if task in done)
            _observe(attempt, key, winner)
    finally:
        for task in tasks:
            task.add_done_callback(_look_at)
            task.cancel()
        await _ended(attempt, tasks)
    return winner, tasks[winner].result()


def _look_at(task: "asyncio.Future[Any]") -> None:
    if not task.cancelled():
        task.exception()  # a loser's failure is nobody's


async def _ended(attempt: "Attempt", tasks: "Iterable[asyncio.Future[Any]]") -> None:
    """Return once all of them have ended; a cancellation that comes meanwhile is raised then."""
    cancellation: asyncio.CancelledError | None = None
    with attempt.order.bearing_cancellations():
        while left := {task for task in tasks if not task.done()}:
            try:
                await asyncio.wait(left)
            except asyncio.CancelledError as error:  # the loop's own kind goes through shields
                cancellation = cancellation or error
                if attempt.is_leaving or attempt.fatal is not None:
                    break
    if cancellation is not None:
        raise cancellation


def _without_winner(attempt: "Attempt", key: str, winner: int, count: int) -> Diverged:
    error = Diverged(call=key, recorded={"key": key, "winner": winner}, asked={"key": key, "branches": count})
    attempt.end_with(error)
    return error


async def _branch(attempt: "Attempt", path: str, branch: Awaitable[R]) -> R:
    task = asyncio.current_task()
    assert task is not None, "coroutines run in tasks"
    enter_root(Scope(attempt, path, task))
    attempt.tasks[task] = None
    attempt.is_alone = False
    return await branch


# Timeouts --------------------------------------------------------------------------------------------


@asynccontextmanager
async def timeout(attempt: "Attempt", seconds: float) -> AsyncIterator[None]:
    """Cancel the block after `seconds` and raise `TimeoutError`; on replay, where and only if it was so then."""
    key = scope_of(attempt, "turn.timeout").next_key("@timeout")
    watch = _Watch(attempt, key, seconds)
    try:
        async with asyncio.timeout(None) as watch.limit:
            task = asyncio.create_task(watch.expire(), name="journal turn timeout")
            attempt.tasks[task] = None
            try:
                yield
            finally:
                if not watch.is_certain:
                    task.cancel()
                await _ended(attempt, (task,))
        if watch.has_expired:
            raise TimeoutError  # it was over before the block was: that is what the log says
    except TimeoutError as error:
        if watch.has_expired:
            error.__journal_call__ = key  # type: ignore[attr-defined]  # read when it escapes the handler
        raise
    finally:
        if watch.failure is not None:
            raise watch.failure


class _Watch:
    """Sees to it that a timeout runs out when it should."""

    def __init__(self, attempt: "Attempt", key: str, seconds: float) -> None:
        self.attempt = attempt
        self.key = key
        self.seconds = seconds
        self.limit: asyncio.Timeout
        self.is_certain = key in attempt.history.observed
        """Whether the log says that it ran out, or will say so in a moment."""
        self.has_expired = False
        self.failure: ControlFlow | None = None

    async def expire(self) -> None:
        order = self.attempt.order
        try:
            if self.is_certain:
                await order.released(self.key)
            else:
                await order.drained()
                if self.attempt.is_offline and self.attempt.history.finished is not None:
                    await asyncio.get_running_loop().create_future()  # the log says that it never does
                await asyncio.sleep(self.seconds)
                self.is_certain = True
                landing = await self.attempt.holding.commit(_observation(self.attempt, self.key, b"true"))
                if not order.is_clear():
                    await order.live(landing)
        except ControlFlow as error:
            self.failure = error
            self.attempt.end_with(error)
        self.has_expired = self.failure is None
        self.limit.reschedule(asyncio.get_running_loop().time())

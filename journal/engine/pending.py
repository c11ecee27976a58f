"""What a handler waits for besides its calls: pauses of its own, and threads.

Nothing public shows it. Timers stand in the event loop's heap, with the context they were set in; work for threads
passes through the loop's `run_in_executor`, which is watched from the first replay in that loop on. What is seen of
neither (timers of uvloop, threads of anyio) counts as nothing. Next: `order.py` paces a replay by it.
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from journal.engine.scope import attempt_of
from journal.tools.io import current_call

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt

_OURS = "journal."
_SOON = 0.001


class Pending:
    """Of one attempt. Belongs to its event loop."""

    def __init__(self, attempt: "Attempt", loop: asyncio.AbstractEventLoop, done: Callable[[], None]) -> None:
        self._attempt = attempt
        self._loop = loop
        self._done = done
        """Told when a thread has ended."""
        self._on_threads = 0
        self._timers: list[Any] = getattr(loop, "_scheduled", [])
        """A heap, soonest first."""
        if not hasattr(loop.run_in_executor, "__journal__"):
            _watch(loop)

    def seconds(self, most: float) -> float:
        """How long until the next of it may end, at most so long; 0 where there is none that ends by then."""
        if self._on_threads:
            return most
        now = self._loop.time()
        if not self._timers or self._timers[0].when() >= now + most:
            return 0.0
        soonest = min(self._own(now + most), default=None)
        return 0.0 if soonest is None else max(soonest - now, _SOON)

    def _own(self, before: float) -> Iterable[float]:
        for timer in self._timers:
            when = timer.when()
            if when < before and not timer.cancelled() and self._is_own(timer):
                yield when

    def _is_own(self, timer: Any) -> bool:
        """Whether the handler set it, rather than a call that acts, or the engine."""
        context, callback = timer._context, timer._callback  # noqa: SLF001 - nothing public shows them
        if attempt_of(context) is not self._attempt or context.get(current_call) is not None:
            return False
        return not (getattr(callback, "__module__", None) or "").startswith(_OURS)

    def sent(self, future: "asyncio.Future[Any]") -> None:
        """The handler has handed work to a thread."""
        self._on_threads += 1
        future.add_done_callback(self._ended)

    def _ended(self, _: "asyncio.Future[Any]") -> None:
        self._on_threads -= 1
        self._done()


def _watch(loop: asyncio.AbstractEventLoop) -> None:
    plain = loop.run_in_executor

    @functools.wraps(plain)
    def run_in_executor(*args: Any, **kwargs: Any) -> "asyncio.Future[Any]":
        future = plain(*args, **kwargs)
        attempt = attempt_of()
        if attempt is not None and attempt.order.pending is not None and current_call.get() is None:
            attempt.order.pending.sent(future)
        return future

    run_in_executor.__journal__ = True  # type: ignore[attr-defined]  # looked for above
    with contextlib.suppress(AttributeError):  # a loop may refuse it
        loop.run_in_executor = run_in_executor  # type: ignore[assignment]  # its own callers are to pass here

"""`FakeClock`: time that passes when nothing else is left to do, for tests of timeouts, retries and delays.

An event loop runs on it: a sleep of an hour takes no time, and everything happens in the order in which it would.
Real time goes on beside it for threads and for other processes.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from journal.core.clock import ManualClock
from journal.testing.threads import is_another_running, is_at_work

T = TypeVar("T")
PATIENCE_SECONDS = 0.02
"""Real time that an idle loop waits for what comes from outside (a socket, a thread of a store) before time jumps."""
_GLANCE_SECONDS = 0.0005
"""Enough to see whether a thread has taken something up."""


class FakeClock(ManualClock):
    """Both clocks, and the time of the event loops that are made on it.

    ``clock.run(main())`` runs a coroutine to its end, as `asyncio.run` does. Where a test plugin makes the loop, give
    it `new_event_loop`. `Retry`, `timeout=` and `asyncio.sleep` go by the loop. A journal that is to go by it too
    (``Journal(…, clock=clock)``: times in the log, `delay=`) needs a `lease_seconds` longer than time may jump, since
    claims are renewed in real time.
    """

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """What `main` returns, in a loop of its own on this clock."""
        with asyncio.Runner(loop_factory=self.new_event_loop) as runner:
            return runner.run(main)

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """A loop on this clock. Time jumps to its next timer once it is idle and no sync function of it is running."""
        return _Loop(self)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        super().__init__(_Selector(clock, self))

    def time(self) -> float:
        return self._clock.boottime()


class _Selector(selectors.DefaultSelector):
    """Where a loop waits: here waiting lets the time pass."""

    def __init__(self, clock: FakeClock, loop: _Loop) -> None:
        super().__init__()
        self._clock = clock
        self._loop = loop
        self._is_quiet = False
        """Nothing came from outside in all of the last wait."""

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        while not (ready := super().select(self._patience())):
            self._is_quiet = not is_at_work(self._loop)
            if self._is_quiet:
                self._clock.advance(timeout)
                return ready
        self._is_quiet = False
        return ready

    def _patience(self) -> float:
        """Most timers are of those who look whether there is anything: an hour has thousands, and not each may wait."""
        has_sockets = len(self.get_map()) > 1  # the first is the loop's own, by which threads wake it
        if not self._is_quiet or has_sockets:
            return PATIENCE_SECONDS
        if super().select(_GLANCE_SECONDS):
            return 0
        return PATIENCE_SECONDS if is_another_running() else 0

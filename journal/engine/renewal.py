"""Keeps claims alive from a thread, so that a busy event loop does not lose its runs.

Every third of a lease all claims of the process are renewed in one call. A claim is trusted until a lease after
the renewal was *sent*. If the loop has not turned for `STALL_SECONDS` the thread stops renewing: a hung
process must not keep its runs for ever. While the thread waits for a store that does not answer, the loop looks at the
clock in its place.
"""

import asyncio
import threading
from collections.abc import Callable

from journal.core.clock import Clock
from journal.core.errors import ClaimLost
from journal.core.ports import Renewer
from journal.engine.claim import Holding

STALL_SECONDS = 300.0
_BEAT_SECONDS = 1.0
_TRY_AGAIN_SECONDS = 1.0


class Renewals:
    """The claims that this runtime holds, and the thread that renews them while there are any."""

    def __init__(self, open_renewer: Callable[[], Renewer], clock: Clock, lease_seconds: float) -> None:
        self._open_renewer = open_renewer
        self._clock = clock
        self._lease = lease_seconds
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._holdings: set[Holding] = set()
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._beat = clock.boottime()
        self._beating: asyncio.TimerHandle | None = None
        self._is_asking = False

    def add(self, holding: Holding) -> None:
        """Renew this one from now on."""
        with self._lock:
            self._holdings.add(holding)
        if self._thread is None:
            self._heartbeat()
            self._thread = threading.Thread(target=self._run, name="journal-renewal", daemon=True)
            self._thread.start()

    def remove(self, holding: Holding) -> None:
        """It was given back, or lost."""
        with self._lock:
            self._holdings.discard(holding)

    def abandon(self) -> None:
        """End the thread, from whatever thread; it is not waited for."""
        self._stopping = True
        self._wake.set()

    async def stop(self) -> None:
        """End the thread and wait for it."""
        self.abandon()
        if self._beating is not None:
            self._beating.cancel()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _heartbeat(self) -> None:
        self._beat = self._clock.boottime()
        if self._is_asking:
            with self._lock:
                holdings = list(self._holdings)
            self._expire(holdings)
        self._beating = self._loop.call_later(_BEAT_SECONDS, self._heartbeat)

    # On the thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        renewer: Renewer | None = None
        pause = self._lease / 3
        try:
            while not self._stopping:
                self._wake.wait(pause)
                pause = self._lease / 3
                if self._stopping or self._clock.boottime() - self._beat > STALL_SECONDS:
                    continue
                with self._lock:
                    holdings = list(self._holdings)
                if not holdings:
                    continue
                try:
                    renewer = renewer or self._open_renewer()
                    self._renew(renewer, holdings)
                except Exception:  # noqa: BLE001 - whatever goes wrong once (no descriptor left, no memory) may go well again
                    pause = min(_TRY_AGAIN_SECONDS, self._lease / 10)
                    self._expire(holdings)
        finally:
            if renewer is not None:
                renewer.close()

    def _renew(self, renewer: Renewer, holdings: list[Holding]) -> None:
        asked = self._clock.boottime()
        self._is_asking = True
        try:
            held = renewer.renew([h.claim for h in holdings], self._lease)
        finally:
            self._is_asking = False
        for holding in holdings:
            if holding.claim in held:
                holding.trusted_until = asked + self._lease
            else:
                self._tell(holding, "its lease ran out and it was given to another holder, or it was closed")

    def _expire(self, holdings: list[Holding]) -> None:
        now = self._clock.boottime()
        for holding in holdings:
            if now >= holding.trusted_until:
                self._tell(holding, "the store did not answer a renewal before the lease ran out")

    def _tell(self, holding: Holding, reason: str) -> None:
        with self._lock:
            if holding not in self._holdings:
                return
            self._holdings.discard(holding)
        try:
            self._loop.call_soon_threadsafe(holding.lose, ClaimLost(run_id=holding.run, reason=reason))
        except RuntimeError:
            pass  # the loop is closed: nothing of this process runs under the claim any more

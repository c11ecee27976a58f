"""Output of calls while they are still running, on its way to whoever watches.

Published within 30 ms, together with what comes meanwhile. Watching never matters to the run: what cannot be
published is dropped, and counted in the log line.
"""

import asyncio
import contextlib
from collections import deque
from threading import get_ident
from typing import Any

from journal.core.ports import Delta
from journal.engine.claim import Holding

_BATCH_SECONDS = 0.03


class Deltas:
    """The deltas of one attempt."""

    def __init__(self, holding: Holding, log: Any) -> None:
        self._holding = holding
        self._log = log
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()
        self._waiting: deque[Delta] = deque()
        self._publishing: asyncio.Task[None] | None = None
        self._sending = asyncio.Lock()

    def emit(self, delta: Delta) -> None:
        """Publish it soon. Any thread may ask for it: that is where a sync step runs."""
        self._waiting.append(delta)
        if get_ident() == self._thread:
            self._begin()
        else:
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody watches any more
                self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        if self._waiting and (self._publishing is None or self._publishing.done()):
            self._publishing = self._loop.create_task(self._publish_soon())

    async def flush(self) -> None:
        """Publish what waits now, so that it stands before the outcome it belongs to."""
        await self._publish()

    async def _publish_soon(self) -> None:
        await asyncio.sleep(_BATCH_SECONDS)
        await self._publish()

    async def _publish(self) -> None:
        async with self._sending:  # what is on its way comes before
            deltas = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if not deltas:
                return
            try:
                await self._holding.world.publish(self._holding.claim, deltas)
            except Exception as error:  # noqa: BLE001 - watching never matters to the run
                self._log.warning("deltas lost", count=len(deltas), error=type(error).__qualname__)

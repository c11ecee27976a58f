"""Output of calls while they are still running, on its way to whoever watches.

Published within 30 ms, together with what comes meanwhile. Watching never matters to the run: what cannot be
published is dropped, and counted in the log line.
"""

import asyncio
from typing import Any

from journal.core.ports import Delta
from journal.engine.claim import Holding

_BATCH_SECONDS = 0.03


class Deltas:
    """The deltas of one attempt."""

    def __init__(self, holding: Holding, log: Any) -> None:
        self._holding = holding
        self._log = log
        self._waiting: list[Delta] = []
        self._publishing: asyncio.Task[None] | None = None

    def emit(self, delta: Delta) -> None:
        """Publish it soon."""
        self._waiting.append(delta)
        if self._publishing is None or self._publishing.done():
            self._publishing = asyncio.get_running_loop().create_task(self._publish_soon())

    async def flush(self) -> None:
        """Publish what waits now, so that it stands before the outcome it belongs to."""
        if self._publishing is not None:
            waiting, self._waiting = self._waiting, []
            await self._publish(waiting)

    async def _publish_soon(self) -> None:
        await asyncio.sleep(_BATCH_SECONDS)
        waiting, self._waiting = self._waiting, []
        await self._publish(waiting)

    async def _publish(self, deltas: list[Delta]) -> None:
        if deltas:
            try:
                await self._holding.world.publish(self._holding.claim, deltas)
            except Exception as error:  # noqa: BLE001 - watching never matters to the run
                self._log.warning("deltas lost", count=len(deltas), error=type(error).__qualname__)

"""The writer's connection: kept, watched, and opened anew when it is lost.

When it is lost, with or without a statement under way, one task connects again, patiently; then it says that it is
back, or why not. A server that does not answer for too long counts as lost: it hangs, or the network does.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from journal.core.errors import WorldError
from journal.worlds.postgres.address import Address
from journal.worlds.postgres.connection import CONNECT_SECONDS, PATIENCE_SECONDS, connect_patiently
from journal.worlds.postgres.failures import is_lost, world_error
from journal.worlds.postgres.statements import statements
from journal.worlds.postgres.wire import OnDone, Step, Wire

ANSWER_SECONDS = 30.0

_PREPARED = ("lock_run", "append_one", "append_two", "append_records", "append_batches", "publish")

OnSettled = Callable[[str, WorldError | None], None]
"""Told why the connection was lost, and why there is none again; None: there is."""


class Link:
    """A wire that comes back. Belongs to one event loop."""

    def __init__(
        self, connection: psycopg.AsyncConnection[Any], address: Address, *, on_settled: OnSettled
    ) -> None:
        self._address = address
        self._on_settled = on_settled
        self._loop = asyncio.get_running_loop()
        self._sent_at = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._recovery: asyncio.Task[None] | None = None
        self._wire = self._open(connection)

    def _open(self, connection: psycopg.AsyncConnection[Any]) -> Wire:
        return Wire(connection, on_lost=self._lost, is_pooled=self._address.is_pooled)

    async def prepare(self) -> None:
        """Prepare the statements. Raises a `WorldError`."""
        try:
            await self._prepare(self._wire)
        except (psycopg.Error, OSError) as error:
            raise world_error(error, self._address.url) from error

    async def _prepare(self, wire: Wire) -> None:
        texts = statements(self._address.schema)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                for name in _PREPARED:
                    await wire.prepare(name.encode(), texts[name])
        except TimeoutError as error:
            reason = f"no answer for {CONNECT_SECONDS:g} s: it hangs, or somebody has locked our tables"
            raise psycopg.OperationalError(reason) from error

    @property
    def is_recovering(self) -> bool:
        """Whether the connection is lost, and sought."""
        return self._recovery is not None

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._wire.is_open

    def execute(self, steps: Sequence[Step], on_done: OnDone) -> None:
        """Run the steps in one transaction; see `Wire.execute`. An error that means the connection loses it."""
        self._sent_at = self._loop.time()
        if self._watch is None:
            self._watch = self._loop.call_later(ANSWER_SECONDS, self._look_at_clock)
        self._wire.execute(steps, on_done)

    def wait_inline(self) -> None:
        """See `Wire.wait_inline`."""
        self._wire.wait_inline()

    def _look_at_clock(self) -> None:
        self._watch = None
        if not self._wire.is_busy:
            return
        left = self._sent_at + ANSWER_SECONDS - self._loop.time()
        if left <= 0:
            self._wire.abandon(f"no answer for {ANSWER_SECONDS:g} s")
        else:
            self._watch = self._loop.call_later(left, self._look_at_clock)

    def abandon(self, reason: str) -> None:
        """Take it for lost, if that is not so yet."""
        self._wire.abandon(reason)

    def restore(self) -> None:
        """Seek a connection, if there is none."""
        if not self._wire.is_open:
            self._lost(psycopg.OperationalError("the connection was lost"))

    def _lost(self, error: Exception) -> None:
        if self._recovery is None:
            self._recovery = self._loop.create_task(self._recover(error), name="journal-postgres-recover")

    async def _recover(self, error: Exception) -> None:
        reason = str(world_error(error, self._address.url))
        until = self._loop.time() + PATIENCE_SECONDS
        while True:
            try:
                connection = await connect_patiently(self._address)
                self._wire = self._open(connection)
                await self._prepare(self._wire)
            except (WorldError, psycopg.Error, OSError) as found:
                failure: WorldError | None = world_error(found, self._address.url)
                if self._wire.is_open:
                    await self._wire.aclose()
                # A connection that breaks again while it is made ready is sought again.
                if not isinstance(found, WorldError) and is_lost(found) and self._loop.time() < until:
                    continue
            else:
                failure = None
            break
        self._recovery = None
        self._on_settled(reason, failure)

    async def aclose(self) -> None:
        """Close the connection; nothing may be under way."""
        if self._watch is not None:
            self._watch.cancel()
        await self._wire.aclose()

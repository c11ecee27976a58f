"""Up to two connections for what is read or claimed: opened when first needed, in autocommit, one statement at a time.

Nothing stays open across a statement, so an idle reader holds no snapshot and stops no vacuum.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import pq

from journal.core.errors import WorldUnavailable
from journal.worlds.postgres.address import Address
from journal.worlds.postgres.connection import (
    PATIENCE_SECONDS,
    connect_patiently,
    transaction_settings,
)
from journal.worlds.postgres.failures import is_lost, world_error
from journal.worlds.postgres.statements import statements

SIZE = 2
ANSWER_SECONDS = 60.0
AGAIN_SECONDS = 0.02

Row = tuple[Any, ...]


class Pool:
    """Runs named statements. Belongs to one event loop."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._texts = {name: text.encode() for name, text in statements(address.schema).items()}
        self._free: list[psycopg.AsyncConnection[Any]] = []
        self._places = asyncio.Semaphore(SIZE)
        self._is_open = True

    async def fetch(self, name: str, asked: Mapping[str, Any], *, is_read: bool = True) -> list[Row]:
        """All rows of the statement. Raises a `WorldError`.

        A read that lost its connection is asked again, within a bound.
        """
        until = time.monotonic() + (PATIENCE_SECONDS if is_read else 0.0)
        async with self._places:
            while True:
                self._check_open()
                fresh = not self._free
                connection = (
                    await connect_patiently(self._address, PATIENCE_SECONDS) if fresh else self._free.pop()
                )
                try:
                    return await self._fetch(connection, name, asked)
                except (psycopg.Error, OSError) as error:
                    is_over = time.monotonic() >= until or isinstance(error, TimeoutError)
                    if is_over or not is_lost(error):
                        raise world_error(error, self._address.url) from error
                    if fresh:
                        await asyncio.sleep(AGAIN_SECONDS)

    async def _fetch(
        self, connection: psycopg.AsyncConnection[Any], name: str, asked: Mapping[str, Any]
    ) -> list[Row]:
        is_sound = False
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                if self._address.is_pooled:
                    # One message, so one transaction, whose settings are there for the second statement.
                    cursor: psycopg.AsyncCursor[Any] = psycopg.AsyncClientCursor(connection)
                    await cursor.execute(transaction_settings() + b";" + self._texts[name], asked)
                    cursor.nextset()
                else:
                    cursor = connection.cursor(binary=True)
                    await cursor.execute(self._texts[name], asked, prepare=True)
                # Not by the cursor's `description`, which makes an object for each column.
                result = cursor.pgresult
                has_rows = result is not None and result.status == pq.ExecStatus.TUPLES_OK
                rows = await cursor.fetchall() if has_rows else []
            is_sound = True
            return rows
        except psycopg.Error as error:
            is_sound = not is_lost(error)
            raise
        finally:
            if is_sound and self._is_open and not connection.closed:
                self._free.append(connection)
            else:
                # A statement that was cancelled half way may still run: its connection is not lent again.
                await asyncio.shield(connection.close())

    def _check_open(self) -> None:
        if not self._is_open:
            raise WorldUnavailable("it was closed here: open it again", world=self._address.url)

    async def aclose(self) -> None:
        """Close what is free; what is lent is closed when it comes back."""
        self._is_open = False
        while self._free:
            await self._free.pop().close()

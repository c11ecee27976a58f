"""Prepared statements over one connection, without a change of task: what the writer and the bells speak through.

libpq is asked directly, and the event loop tells when the socket can be read. One transaction is under way at a time:
a statement, or several that are sent at once and land together; the last result, or the first error, goes to a
callback. The driver's own coroutines would cost an append as much again as the server.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result

from journal.worlds.inline_wait import InlineWait
from journal.worlds.postgres.connection import transaction_settings

Step = tuple[bytes, list[bytes | None]]
"""The name of a prepared statement, and its parameters in binary."""
_SYNC, _FATAL = int(pq.ExecStatus.PIPELINE_SYNC), int(pq.ExecStatus.FATAL_ERROR)
"""Plain numbers, as results tell them."""

OnDone = Callable[["pq.abc.PGresult | None", Exception | None], None]


class Wire:
    """A connection that belongs to the running event loop until it is closed or lost."""

    def __init__(
        self,
        connection: psycopg.AsyncConnection[Any],
        *,
        on_lost: Callable[[Exception], None],
        on_notice: Callable[[str], None] | None = None,
        is_pooled: bool = False,
    ) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._on_notice = on_notice
        self._on_done: OnDone | None = None
        self._result: pq.abc.PGresult | None = None
        self._error: psycopg.Error | None = None
        self._is_writing = False
        self._is_open = True
        self._texts: dict[bytes, bytes] | None = {} if is_pooled else None
        """The statements themselves, where the server cannot keep them for us."""
        self._formats: dict[int, list[int]] = {}
        self._socket = self._pgconn.socket
        self._pgconn.enter_pipeline_mode()
        self._loop.add_reader(self._socket, self._readable)
        self._inline = InlineWait(self._socket)
        self._context = copy_context()

    @property
    def is_open(self) -> bool:
        """Whether it was neither closed nor lost."""
        return self._is_open

    @property
    def is_busy(self) -> bool:
        """Whether a statement is under way."""
        return self._on_done is not None

    def execute(self, steps: Sequence[Step], on_done: OnDone) -> None:
        """Run prepared statements in one transaction. `on_done` gets the last result, or what went wrong."""
        self._on_done = on_done
        try:
            if self._texts is not None:
                self._pgconn.send_query_params(transaction_settings(), [])
            for name, parameters in steps:
                count = len(parameters)
                formats = self._formats.get(count)
                if formats is None:
                    formats = self._formats[count] = [1] * count
                if self._texts is None:
                    self._pgconn.send_query_prepared(name, parameters, formats, result_format=1)
                else:
                    text = self._texts[name]
                    self._pgconn.send_query_params(text, parameters, None, formats, result_format=1)
            self._pgconn.pipeline_sync()
            self._flush()
        except psycopg.Error as error:
            self._lose(error)

    def wait_inline(self) -> None:
        """Wait for the answer here, as long as the event loop has nothing else to do."""
        while self._on_done is not None and self._inline.wait():
            self._context.run(self._readable)

    async def prepare(self, name: bytes, statement: str) -> None:
        """Prepare a statement under that name. Raises the driver's errors."""
        if self._texts is not None:
            self._texts[name] = statement.encode()
            return
        done: asyncio.Future[None] = self._loop.create_future()

        def on_done(_: "pq.abc.PGresult | None", error: Exception | None) -> None:
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(None)

        self._on_done = on_done
        try:
            self._pgconn.send_prepare(name, statement.encode())
            self._pgconn.pipeline_sync()
            self._flush()
        except psycopg.Error as error:
            self._lose(error)
        await done

    def _flush(self) -> None:
        if self._pgconn.flush():
            if not self._is_writing:
                self._is_writing = True
                self._loop.add_writer(self._socket, self._writable)
        elif self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._socket)

    def _writable(self) -> None:
        try:
            self._flush()
        except psycopg.Error as error:
            self._lose(error)

    def _readable(self) -> None:
        pgconn = self._pgconn
        try:
            pgconn.consume_input()
            if self._on_done is not None:
                self._take_results()
            elif pgconn.status != pq.ConnStatus.OK:
                raise psycopg.OperationalError("the connection was closed")
            # Afterwards: libpq does not look behind a result that was not taken.
            if self._on_notice is not None and self._is_open:
                while (notice := pgconn.notifies()) is not None:
                    self._on_notice(notice.extra.decode(errors="replace"))
        except psycopg.Error as error:
            self._lose(error)

    def _take_results(self) -> None:
        pgconn = self._pgconn
        while not pgconn.is_busy():
            result = pgconn.get_result()
            if result is None:
                if pgconn.status != pq.ConnStatus.OK:
                    raise psycopg.OperationalError("the connection was closed")
                continue  # the end of one statement's results
            status = result.status
            if status == _SYNC:
                self._finish()
                return
            if status == _FATAL:
                self._error = self._error or error_from_result(result, encoding="utf-8")
            else:
                self._result = result

    def _finish(self) -> None:
        on_done, result, error = self._on_done, self._result, self._error
        self._on_done = self._result = self._error = None
        assert on_done is not None, "a result comes to whoever asked"
        on_done(None if error else result, error)

    def _lose(self, error: Exception) -> None:
        """The connection is of no use any more: whoever waits is told first."""
        if not self._is_open:
            return
        on_done, self._on_done = self._on_done, None
        self._result = self._error = None
        self._detach()
        self._pgconn.finish()
        if on_done is not None:
            on_done(None, psycopg.OperationalError(str(error)))
        self._on_lost(error)

    def abandon(self, reason: str) -> None:
        """Give up on an answer that does not come."""
        self._lose(psycopg.OperationalError(reason))

    def _detach(self) -> None:
        self._is_open = False
        self._loop.remove_reader(self._socket)
        if self._is_writing:
            self._loop.remove_writer(self._socket)

    async def aclose(self) -> None:
        """Close the connection; nothing may be under way."""
        if self._is_open:
            self._detach()
        await self._connection.close()

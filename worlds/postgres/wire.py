"""Prepared statements over one connection, without a change of task: what the writer and the bells speak through.

libpq is asked directly, and the event loop tells when the socket can be read. One statement is under way at a time; its
results, or the error, go to a callback. The driver's own coroutines would cost an append as much again as the server.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result

OnDone = Callable[["pq.abc.PGresult | None", Exception | None], None]


class Wire:
    """A connection that belongs to the running event loop until it is closed or lost."""

    def __init__(
        self,
        connection: psycopg.AsyncConnection[Any],
        *,
        on_lost: Callable[[Exception], None],
        on_notice: Callable[[str], None] | None = None,
    ) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._on_notice = on_notice
        self._on_done: OnDone | None = None
        self._result: pq.abc.PGresult | None = None
        self._is_writing = False
        self._is_open = True
        self._formats: dict[int, list[int]] = {}
        self._socket = self._pgconn.socket
        self._loop.add_reader(self._socket, self._readable)

    @property
    def is_open(self) -> bool:
        """Whether it was neither closed nor lost."""
        return self._is_open

    @property
    def is_busy(self) -> bool:
        """Whether a statement is under way."""
        return self._on_done is not None

    def execute(self, name: bytes, parameters: Sequence[bytes | None], on_done: OnDone) -> None:
        """Run a prepared statement, all in binary. `on_done` gets its last result, or what went wrong."""
        count = len(parameters)
        formats = self._formats.get(count)
        if formats is None:
            formats = self._formats[count] = [1] * count
        self._start(
            on_done, lambda: self._pgconn.send_query_prepared(name, parameters, formats, result_format=1)
        )

    async def prepare(self, name: bytes, statement: str) -> None:
        """Prepare a statement under that name. Raises the driver's errors."""
        done: asyncio.Future[None] = self._loop.create_future()

        def on_done(_: "pq.abc.PGresult | None", error: Exception | None) -> None:
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(None)

        self._start(on_done, lambda: self._pgconn.send_prepare(name, statement.encode()))
        await done

    def _start(self, on_done: OnDone, send: Callable[[], None]) -> None:
        self._on_done = on_done
        self._result = None
        try:
            send()
            self._flush()
        except psycopg.Error as error:
            self._lose(error)

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
            if self._on_notice is not None:
                while (notice := pgconn.notifies()) is not None:
                    self._on_notice(notice.extra.decode(errors="replace"))
            if self._on_done is None:
                if pgconn.status != pq.ConnStatus.OK:
                    raise psycopg.OperationalError("the connection was closed")
                return
            while not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    self._finish()
                    return
                self._result = result
        except psycopg.Error as error:
            self._lose(error)

    def _finish(self) -> None:
        on_done, result = self._on_done, self._result
        self._on_done = self._result = None
        assert on_done is not None, "a result comes to whoever asked"
        if result is None or result.status in (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE):
            error: psycopg.Error
            if result is None:
                error = psycopg.OperationalError("the server sent no result")
            else:
                error = error_from_result(result, encoding="utf-8")
            if self._pgconn.status != pq.ConnStatus.OK:
                self._on_done = on_done
                self._lose(error)
            else:
                on_done(None, error)
            return
        on_done(result, None)

    def _lose(self, error: Exception) -> None:
        """The connection is of no use any more: whoever waits is told first."""
        if not self._is_open:
            return
        on_done, self._on_done = self._on_done, None
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

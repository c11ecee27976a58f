"""One connection: commands go out in order, replies come back in that order.

Nothing is waited for between two commands, so what is asked at the same moment shares one write, and one sync of the
server's disk. What a lost connection means to each command is for the owner to say. Next: `line.py`.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

import hiredis

from journal.worlds.inline_wait import InlineWait
from journal.worlds.redis.address import Address
from journal.worlds.redis.refusals import checked

_READ_BYTES = 65536

Part = bytes | str | int | float


def pack(parts: tuple[Part, ...]) -> bytes:
    """A command as it goes over the wire."""
    packed: bytes = hiredis.pack_command(parts)  # type: ignore[arg-type]  # its hints know one-tuples only
    return packed


class Connection(asyncio.Protocol):
    """Belongs to the event loop that opened it."""

    def __init__(
        self, on_reply: Callable[[Any], None], on_lost: Callable[["Connection", Exception | None], None]
    ) -> None:
        self._on_reply = on_reply
        self._on_lost = on_lost
        self._reader = hiredis.Reader()
        self._transport: asyncio.Transport | None = None
        self._inline: InlineWait | None = None
        self._context = copy_context()
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport), "TCP and TLS are written to"
        made = transport.get_extra_info("socket")
        if made is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if transport.get_extra_info("sslcontext") is None:
                self._socket = made.fileno()
                self._inline = InlineWait(self._socket)
        self._transport = transport
        self.write = transport.write

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        reader, on_reply = self._reader, self._on_reply
        try:
            reader.feed(data)
            while not self.is_lost and (reply := reader.gets()) is not False:
                on_reply(reply)
        except hiredis.ProtocolError:
            self.abort()

    def wait_inline(self) -> bool:
        """Take what the server says next here, if the event loop has nothing else to do; whether something came."""
        if self._inline is None or self.is_lost or not self._inline.wait():
            return False
        try:
            data = os.read(self._socket, _READ_BYTES)
        except OSError:
            return False  # the transport finds out, and tells
        if data:
            self._context.run(self.data_received, data)
        return bool(data)

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        if not self.is_lost:
            self.is_lost = True
            self._on_lost(self, error)

    def abort(self) -> None:
        """Let it go at once; whoever waits is told now, as if it had been cut."""
        if self._transport is not None:
            self._transport.abort()
        self.connection_lost(None)

    def close(self) -> None:
        """Let it go; what was written still goes out."""
        if self._transport is not None:
            self._transport.close()


class Greeting:
    """The first commands of a connection, one after the other, before it is handed to its owner."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self.then: Callable[[Any], None] | None = None
        self.lost: Callable[[Connection, Exception | None], None] | None = None
        self.connection: Connection | None = None

    def on_reply(self, reply: Any) -> None:
        """To the one who asked, or to the owner once there is one."""
        if self.then is not None:
            self.then(reply)
        elif self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(reply)

    def on_lost(self, connection: Connection, error: Exception | None) -> None:
        """The owner is told, or whoever greets."""
        if self.lost is not None:
            self.lost(connection, error)
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error or ConnectionResetError("the server closed the connection"))

    async def ask(self, *parts: Part) -> Any:
        """The reply to one command; errors are returned."""
        assert self.connection is not None, "asked before connecting"
        if self.connection.is_lost:
            raise ConnectionResetError("the server closed the connection")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self.connection.write(pack(parts))
        return await future


async def connect(address: Address) -> Greeting:
    """A connection that has introduced itself. Raises OSError, and a `WorldError` for what the server refuses."""
    greeting = Greeting()
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(
        lambda: Connection(greeting.on_reply, greeting.on_lost),
        address.host,
        address.port,
        ssl=address.tls_context(),
    )
    greeting.connection = connection
    try:
        await _introduce(greeting, address)
    except BaseException:
        connection.abort()
        raise
    return greeting


async def _introduce(greeting: Greeting, address: Address) -> None:
    commands: list[Sequence[Part]] = []
    if address.password is not None:
        user = (address.username,) if address.username else ()
        commands.append(("AUTH", *user, address.password))
    if address.database:
        commands.append(("SELECT", address.database))
    for command in commands:
        checked(await greeting.ask(*command), address.shown)
    await greeting.ask("CLIENT", "SETNAME", "durable-journal")  # for whoever looks; some services refuse it

"""A connection that listens: to channels of one server, or of one node of a cluster.

Channels are sharded ones: they lie in slots as keys do, and only the node of the slot hears of them.
It connects once. What it cannot hear, or does not any more, is its owner's to care for.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from journal.core.errors import WorldError
from journal.worlds.redis.address import Address
from journal.worlds.redis.connection import Connection, connect, pack
from journal.worlds.redis.refusals import ReplyError

_CONNECT_SECONDS = 2.0


class Ear:
    """`on_message` is told of messages, `on_heard` of channels that the server has confirmed, `on_strays` of those
    that it does not listen to after all."""

    def __init__(
        self,
        address: Address,
        *,
        on_message: Callable[[bytes], None],
        on_heard: Callable[[bytes], None],
        on_strays: Callable[["Ear", set[bytes]], None],
    ) -> None:
        self._address = address
        self._on_message = on_message
        self._on_heard = on_heard
        self._on_strays = on_strays
        self._channels: set[bytes] = set()
        self._asked: deque[tuple[str, bytes]] = deque()
        self._connection: Connection | None = None
        self.is_lost = False
        self._task = asyncio.get_running_loop().create_task(self._connect(), name="journal-redis-ear")

    def join(self, channels: Iterable[bytes]) -> None:
        """Listen to these, too."""
        new = [channel for channel in channels if channel not in self._channels]
        self._channels.update(new)
        if self._connection is not None and new:
            self._ask("SSUBSCRIBE", new)

    def leave(self, channel: bytes) -> None:
        """Do not listen to that one any more."""
        if channel in self._channels:
            self._channels.discard(channel)
            if self._connection is not None:
                self._ask("SUNSUBSCRIBE", [channel])

    def _ask(self, command: str, channels: list[bytes]) -> None:
        """One command a channel: a node that does not serve the slot refuses it without a word of which it was."""
        assert self._connection is not None, "asked before connecting"
        self._asked.extend((command, channel) for channel in channels)
        self._connection.write(b"".join([pack((command, channel)) for channel in channels]))

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                greeting = await connect(self._address)
        except (OSError, TimeoutError, WorldError):
            # Everybody looks every second all the same, and what they do tells them why.
            self._lost(None, None)
            return
        connection = greeting.connection
        if connection is None or connection.is_lost:
            self._lost(None, None)
            return
        greeting.then, greeting.lost = self._received, self._lost
        self._connection = connection
        if self._channels:
            self._ask("SSUBSCRIBE", list(self._channels))

    def _received(self, message: Any) -> None:
        if isinstance(message, ReplyError):
            if self._asked:
                self._stray(self._asked.popleft()[1])
            return
        if not isinstance(message, list):
            return
        kind, channel = message[0], message[1]
        if kind == b"smessage":
            self._on_message(channel)
        elif kind == b"ssubscribe":
            self._asked.popleft()
            if channel in self._channels:
                self._on_heard(channel)
        elif self._asked and self._asked[0] == ("SUNSUBSCRIBE", channel):
            self._asked.popleft()
        else:
            # The slot was moved to another node.
            self._stray(channel)

    def _stray(self, channel: bytes) -> None:
        if channel in self._channels:
            self._channels.discard(channel)
            self._on_strays(self, {channel})

    def _lost(self, connection: Connection | None, error: Exception | None) -> None:
        self._connection = None
        self.is_lost = True
        channels, self._channels = self._channels, set()
        self._on_strays(self, channels)

    async def aclose(self) -> None:
        """Let go."""
        self._task.cancel()
        await asyncio.wait([self._task])
        if self._connection is not None:
            self._connection.close()
            self._connection = None

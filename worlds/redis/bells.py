"""Who waits for what, and how they hear of it.

One connection a world listens to what the server publishes: to the channel of each run that is followed, and to the
one for work. It is a hint: messages may be lost, so whoever waits looks again every second.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any

from journal.core.errors import WorldError
from journal.worlds.redis.address import Address
from journal.worlds.redis.connection import Connection, Greeting, connect, pack
from journal.worlds.redis.node import at_node

BACKUP_SECONDS = 1.0
"""How long nobody waits without looking."""
_PAUSE_SECONDS = 0.5


class Bells:
    """Belongs to the event loop that opened the world."""

    def __init__(self, address: Address, work: bytes) -> None:
        self._address = address
        self._work = work
        self._nodes = cycle(address.nodes)
        self._events: dict[bytes, set[asyncio.Event]] = {}
        self._workers: set[asyncio.Event] = set()
        self._heard: set[bytes] = set()
        """Channels that the server has confirmed."""
        self._asked: set[bytes] = set()
        self._confirmed = asyncio.Event()
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self.work_count = 0
        """How often an entry may have become claimable."""

    @contextmanager
    def listen(self, channel: bytes) -> Iterator[asyncio.Event]:
        """An event that is set whenever the run may have gone on."""
        event = asyncio.Event()
        self._events.setdefault(channel, set()).add(event)
        try:
            yield event
        finally:
            events = self._events[channel]
            events.discard(event)
            if not events:
                del self._events[channel]
                self._leave(channel)

    @contextmanager
    def listen_for_work(self) -> Iterator[asyncio.Event]:
        """An event that is set whenever an entry may have become claimable."""
        event = asyncio.Event()
        self._workers.add(event)
        try:
            yield event
        finally:
            self._workers.discard(event)

    async def hear_work(self) -> None:
        """Listen for work from here on."""
        await self.hear(self._work)

    async def hear(self, channel: bytes) -> None:
        """Listen to a channel: once this returns, what is published is heard, or looked for in a second."""
        if channel in self._heard or self._is_closed:
            return
        self._asked.add(channel)
        if self._connection is not None:
            self._connection.write(pack(("SUBSCRIBE", channel)))
        elif self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._connect(), name="journal-redis-bells")
        try:
            async with asyncio.timeout(BACKUP_SECONDS):
                while channel not in self._heard and channel in self._asked:
                    self._confirmed.clear()
                    await self._confirmed.wait()
        except TimeoutError:
            pass

    def ring(self, channel: bytes) -> None:
        """The run has gone on."""
        for event in self._events.get(channel, ()):
            event.set()

    def ring_work(self) -> None:
        """An entry may have become claimable."""
        self.work_count += 1
        for event in self._workers:
            event.set()

    def ring_all(self) -> None:
        """Wake everyone."""
        for channel in self._events:
            self.ring(channel)
        self.ring_work()
        self._confirmed.set()

    def _leave(self, channel: bytes) -> None:
        self._asked.discard(channel)
        self._heard.discard(channel)
        if self._connection is not None:
            self._connection.write(pack(("UNSUBSCRIBE", channel)))

    async def _connect(self) -> None:
        while not self._is_closed:
            try:
                async with asyncio.timeout(BACKUP_SECONDS * 5):
                    greeting = await connect(at_node(self._address, next(self._nodes)))
                self._use(greeting)
                return
            except (OSError, TimeoutError, WorldError):
                # Everybody looks every second all the same, and what they do tells them why.
                await asyncio.sleep(_PAUSE_SECONDS)

    def _use(self, greeting: Greeting) -> None:
        connection = greeting.connection
        if connection is None or connection.is_lost:
            raise ConnectionResetError("the server closed the connection")
        greeting.then, greeting.lost = self._received, self._lost
        self._connection = connection
        if self._asked:
            connection.write(pack(("SUBSCRIBE", *self._asked)))

    def _received(self, message: Any) -> None:
        if not isinstance(message, list):
            return
        kind, channel = message[0], message[1]
        if kind == b"message":
            if channel == self._work:
                self.ring_work()
            else:
                self.ring(channel)
        elif kind == b"subscribe" and channel in self._asked:
            self._heard.add(channel)
            self._confirmed.set()
            # What was published before the server heard us is found by looking.
            if channel == self._work:
                self.ring_work()
            else:
                self.ring(channel)
        elif kind == b"unsubscribe" and channel in self._asked:
            # Left and joined again before the server answered: in order, so the joining is still to come.
            self._heard.discard(channel)

    def _lost(self, connection: Connection, error: Exception | None) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        self._heard.clear()
        self.ring_all()
        if not self._is_closed:
            self._task = asyncio.get_running_loop().create_task(self._connect(), name="journal-redis-bells")

    async def aclose(self) -> None:
        """Wake everyone, and let go."""
        self._is_closed = True
        self.ring_all()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._connection is not None:
            self._connection.close()
            self._connection = None

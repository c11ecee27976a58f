"""Who waits for what, and how they hear of it.

A world listens to what is published by the functions: to the channel of each run that is followed, and to those for
work, one a partition. It is a hint: messages may be lost, so whoever waits looks again every second.

Channels are sharded. In a cluster, what is published on others goes to every node, with a message of two kilobytes to
each for every batch; these stay on the node of the run, and are listened to there (`ear.py`).
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from journal.core.errors import WorldError
from journal.worlds.redis.address import Address
from journal.worlds.redis.ear import Ear
from journal.worlds.redis.node import at_node
from journal.worlds.redis.slots import Node
from journal.worlds.redis.wire import Wire

BACKUP_SECONDS = 1.0
"""How long nobody waits without looking."""
_PAUSE_SECONDS = 0.2


class Bells:
    """Belongs to the event loop that opened the world."""

    def __init__(self, address: Address, wire: Wire, work: Iterable[bytes]) -> None:
        self._address = address
        self._wire = wire
        self._work = frozenset(work)
        self._events: dict[bytes, set[asyncio.Event]] = {}
        self._workers: set[asyncio.Event] = set()
        self._ears: dict[Node, Ear] = {}
        self._places: dict[bytes, Ear] = {}
        """Where the channels are listened to, or soon will be."""
        self._heard: set[bytes] = set()
        """Channels that a server has confirmed."""
        self._strays: set[bytes] = set()
        """Channels that nobody listens to at the moment."""
        self._changed = asyncio.Event()
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
        await self._hear(self._work)

    async def hear(self, channel: bytes) -> None:
        """Listen to a channel: once this returns, what is published is heard, or looked for in a second."""
        await self._hear((channel,))

    async def _hear(self, channels: Iterable[bytes]) -> None:
        if self._is_closed or self._heard.issuperset(channels):
            return
        self._join([name for name in channels if name not in self._places and name not in self._strays])
        try:
            async with asyncio.timeout(BACKUP_SECONDS):
                while not (self._heard | self._strays).issuperset(channels) and not self._is_closed:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass

    def _join(self, channels: Iterable[bytes]) -> None:
        by_node: dict[Node, list[bytes]] = {}
        for channel in channels:
            node = self._wire.node_of(channel)
            if node is None:
                self._stray({channel})
            else:
                by_node.setdefault(node, []).append(channel)
        for node, some in by_node.items():
            ear = self._ears.get(node)
            if ear is None or ear.is_lost:
                ear = self._ears[node] = Ear(
                    at_node(self._address, node),
                    on_message=self.ring,
                    on_heard=self._confirmed,
                    on_strays=self._left,
                )
            self._places.update(dict.fromkeys(some, ear))
            ear.join(some)

    def _leave(self, channel: bytes) -> None:
        self._heard.discard(channel)
        self._strays.discard(channel)
        ear = self._places.pop(channel, None)
        if ear is not None:
            ear.leave(channel)

    def _confirmed(self, channel: bytes) -> None:
        self._heard.add(channel)
        # What was published before the server heard us is found by looking.
        self.ring(channel)
        self._changed.set()

    # What is not heard any more

    def _left(self, ear: Ear, channels: set[bytes]) -> None:
        mine = {channel for channel in channels if self._places.get(channel) is ear}
        for channel in mine:
            del self._places[channel]
        self._stray(mine)

    def _stray(self, channels: set[bytes]) -> None:
        self._heard -= channels
        self._strays |= channels
        for channel in channels:
            self.ring(channel)
        self._changed.set()
        if channels and not self._is_closed and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._gather(), name="journal-redis-bells")

    async def _gather(self) -> None:
        while self._strays:
            await asyncio.sleep(_PAUSE_SECONDS)
            try:
                await self._wire.refresh()
            except WorldError:
                continue  # whoever asks for something is told why
            strays, self._strays = self._strays, set()
            self._join(strays)

    # Ringing

    def ring(self, channel: bytes) -> None:
        """The run has gone on, or there is work."""
        if channel in self._work:
            self.ring_work()
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
        self._changed.set()

    async def aclose(self) -> None:
        """Wake everyone, and let go."""
        self._is_closed = True
        self.ring_all()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for ear in self._ears.values():
            await ear.aclose()
        self._ears.clear()

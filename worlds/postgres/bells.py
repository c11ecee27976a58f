"""Who waits for what, and how they hear of it.

What this world writes rings at once. What others write is heard by LISTEN; behind it, for what NOTIFY may have lost,
the watched runs are looked at once a second. Without LISTEN they are looked at every 40 ms. The tasks live only while
somebody waits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from journal.core.errors import WorldError
from journal.worlds.postgres.listening import Listener
from journal.worlds.postgres.places import Places

POLL_SECONDS = 0.04
LISTENING_POLL_SECONDS = 1.0
WORK_SECONDS = 1.0
"""How long a worker waits at most without looking."""

Signs = dict[str, tuple[Any, ...]]
"""How far each run has come."""


class Bells:
    """Belongs to the event loop that opened the world."""

    def __init__(
        self, places: Places, read_signs: Callable[[list[str]], Awaitable[Signs]], listener: Listener | None
    ) -> None:
        self._places = places
        self._read_signs = read_signs
        self._listener = listener
        if listener is not None:
            listener.on_ring = self._heard
        self._events: dict[str, set[asyncio.Event]] = {}
        self._by_lock: dict[int, str] = {}
        self._workers: set[asyncio.Event] = set()
        self._signs: Signs = {}
        self._task: asyncio.Task[None] | None = None
        self.work_count = 0
        """How often an entry may have become claimable."""

    @contextmanager
    def listen(self, run: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever the run may have gone on."""
        event = asyncio.Event()
        self._events.setdefault(run, set()).add(event)
        self._by_lock[self._places.lock(run)] = run
        self._watch()
        try:
            yield event
        finally:
            events = self._events[run]
            events.discard(event)
            if not events:
                del self._events[run]
                self._by_lock.pop(self._places.lock(run), None)
                self._signs.pop(run, None)

    @contextmanager
    def listen_for_work(self) -> Iterator[asyncio.Event]:
        """An event that is set whenever an entry may have become claimable."""
        event = asyncio.Event()
        self._workers.add(event)
        if self._listener is not None:
            self._listener.start()
        try:
            yield event
        finally:
            self._workers.discard(event)

    def ring(self, runs: list[str], has_work: bool) -> None:
        """These runs went on."""
        if self._events:
            for run in runs:
                for event in self._events.get(run, ()):
                    event.set()
        if has_work:
            self.ring_work()

    def ring_work(self) -> None:
        """An entry may have become claimable."""
        self.work_count += 1
        for event in self._workers:
            event.set()

    def ring_all(self) -> None:
        """Wake everyone."""
        self.ring(list(self._events), True)

    def _heard(self, locks: list[int] | None, has_work: bool) -> None:
        if locks is None:
            self.ring_all()
        else:
            self.ring([self._by_lock[lock] for lock in locks if lock in self._by_lock], has_work)

    def _watch(self) -> None:
        if self._listener is not None:
            self._listener.start()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._poll(), name="journal-postgres-poll")

    async def _poll(self) -> None:
        """One statement for all watched runs. If the store cannot be asked, everybody is woken to find out why."""
        loop = asyncio.get_running_loop()
        while self._events:
            started = loop.time()
            try:
                signs = await self._read_signs(list(self._events))
            except WorldError:
                self.ring_all()
                signs = {}
            for run, sign in signs.items():
                if self._signs.get(run) != sign and run in self._events:
                    self._signs[run] = sign
                    self.ring([run], False)
            is_listening = self._listener is not None and self._listener.is_listening
            pause = LISTENING_POLL_SECONDS if is_listening else POLL_SECONDS
            # A thousand watched runs take milliseconds to look at: never more than half of the time.
            took = loop.time() - started
            await asyncio.sleep(max(pause - took, took))

    async def aclose(self) -> None:
        """Wake everyone, and end the tasks."""
        self.ring_all()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()
        if self._listener is not None:
            await self._listener.aclose()

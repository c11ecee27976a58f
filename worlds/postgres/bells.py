"""Who waits for what, and how they hear of it.

What this world writes rings at once. What others write is heard by LISTEN; behind it, for what NOTIFY may have lost,
the watched runs are looked at once a second. Without LISTEN they are looked at every 40 ms, and so are those of which
not every writer knows yet that they are followed (`ears.py`). The tasks live only while somebody waits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio

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
        self._has_changed = asyncio.Event()
        """Whether there may be runs to look at before the next look at all of them."""
        if listener is not None:
            listener.on_ring = self._heard
            listener.on_lost = self._has_changed.set
        self._events: dict[str, set[asyncio.Event]] = {}
        self._by_lock: dict[int, str] = {}
        self._workers: set[asyncio.Event] = set()
        self._signs: Signs = {}
        self._looked_at: dict[str, float] = {}
        """Loop time of the last look at a run that was answered."""
        self._task: asyncio.Task[None] | None = None
        self.work_count = 0
        """How often an entry may have become claimable."""

    @contextmanager
    def listen(self, run: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever the run may have gone on."""
        event = asyncio.Event()
        lock = self._places.lock(run)
        if run not in self._events:
            self._events[run] = set()
            self._by_lock[lock] = run
            if self._listener is not None:
                self._listener.ears.want(lock)
        self._events[run].add(event)
        self._watch()
        try:
            yield event
        finally:
            events = self._events[run]
            events.discard(event)
            if not events:
                del self._events[run]
                self._by_lock.pop(lock, None)
                self._signs.pop(run, None)
                self._looked_at.pop(run, None)
                if self._listener is not None:
                    self._listener.ears.unwant(lock)

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
        self._has_changed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._poll(), name="journal-postgres-poll")

    async def _poll(self) -> None:
        """Look at all watched runs now and then, and often at those that nothing may be heard of."""
        loop = asyncio.get_running_loop()
        all_at = loop.time()
        while self._events:
            self._has_changed.clear()
            started = loop.time()
            if started >= all_at:
                runs = list(self._events)
                all_at = started + LISTENING_POLL_SECONDS
            else:
                runs = [run for run in self._events if not self._is_heard(run)]
            await self._look(runs, started)
            # A thousand watched runs take milliseconds to look at: never more than half of the time.
            now = loop.time()
            if all(self._is_heard(run) for run in self._events):
                with anyio.move_on_after(all_at - now):
                    await self._has_changed.wait()
                pause = now - started
            else:
                pause = POLL_SECONDS - (now - started)
            await asyncio.sleep(max(pause, now - started))

    async def _look(self, runs: list[str], started: float) -> None:
        """One statement for them. If the store cannot be asked, everybody is woken to find out why."""
        try:
            signs = await self._read_signs(runs)
        except WorldError:
            self.ring_all()
            return
        for run in runs:
            if run not in self._events:
                continue
            self._looked_at[run] = started
            sign = signs.get(run)
            if sign is not None and self._signs.get(run) != sign:
                self._signs[run] = sign
                self.ring([run], False)

    def _is_heard(self, run: str) -> bool:
        """Whether writers knew of our ear when the run was last looked at: what came later was, or will be told."""
        if self._listener is None:
            return False
        since = self._listener.ears.known_since(self._places.lock(run))
        return since is not None and since <= self._looked_at.get(run, 0.0)

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

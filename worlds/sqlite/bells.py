"""Who waits for what, and how they hear of it.

What this world writes rings at once. What others write is found by asking SQLite every 20 ms whether another
connection has committed, by one task per world that lives only while somebody waits.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from journal.core.errors import WorldError
from journal.worlds.sqlite.connection import StoreFile
from journal.worlds.sqlite.door import Changes
from journal.worlds.sqlite.transaction import Transactor

POLL_SECONDS = 0.02
HOLDERS_SECONDS = 0.25
"""How often a waiting worker looks whether a holder has died: a death commits nothing."""

Signs = dict[str, tuple[Any, ...]]
"""How far each run has come."""


class Bells:
    """Belongs to the event loop that opened the world."""

    def __init__(self, look_around: Callable[[], int]) -> None:
        self._look_around = look_around
        self._events: dict[str, set[asyncio.Event]] = {}
        self._workers: set[asyncio.Event] = set()
        self._signs: Signs = {}
        self._foreign = 0
        self._task: asyncio.Task[None] | None = None
        self.work_count = 0
        """How often an entry may have become claimable."""
        self.read_signs: Callable[[list[str]], Signs] = lambda runs: {}
        self.find_dead: Callable[[], frozenset[int]] = frozenset
        self._dead: frozenset[int] = frozenset()

    @contextmanager
    def listen(self, run: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever the run may have gone on."""
        event = asyncio.Event()
        self._events.setdefault(run, set()).add(event)
        self._watch()
        try:
            yield event
        finally:
            events = self._events[run]
            events.discard(event)
            if not events:
                del self._events[run]
                self._signs.pop(run, None)

    @contextmanager
    def listen_for_work(self) -> Iterator[asyncio.Event]:
        """An event that is set whenever an entry may have become claimable."""
        event = asyncio.Event()
        self._workers.add(event)
        self._watch()
        try:
            yield event
        finally:
            self._workers.discard(event)

    def ring(self, changes: Changes) -> None:
        """This world wrote that."""
        for run in changes.runs:
            self.ring_run(run)
        if changes.has_work:
            self.ring_work()

    def ring_run(self, run: str) -> None:
        """This world appended to that run."""
        if run in self._events:
            for event in self._events[run]:
                event.set()

    def ring_work(self) -> None:
        """An entry may have become claimable."""
        self.work_count += 1
        for event in self._workers:
            event.set()

    def ring_all(self) -> None:
        """Wake everyone."""
        for events in self._events.values():
            for event in events:
                event.set()
        self.ring_work()

    def notice(self) -> None:
        """See whether others have written, and ring for what they wrote.

        If the store cannot be asked, everybody is woken: what they do next tells them why.
        """
        try:
            foreign = self._look_around()
            if foreign == self._foreign:
                return
            signs = self.read_signs(list(self._events)) if self._events else {}
        except (sqlite3.Error, WorldError):
            self.ring_all()
            return
        self._foreign = foreign
        self.ring_work()
        for run, sign in signs.items():
            if self._signs.get(run) != sign:
                self._signs[run] = sign
                for event in self._events.get(run, ()):
                    event.set()

    def _notice_deaths(self) -> None:
        try:
            dead = self.find_dead()
        except sqlite3.Error:
            return  # `notice` asks the same store, and wakes everybody
        if not dead <= self._dead:
            self.ring_work()
        self._dead = dead

    def _watch(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._poll(), name="journal-sqlite-poll")

    async def _poll(self) -> None:
        next_look = 0.0
        while self._events or self._workers:
            started = time.monotonic()
            self.notice()
            if self._workers and started >= next_look:
                next_look = started + HOLDERS_SECONDS
                self._notice_deaths()
            # A thousand watched runs take milliseconds to look at: never more than a third of the time.
            await asyncio.sleep(max(POLL_SECONDS, 2 * (time.monotonic() - started)))

    async def aclose(self) -> None:
        """Wake everyone, and end the task."""
        self.ring_all()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()


def look_around_with(
    transactor: Transactor, file: StoreFile, is_busy: Callable[[], bool]
) -> Callable[[], int]:
    """How often others were seen to commit; asks SQLite unless the writer thread has the connection, which asks too."""

    def look_around() -> int:
        file.check_identity()
        if not is_busy():
            transactor.look_around()
        return transactor.foreign_commits

    return look_around

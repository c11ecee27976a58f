"""The bells of the memory world: who waits for what, on any event loop, in any thread."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

Key = tuple[str, str]
"""Namespace and run id."""
WORK = None
"""The key that is rung when an entry may have become claimable."""
_Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Event]


class Bells:
    """Wakes those who listen for a key, on any event loop, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[Key | None, set[_Waiter]] = {}

    @contextmanager
    def listen(self, key: Key | None) -> Iterator[asyncio.Event]:
        """An event of the running loop, set whenever `key` is rung while this is open."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiters.setdefault(key, set()).add(waiter)
        try:
            yield waiter[1]
        finally:
            with self._lock:
                self._waiters[key].discard(waiter)
                if not self._waiters[key]:
                    del self._waiters[key]

    def ring(self, key: Key | None) -> None:
        """Wake who listens for `key`."""
        with self._lock:
            waiters = tuple(self._waiters.get(key, ()))
        for loop, event in waiters:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                pass  # that loop was closed with a listener left in it; its own end removes the listener

    def ring_all(self) -> None:
        """Wake everyone."""
        with self._lock:
            keys = tuple(self._waiters)
        for key in keys:
            self.ring(key)

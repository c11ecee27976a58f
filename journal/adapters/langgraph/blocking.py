"""For LangGraph's sync methods: an event loop on a thread of its own, on which their async twins run."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Portal:
    """Runs coroutines for code that is not async. Starts with the first one; ends with `close` or the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives; blocks the calling thread."""
        return asyncio.run_coroutine_threadsafe(work, self._started()).result()

    def is_here(self) -> bool:
        """Whether the calling thread is the portal's own."""
        return self._thread is threading.current_thread()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="journal langgraph", daemon=True
                )
                self._thread.start()
            return self._loop

    def close(self, last: Coroutine[Any, Any, object]) -> None:
        """Run `last`, then stop. It may be used again."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            last.close()
            return
        asyncio.run_coroutine_threadsafe(last, loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

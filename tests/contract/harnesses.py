"""The harnesses of our own worlds: a fresh store each, and a clock that moves only when told to."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path

from journal.core.clock import ManualClock
from journal.core.ports import World
from journal.worlds import open_world
from journal.worlds.memory import forget

_names = count(1)


class ClockedHarness:
    """A harness over one URL, whose worlds share one manual clock."""

    can_step_wall = True

    def __init__(self, url: str, *, is_persistent: bool) -> None:
        self.url = url
        self.is_persistent = is_persistent
        self.clock = ManualClock()

    def open(self, *, namespace: str = "default") -> AbstractAsyncContextManager[World]:
        return open_world(self.url, namespace=namespace, clock=self.clock)

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def step_wall(self, seconds: float) -> None:
        self.clock.step_wall(seconds)


@asynccontextmanager
async def memory_harness() -> AsyncIterator[ClockedHarness]:
    """A memory store of its own."""
    name = f"contract-{next(_names)}"
    try:
        yield ClockedHarness(f"memory:{name}", is_persistent=False)
    finally:
        forget(name)


@asynccontextmanager
async def sqlite_harness(folder: Path) -> AsyncIterator[ClockedHarness]:
    """A SQLite file in `folder`."""
    yield ClockedHarness(f"sqlite:{folder / f'journal-{next(_names)}.db'}", is_persistent=True)

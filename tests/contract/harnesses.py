"""The harnesses of our own worlds: a fresh store each, and a clock that moves only when told to."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path
from uuid import uuid4

import pytest

from journal.core.clock import ManualClock
from journal.core.ports import World
from journal.worlds import open_world
from journal.worlds.memory import forget

_names = count(1)


class ClockedHarness:
    """A harness over one URL, whose worlds share one manual clock."""

    def __init__(self, url: str, *, is_persistent: bool, can_step_wall: bool = True) -> None:
        self.url = url
        self.is_persistent = is_persistent
        self.can_step_wall = can_step_wall
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


def with_parameter(url: str, name: str, value: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{name}={value}"


@asynccontextmanager
async def postgres_harness(server: str) -> AsyncIterator[ClockedHarness]:
    """A schema of its own on that server. The worlds take the manual clock for the server's."""
    from journal.worlds.postgres import drop_schema

    url = with_parameter(server, "schema", f"journal_test_{uuid4().hex[:12]}")
    try:
        yield ClockedHarness(url, is_persistent=True, can_step_wall=False)
    finally:
        await drop_schema(url)


@asynccontextmanager
async def redis_harness(server: str) -> AsyncIterator[ClockedHarness]:
    """A key prefix of its own on that server. The worlds take the manual clock for the server's."""
    from journal.worlds.redis import drop_prefix

    url = with_parameter(server, "prefix", f"test-{uuid4().hex[:12]}")
    try:
        yield ClockedHarness(url, is_persistent=True, can_step_wall=False)
    finally:
        await drop_prefix(url)


def opening_of(request: pytest.FixtureRequest, folder: Path) -> AbstractAsyncContextManager[ClockedHarness]:
    """The harness of the world that a fixture's parameter names."""
    match request.param:
        case "memory":
            return memory_harness()
        case "sqlite":
            return sqlite_harness(folder)
        case "postgres":
            return postgres_harness(request.getfixturevalue("postgres_server"))
        case "redis":
            return redis_harness(request.getfixturevalue("redis_server"))
        case _:
            return redis_harness(request.getfixturevalue("cluster_server"))

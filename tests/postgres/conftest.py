"""Stores for the tests of the Postgres world: a schema each, on the shared server or on one that may be killed."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from journal.testing import servers
from journal.worlds.postgres import drop_schema


@pytest.fixture
async def url(postgres_server: str) -> AsyncIterator[str]:
    """A store of its own."""
    found = f"{postgres_server}?schema=test_{uuid4().hex[:12]}"
    yield found
    await drop_schema(found)


@pytest.fixture
def schema(url: str) -> str:
    return url.rpartition("=")[2]


@pytest.fixture
def admin(postgres_server: str) -> Iterator[psycopg.Connection[Any]]:
    """Whoever looks after the server."""
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        yield connection


@pytest.fixture
def own_server(postgres_programs: Path) -> Iterator[servers.Server]:
    """A server that the test may kill."""
    with servers.start_postgres(binaries=postgres_programs) as server:
        yield server

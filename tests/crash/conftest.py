"""The store that the processes of a crash test share, on every world of ours."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.contract.harnesses import opening_of, with_parameter
from tests.crash.stage import Stage

LEASE_SECONDS = 2.5
"""Where only a lease tells of the dead: short, and long enough for a busy machine."""


@pytest.fixture(params=["sqlite", "postgres", "redis"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    """Of a cluster, too, where a test asks for it."""
    if request.param == "sqlite":
        yield Stage(tmp_path)
        return
    async with opening_of(request, tmp_path) as harness:
        yield Stage(tmp_path, harness.url, lease=LEASE_SECONDS)


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A store of its own for the processes of one test."""
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path / 'journal.db'}"
        return
    name = f"edits_{uuid4().hex[:12]}"
    if request.param == "postgres":
        from journal.worlds.postgres import drop_schema

        url = with_parameter(request.getfixturevalue("postgres_server"), "schema", name)
        yield url
        asyncio.run(drop_schema(url))
    else:
        from journal.worlds.redis import drop_prefix

        url = with_parameter(request.getfixturevalue("redis_server"), "prefix", name)
        yield url
        asyncio.run(drop_prefix(url))

"""The store that the processes of a crash test share, on every world of ours."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.contract.harnesses import ClockedHarness, postgres_harness, redis_harness
from tests.crash.stage import Stage

LEASE_SECONDS = 2.5
"""Where only a lease tells of the dead: short, and long enough for a busy machine."""


@pytest.fixture(params=["sqlite", "postgres", "redis"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    if request.param == "sqlite":
        yield Stage(tmp_path)
        return
    opening: AbstractAsyncContextManager[ClockedHarness] = (
        postgres_harness(request.getfixturevalue("postgres_server"))
        if request.param == "postgres"
        else redis_harness(request.getfixturevalue("redis_server"))
    )
    async with opening as harness:
        yield Stage(tmp_path, harness.url, lease=LEASE_SECONDS)

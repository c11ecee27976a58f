"""The store that the processes of a crash test share, on every world of ours."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.harnesses import opening_of
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

"""The stores that workspaces are tried on: all of ours."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.harnesses import opening_of


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis", "cluster"])
async def world_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """URL of a fresh store."""
    async with opening_of(request, tmp_path) as harness:
        yield harness.url

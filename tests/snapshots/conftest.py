"""The stores that snapshots are tried on: all of ours; and snapshots that are made often."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.harnesses import opening_of


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis", "cluster"])
async def world_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """URL of a fresh store."""
    async with opening_of(request, tmp_path) as harness:
        yield harness.url


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot pays after four records, however large it is."""
    monkeypatch.setattr("journal.replay.snapshot.EVERY", 4)
    monkeypatch.setattr("journal.replay.snapshot.BYTES_A_RECORD", 1_000_000)

"""The SQLite world keeps every promise of the ports."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from journal.worlds.contract import ContractHarness, WorldContract
from journal.worlds.sqlite import door
from tests.contract.harnesses import sqlite_harness


@pytest.mark.anyio
class TestSqlite(WorldContract):
    @pytest.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[ContractHarness]:
        async with sqlite_harness(tmp_path) as harness:
            yield harness


@pytest.mark.anyio
class TestSegments(WorldContract):
    """The same with logs that lie in many segments."""

    @pytest.fixture
    async def harness(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[ContractHarness]:
        monkeypatch.setattr(door, "SEGMENT_RECORDS", 2)
        async with sqlite_harness(tmp_path) as harness:
            yield harness

"""Faults of the SQLite world that were found by trying to break it."""

import os
from pathlib import Path

import pytest

from journal.core.codec import checksum
from journal.core.errors import InvalidValue, WorldMissing
from journal.core.ports import Committed
from journal.core.records import NewRecord
from journal.worlds.sqlite import open_sqlite
from tests.sqlite.test_group_commit import team

pytestmark = pytest.mark.anyio


async def test_the_shared_memory_file_is_watched_like_the_others(tmp_path: Path) -> None:
    """Without it, a process that opens the store next does not see our log, and both write over each other."""
    async with open_sqlite(f"sqlite:{tmp_path / 'j.db'}") as world:
        (holder,) = await team(world, 1)
        await holder.record()
        os.unlink(tmp_path / "j.db-shm")
        with pytest.raises(WorldMissing):
            await holder.record()


async def test_contents_that_never_reach_sqlite_leave_no_gap(tmp_path: Path) -> None:
    async with open_sqlite(f"sqlite:{tmp_path / 'j.db'}") as world:
        (holder,) = await team(world, 1)
        await holder.record()
        head = (await world.read(holder.run))[-1].seq
        bad = NewRecord("call.outcome", "start", "\ud800", b"", checksum("x", "", None, None, None, b""))
        with pytest.raises(InvalidValue, match="UnicodeEncodeError"):
            await world.append(holder.batch(bad))
        answer = await world.append(holder.batch(holder.outcome()))
        assert isinstance(answer, Committed)
        assert answer.first == head + 1
        assert [r.seq for r in await world.read(holder.run)] == list(range(1, head + 2))

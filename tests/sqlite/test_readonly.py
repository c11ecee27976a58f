"""A store that cannot be written is read all the same, where that is safe; else it is said what to do."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from journal.core.errors import WorldBusy, WorldCorrupt, WorldReadOnly, WorldTooNew
from journal.core.ports import RunQuery
from journal.worlds import open_to_read
from journal.worlds.contract.harness import begin, hold, seqs, submit
from journal.worlds.sqlite import open_sqlite
from tests import disks

pytestmark = pytest.mark.anyio


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with disks.small_disk(tmp_path / "disk", "8m") as folder:
        yield folder


@contextmanager
def write_protected(disk: Path) -> Iterator[None]:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)


async def filled(path: Path) -> None:
    """A store with a run of three records."""
    async with open_sqlite(f"sqlite:{path}") as world:
        await begin(world, "run")
        await (await hold(world, "run")).record()


async def left_by_a_crash(path: Path, scratch: Path, *, with_memory: bool) -> None:
    """The same, its records still in the write-ahead log."""
    async with open_sqlite(f"sqlite:{scratch}") as world:
        await begin(world, "run")
        await (await hold(world, "run")).record()
        for end in ("", "-wal", *(["-shm"] if with_memory else [])):
            shutil.copy(f"{scratch}{end}", f"{path}{end}")


async def test_it_is_read_where_it_lies_and_nothing_is_made(disk: Path) -> None:
    path = disk / "journal.db"
    await filled(path)
    for beside in ("-main", "-next", "-holders"):
        os.unlink(f"{path}{beside}")
    with write_protected(disk):
        async with open_to_read(f"sqlite:{path}") as world:
            assert await seqs(world, "run") == [1, 2, 3]
            assert [info.run for info in await world.runs(RunQuery())] == ["run"]
            assert (await world.image("run")).head == 3
            assert [stats.agent for stats in await world.stats()] == ["agent"]
            assert await world.workers() == []
            assert any("reading alone" in note for note in getattr(world, "notes", ()))
    assert list(disk.iterdir()) == [path]


async def test_what_a_crash_left_in_the_log_is_read_or_it_is_said_how(disk: Path, tmp_path: Path) -> None:
    await left_by_a_crash(disk / "with.db", tmp_path / "a.db", with_memory=True)
    await left_by_a_crash(disk / "without.db", tmp_path / "b.db", with_memory=False)
    with write_protected(disk):
        async with open_to_read(f"sqlite:{disk / 'with.db'}") as world:
            assert await seqs(world, "run") == [1, 2, 3]
        with pytest.raises(
            WorldReadOnly, match=r"copy without\.db and without\.db-wal to a directory of your own"
        ):
            async with open_to_read(f"sqlite:{disk / 'without.db'}"):
                pass
    for end in ("", "-wal"):
        shutil.copy(f"{disk / 'without.db'}{end}", f"{tmp_path / 'copied.db'}{end}")
    async with open_to_read(f"sqlite:{tmp_path / 'copied.db'}") as world:
        assert await seqs(world, "run") == [1, 2, 3]


async def test_it_takes_nothing(disk: Path) -> None:
    path = disk / "journal.db"
    await filled(path)
    with write_protected(disk):
        async with open_to_read(f"sqlite:{path}") as world:
            with pytest.raises(WorldReadOnly, match="writable for this user"):
                await world.append(submit("another"))
            with pytest.raises(WorldReadOnly):
                await world.claim(worker="w", limit=1, lease_seconds=30, agents=None, reads=1)
            with pytest.raises(WorldReadOnly):
                world.open_renewer()


async def test_somebody_who_writes_meanwhile_is_noticed(disk: Path) -> None:
    path = disk / "journal.db"
    await filled(path)
    with write_protected(disk):
        async with open_to_read(f"sqlite:{path}") as world:
            assert await seqs(world, "run") == [1, 2, 3]
            subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
            async with open_sqlite(f"sqlite:{path}") as theirs:
                await begin(theirs, "another")
                with pytest.raises(WorldBusy, match="somebody is writing to it"):
                    await seqs(world, "run")


@pytest.mark.parametrize(
    ("statement", "error", "says"),
    [
        ("pragma user_version = 1", WorldReadOnly, "its schema 1 is older than ours"),
        ("pragma user_version = 9999", WorldTooNew, "9999"),
        ("pragma application_id = 1", WorldCorrupt, "another program"),
    ],
)
async def test_a_schema_that_cannot_be_read_as_it_is(
    disk: Path, statement: str, error: type[Exception], says: str
) -> None:
    path = disk / "journal.db"
    await filled(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("drop table versions")
    connection.execute(statement)
    connection.close()
    with write_protected(disk), pytest.raises(error, match=says):
        async with open_to_read(f"sqlite:{path}"):
            pass


async def test_one_that_can_be_written_is_opened_as_ever(tmp_path: Path) -> None:
    async with open_to_read(f"sqlite:{tmp_path / 'journal.db'}") as world:
        await begin(world, "run")
        assert await seqs(world, "run") == [1, 2]

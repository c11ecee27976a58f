"""What happens to the files between two looks at them is noticed by the next commit, watched or not."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from journal.core.errors import JournalError, WorldCorrupt, WorldMissing
from journal.worlds.contract.harness import Holder, begin, committed, hold, raw, seqs, submit
from journal.worlds.sqlite import SqliteWorld, connection, open_sqlite, watch

pytestmark = pytest.mark.anyio
needs_inotify = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the store of these tests is, two levels down."""
    made = tmp_path / "above" / "folder"
    made.mkdir(parents=True)
    return made


@pytest.fixture(params=["watched", "unwatched"])
def is_watched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """With a watch, and no look for an hour; or without one."""
    monkeypatch.setattr(watch, "LOOK_SECONDS", 3600.0)
    if request.param == "watched":
        return sys.platform == "linux"
    monkeypatch.setattr(connection, "open_watch", lambda *_: None)
    return False


def watch_of(world: SqliteWorld) -> object:
    return world._writer._transactor._file._watch


async def at_work(world: SqliteWorld, *, count: int = 20) -> Holder:
    await begin(world, "run")
    holder = await hold(world, "run")
    for number in range(count):
        committed(await holder.offer(holder.batch(raw("run", bytes([number]) * 2000))))
    return holder


def swap(path: Path) -> None:
    """Another file with the same bytes in its place."""
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    os.rename(copy, path)


def away(path: Path) -> None:
    os.rename(path, path.with_name("away"))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 // 4096 * 4096)


def replace_folder(path: Path) -> None:
    """Another folder, with a store of its own, stands where ours was."""
    away(path)
    path.mkdir()
    for file in path.with_name("away").rglob("*.db*"):
        copy = path / file.relative_to(path.with_name("away"))
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(file.read_bytes())


CHANGES: list[tuple[str, Callable[[Path], None], type[JournalError]]] = [
    *((f"folder/journal.db{end}", Path.unlink, WorldMissing) for end in ("", "-wal", "-shm")),
    *((f"folder/journal.db{end}", away, WorldMissing) for end in ("", "-wal", "-shm")),
    *((f"folder/journal.db{end}", swap, WorldMissing) for end in ("", "-wal", "-shm")),
    ("folder/journal.db", cut, WorldCorrupt),
    ("folder/journal.db-wal", cut, WorldCorrupt),
    ("folder", away, WorldMissing),
    ("folder", replace_folder, WorldMissing),
    ("", replace_folder, WorldMissing),
]


@pytest.mark.parametrize(("name", "change", "error"), CHANGES)
async def test_what_happens_to_the_files_is_noticed_by_the_next_commit_and_the_one_after(
    folder: Path, is_watched: bool, name: str, change: Callable[[Path], None], error: type[JournalError]
) -> None:
    async with open_sqlite(f"sqlite:{folder / 'journal.db'}") as world:
        holder = await at_work(world)
        if name == "folder/journal.db" and change is cut:
            world._writer._transactor.door.connection.execute("pragma wal_checkpoint(passive)")
            await holder.record()
        assert (watch_of(world) is not None) == is_watched
        change(folder.parent / name)
        for _ in range(2):
            with pytest.raises(error):
                await holder.record()


async def test_a_link_on_the_way_that_leads_elsewhere_is_noticed(folder: Path) -> None:
    link, other = folder.parent / "link", folder.parent / "other"
    link.symlink_to(folder)
    other.mkdir()
    async with open_sqlite(f"sqlite:{other / 'journal.db'}"):
        pass
    async with open_sqlite(f"sqlite:{link / 'journal.db'}") as world:
        holder = await at_work(world)
        assert watch_of(world) is None
        link.unlink()
        link.symlink_to(other)
        with pytest.raises(WorldMissing):
            await holder.record()


@needs_inotify
async def test_checkpoints_do_not_end_the_watch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LOOK_SECONDS", 3600.0)
    async with open_sqlite(f"sqlite:{folder / 'journal.db'}") as world:
        holder = await at_work(world)
        before = watch_of(world)
        execute = world._writer._transactor.door.connection.execute
        for kind in ("passive", "truncate", "restart"):
            execute(f"pragma wal_checkpoint({kind})")
            await holder.record()
            await holder.record()
        assert watch_of(world) is before is not None
        assert await seqs(world, "run") == list(range(1, 29))


@needs_inotify
async def test_a_watch_is_let_go_with_its_world(folder: Path) -> None:
    before = len(descriptors(folder))
    async with open_sqlite(f"sqlite:{folder / 'journal.db'}") as world:
        await at_work(world)
        assert watch_of(world) is not None
        assert len(descriptors(folder)) > before
        world._writer._transactor._file.forget_log()
        await world.append(submit("other"))
        assert watch_of(world) is not None, "a connection that is opened anew has its own"
    assert len(descriptors(folder)) <= before


def descriptors(folder: Path) -> list[str]:
    """Of this process: of files there, and of a watch on them."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            leads_to = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # closed since
        if leads_to.startswith(str(folder)) or "inotify" in leads_to:
            found.append(leads_to)
    return found


@needs_inotify
async def test_a_file_system_mounted_over_the_files_is_noticed_at_the_next_look(
    small_disk: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.0)
    async with open_sqlite(f"sqlite:{folder / 'journal.db'}") as world:
        holder = await at_work(world)
        assert watch_of(world) is not None
        subprocess.run(["mount", "--bind", str(small_disk), str(folder)], check=True)
        try:
            with pytest.raises(WorldMissing):
                await holder.record()
        finally:
            subprocess.run(["umount", str(folder)], check=True)

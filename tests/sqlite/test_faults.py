"""What happens to the file: a clear error, nothing half-written, other runs unharmed."""

import fcntl
import os
import re
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from journal.core.codec import Blob
from journal.core.errors import (
    CorruptRecord,
    JournalError,
    WorldBusy,
    WorldCorrupt,
    WorldFull,
    WorldMissing,
    WorldReadOnly,
    WorldTooNew,
    WorldUnavailable,
    WorldUnknown,
)
from journal.core.ports import Committed, Duplicate, Finish, Item, Unknown
from journal.core.records import Record, TurnFinished
from journal.worlds import world_exists
from journal.worlds.contract.harness import Holder, begin, committed, hold, raw, seqs, submit, watching
from journal.worlds.sqlite import SqliteWorld, door, open_sqlite
from tests.sqlite.conftest import Start, failed_sync, line, tell

pytestmark = pytest.mark.anyio


def shell(path: Path, *statements: str) -> list[Any]:
    """What somebody does with the file by hand."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return [connection.execute(statement).fetchall() for statement in statements]
    finally:
        connection.close()


async def fill(holder: Holder, count: int = 20, size: int = 2000) -> None:
    for number in range(count):
        committed(await holder.offer(holder.batch(raw(holder.run, bytes([number]) * size))))


# The database refuses ------------------------------------------------------------------------------


@pytest.mark.parametrize("statement", ["update records set body = x'00'", "delete from records"])
async def test_records_can_be_neither_changed_nor_deleted(path: Path, url: str, statement: str) -> None:
    async with open_sqlite(url) as world:
        await begin(world, "run")
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            shell(path, statement)
        assert await seqs(world, "run") == [1, 2]


# Damage --------------------------------------------------------------------------------------------


async def test_a_flipped_bit_names_run_and_seq_and_spares_the_others(path: Path, url: str) -> None:
    async with open_sqlite(url) as world:
        for run in ("hit", "spared"):
            await begin(world, run)
            holder = await hold(world, run)
            committed(await holder.offer(holder.batch(raw(run, f"payload of {run}".encode() * 50))))
    data = bytearray(path.read_bytes())
    data[data.index(b"payload of hit") + 3] ^= 8
    path.write_bytes(data)
    async with open_sqlite(url) as world:
        with pytest.raises(CorruptRecord) as caught:
            await world.read("hit")
        assert (caught.value.run_id, caught.value.seq) == ("hit", 3)
        assert await seqs(world, "spared") == [1, 2, 3]


@pytest.mark.parametrize(
    "of", ["records", "runs", "runs_by_name", "records_by_segment", "segments", "sqlite_schema"]
)
async def test_a_flipped_bit_anywhere_is_an_error_or_no_difference(
    path: Path, url: str, of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULTS 7: no log is read that was never written.

    The limit: an index that hides the end of a log, from both sides, makes it read as one that ended earlier.
    """
    monkeypatch.setattr(door, "SEGMENT_RECORDS", 7)
    async with open_sqlite(url) as world:
        for run in ("one", "two", "three"):
            await begin(world, run)
            await fill(await hold(world, run), count=4, size=200)
        written = {run: said(await world.read(run)) for run in ("one", "two", "three")}
    data = path.read_bytes()
    flips = list(flips_in(path, of))
    assert len(flips) > 10
    refused = 0
    for at, bit in flips:
        damaged = bytearray(data)
        damaged[at] ^= bit
        path.write_bytes(damaged)
        try:
            async with open_sqlite(url) as world:
                for run, expected in written.items():
                    try:
                        found = said(await world.read(run))
                        upto = len(found) if of in ("records_by_segment", "segments") else None
                        assert found, f"bit {bit} of byte {at}"
                        assert found == expected[:upto], f"bit {bit} of byte {at}"
                    except JournalError:
                        refused += 1
        except JournalError:
            refused += 1
    assert refused, "some of it was found"


def said(records: list[Record]) -> list[tuple[object, ...]]:
    """What their author sealed."""
    return [(r.seq, r.type, r.turn, r.key, r.body) for r in records]


def flips_in(path: Path, of: str) -> Iterator[tuple[int, int]]:
    """Some bytes of the first page of that table or index, those in use, and a bit of each."""
    (((size,),),) = shell(path, "pragma page_size")
    if of == "sqlite_schema":
        for word in (b"abort", b"where", b"namespace"):
            yield from ((found.start(), 128) for found in re.finditer(word, path.read_bytes()))
        return
    (((root,),),) = shell(path, f"select rootpage from sqlite_schema where name = '{of}'")
    page = path.read_bytes()[(root - 1) * size : root * size]
    for number, at in enumerate(at for at in range(size) if page[at]):
        if number % 9 == 0 or number < 12:
            yield (root - 1) * size + at, 1 << number % 8


async def test_a_missing_record_is_found_on_reading(path: Path, url: str) -> None:
    async with open_sqlite(url) as world:
        await begin(world, "run")
        await fill(await hold(world, "run"), count=3)
        shell(path, "drop trigger records_never_go", "delete from records where seq = 3")
        with pytest.raises(CorruptRecord) as caught:
            await world.read("run")
        assert caught.value.seq == 3


async def test_a_damaged_blob_is_not_handed_out(path: Path, url: str) -> None:
    async with open_sqlite(url) as world:
        await begin(world, "run")
        holder = await hold(world, "run")
        committed(await holder.offer(holder.batch(raw("run", b"x"), blobs=(Blob("b", b"data"),))))
        shell(path, "update blobs set data = x'00'")
        with pytest.raises(CorruptRecord) as caught:
            await world.get_blob("run", "b")
        assert caught.value.seq == 0


async def test_a_file_cut_short_is_refused_at_open(path: Path, url: str) -> None:
    async with open_sqlite(url) as world:
        await begin(world, "run")
        await fill(await hold(world, "run"))
    os.truncate(path, path.stat().st_size - 8192)
    with pytest.raises(WorldCorrupt):
        async with open_sqlite(url):
            pass


async def test_a_file_cut_short_while_open_takes_nothing_more(path: Path, url: str) -> None:
    async with open_sqlite(url) as world:
        await begin(world, "run")
        holder = await hold(world, "run")
        await fill(holder)
        shell(path, "pragma wal_checkpoint(truncate)")
        await holder.record()
        os.truncate(path, 8192)
        with pytest.raises(WorldCorrupt):
            await holder.record()


async def test_a_log_cut_short_while_open_takes_nothing_more(path: Path, url: str) -> None:
    async with open_sqlite(url) as world:
        await begin(world, "run")
        holder = await hold(world, "run")
        await fill(holder)
        os.truncate(f"{path}-wal", os.path.getsize(f"{path}-wal") // 2)
        with pytest.raises(WorldCorrupt, match="cut"):
            await holder.record()


@pytest.mark.parametrize("by_hand", ["pragma wal_checkpoint(truncate)", "vacuum"])
async def test_upkeep_by_hand_is_no_damage(path: Path, url: str, by_hand: str) -> None:
    async with open_sqlite(url) as world:
        await begin(world, "run")
        holder = await hold(world, "run")
        await fill(holder)
        for _ in range(2):
            shell(path, "create table bulk (x)", "insert into bulk values (zeroblob(400000))")
            await holder.record()
            shell(path, "drop table bulk", by_hand, "pragma wal_checkpoint(truncate)")
            await holder.record()
        assert await seqs(world, "run") == list(range(1, 27))


@pytest.mark.parametrize("size", [2, 60, 1200])
async def test_a_file_that_is_no_database(path: Path, url: str, size: int) -> None:
    content = (b"this is not a database, but long enough to look like one" * 22)[:size]
    path.write_bytes(content)
    with pytest.raises(WorldCorrupt, match="no database: give another path"):
        async with open_sqlite(url):
            pass
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("mode", ["delete", "wal"])
async def test_the_database_of_another_program(path: Path, url: str, mode: str) -> None:
    shell(path, f"pragma journal_mode = {mode}", "create table theirs (x)")
    with pytest.raises(WorldCorrupt, match="another program"):
        async with open_sqlite(url):
            pass
    assert list(path.parent.iterdir()) == [path]
    assert shell(path, "select name from sqlite_schema") == [[("theirs",)]]


async def test_the_database_of_another_program_that_is_at_work(path: Path, url: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as theirs:
        theirs.execute("pragma journal_mode = wal")
        theirs.execute("create table theirs (x)")
        with pytest.raises(WorldCorrupt, match="another program"):
            async with open_sqlite(url):
                pass
        assert {file.name for file in path.parent.iterdir()} == {
            path.name,
            f"{path.name}-wal",
            f"{path.name}-shm",
        }


async def test_a_newer_schema(path: Path, url: str) -> None:
    async with open_sqlite(url):
        pass
    shell(path, "pragma user_version = 9999")
    with pytest.raises(WorldTooNew, match="9999"):
        async with open_sqlite(url):
            pass


async def test_a_directory_is_no_store_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    with pytest.raises(WorldUnavailable, match=r"Is a directory.*check the path"):
        async with open_sqlite(f"sqlite:{tmp_path / 'place'}"):
            pass
    assert [path.name for path in tmp_path.rglob("*")] == ["place"]


async def test_whether_there_is_a_store_is_asked_with_parameters_refused(url: str) -> None:
    assert not await world_exists(url)
    with pytest.raises(WorldUnknown, match="it has no parameter 'mode'"):
        await world_exists(f"{url}?mode=ro")


async def test_a_store_must_be_a_file() -> None:
    for wrong in ("sqlite:", "sqlite::memory:"):
        with pytest.raises(WorldUnknown):
            async with open_sqlite(wrong):
                pass


# The file goes away --------------------------------------------------------------------------------


@pytest.mark.parametrize("suffixes", [("",), ("-wal",), ("", "-wal", "-shm")])
async def test_nothing_is_acknowledged_into_a_deleted_file(
    path: Path, url: str, suffixes: tuple[str, ...]
) -> None:
    async with open_sqlite(url) as world:
        await begin(world, "run")
        holder = await hold(world, "run")
        for suffix in suffixes:
            Path(f"{path}{suffix}").unlink()
        with pytest.raises(WorldMissing):
            await holder.record()


async def test_nothing_is_acknowledged_into_a_replaced_file(path: Path, url: str, tmp_path: Path) -> None:
    async with open_sqlite(f"sqlite:{tmp_path / 'other.db'}"):
        pass
    async with open_sqlite(url) as world:
        await begin(world, "run")
        holder = await hold(world, "run")
        os.rename(tmp_path / "other.db", path)
        with pytest.raises(WorldMissing):
            await holder.record()
        with pytest.raises(WorldMissing):
            await world.claim(worker="w", limit=1, lease_seconds=30, agents=None, reads=1)


async def test_a_follower_of_a_deleted_file_is_told(path: Path, url: str) -> None:
    async with open_sqlite(url) as world:
        await begin(world, "run")
        async with watching(world, "run") as watcher:
            await watcher.until_count(2)
            path.unlink()
            await watcher.until_end()
            assert isinstance(watcher.error, WorldMissing)


# A reader who pauses -------------------------------------------------------------------------------


async def test_a_paused_reader_does_not_make_the_log_grow(path: Path, url: str) -> None:
    """A statement left open would keep the write-ahead log from starting over."""
    async with open_sqlite(url) as world:
        await begin(world, "run")
        holder = await hold(world, "run")
        await fill(holder, count=200)
        paused = world.follow("run")
        await anext(paused)
        body = os.urandom(1024 * 1024)
        for _ in range(60):
            committed(await holder.offer(holder.batch(raw("run", body))))
        assert os.path.getsize(f"{path}-wal") < 40 * 1024 * 1024
        assert [item.seq async for item in _some(paused, 10)] == list(range(2, 12))


async def _some(items: AsyncIterator[Item], count: int) -> AsyncIterator[Item]:
    for _ in range(count):
        yield await anext(items)


# No room, no right ---------------------------------------------------------------------------------


async def append_until_full(world: SqliteWorld, holder: Holder) -> int:
    for count in range(100_000):
        try:
            await holder.offer(holder.batch(raw("run", os.urandom(20_000))))
        except WorldFull:
            return count
    raise AssertionError("it never filled up")


async def test_a_full_disk(small_disk: Path) -> None:
    async with open_sqlite(f"sqlite:{small_disk / 'journal.db'}") as world:
        await begin(world, "run")
        holder = await hold(world, "run")
        count = await append_until_full(world, holder)
        assert await seqs(world, "run") == list(range(1, count + 3))
        ballast = [world.append(submit(f"more-{n}")) for n in range(3)]
        for answer in ballast:
            with pytest.raises(WorldFull):
                await answer


async def test_a_full_disk_spares_what_was_stored_and_there_is_a_way_on(small_disk: Path) -> None:
    """FAULTS 7: a batch is there as a whole or not at all, and the other runs read on."""
    url = f"sqlite:{small_disk / 'journal.db'}"
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 500_000)
    async with open_sqlite(url) as world:
        for run in ("run", "other"):
            await begin(world, run)
        holder, other = await hold(world, "run"), await hold(world, "other")
        await other.record()
        count = await append_until_full(world, holder)
        finished = raw("run", os.urandom(300_000), kind=TurnFinished.TYPE, turn="t1")
        end = holder.batch(
            holder.outcome(), finished, queue=Finish("t1", "succeeded"), blobs=(Blob("b", b"x"),)
        )
        with pytest.raises(WorldFull):
            await world.append(end)
        assert await seqs(world, "other") == [1, 2, 3]
        assert await seqs(world, "run") == list(range(1, count + 3))
        info = await world.run("run")
        assert info is not None
        assert (info.status, info.turn) == ("running", "t1")
        ballast.unlink()
        committed(await world.append(end))
        await other.record()
    async with open_sqlite(url) as world:
        assert await seqs(world, "run") == list(range(1, count + 5))
        assert await seqs(world, "other") == [1, 2, 3, 4]
        info = await world.run("run")
        assert info is not None
        assert info.status == "succeeded"


async def test_a_store_at_its_limit_recovers_when_there_is_room(url: str) -> None:
    async with open_sqlite(url) as world:
        await begin(world, "run")
        holder = await hold(world, "run")
        connection = world._writer._transactor.door.connection
        connection.execute("pragma max_page_count = 60")
        count = await append_until_full(world, holder)
        assert await seqs(world, "run") == list(range(1, count + 3))
        connection.execute("pragma max_page_count = 100000")
        await holder.record()
        assert await seqs(world, "run") == list(range(1, count + 4))


async def test_a_file_that_may_not_be_written_while_open(url: str) -> None:
    async with open_sqlite(url) as world:
        await begin(world, "run")
        holder = await hold(world, "run")
        connection = world._writer._transactor.door.connection
        connection.execute("pragma query_only = 1")
        with pytest.raises(WorldReadOnly):
            await holder.record()
        connection.execute("pragma query_only = 0")
        await holder.record()
        assert await seqs(world, "run") == [1, 2, 3]


async def test_a_file_that_may_not_be_written_at_open(small_disk: Path) -> None:
    path = small_disk / "journal.db"
    async with open_sqlite(f"sqlite:{path}") as world:
        await begin(world, "run")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(WorldReadOnly):
        async with open_sqlite(f"sqlite:{path}"):
            pass
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    async with open_sqlite(f"sqlite:{path}") as world:
        assert await seqs(world, "run") == [1, 2]


async def test_directory_and_file_are_for_this_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "made" / "here" / "journal.db"
    async with open_sqlite(f"sqlite:{path}") as world:
        await begin(world, "run")
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert set(modes.values()) == {0o600}, modes


# Someone else has it -------------------------------------------------------------------------------


async def test_a_lock_of_another_process_is_waited_for(path: Path, url: str, start: Start) -> None:
    async with open_sqlite(url) as world:
        await begin(world, "run")
        holder = await hold(world, "run")
        other = start("lock", path)
        await line(other)
        waiting = world.append(holder.batch(holder.outcome()))
        with anyio.move_on_after(2.5):  # FAULTS 8: for seconds
            await anyio.sleep_forever()
        assert not waiting.done()
        assert await seqs(world, "run") == [1, 2], "it is read meanwhile"
        tell(other)
        assert isinstance(await waiting, Committed)


async def test_a_lock_held_too_long_is_a_clear_error(path: Path, url: str, start: Start) -> None:
    async with open_sqlite(url, busy_seconds=0.3) as world:
        await begin(world, "run")
        holder = await hold(world, "run")
        other = start("lock", path)
        await line(other)
        with pytest.raises(WorldBusy):
            await holder.record()
        renewer = world.open_renewer()
        with pytest.raises(WorldBusy):
            await anyio.to_thread.run_sync(renewer.renew, [holder.claim], 30.0)
        renewer.close()
        tell(other)
        await line(other)
        await holder.record()
        assert await seqs(world, "run") == [1, 2, 3]


async def test_a_process_that_hangs_in_the_turnstile(path: Path, url: str) -> None:
    async with open_sqlite(url, busy_seconds=0.3) as world:
        await begin(world, "run")
        holder = await hold(world, "run")
        with open(f"{path}-main") as main:  # as good as another process: the lock belongs to what was opened
            fcntl.flock(main, fcntl.LOCK_EX)
            offered = holder.batch(holder.outcome())
            for _ in range(2):
                with pytest.raises(WorldBusy):
                    await world.append(offered)
            with pytest.raises(WorldBusy):
                async with open_sqlite(url, busy_seconds=0.3):
                    pass
        # Certainly not landed means: not later either.
        await holder.record()
        assert await seqs(world, "run") == [1, 2, 3]
        async with open_sqlite(url) as again:
            assert await seqs(again, "run") == [1, 2, 3]


# The disk fails ------------------------------------------------------------------------------------


class Failing(sqlite3.Connection):
    """A disk whose sync fails: once before the commit took effect, or once after."""

    mode = "well"

    def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        if statement == "commit" and self.mode != "well":
            mode, self.mode = self.mode, "well"
            super().execute("commit" if mode == "after" else "rollback")
            raise failed_sync()
        return super().execute(statement, *parameters)


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_commit_that_fails_is_unknown_until_offered_again(
    url: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = sqlite3.connect
    monkeypatch.setattr(
        "journal.worlds.sqlite.connection.sqlite3.connect",
        lambda *arguments, **options: plain(*arguments, **options, factory=Failing),
    )
    async with open_sqlite(url) as world:
        await begin(world, "run")
        holder = await hold(world, "run")
        failing = world._writer._transactor.door.connection
        assert isinstance(failing, Failing)
        failing.mode = moment
        batch = holder.batch(holder.outcome())
        assert isinstance(await world.append(batch), Unknown)
        again = await world.append(batch)
        if moment == "after":
            assert isinstance(again, Duplicate)
            assert again.claim_valid
        else:
            assert isinstance(again, Committed)
        assert world._writer._transactor.door.connection is not failing, "the connection was opened anew"
        assert await seqs(world, "run") == [1, 2, 3]

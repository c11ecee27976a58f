"""Sweeping on SQLite: in small transactions, finished by the next sweep if one dies halfway."""

import sqlite3
from pathlib import Path

import pytest

from journal.core.clock import ManualClock
from journal.core.codec import Blob
from journal.core.errors import RunGone
from journal.core.ports import Committed, Gone, SweepPolicy
from journal.worlds.contract.harness import begin, close, committed, hold, raw, seqs, submit
from journal.worlds.sqlite import SqliteWorld, open_sqlite
from journal.worlds.sqlite.sweep import ROWS, Sweep

pytestmark = pytest.mark.anyio
NOW = SweepPolicy(closed_older_than_seconds=0)
TABLES = ("records", "segments", "blobs", "deltas", "turns", "keys")


async def closed_run(world: SqliteWorld, run: str, records: int = 3) -> None:
    await begin(world, run)
    holder = await hold(world, run)
    body = raw(run, b"x")
    committed(await holder.offer(holder.batch(*[body] * records, blobs=(Blob("b", b"blob"),))))
    await holder.finish()
    committed(await world.append(close(run)))


def counts(path: Path) -> dict[str, int]:
    connection = sqlite3.connect(path)
    found = {name: connection.execute(f"select count(*) from {name}").fetchone()[0] for name in TABLES}
    connection.close()
    return found


async def test_the_tombstone_keeps_id_digest_and_keys(path: Path, url: str) -> None:
    async with open_sqlite(url) as world:
        await closed_run(world, "run")
        assert await world.sweep(NOW) == 1
        assert counts(path) == {"records": 0, "segments": 0, "blobs": 0, "deltas": 0, "turns": 0, "keys": 2}
        connection = sqlite3.connect(path)
        ((digest, is_emptied),) = connection.execute("select digest, is_emptied from runs").fetchall()
        connection.close()
        assert len(digest) == 16
        assert is_emptied == 1
        assert await world.append(submit("run")) == Gone()


async def test_a_long_run_leaves_in_pieces(path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    transactions = 0
    plain = Sweep._empty_some

    def empty_some(self: Sweep, rid: int) -> bool:
        nonlocal transactions
        transactions += 1
        return plain(self, rid)

    monkeypatch.setattr(Sweep, "_empty_some", empty_some)
    async with open_sqlite(url) as world:
        await closed_run(world, "run", records=2 * ROWS)
        await begin(world, "other")
        await world.sweep(NOW)
        assert transactions == 3 + 1 + 1 + 1 + 1, (
            "three for the records, segments, blobs, turns, and one that finds nothing"
        )
        assert await seqs(world, "other") == [1, 2]


async def test_a_sweep_that_died_halfway_is_finished_by_the_next(
    path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(self: Sweep, rid: int) -> bool:
        raise KeyError("as good as a kill")

    async with open_sqlite(url, clock=(clock := ManualClock())) as world:
        await closed_run(world, "run")
        with monkeypatch.context() as patched:
            patched.setattr(Sweep, "_empty_some", die)
            with pytest.raises(Exception, match="as good as a kill"):
                await world.sweep(NOW)
        assert counts(path)["records"] == 7
        with pytest.raises(RunGone):
            await world.read("run")
        clock.advance(NOW.tombstone_seconds + 1)
        assert await world.append(submit("run")) == Gone(), "not before its records are gone"
        assert await world.sweep(NOW) == 0
        assert counts(path)["records"] == 0
        assert isinstance(await world.append(submit("run")), Committed)
        assert await seqs(world, "run") == [1, 2]


async def test_a_recreated_run_is_another_row(path: Path, url: str) -> None:
    async with open_sqlite(url, clock=(clock := ManualClock())) as world:
        await closed_run(world, "run")
        before = await world.run("run")
        assert before is not None
        await world.sweep(NOW)
        clock.advance(NOW.tombstone_seconds + 1)
        await begin(world, "run")
        after = await world.run("run")
        assert after is not None
        assert after.position > before.position
        assert (after.head, after.turns, after.epoch) == (2, 1, 0)

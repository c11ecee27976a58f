"""Segments: the index of records lies where the log ends, and each run finds its own records in it."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from journal.core.ports import Committed, Duplicate, Unknown
from journal.worlds.contract.harness import begin, committed, hold, raw, seqs, signal
from journal.worlds.sqlite import SqliteWorld, door, open_sqlite
from journal.worlds.sqlite.statements import SQL, migrations
from journal.worlds.sqlite.transaction import Transactor

pytestmark = pytest.mark.anyio
SEGMENT_RECORDS = 10


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "SEGMENT_RECORDS", SEGMENT_RECORDS)


@pytest.fixture
async def world(url: str) -> AsyncIterator[SqliteWorld]:
    async with open_sqlite(url) as opened:
        yield opened


def segments(path: Path, run: str) -> list[tuple[int, int]]:
    """Segment and first seq of each, as the table has them."""
    connection = sqlite3.connect(path)
    found = connection.execute(
        "select segment, first from segments where rid = (select rid from runs where run = ?) order by segment",
        (run,),
    ).fetchall()
    connection.close()
    return found


def places(path: Path, run: str) -> list[tuple[int, int]]:
    """Segment and first seq of each, as the records have them; and that they are in the order of the log."""
    connection = sqlite3.connect(path)
    rows = connection.execute(
        "select segment, seq, rowid from records where rid = (select rid from runs where run = ?) order by seq",
        (run,),
    ).fetchall()
    connection.close()
    assert [segment for segment, *_ in rows] == sorted(segment for segment, *_ in rows)
    assert all((rowid - 1) // SEGMENT_RECORDS + 1 >= segment for segment, _, rowid in rows)
    first: dict[int, int] = {}
    for segment, seq, _ in rows:
        first.setdefault(segment, seq)
    return list(first.items())


async def test_runs_that_write_side_by_side_share_segments(path: Path, world: SqliteWorld) -> None:
    holders = []
    for run in ("a", "b", "c"):
        await begin(world, run)
        holders.append(await hold(world, run))
    for _ in range(20):
        for holder in holders:
            await holder.record()
    for run in ("a", "b", "c"):
        assert await seqs(world, run) == list(range(1, 23))
        for after in range(23):
            assert [r.seq for r in await world.read(run, after=after, limit=4)] == list(
                range(after + 1, min(after + 5, 23))
            )
        assert segments(path, run) == places(path, run)
        assert len(segments(path, run)) >= 6


async def test_a_group_of_many_runs_writes_few_pages(
    path: Path, world: SqliteWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By run, the index would write a page for each: 300 entries of one fill more than a page."""
    monkeypatch.undo()
    holders = []
    for number in range(40):
        await begin(world, f"r{number}")
        holders.append(holder := await hold(world, f"r{number}"))
        committed(await holder.offer(holder.batch(*[holder.outcome()] * 300)))
    for _ in range(2):  # the first begins a segment for some
        connection = sqlite3.connect(path)
        connection.execute("pragma wal_checkpoint(truncate)")
        connection.close()
        await asyncio.gather(*(holder.record() for holder in holders))
    header, frame = 32, 24 + 4096
    pages = (path.with_name(f"{path.name}-wal").stat().st_size - header) // frame
    assert 0 < pages < 20


async def test_a_run_that_slept_through_segments_goes_on_in_the_newest(
    path: Path, world: SqliteWorld
) -> None:
    for run in ("sleeper", "busy"):
        await begin(world, run)
    sleeper, busy = await hold(world, "sleeper"), await hold(world, "busy")
    await sleeper.record()
    for _ in range(50):
        await busy.record()
    await sleeper.record()
    assert [segment for segment, _ in segments(path, "sleeper")] == [1, 6]
    assert await seqs(world, "sleeper") == [1, 2, 3, 4]


async def test_an_answer_that_was_lost_is_found_in_an_older_segment(url: str, world: SqliteWorld) -> None:
    await begin(world, "run")
    holder = await hold(world, "run")
    batch = holder.batch(holder.outcome(), holder.outcome())
    landed = committed(await holder.offer(batch))
    async with open_sqlite(url) as other:
        for number in range(40):
            assert isinstance(await other.append(signal("run", f"s{number}")), Committed)
    again = await world.append(batch)
    assert again == Duplicate(landed, True)


async def test_a_lone_holder_sees_a_segment_that_another_process_opened(
    path: Path, url: str, world: SqliteWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index would take the seq a second time there."""
    tried: list[Committed | None] = []
    plain = Transactor.try_append

    def try_append(self: Transactor, batch: object) -> Committed | None:
        tried.append(answer := plain(self, batch))  # type: ignore[arg-type]
        return answer

    await begin(world, "run")
    holder = await hold(world, "run")
    await holder.start()
    await holder.record()
    world._writer._last_seconds = 0.0
    async with open_sqlite(url) as other:
        await begin(other, "filler")
        filler = await hold(other, "filler")
        for _ in range(SEGMENT_RECORDS):
            await filler.record()
        await other.append(signal("run"))
    monkeypatch.setattr(Transactor, "try_append", try_append)
    answer = await holder.record()
    assert tried[0] is None
    assert (answer.first, answer.last) == (6, 6)
    assert await seqs(world, "run") == [1, 2, 3, 4, 5, 6]
    assert segments(path, "run") == places(path, "run")


@pytest.mark.parametrize("fault", ["of the contents of one", "of the disk", "of the commit"])
async def test_a_group_that_opens_segments_and_fails_leaves_none(
    path: Path, world: SqliteWorld, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    holders = []
    for run in ("a", "b"):
        await begin(world, run)
        holders.append(await hold(world, run))
    for _ in range(SEGMENT_RECORDS):
        for holder in holders:
            await holder.record()
    await begin(world, "filler")
    filler = await hold(world, "filler")
    for _ in range(SEGMENT_RECORDS):
        await filler.record()
    before = [segments(path, run) for run in ("a", "b")]
    record = raw("b", b"x")
    if fault == "of the contents of one":
        record = replace(record, key="\ud800")
    else:
        monkeypatch.setattr(
            door.Door, "write_staged", failing_at("insert" if fault == "of the disk" else "commit")
        )
    batches = holders[0].batch(raw("a", b"x")), holders[1].batch(record)
    answers = await asyncio.gather(*(world.append(batch) for batch in batches), return_exceptions=True)
    if fault == "of the contents of one":
        assert isinstance(answers[0], Committed)
        assert "cannot take it" in str(answers[1])
    else:
        assert [type(answer) for answer in answers] == [Unknown, Unknown]
        assert [segments(path, run) for run in ("a", "b")] == before
        monkeypatch.undo()
        monkeypatch.setattr(door, "SEGMENT_RECORDS", SEGMENT_RECORDS)
        assert isinstance(await world.append(batches[0]), Committed)
    assert isinstance(await world.append(batches[0]), Duplicate)
    assert segments(path, "b") == before[1]
    assert segments(path, "a") == places(path, "a") != before[0]


def failing_at(word: str) -> Callable[[door.Door], None]:
    """`write_staged` whose first statement that begins with that word fails as a disk does."""
    plain = door.Door.write_staged

    def write_staged(self: door.Door) -> None:
        execute = self._execute

        def fail(statement: str, *values: Any) -> sqlite3.Cursor:
            if statement.startswith(word):
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR
                raise error
            return execute(statement, *values)

        self._execute = fail
        plain(self)

    return write_staged


@pytest.mark.parametrize("name", ["read_records", "checksums", "find_batch", "drop_records"])
def test_segments_are_read_in_order_without_sorting(name: str) -> None:
    connection = sqlite3.connect(":memory:")
    for _, script in migrations():
        connection.executescript(script)
    values = {"rid": 1, "limit": 1} if ":rid" in SQL[name] else (1, 1, 1)
    plan = [row[3] for row in connection.execute(f"explain query plan {SQL[name]}", values)]
    connection.close()
    assert [step for step in plan if "records_by_segment (segment=? AND rid=?" in step], plan
    assert not [step for step in plan if "TEMP B-TREE" in step], plan


async def test_records_from_before_there_were_segments_come_first(path: Path, url: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript((Path(__file__).parent / "dumps" / "0003.sql").read_text())
    connection.close()
    async with open_sqlite(url) as world:
        await begin(world, "order-42", "t2")
        holder = await hold(world, "order-42")
        await holder.record()
        assert await seqs(world, "order-42") == [1, 2, 3, 4, 5, 6, 7, 8]
        assert segments(path, "order-42") == [(0, 1), (2, 7)]
    holder_of_old_code = sqlite3.connect(path)
    with pytest.raises(sqlite3.OperationalError, match="no column named batch"):
        holder_of_old_code.execute("insert into records (rid, seq, batch) values (1, 9, x'')")
    holder_of_old_code.close()

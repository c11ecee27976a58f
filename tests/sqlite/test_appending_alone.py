"""A holder that is alone appends on the spot, without a look at its run: the statement itself must see what changed."""

import sqlite3
from collections.abc import AsyncIterator
from typing import Any, Self

import pytest
from msgspec.structs import replace

from journal.core.codec import checksum
from journal.core.ports import Close, Committed, Duplicate, HeadMoved, StaleClaim
from journal.core.records import NewRecord
from journal.worlds.contract.harness import Holder, begin, claim_all, close, hold, raw, seqs, signal
from journal.worlds.sqlite import SqliteWorld, open_sqlite
from journal.worlds.sqlite.transaction import Transactor
from tests.sqlite.conftest import failed_sync

pytestmark = pytest.mark.anyio


@pytest.fixture
async def world(url: str) -> AsyncIterator[SqliteWorld]:
    async with open_sqlite(url) as opened:
        yield opened


@pytest.fixture
async def other(url: str, world: SqliteWorld) -> AsyncIterator[SqliteWorld]:
    """The same file, as another process has it."""
    async with open_sqlite(url) as opened:
        yield opened


@pytest.fixture
async def holder(world: SqliteWorld) -> Holder:
    """Has appended and is alone, so that its next batch goes in on the spot."""
    await begin(world, "run")
    holder = await hold(world, "run", lease_seconds=0.001)
    await holder.start()
    await holder.record()
    world._writer._last_seconds = 0.0
    assert world._writer._is_alone
    return holder


@pytest.fixture
def on_the_spot(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What each try to append on the spot came to."""
    seen: list[object] = []
    plain = Transactor.try_append

    def try_append(self: Transactor, batch: object) -> Committed | None:
        seen.append(answer := plain(self, batch))  # type: ignore[arg-type]
        return answer

    monkeypatch.setattr(Transactor, "try_append", try_append)
    return seen


async def test_the_next_batch_of_a_lone_holder_is_durable_on_the_spot(
    holder: Holder, other: SqliteWorld, on_the_spot: list[object]
) -> None:
    answer = await holder.record()
    assert on_the_spot[-1] == answer
    assert (answer.first, answer.last) == (5, 5)
    assert await seqs(other, "run") == [1, 2, 3, 4, 5]


async def test_a_claim_that_another_process_took_over_is_seen(
    holder: Holder, other: SqliteWorld, on_the_spot: list[object]
) -> None:
    [taken] = await claim_all(other, run="run")
    answer = await holder.offer(holder.batch(holder.outcome()))
    assert on_the_spot[-1] is None
    assert answer == StaleClaim(holder.claim.epoch, taken.claim.epoch)
    assert await seqs(other, "run") == [1, 2, 3, 4]


async def test_a_run_that_another_process_closed_is_seen(
    holder: Holder, other: SqliteWorld, on_the_spot: list[object]
) -> None:
    closing = close("run")
    assert isinstance(closing.queue, Close)
    await other.append(closing)
    assert isinstance(await holder.offer(holder.batch(holder.outcome())), StaleClaim)
    assert on_the_spot[-1] is None
    assert await seqs(other, "run") == [1, 2, 3, 4, 5]


async def test_a_record_that_another_process_appended_is_not_written_over(
    holder: Holder, other: SqliteWorld, on_the_spot: list[object]
) -> None:
    await other.append(signal("run"))
    answer = await holder.record()
    assert on_the_spot[-1] is None
    assert (answer.first, answer.last) == (6, 6)
    assert [record.type for record in await other.read("run", after=4)] == [
        "cancel.requested",
        "call.outcome",
    ]


@pytest.mark.parametrize(
    ("turns", "at_once"), [("t1 t1 t1", True), ("t1", True), ("t1 t2", False), ("t1 -", False), ("- -", True)]
)
async def test_records_of_one_turn_go_in_by_one_statement_and_others_are_kept_apart(
    holder: Holder, on_the_spot: list[object], turns: str, at_once: bool
) -> None:
    written = [
        raw(
            "run",
            bytes([n]),
            kind=f"test.k{n}",
            turn=None if turn == "-" else turn,
            key=f"key-{n}" if n else None,
        )
        for n, turn in enumerate(turns.split())
    ]
    answer = await holder.offer(batch := holder.batch(*written))
    assert (on_the_spot[-1] == answer) is at_once
    assert isinstance(answer, Committed)
    assert (answer.first, answer.last) == (5, 4 + len(written))
    found = await holder.world.read("run", after=4)
    assert [(r.seq, r.time, r.epoch, r.batch) for r in found] == [
        (n, answer.time, holder.claim.epoch, batch.id) for n in range(5, 5 + len(written))
    ]
    assert [NewRecord(r.type, r.turn, r.key, r.body, r.checksum) for r in found] == written


async def test_a_batch_for_just_the_head_goes_in_on_the_spot(
    holder: Holder, on_the_spot: list[object]
) -> None:
    answer = await holder.offer(replace(holder.batch(holder.outcome()), at_head=4))
    assert isinstance(answer, Committed)
    assert on_the_spot[-1] == answer


async def test_a_batch_for_another_head_does_not(holder: Holder, on_the_spot: list[object]) -> None:
    assert await holder.offer(replace(holder.batch(holder.outcome()), at_head=3)) == HeadMoved(4)
    assert on_the_spot[-1] is None
    assert await seqs(holder.world, "run") == [1, 2, 3, 4]


async def test_a_head_that_another_process_moved_is_seen(
    holder: Holder, other: SqliteWorld, on_the_spot: list[object]
) -> None:
    await other.append(signal("run"))
    assert await holder.offer(replace(holder.batch(holder.outcome()), at_head=4)) == HeadMoved(5)
    assert on_the_spot[-1] is None
    assert await seqs(other, "run") == [1, 2, 3, 4, 5]


async def test_an_encrypted_value_keeps_the_id_of_its_key(holder: Holder, on_the_spot: list[object]) -> None:
    plain = holder.outcome()
    mark = checksum("run", plain.type, plain.turn, plain.key, "k1", plain.body)
    named = replace(plain, key_id="k1", checksum=mark)
    assert isinstance(await holder.offer(holder.batch(holder.outcome(), named)), Committed)
    assert on_the_spot[-1] is None
    assert [record.key_id for record in await holder.world.read("run", after=4)] == [None, "k1"]


class Failing(sqlite3.Connection):
    """The next insert through a cursor of it fails like a disk: once it is written (`after`), or instead."""

    moment = ""

    def cursor(self, *_: object) -> sqlite3.Cursor:  # type: ignore[override]
        return FailingCursor(self)


class FailingCursor(sqlite3.Cursor):
    def execute(self, statement: str, *parameters: Any) -> Self:
        assert isinstance(self.connection, Failing)
        moment, self.connection.moment = self.connection.moment, ""
        if moment == "after":
            super().execute(statement, *parameters)
        if moment:
            raise failed_sync()
        return super().execute(statement, *parameters)


@pytest.mark.parametrize("moment", ["instead", "after"])
async def test_a_disk_that_fails_is_opened_anew_and_nothing_lands_twice(
    url: str, moment: str, monkeypatch: pytest.MonkeyPatch, on_the_spot: list[object]
) -> None:
    plain = sqlite3.connect
    monkeypatch.setattr(
        "journal.worlds.sqlite.connection.sqlite3.connect",
        lambda *arguments, **options: plain(*arguments, **options, factory=Failing),
    )
    async with open_sqlite(url) as world:
        await begin(world, "run")
        holder = await hold(world, "run")
        await holder.start()
        await holder.record()
        world._writer._last_seconds = 0.0
        failing = world._writer._transactor.door.connection
        assert isinstance(failing, Failing)
        failing.moment = moment
        answer = await holder.offer(holder.batch(holder.outcome()))
        assert on_the_spot[-1] is None
        assert isinstance(answer, Duplicate if moment == "after" else Committed)
        assert not isinstance(answer, Duplicate) or answer.claim_valid
        assert world._writer._transactor.door.connection is not failing
        assert await seqs(world, "run") == [1, 2, 3, 4, 5]

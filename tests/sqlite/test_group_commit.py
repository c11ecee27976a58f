"""Group commit: one durable commit for all who wait, and nobody pays for another's fault."""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from msgspec.structs import replace

from journal.core.errors import InvalidValue, WorldCorrupt, WorldError, WorldFull
from journal.core.ports import Batch, Block, Claim, Committed, Delta, HeadMoved, Held, Keyed, Submit
from journal.worlds.contract.harness import Holder, begin, claim_all, close, raw, seqs, signal, submit
from journal.worlds.sqlite import SqliteWorld, open_sqlite
from journal.worlds.sqlite.transaction import Transactor
from journal.worlds.sqlite.writer import GROUP_BYTES, GROUP_ROWS

pytestmark = pytest.mark.anyio


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many members each group had that went to the writer thread."""
    seen: list[int] = []
    plain = Transactor.commit

    def commit(self: Transactor, members: list[Any], **hooks: Callable[[], Any]) -> Any:
        seen.append(len(members))
        return plain(self, members, **hooks)

    monkeypatch.setattr(Transactor, "commit", commit)
    return seen


async def team(world: SqliteWorld, count: int) -> list[Holder]:
    await asyncio.gather(*(begin(world, f"run-{number}") for number in range(count)))
    claimed = await claim_all(world, limit=count)
    world._writer._is_alone = False  # else the first of the next group would be committed at once
    return [Holder(world, one) for one in claimed]


async def work(holder: Holder, steps: int) -> None:
    for _ in range(steps):
        await holder.record()


async def settle(*offers: Any) -> list[Any]:
    return await asyncio.gather(*offers, return_exceptions=True)


async def test_what_waits_at_the_same_moment_is_one_commit(url: str, groups: list[int]) -> None:
    async with open_sqlite(url) as world:
        holders = await team(world, 50)
        groups.clear()
        answers = await settle(*(world.append(h.batch(h.outcome())) for h in holders))
        assert all(isinstance(answer, Committed) for answer in answers)
        assert len({answer.time for answer in answers}) == 1
        assert groups == [50]


async def test_while_one_half_is_on_its_way_the_other_computes(url: str, groups: list[int]) -> None:
    async with open_sqlite(url) as world:
        holders = await team(world, 40)
        groups.clear()
        await asyncio.gather(*(work(holder, 12) for holder in holders))
        assert groups[0] == 40
        assert median(groups[1:]) < 30, (
            "once they have come apart, they do not all wait at the same time again"
        )


async def test_a_batch_that_takes_more_costs_the_runs_of_other_groups_nothing(url: str) -> None:
    async with open_sqlite(url) as world:
        door = world._writer._transactor.door
        ending, plain, other = await team(world, 3)
        for holder in (plain, other):
            await holder.record()
        door.begin()
        end = ending.batch(ending.outcome(), queue=Block())
        assert door.stage([plain.batch(plain.outcome()), end]) is None
        assert door.stage([plain.batch(plain.outcome())]) is None, "what was staged is not what the store has"
        assert door.stage([other.batch(other.outcome())]) is not None


async def test_groups_are_bounded_by_rows(url: str, groups: list[int]) -> None:
    async with open_sqlite(url) as world:
        holders = await team(world, 40)
        groups.clear()
        rows = GROUP_ROWS // 10 - 1  # each batch weighs one more row than it has records: ten fit
        await settle(*(world.append(h.batch(*[h.outcome()] * rows)) for h in holders))
        assert groups == [10, 10, 10, 10]


async def test_groups_are_bounded_by_bytes(url: str, groups: list[int]) -> None:
    async with open_sqlite(url) as world:
        holders = await team(world, 5)
        groups.clear()
        body = os.urandom(GROUP_BYTES // 2 - 1000)
        await settle(*(world.append(h.batch(raw(h.run, body))) for h in holders))
        assert groups == [2, 2, 1]


async def test_a_batch_over_the_bound_goes_alone(url: str) -> None:
    async with open_sqlite(url) as world:
        (holder,) = await team(world, 1)
        answer = await world.append(holder.batch(raw(holder.run, os.urandom(GROUP_BYTES + 1))))
        assert isinstance(answer, Committed)


POISON: dict[str, Callable[[str], Any]] = {
    "a lone surrogate": lambda run: _with(run, turn="\ud800"),
    "a number that does not fit": lambda run: _with(run, checksum=2**64),
    "a body of the wrong type": lambda run: _with(run, body=["no", "bytes"]),
    "a missing checksum": lambda run: _with(run, checksum=None),
}


def _with(run: str, **fields: Any) -> Any:
    return replace(raw(run, b"x"), **fields)


@pytest.mark.parametrize("poison", POISON)
@pytest.mark.parametrize("place", [0, 57, 99])
async def test_one_poison_value_in_a_group_of_a_hundred(url: str, poison: str, place: int) -> None:
    async with open_sqlite(url) as world:
        holders = await team(world, 100)
        batches = [h.batch(h.outcome()) for h in holders]
        run = holders[place].run
        batches[place] = holders[place].batch(holders[place].outcome(), POISON[poison](run))
        answers = await settle(*map(world.append, batches))
        refused = answers.pop(place)
        assert isinstance(refused, InvalidValue), refused
        assert all(isinstance(answer, Committed) for answer in answers)
        assert await seqs(world, run) == [1, 2], "nothing of it is there"
        await holders[place].record()


async def test_refusals_do_not_touch_their_neighbours(url: str) -> None:
    async with open_sqlite(url) as world:
        holders = await team(world, 6)
        stale, moved, *fine = holders
        answers = await settle(
            world.append(fine[0].batch(fine[0].outcome())),
            world.append(Batch(stale.run, b"s" * 16, Held(Claim(stale.run, 9, b"t" * 16), None))),
            world.append(fine[1].batch(fine[1].outcome())),
            world.append(moved.batch(moved.outcome(), at_head=77)),
            world.append(Batch("absent", b"a" * 16, Keyed("k", b""), (raw("absent", b"x"),))),
            world.append(fine[2].batch(fine[2].outcome())),
        )
        names = [type(answer).__name__ for answer in answers]
        assert names == ["Committed", "StaleClaim", "Committed", "HeadMoved", "NoRun", "Committed"]
        assert answers[3] == HeadMoved(2)
        assert await seqs(world, moved.run) == [1, 2]


async def test_batches_of_one_run_in_one_group_see_each_other(url: str) -> None:
    async with open_sqlite(url) as world:
        (holder,) = await team(world, 1)
        first = holder.batch(holder.outcome(), holder.outcome())
        second = holder.batch(holder.outcome(), prev=first.id, at_head=4)
        answers = await settle(
            world.append(first),
            world.append(signal(holder.run, "s1")),
            world.append(second),
            world.append(holder.batch(holder.outcome(), prev=first.id, at_head=5)),
            world.append(first),
            world.append(signal(holder.run, "s1")),
            world.append(close(holder.run)),
            world.append(holder.batch(holder.outcome(), prev=first.id)),
        )
        names = [type(answer).__name__ for answer in answers]
        assert names == [
            *("Committed", "Committed", "HeadMoved", "Committed"),
            *("Duplicate", "Duplicate", "Committed", "StaleClaim"),
        ]
        assert answers[4].original == answers[0]
        assert await seqs(world, holder.run) == list(range(1, 8))


async def test_a_full_store_refuses_the_group_whole(url: str) -> None:
    async with open_sqlite(url) as world:
        holders = await team(world, 20)
        connection = world._writer._transactor.door.connection
        pages = connection.execute("pragma page_count").fetchone()[0]
        connection.execute(f"pragma max_page_count = {pages + 10}")
        batches = [h.batch(raw(h.run, os.urandom(5000))) for h in holders]
        answers = await settle(*map(world.append, batches))
        assert all(isinstance(answer, WorldFull) for answer in answers), answers
        assert [await seqs(world, h.run) for h in holders] == [[1, 2]] * 20
        connection.execute("pragma max_page_count = 100000")
        again = await settle(*map(world.append, batches))
        assert all(isinstance(answer, Committed) for answer in again)


async def test_a_disk_that_fills_up_in_a_group_takes_or_refuses_each_batch_whole(small_disk: Path) -> None:
    """FAULTS 54, on a real disk."""
    url = f"sqlite:{small_disk / 'journal.db'}"
    async with open_sqlite(url) as world:
        holders = await team(world, 100)
        batches = [h.batch(raw(h.run, os.urandom(30_000)), h.outcome()) for h in holders]
        answers = await settle(*map(world.append, batches))
        assert {type(answer) for answer in answers} <= {Committed, WorldFull}
        assert WorldFull in map(type, answers)
        logs = [[1, 2, 3, 4] if isinstance(answer, Committed) else [1, 2] for answer in answers]
        assert [await seqs(world, h.run) for h in holders] == logs
        for n, answer in enumerate(answers):
            if isinstance(answer, Committed):
                again = await world.append(batches[n])
                assert getattr(again, "original", None) == answer, "what was acknowledged is known"
    async with open_sqlite(url) as world:
        assert [await seqs(world, h.run) for h in holders] == logs


async def test_a_damaged_run_fails_alone(path: Path, url: str) -> None:
    async with open_sqlite(url) as world:
        holders = await team(world, 8)
        hit = holders[3]
        # Its batches reach a page that is no page; the others' do not.
        door = world._writer._transactor.door
        door.forget()
        plain = door.look

        def look(run: str) -> Any:
            if run == hit.run:
                error = sqlite3.DatabaseError("database disk image is malformed")
                error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
                raise error
            return plain(run)

        door.look = look  # type: ignore[method-assign] # a page is hard to damage for one run alone
        answers = await settle(*(world.append(h.batch(h.outcome())) for h in holders))
        assert isinstance(answers.pop(3), WorldCorrupt)
        assert all(isinstance(answer, Committed) for answer in answers)


async def test_cancelling_who_waits_does_not_withdraw_the_batch(url: str) -> None:
    async with open_sqlite(url) as world:
        holders = await team(world, 3)
        waiting = [asyncio.ensure_future(world.append(h.batch(h.outcome()))) for h in holders]
        waiting[1].cancel()
        await settle(*waiting)
        assert [await seqs(world, h.run) for h in holders] == [[1, 2, 3]] * 3


async def test_one_batch_alone_does_not_change_threads(url: str, groups: list[int]) -> None:
    async with open_sqlite(url) as world:
        (holder,) = await team(world, 1)
        groups.clear()
        world._writer._last_seconds = 0.0  # as if the disk had just been quick
        await holder.record()
        assert groups == []
        world._writer._last_seconds = 1.0
        await holder.record()
        assert groups == [1]


async def test_who_was_alone_does_not_wait_for_company(url: str, groups: list[int]) -> None:
    async with open_sqlite(url) as world:
        holders = await team(world, 4)
        await settle(*(h.record() for h in holders))
        groups.clear()
        for _ in range(3):
            world._writer._last_seconds = 0.0
            world._writer._is_alone = True
            world._writer._turned_at = 0.0  # long ago
            batches = [h.batch(h.outcome()) for h in holders]
            answers = [world.append(batch) for batch in batches]
            for h, batch in zip(holders, batches, strict=True):
                h.prev = batch.id
            assert not answers[0].done(), "an answer takes a pass of the loop, or other tasks would starve"
            assert all(isinstance(answer, Committed) for answer in await settle(*answers))
        assert groups == [3, 3, 3], "the first went by itself, those that came with it went together"
        assert [await seqs(world, h.run) for h in holders] == [[1, 2, 3, 4, 5, 6]] * 4


async def test_closing_finishes_what_is_pending(url: str) -> None:
    async with open_sqlite(url) as world:
        holders = await team(world, 10)
        waiting = [world.append(h.batch(h.outcome())) for h in holders]
    assert all(isinstance(answer.result(), Committed) for answer in waiting)
    with pytest.raises(WorldError, match="closed"):
        await world.append(submit("late"))
    async with open_sqlite(url) as world:
        assert [await seqs(world, h.run) for h in holders] == [[1, 2, 3]] * 10


async def test_deltas_and_claims_share_the_commit(url: str, groups: list[int]) -> None:
    async with open_sqlite(url) as world:
        holders = await team(world, 2)
        await begin(world, "free")
        world._writer._is_alone = False
        groups.clear()
        piece = Delta(call="c", number=1, data=b"1")
        done = await settle(
            world.append(holders[0].batch(holders[0].outcome())),
            world.publish(holders[1].claim, [piece, piece]),
            world.claim(worker="w", limit=5, lease_seconds=30, agents=None, reads=1),
            world.append(Batch("free", b"b" * 16, Keyed("t2", b""), (raw("free", b""),), queue=Submit("t2"))),
        )
        assert isinstance(done[0], Committed)
        assert done[1] is True
        assert [claimed.claim.run for claimed in done[2].claimed] == ["free"]
        assert isinstance(done[3], Committed)
        assert sum(groups) == 4
        assert len(groups) < 4

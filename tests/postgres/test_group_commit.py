"""What waits at the same moment goes together: in order, each decided for itself, whichever way it takes."""

import asyncio
from typing import Any

import anyio
import psycopg
import pytest

from journal.core.codec import Blob
from journal.core.ids import new_batch_id
from journal.core.ports import (
    Answer,
    Batch,
    Committed,
    Delta,
    Duplicate,
    Finish,
    Held,
    LogRegressed,
    Progress,
    Unknown,
    World,
)
from journal.worlds import inline_wait
from journal.worlds.contract.harness import (
    Holder,
    at_once,
    begin,
    committed,
    hold,
    raw,
    seqs,
    signal,
    submit,
)
from journal.worlds.postgres import link, open_postgres, waiting
from journal.worlds.postgres.writer import Writer
from tests.load import Load

pytestmark = pytest.mark.anyio


async def _held(world: World, runs: list[str]) -> list[Holder]:
    holders = []
    for run in runs:
        await begin(world, run)
        holder = await hold(world, run)
        await holder.start()
        holders.append(holder)
    return holders


async def test_a_group_of_every_kind_is_decided_each_for_itself(url: str) -> None:
    async with open_postgres(url) as world:
        holders = await _held(world, [f"r{n}" for n in range(6)])
        first, second, third, fourth, fifth, sixth = holders
        twice = [fifth.batch(fifth.outcome("1"))]
        fifth.prev = twice[0].id
        twice.append(fifth.batch(fifth.outcome("2"), queue=Finish("t1", "succeeded")))
        offers = [
            first.batch(first.outcome("quick"), queue=Progress()),
            second.batch(second.outcome("a"), second.outcome("b")),
            third.batch(third.outcome("long"), blobs=(Blob("b", b"data"),)),
            fourth.batch(fourth.outcome("lost"), prev=b"?" * 16),
            *twice,
            submit("new"),
            sixth.batch(sixth.outcome("quick too")),
        ]
        answers = await at_once(*(world.append(offer) for offer in offers))
        assert [type(answer) for answer in answers] == [
            Committed, Committed, Committed, LogRegressed, Committed, Committed, Committed, Committed,
        ]  # fmt: skip
        expected = [[1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 3, 4], [1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 3, 4]]
        assert [await seqs(world, holder.run) for holder in holders] == expected
        again = await at_once(*(world.append(offer) for offer in offers))
        assert [type(answer) for answer in again] == [
            Duplicate, Duplicate, Duplicate, LogRegressed, Duplicate, Duplicate, Duplicate, Duplicate,
        ]  # fmt: skip


async def test_while_the_server_has_one_half_the_other_computes(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    plain = Writer._send

    def send(self: Writer, members: list[Any]) -> None:
        sizes.append(len(members))
        plain(self, members)

    async def work(holder: Holder) -> None:
        for _ in range(12):
            await holder.record()

    async with open_postgres(url) as world:
        holders = await _held(world, [f"r{n}" for n in range(40)])
        monkeypatch.setattr(Writer, "_send", send)
        await asyncio.gather(*(work(holder) for holder in holders))
        assert max(sizes[2:]) < 30, "once they have come apart, they never all wait at the same time again"


async def test_a_record_from_outside_costs_a_holder_nothing(url: str) -> None:
    """The quick way does not take what lies behind a foreign record; the long way does, in the same order."""
    async with open_postgres(url) as world, open_postgres(url) as other:
        (holder,) = await _held(world, ["r"])
        for number in range(5):
            committed(await other.append(signal("r", f"s{number}")))
            batches = []
            for nth in range(3):
                batch = holder.batch(holder.outcome(f"{number}.{nth}"))
                holder.prev = batch.id
                batches.append(batch)
            answers = await at_once(*(world.append(batch) for batch in batches))
            assert [committed(answer).first for answer in answers] == [4 * number + n for n in (5, 6, 7)]
        assert await seqs(world, "r") == list(range(1, 24))


async def test_a_batch_offered_again_at_once_lands_once(url: str) -> None:
    async with open_postgres(url) as world, open_postgres(url) as other:
        (holder,) = await _held(world, ["r"])
        for number in range(20):
            batch = holder.batch(*(holder.outcome(f"{number}.{n}") for n in range(number % 3 + 1)))
            answers = await asyncio.gather(
                world.append(batch), other.append(batch), world.append(batch), other.append(batch)
            )
            (original,) = [answer for answer in answers if isinstance(answer, Committed)]
            assert sum(answer == Duplicate(original, True) for answer in answers) == 3
            holder.prev = batch.id


async def test_groups_are_bounded(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "GROUP_ROWS", 10)
    monkeypatch.setattr(waiting, "GROUP_BYTES", 5000)
    async with open_postgres(url) as world:
        offers = [submit(f"r{n}") for n in range(40)]
        assert all(
            isinstance(answer, Committed)
            for answer in await at_once(*(world.append(offer) for offer in offers))
        )
        (holder,) = await _held(world, ["big"])
        committed(await holder.offer(holder.batch(*(raw("big", b"x" * 2000) for _ in range(20)))))


async def test_appends_and_publications_keep_their_order(url: str) -> None:
    async with open_postgres(url) as world:
        (holder,) = await _held(world, ["r"])
        offers: list[asyncio.Future[Answer] | asyncio.Future[bool]] = []
        for number in range(10):
            batch = holder.batch(holder.outcome(f"{number}"))
            holder.prev = batch.id
            offers.append(world.append(batch))
            delta = Delta(call="c", number=1, data=b"%d" % number)
            offers.append(world._writer.publish(holder.claim, [delta]))
        for offer in offers:
            await offer
        found = []
        with anyio.fail_after(20):
            async for item in world.follow("r"):
                if isinstance(item, Delta):
                    found.append((item.seq, item.sub, item.data))
                    if len(found) == 10:
                        break
        assert found == [(4 + n, 1, b"%d" % n) for n in range(10)]


async def test_a_lone_batch_is_answered_where_it_is_offered(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If its loop has nothing else to do; and where nothing comes, that loop goes on."""
    monkeypatch.setattr(inline_wait, "INLINE_SECONDS", 60.0)
    async with open_postgres(f"{url}&notify=off") as world:  # nothing but the answer is to come
        (holder,) = await _held(world, ["r"])
        await asyncio.sleep(0)
        for _ in range(3):
            batch = holder.batch(holder.outcome())
            offered = asyncio.ensure_future(world.append(batch))
            assert offered.done()
            committed(offered.result())
            holder.prev = batch.id


async def test_whoever_waits_for_a_lone_answer_holds_up_nobody(
    url: str, admin: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inline_wait, "INLINE_SECONDS", 60.0)
    async with open_postgres(url) as world:
        (holder,) = await _held(world, ["r"])
        admin.execute("select pg_advisory_lock(%s)", (world._places.lock("r"),))
        timer = asyncio.create_task(asyncio.sleep(0.01))
        await asyncio.sleep(0)
        offered = asyncio.ensure_future(world.append(holder.batch(holder.outcome())))
        await timer
        assert not offered.done()
        admin.execute("select pg_advisory_unlock(%s)", (world._places.lock("r"),))
        committed(await offered)


async def test_an_answer_that_does_not_come_is_given_up_and_settled_later(
    url: str, admin: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backend that was given up still waits for the run's lock, and may commit after all: once is enough."""
    monkeypatch.setattr(link, "ANSWER_SECONDS", 0.5)
    async with open_postgres(url) as world:
        (holder,) = await _held(world, ["r"])
        lock = world._places.lock("r")
        batch = holder.batch(holder.outcome())
        admin.execute("select pg_advisory_lock(%s)", (lock,))
        assert isinstance(await world.append(batch), Unknown)
        again = world.append(batch)
        await asyncio.wait([again], timeout=0.1)
        admin.execute("select pg_advisory_unlock(%s)", (lock,))
        load = Load(world)
        answer = await again
        if isinstance(answer, Unknown):
            answer = await load.settle(batch)
        assert isinstance(answer, Committed | Duplicate)
        after = Batch("r", new_batch_id(), Held(holder.claim, batch.id), (holder.outcome("next"),))
        committed(await load.settle(after))
        assert await seqs(world, "r") == [1, 2, 3, 4, 5]

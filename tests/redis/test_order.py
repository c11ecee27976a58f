"""Order: of what is claimed and of what is listed, across partitions; and of what goes to the server together."""

import asyncio
import random
from typing import Any

import pytest
from msgspec.structs import replace

from journal.core.ports import RunQuery, World
from journal.worlds import inline_wait, open_world
from journal.worlds.contract.harness import Holder, at_once, begin, claim_all, committed, hold
from journal.worlds.redis.line import Line

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("partitions", [1, 3, 64])
async def test_the_best_of_all_partitions_are_claimed_first(url: str, partitions: int) -> None:
    chance = random.Random(partitions)
    async with open_world(f"{url}&partitions={partitions}") as world:
        now = (await begin(world, "first")).time
        wanted = [(0, now, "first")]
        for n in range(300):
            # Some priorities lie together in a partition, so that one has more to offer than the others.
            priority, due = chance.choice([-3, 0, 0, 5]), now - chance.randrange(1000)
            run = f"r{n}"
            wanted.append((-priority, due, run))
            await begin(
                world, run, priority=priority, due_at=due, agent=f"agent-{n % 5}", min_reader=1 + n % 2
            )
        readable = [run for _, _, run in sorted(wanted) if run == "first" or int(run[1:]) % 2 == 0]
        got: list[str] = []
        while claimed := await claim_all(world, limit=7):
            got += [c.claim.run for c in claimed]
        rank = {run: place for place, (_, _, run) in enumerate(sorted(wanted))}
        dues = {run: (priority, due) for priority, due, run in wanted}
        assert sorted(got, key=rank.__getitem__) == readable
        assert [dues[run] for run in got] == [dues[run] for run in readable]
        assert len(await claim_all(world, limit=500, reads=2)) == 301 - len(readable)


@pytest.mark.parametrize("partitions", [1, 3, 64])
async def test_pages_of_listings_meet_without_gap_or_double(url: str, partitions: int) -> None:
    async with open_world(f"{url}&partitions={partitions}") as world:
        runs = [f"r{n}" for n in range(200)]
        for n, run in enumerate(runs):
            await begin(world, run, agent=f"a{n % 3}")
        for run in runs[::2]:
            await hold(world, run)
        everything = [RunQuery(limit=7), RunQuery(limit=50), RunQuery(limit=1000)]
        for query in everything:
            assert await _paged(world, query) == runs[::-1]
        query = RunQuery(agent="a1", limit=5)
        assert await _paged(world, query) == runs[1::3][::-1]
        query = RunQuery(status="running", agent="a2", limit=5)
        assert await _paged(world, query) == [run for run in runs[2::3] if int(run[1:]) % 2 == 0][::-1]


async def _paged(world: World, query: RunQuery) -> list[str]:
    found: list[str] = []
    while page := await world.runs(query):
        assert len(page) <= query.limit
        found += [info.run for info in page]
        query = replace(query, before=page[-1].position)
    return found


async def test_while_the_server_has_one_half_the_other_computes(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    plain = Line._send

    def send(self: Line, connection: Any, calls: list[Any]) -> None:
        sizes.append(len(calls))
        plain(self, connection, calls)

    async def work(holder: Holder) -> None:
        for _ in range(12):
            await holder.record()

    async with open_world(url) as world:
        await at_once(*(begin(world, f"r{n}") for n in range(40)))
        holders = [await hold(world, f"r{n}") for n in range(40)]
        await at_once(*(holder.start() for holder in holders))
        monkeypatch.setattr(Line, "_send", send)
        await asyncio.gather(*(work(holder) for holder in holders))
        assert max(sizes) < 30, "they never all wait at the same time"


async def test_a_lone_batch_is_answered_where_it_is_offered(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If its loop has nothing else to do; if it has, that goes first."""
    monkeypatch.setattr(inline_wait, "INLINE_SECONDS", 60.0)
    async with open_world(url) as world:
        await begin(world, "r")
        holder = await hold(world, "r")
        await holder.start()
        for is_free in (True, True, False, True):
            batch = holder.batch(holder.outcome())
            if not is_free:
                asyncio.get_running_loop().call_soon(bool)
            offered = asyncio.ensure_future(world.append(batch))
            assert offered.done() == is_free
            committed(await offered)
            holder.prev = batch.id

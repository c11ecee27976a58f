"""FAULTS 25: a long log, a run of many turns, a store of many runs cost what is asked of them, and no more.

What is counted is work (records read, passes of the loop), which is the same on a slow machine.
"""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from journal import Journal, Turn, TurnFailed, VirtualWorkspace, define_doc, io
from journal.core.ports import RunQuery
from journal.core.records import Record
from journal.engine.order import Order
from journal.replay.snapshot import EVERY
from journal.worlds import open_world
from journal.worlds.contract.harness import begin
from journal.worlds.memory import MemoryWorld
from journal.worlds.sqlite.world import SqliteWorld

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(3600)]
Last = define_doc("last", 1, int, initial=-1)


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}" if request.param == "memory" else f"sqlite:{tmp_path / 'j.db'}"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often each record was read, by seq."""
    seen: Counter[int] = Counter()

    def counted(world: type[MemoryWorld] | type[SqliteWorld]) -> None:
        plain = world.read

        async def reading(self: MemoryWorld, run: str, *, after: int = 0, limit: int = 500) -> list[Record]:
            page = await plain(self, run, after=after, limit=limit)  # type: ignore[arg-type]  # of either
            seen.update(record.seq for record in page)
            return page

        monkeypatch.setattr(world, "read", reading)

    counted(MemoryWorld)
    counted(SqliteWorld)
    return seen


def lengths(few: int, many: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "count", [few, pytest.param(many, marks=pytest.mark.soak)], ids=[f"{few:,}", f"{many:,}"]
    )


@lengths(2_000, 100_000)
async def test_a_long_log_is_read_once_and_replayed_without_waiting(
    url: str, count: int, read: Counter[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`count` records: of a call that is asked for when it is the next in the log, the outcome comes at once."""
    journal, acts, passes = Journal(url), 0, 0
    plain = Order._tick

    def tick(order: Order) -> None:
        nonlocal passes
        passes += 1
        plain(order)

    monkeypatch.setattr(Order, "_tick", tick)

    async def act(n: int) -> int:
        nonlocal acts
        acts += 1
        return n

    @journal.agent
    async def work(turn: Turn, _: None) -> int:
        total = 0
        for n in range(count // 2):
            total += await turn.step(act, n)
        if turn.attempt == 1:
            raise RuntimeError
        return total + await turn.step(act, 1)

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        handle = await journal.retry("r")
        read.clear()
        passes = 0
        assert await handle.settle(3000, serve=True) == sum(range(count // 2)) + 1
        assert acts == count // 2 + 1
        assert passes <= 4
        assert len(read) > count
        assert read.total() <= len(read) + 10, "each record once, and the end of the turn"


@lengths(100, 10_000)
async def test_the_last_of_many_turns_reads_no_more_than_the_second(
    url: str, count: int, read: Counter[int]
) -> None:
    journal = Journal(url)

    async def act(n: int) -> int:
        return n

    @journal.agent
    async def work(turn: Turn, n: int) -> int:
        return await turn.step(act, n)

    async with journal:
        costs = []
        for n in range(count):
            read.clear()
            assert await work.run(n, run_id="r", key=f"t{n}") == n
            costs.append(read.total())
        assert costs[-1] <= costs[1] <= 20


@lengths(200, 10_000)
async def test_documents_and_files_are_not_folded_from_the_first_record(
    url: str, count: int, read: Counter[int]
) -> None:
    """Whatever the length of the run: a turn begins with the latest snapshot and reads what came since."""
    journal = Journal(url)

    async def act(n: int) -> int:
        io.docs.update(Last, lambda _: n)
        await io.files.write(f"/{n % 7}", str(n))
        return n

    @journal.agent(docs=[Last], workspace=VirtualWorkspace())
    async def work(turn: Turn, n: int) -> int:
        seen = turn.docs.get(Last)
        await turn.step(act, n)
        return seen

    async with journal:
        costs = []
        for n in range(count):
            read.clear()
            assert await work.run(n, run_id="r", key=f"t{n}") == n - 1
            costs.append(read.total())
        assert max(costs) <= EVERY + 40
        assert min(costs[EVERY // 5 :]) <= 40, "right behind a snapshot it is that, and the turn"


@lengths(1_000, 1_000_000)
async def test_many_runs_are_listed_by_page_while_others_are_inserted(url: str, count: int) -> None:
    """Each run that was there is listed once, newest first, and none of those that come meanwhile."""
    async with open_world(url) as world:
        for first in range(0, count, 500):
            await asyncio.gather(*(begin(world, f"r{n}") for n in range(first, first + 500)))
        listed: list[str] = []
        before, inserted = None, 0
        while page := await world.runs(RunQuery(before=before, limit=97)):
            listed += [info.run for info in page]
            before = page[-1].position
            await begin(world, f"new{inserted}")
            inserted += 1
        assert inserted > 10
        assert len(listed) == count
        assert set(listed) == {f"r{n}" for n in range(count)}

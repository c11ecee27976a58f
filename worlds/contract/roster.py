"""Who is at work, and where runs stand. Quotes are from `core/ports.py`."""

from msgspec.structs import replace

from journal.core.ports import ROSTER_SECONDS, AgentStats, WorkerInfo
from journal.worlds.contract.harness import (
    ContractCases,
    ContractHarness,
    begin,
    close,
    committed,
    hold,
)

WORKER = WorkerInfo(worker="w1", version="1.2", slots=10, busy=3, agents=("a", "b"), started=5.0)


class RosterCases(ContractCases):
    """Beats, and counts."""

    async def test_workers_that_say_so_are_listed(self, harness: ContractHarness) -> None:
        """Those that said within the last `ROSTER_SECONDS` that they are there, by id."""
        async with harness.open() as world, harness.open() as other:
            assert await world.workers() == []
            await world.beat(replace(WORKER, worker="w2"))
            await other.beat(WORKER)
            first, second = await other.workers()
            assert first.seen > 0
            assert [replace(first, seen=0.0), second.worker] == [WORKER, "w2"]
            assert [info.worker for info in await world.workers()] == ["w1", "w2"]

    async def test_the_last_word_of_a_worker_counts(self, harness: ContractHarness) -> None:
        """A worker says that it is there."""
        async with harness.open() as world:
            await world.beat(WORKER)
            (before,) = await world.workers()
            await harness.advance(10)
            await world.beat(replace(WORKER, busy=7))
            (after,) = await world.workers()
            assert (after.busy, round(after.seen - before.seen)) == (7, 10)

    async def test_a_silent_worker_is_forgotten(self, harness: ContractHarness) -> None:
        """Those that said within the last `ROSTER_SECONDS` that they are there."""
        async with harness.open() as world:
            await world.beat(WORKER)
            await harness.advance(ROSTER_SECONDS - 1)
            await world.beat(replace(WORKER, worker="w2"))
            assert len(await world.workers()) == 2
            await harness.advance(2)
            assert [info.worker for info in await world.workers()] == ["w2"]

    async def test_a_worker_that_leaves_is_not_listed(self, harness: ContractHarness) -> None:
        """The worker is gone: it is not listed any more. No error if it was not there."""
        async with harness.open() as world:
            await world.beat(WORKER)
            await world.leave("w1")
            await world.leave("nobody")
            assert await world.workers() == []

    async def test_workers_of_another_namespace_are_not_listed(self, harness: ContractHarness) -> None:
        """A world is bound to one namespace."""
        async with harness.open(namespace="one") as one, harness.open(namespace="two") as two:
            await one.beat(WORKER)
            assert await two.workers() == []
            await two.leave("w1")
            assert len(await one.workers()) == 1

    async def test_where_runs_stand(self, harness: ContractHarness) -> None:
        """Where the open runs of each agent stand, by agent. Each run is counted once."""
        async with harness.open() as world:
            assert await world.stats() == []
            since = (await begin(world, "due-1", agent="a")).time
            await harness.advance(5)
            await begin(world, "due-2", agent="a")
            await begin(world, "later", agent="a", due_at=since + 1000)
            await begin(world, "held", agent="b")
            await hold(world, "held")
            await begin(world, "parked", agent="b")
            await (await hold(world, "parked")).park()
            await begin(world, "blocked", agent="b")
            await (await hold(world, "blocked")).block()
            await begin(world, "idle", agent="b")
            await (await hold(world, "idle")).finish()
            await begin(world, "released", agent="c")
            await (await hold(world, "released")).release(50.0)
            await begin(world, "closed", agent="d")
            committed(await world.append(close("closed")))
            assert await world.stats() == [
                AgentStats(agent="a", due=2, oldest_due=since, later=1),
                AgentStats(agent="b", held=1, parked=1, blocked=1, idle=1),
                AgentStats(agent="c", later=1),
            ]

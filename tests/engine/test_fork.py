"""Runs that begin as another did: on every store, whole or unclaimable, once, and live from there."""

import asyncio
from typing import Any

import pytest

from journal import Journal, Turn, TurnFailed, io, never
from journal.core.clock import SystemClock
from journal.core.codec import open_record
from journal.core.errors import (
    CallNotFound,
    InvalidOptions,
    InvalidValue,
    RunBuilding,
    RunExists,
    RunGone,
    RunNotFound,
)
from journal.core.ids import new_batch_id
from journal.core.ports import Batch, Building, Keyed, Move, World
from journal.core.records import RunCreated
from journal.engine.fork import Forking, fork_run
from journal.replay.fold import fold
from journal.worlds.contract.harness import claim_all, signal

pytestmark = pytest.mark.anyio


class Shop:
    """Looks up and pays, item by item; what it did is counted."""

    def __init__(self, url: str, *, size: int = 1) -> None:
        self.did: list[str] = []
        self.size = size
        self.journal = Journal(url)
        self.agent = self.journal.agent(self._work, name="shop")

    async def _work(self, turn: Turn, items: list[int]) -> list[Any]:
        def look(item: int) -> str:
            self.did.append(f"look {item}")
            return f"{item}" * self.size

        @never
        def pay(item: int) -> str:
            self.did.append(f"pay {item}")
            return f"paid {item}"

        got = []
        for item in items:
            got += [await turn.step(look, item), (await turn.tool(pay, item)).value]
        return got


async def test_a_fork_takes_over_what_precedes_the_call_and_goes_on_live(url: str) -> None:
    shop = Shop(url)
    async with shop.journal as journal:
        first = await shop.agent.run([1, 2], run_id="r")
        before = await journal.read("r")
        handle = await journal.fork("r", at=3)
        assert (handle.run_id, handle.turn_id) == ("r@3", "start")
        assert (await journal.get("r@3")).status == "pending"
        assert await shop.agent.run([1, 2], run_id="r@3") == first
        assert shop.did == ["look 1", "pay 1", "look 2", "pay 2", "look 2", "pay 2"]
        assert await journal.read("r") == before
        created = open_record((await journal.read("r@3"))[0])
        assert isinstance(created, RunCreated)
        assert created.origin is not None
        assert (created.origin.run, created.origin.seq) == ("r", before[-1].seq)
        state = fold(await journal.read("r@3"))
        assert [call.key for call in state.calls] == ["look#1", "pay#1", "look#2", "pay#2"]


async def test_a_worker_carries_a_fork_on(url: str) -> None:
    shop = Shop(url)
    async with shop.journal as journal:
        await shop.agent.run([1], run_id="r")
        await journal.fork("r", at=2, new_id="mine")
        await journal.worker().run(until_idle=True)
        assert (await journal.get("mine")).status == "succeeded"
    assert shop.did == ["look 1", "pay 1", "pay 1"]


async def test_long_values_and_a_long_log_are_carried_over(url: str) -> None:
    shop = Shop(url, size=100_000)
    async with shop.journal as journal:
        first = await shop.agent.run(list(range(1, 7)), run_id="r")
        shop.size = 1
        handle = await journal.fork("r", at=13, new_id="all")
        assert await handle.settle(30, serve=True) == first
        assert len(shop.did) == 12


async def test_with_another_input_the_turn_begins_anew(url: str) -> None:
    shop = Shop(url)
    async with shop.journal as journal:
        await shop.agent.run([1], run_id="r")
        await shop.agent.run([2], run_id="r", key="second")
        long = [7] * 30_000
        handle = await journal.fork("r", at=4, input=long[:1])
        assert handle.run_id.startswith("r@4+")
        assert await handle.settle(10, serve=True) == ["7", "paid 7"]
        assert await shop.agent.run([1], run_id=handle.run_id) == ["1", "paid 1"]
        assert await shop.agent.run([7], run_id=handle.run_id, key="second") == ["7", "paid 7"]
        assert shop.did == ["look 1", "pay 1", "look 2", "pay 2", "look 7", "pay 7"]
        blob = await journal.fork("r", at=4, input=long)
        assert (await journal.get(blob.run_id)).turns == 2
        await blob.cancel()


async def test_the_same_fork_is_made_once(url: str) -> None:
    shop = Shop(url)
    async with shop.journal as journal:
        await shop.agent.run([1, 2], run_id="r")
        made = await asyncio.gather(*(fork_run(journal, "r", at=3) for _ in range(4)))
        assert {forked.run for forked in made} == {"r@3"}
        world = (await journal.runtime()).world
        (claimed,) = await claim_all(world)
        assert (claimed.claim.run, claimed.turn, claimed.submitted) == ("r@3", "start", 2)
        again = await fork_run(journal, "r", at=3)
        assert not again.is_new
        with pytest.raises(RunExists, match="--as"):
            await journal.fork("r", at=2, new_id="r@3")
        with pytest.raises(RunExists, match="--as"):
            await journal.fork("r", at=3, new_id="r@3", input=[9])


async def test_what_is_half_built_takes_nothing_and_is_finished_by_the_same_call(url: str) -> None:
    shop = Shop(url)
    async with shop.journal as journal:
        await shop.agent.run([1, 2], run_id="r")
        world = (await journal.runtime()).world
        begun = Forking(world, world, "r", at=3, new_id=None, data=None, clock=SystemClock())
        await begun._begin()
        assert (await journal.get("r@3")).building
        assert await claim_all(world) == []
        assert await world.append(signal("r@3")) == Building()
        with pytest.raises(RunBuilding):
            await journal.cancel("r@3")
        created = open_record((await journal.read("r@3"))[0])
        handle = await journal.fork("r", at=3)
        assert open_record((await journal.read("r@3"))[0]) == created, "it was gone on with"
        assert await handle.settle(10, serve=True) == ["1", "paid 1", "2", "paid 2"]


async def test_nobody_settles_it_before_its_turns_are_there(url: str) -> None:
    """Another who makes the same fork, and believes that it is whole, is told that it is not."""
    shop = Shop(url, size=100_000)
    async with shop.journal as journal:
        await shop.agent.run([1], run_id="r")
        world = (await journal.runtime()).world
        get_blob = world.get_blob
        refusals: list[InvalidValue] = []

        async def hasty(run: str, blob: str) -> bytes:
            if run == "r" and not refusals:  # all records are written, the blobs and turns not yet
                with pytest.raises(InvalidValue) as refused:
                    await world.settle("r@3", is_live=True)
                refusals.append(refused.value)
            return await get_blob(run, blob)

        world.get_blob = hasty  # type: ignore[method-assign] # the moment in between
        await journal.fork("r", at=3)
        assert len(refusals) == 1
        info = await journal.get("r@3")
        assert (info.status, info.turn, info.building) == ("pending", "start", False)


async def test_the_origin_goes_on_meanwhile_and_the_fork_is_of_when_it_began(url: str) -> None:
    shop = Shop(url)
    async with shop.journal as journal:
        await shop.agent.run([1], run_id="r")
        world = (await journal.runtime()).world
        begun = Forking(world, world, "r", at=3, new_id="f", data=None, clock=SystemClock())
        await begun._begin()
        head = (await journal.get("r")).head
        await shop.agent.run([2], run_id="r", key="second")
        forked = await fork_run(journal, "r", at=3, new_id="f")
        assert (forked.turn, (await journal.get("f")).turns) == ("start", 1)
        created = open_record((await journal.read("f"))[0])
        assert isinstance(created, RunCreated)
        assert created.origin is not None
        assert created.origin.seq == head


async def test_copied_calls_keep_their_idempotency_key_and_new_ones_have_their_own(url: str) -> None:
    journal, keys, fails = Journal(url), [], True

    def ask(number: int) -> int:
        keys.append(io.idempotency_key)
        if fails:
            raise ValueError("no")
        return number

    @journal.agent
    async def work(turn: Turn, _: None) -> int:
        return await turn.step(ask, 1)

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        await journal.fork("r", at=2, new_id="pinned")
        await journal.fork("r", at=1, new_id="bare")
        for run in ("pinned", "bare"):
            with pytest.raises(TurnFailed):
                await work.run(None, run_id=run)
        assert len(keys) == 2, "what is pinned is not run again"
        fails = False
        handle = await journal.retry("pinned")
        assert await handle.settle(10, serve=True) == 1
    first, bare, retried = keys
    assert first == retried
    assert bare != first


async def test_a_call_in_doubt_is_unknown_in_the_fork_neither_probed_nor_run(url: str) -> None:
    journal, did, gate = Journal(url), [], asyncio.Event()

    async def probe(given: Any, io: Any) -> Any:
        did.append("probe")

    @never(probe=probe)
    async def pay() -> str:
        did.append("pay")
        await gate.wait()
        return "paid"

    def look() -> str:
        did.append("look")
        return "seen"

    @journal.agent
    async def work(turn: Turn, _: None) -> list[str]:
        async with asyncio.TaskGroup() as group:
            paying = group.create_task(turn.tool(pay))
            await asyncio.sleep(0)
            looking = group.create_task(turn.step(look))
        return [paying.result().status, looking.result()]

    async with journal:
        running = asyncio.create_task(work.run(None, run_id="r"))
        async with asyncio.timeout(20):
            while len(did) < 2 or (await journal.get("r")).head < 5:
                await asyncio.sleep(0.01)
        forked = await fork_run(journal, "r", at=2)
        assert forked.unknown == (1,)
        assert await work.run(None, run_id="r@2", timeout=20) == ["unknown", "seen"]
        assert sorted(did) == ["look", "look", "pay"]
        gate.set()
        assert await running == ["ok", "seen"]


async def test_what_cannot_be_forked_says_so(tmp_path: Any) -> None:
    shop = Shop(f"sqlite:{tmp_path / 'j.db'}")
    async with shop.journal as journal:
        await shop.agent.run([1], run_id="r")
        with pytest.raises(CallNotFound, match="it has 2"):
            await journal.fork("r", at=4)
        with pytest.raises(RunNotFound):
            await journal.fork("none", at=1)
        with pytest.raises(InvalidOptions, match="--as"):
            await journal.fork("r", at=1, new_id="r")
        await _moved(journal)
        with pytest.raises(RunGone):
            await journal.fork("r", at=1)
        assert [info.run for info in await journal.runs()] == ["r"]


async def _moved(journal: Journal) -> None:
    world: World = (await journal.runtime()).world
    info = await world.run("r")
    assert info is not None
    batch = Batch("r", new_batch_id(), Keyed("move:x", b"d"), at_head=info.head, queue=Move("sqlite:/x"))
    await world.append(batch)

"""Servers that die and connections that break, on every world that has them: nothing is lost, nothing doubled."""

import asyncio
import random

import anyio
import pytest
from anyio import to_thread

from journal.core.errors import WorldUnavailable
from journal.core.ports import Answer, Batch, Committed, Duplicate, Unknown, World
from journal.worlds import open_world
from journal.worlds.contract.harness import begin, claim_all, committed, hold, info_of, refusal, seqs, submit
from tests.load import Load
from tests.stores import Store

pytestmark = pytest.mark.anyio


async def test_killed_and_restarted_under_load(own_store: Store) -> None:
    """FAULTS 11."""
    async with open_world(own_store.url) as world:
        load = Load(world)

        async def disturb() -> None:
            for server in (own_store.servers * 2)[:3]:
                await load.until(50)
                await to_thread.run_sync(own_store.restart, server)
            await load.until(50)

        with anyio.fail_after(120):
            await load.run(12, disturb)
        await load.check()
    async with open_world(own_store.url) as world:
        assert await load.check(world) > 200


async def test_connections_cut_at_random_under_load(own_store: Store) -> None:
    """FAULTS 11. Cut at once; cut after some bytes, either way; held up; or heard no more, and then cut."""
    rng = random.Random(11)
    async with open_world(own_store.url) as world:
        load = Load(world)

        async def disturb() -> None:
            for number in range(40):
                proxy = rng.choice(own_store.proxies)
                match number % 5:
                    case 0:
                        proxy.cut()
                    case 1:
                        proxy.cut_after(up=rng.randrange(3000))
                    case 2:
                        proxy.cut_after(down=rng.randrange(300))
                    case 3:
                        proxy.delay(rng.uniform(0, 0.05))
                    case _:
                        proxy.drop(up=rng.random() < 0.5, down=True)
                await asyncio.sleep(rng.uniform(0.02, 0.1))
                if number % 5 > 2:
                    proxy.heal()

        async def look() -> None:
            while not load.is_over:
                await world.run("r0")
                await asyncio.sleep(0.01)

        with anyio.fail_after(120):
            async with asyncio.TaskGroup() as group:
                group.create_task(load.run(12, disturb))
                for _ in range(4):
                    group.create_task(look())  # what is read is asked for again, and nobody is told
        assert load.unknown, "some answers were lost"
        assert await load.check() > 20


@pytest.mark.parametrize("way", ["up", "down"])
async def test_cut_at_every_point_of_a_batch(own_store: Store, way: str) -> None:
    """FAULTS 1, 3: records and a queue change are there together or not at all, and once when offered again."""
    async with open_world(own_store.url) as world:
        for number in range(25):
            run = f"r{number}"
            offer = submit(run)
            for proxy in own_store.proxies:
                proxy.cut_after(**{way: number * (60 if way == "up" else 6)})
            answer = await world.append(offer)
            own_store.heal()
            info = await read(world, run)
            assert info in (None, (2, 1)), "both records and one turn, or nothing"
            assert info or isinstance(answer, Unknown)
            first, again = await settle(world, offer), await settle(world, offer)
            assert again == Duplicate(first.original if isinstance(first, Duplicate) else first, True)  # type: ignore[arg-type]
            assert await read(world, run) == (2, 1)
            assert await claimed(world, run) == [run]


async def claimed(world: World, run: str) -> list[str]:
    """Claims are not offered again by themselves: one may meet a connection that was cut before, or its answer a cut.

    What a claim took whose answer was lost is held until that lease ends.
    """
    was_lost = False
    while True:
        try:
            found = [one.claim.run for one in await claim_all(world, run=run, lease_seconds=0.5)]
        except WorldUnavailable:
            was_lost = True
        else:
            if found or not was_lost:
                return found
        await asyncio.sleep(0.01)


async def read(world: World, run: str) -> tuple[int, int] | None:
    """Head and number of turns, if it is there."""
    info = await world.run(run)
    return None if info is None else (info.head, info.turns)


async def settle(world: World, batch: Batch) -> Answer:
    while isinstance(answer := await world.append(batch), Unknown):
        await asyncio.sleep(0.01)
    return answer


async def test_killed_while_turns_are_submitted(own_store: Store) -> None:
    """FAULTS 1 and 4: what is in the log is in the queue, once, whether or not its author was told."""
    told: set[str] = set()
    offered = 0
    over = asyncio.Event()

    async def offer(world: World, number: int) -> None:
        nonlocal offered
        while not over.is_set():
            run, offered = f"{number}-{offered}", offered + 1
            try:
                while isinstance(answer := await world.append(submit(run)), Unknown):
                    if over.is_set():
                        return  # nobody asks again: it is there whole, or not at all
            except WorldUnavailable:
                continue
            assert isinstance(answer, Committed | Duplicate)
            told.add(run)

    async with open_world(own_store.url) as world:
        with anyio.fail_after(120):
            async with asyncio.TaskGroup() as group:
                for number in range(8):
                    group.create_task(offer(world, number))
                for server in own_store.servers[:2]:
                    await asyncio.sleep(0.3)
                    await to_thread.run_sync(own_store.restart, server)
                await asyncio.sleep(0.3)
                over.set()
    async with open_world(own_store.url) as world:
        claimed = [one.claim.run for one in await claim_all(world, limit=1000)]
        while more := await claim_all(world, limit=1000):
            claimed += [one.claim.run for one in more]
        assert len(claimed) == len(set(claimed)) > 30
        assert told <= set(claimed)
        for run in claimed:
            info = await info_of(world, run)
            assert (info.head, info.turns) == (2, 1)


async def test_a_follower_sees_everything_once_though_connections_are_cut(own_store: Store) -> None:
    """FAULTS 29."""
    async with open_world(own_store.url) as world, open_world(own_store.url) as other:
        await begin(world, "r")
        holder = await hold(world, "r")
        seen: list[int] = []

        async def watch() -> None:
            while len(seen) < 42:
                try:
                    async for item in other.follow("r", offset=f"{len(seen):016d}_{0:016d}"):
                        seen.append(item.seq)
                        if len(seen) == 42:
                            return
                except WorldUnavailable:
                    continue  # it comes back with its offset, as a browser does

        with anyio.fail_after(60):
            async with asyncio.TaskGroup() as group:
                group.create_task(watch())
                for number in range(40):
                    batch = holder.batch(holder.outcome(f"step#{number}"))
                    if number % 4 == 0:
                        own_store.cut()
                    while isinstance(answer := await holder.offer(batch), Unknown):
                        pass
                    assert isinstance(answer, Committed | Duplicate)
        assert seen == list(range(1, 43)) == await seqs(world, "r")
        assert committed(await holder.finish()).first == 43


@pytest.mark.parametrize("way", ["up", "down"])
async def test_cut_at_every_point_of_opening(own_store: Store, way: str) -> None:
    """It opens, having connected again, or says that the store is not available; and in the end it does open."""
    async with open_world(own_store.url) as world:
        await begin(world, "r")
    for number in range(30):
        for proxy in own_store.proxies:
            proxy.cut_after(**{way: int(2 ** (number / 2))})
        try:
            async with open_world(own_store.url) as world:
                assert await read(world, "r") == (2, 1)
        except WorldUnavailable:
            pass
        own_store.heal()
    async with open_world(own_store.url) as world:
        assert await read(world, "r") == (2, 1)


async def test_a_renewal_that_a_server_does_not_answer_ends(
    own_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs, or the network swallows everything: an error within a bound; and afterwards the claim is renewed."""
    monkeypatch.setattr("journal.worlds.postgres.renewer.ANSWER_SECONDS", 0.5)
    monkeypatch.setattr("journal.worlds.postgres.renewer.PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr("journal.worlds.redis.renewer.TIMEOUT_SECONDS", 0.3)
    async with open_world(own_store.url) as world:
        await begin(world, "r")
        claim = (await hold(world, "r", lease_seconds=600)).claim
        renewer = world.open_renewer()
        for _ in range(2):
            assert await to_thread.run_sync(renewer.renew, [claim], 600.0) == {claim}
            for proxy in own_store.proxies:
                proxy.drop()
            with anyio.fail_after(30):
                await refusal(WorldUnavailable, to_thread.run_sync(renewer.renew, [claim], 600.0))
            own_store.heal()
        assert await to_thread.run_sync(renewer.renew, [claim], 600.0) == {claim}
        renewer.close()

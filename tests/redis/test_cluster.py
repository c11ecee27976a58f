"""A cluster whose slots move and whose nodes die: nothing is lost, nothing doubled, and nobody is told of it."""

import asyncio
import random
import time
from collections.abc import Awaitable, Iterator
from typing import Any
from zlib import crc32

import anyio
import pytest
import redis
from anyio import to_thread

from journal.core.errors import WorldBusy, WorldUnavailable, WorldUnknown
from journal.core.ports import Answer, Committed, Unknown, World
from journal.testing import servers
from journal.testing.cluster import Cluster, start_cluster
from journal.testing.servers import Server
from journal.worlds import open_world
from journal.worlds.contract.harness import (
    Holder,
    begin,
    claim_all,
    committed,
    hold,
    refusal,
    signal,
    submit,
    watching,
)
from journal.worlds.redis import open_redis
from journal.worlds.redis.address import parse_address
from journal.worlds.redis.slots import slot_of
from tests.load import Load

pytestmark = pytest.mark.anyio


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three nodes for one test."""
    with start_cluster() as cluster:
        yield cluster


def slot_of_run(run: str, *, namespace: str = "default") -> int:
    return slot_of(f"{{journal:{namespace}:p{crc32(run.encode()) % 64}}}".encode())


def owner(cluster: Cluster, slot: int) -> int:
    """Which of the nodes serves that slot."""
    with redis.Redis(port=cluster.primaries[0].port) as client:
        for first, last, primary, *_ in client.execute_command("CLUSTER SLOTS"):
            if first <= slot <= last:
                ports = [node.port for node in cluster.primaries]
                return ports.index(primary[1])
    raise AssertionError(f"nobody serves {slot}")


def move(cluster: Cluster, slot: int, *, piece: int = 3) -> None:
    """To the next node, a few keys at a time."""
    at = owner(cluster, slot)
    nodes = cluster.primaries
    cluster.move_slot(slot, nodes[at], nodes[(at + 1) % len(nodes)], piece=piece)


async def test_slots_move_back_and_forth_under_load(cluster: Cluster) -> None:
    async with open_redis(cluster.url) as world:
        load = Load(world)
        slots = sorted({slot_of_run(f"r{n}") for n in range(30)})

        async def disturb() -> None:
            for slot in random.Random(1).choices(slots, k=40):
                await to_thread.run_sync(move, cluster, slot)

        with anyio.fail_after(120):
            await load.run(30, disturb)
        assert load.unknown == 0, "a detour is no loss"
        assert load.duplicates == 0
        assert await load.check(world) > 100
    async with open_redis(cluster.url) as world:
        await load.check(world)


async def test_a_replica_that_takes_over_has_what_was_acknowledged() -> None:
    with start_cluster(replicas=1) as cluster:
        await to_thread.run_sync(_until_linked, cluster)
        async with open_redis(f"{cluster.url}?wait=1") as world:
            assert "log.survives_failover" in world.capabilities
            load = Load(world)
            first = cluster.primaries[0]

            async def disturb() -> None:
                await asyncio.sleep(0.5)
                await to_thread.run_sync(first.kill)
                with redis.Redis(port=cluster.primaries[1].port) as client:
                    while _serves(client, first.port):
                        await asyncio.sleep(0.1)
                # As a replica of its successor, which has nobody else to wait for.
                await to_thread.run_sync(first.restart)
                await asyncio.sleep(1)

            with anyio.fail_after(120):
                await load.run(30, disturb)
            assert await load.check(world) > 100
            renewer = world.open_renewer()
            assert await to_thread.run_sync(renewer.renew, [(await _held(world)).claim], 30.0)
            renewer.close()


def _serves(client: Any, port: int) -> bool:
    return any(primary[1] == port for _, _, primary, *_ in client.execute_command("CLUSTER SLOTS"))


def _until_linked(cluster: Cluster) -> None:
    for node in cluster.replicas:
        with redis.Redis(port=node.port) as client:
            while client.info("replication")["master_link_status"] != "up":
                time.sleep(0.1)


async def _held(world: World) -> Holder:
    for number in range(64):
        if slot_of_run(f"new-{number}") < 5462:  # of the node that was killed
            await begin(world, f"new-{number}")
            return await hold(world, f"new-{number}")
    raise AssertionError("no run falls to that node")


async def test_batches_of_one_run_keep_their_order_while_its_slot_moves(cluster: Cluster) -> None:
    async with open_redis(cluster.url) as world:
        await begin(world, "r")
        slot = slot_of_run("r")
        is_over = False
        offers: list[Awaitable[Answer]] = []

        async def disturb() -> None:
            nonlocal is_over
            for _ in range(12):
                await to_thread.run_sync(move, cluster, slot)
            is_over = True

        with anyio.fail_after(60):
            async with asyncio.TaskGroup() as group:
                group.create_task(disturb())
                while not is_over:
                    offers += [world.append(signal("r", f"s{len(offers) + n}")) for n in range(10)]
                    await offers[-1]
            seqs = [committed(await offer).first for offer in offers]
        assert seqs == list(range(3, 3 + len(offers)))


async def test_a_slot_that_is_half_moved(cluster: Cluster) -> None:
    async with open_redis(cluster.url, patience_seconds=1) as world:
        await begin(world, "r")
        slot = slot_of_run("r")
        runs = [run for run in (f"r{n}" for n in range(2000)) if slot_of_run(run) == slot]
        holders = [await hold(world, "r")]
        for run in runs[1:10]:
            await begin(world, run)
            holders.append(await hold(world, run))
        at = owner(cluster, slot)
        source, target = cluster.primaries[at], cluster.primaries[(at + 1) % 3]
        with redis.Redis(port=source.port) as client:
            client.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", _id(target))
            with redis.Redis(port=target.port) as taker:
                taker.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", _id(source))
            names = [
                f"{{journal:default:p{crc32(b'r') % 64}}}{kind}:{run}" for run in runs[1:5] for kind in "hr"
            ]
            client.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *names)
        for holder in holders:
            await holder.record()
            assert len(await world.read(holder.run)) == 3
        late = world.append(submit(runs[11]))
        answer = await late
        assert isinstance(answer, Unknown), "its keys are nowhere yet"
        await to_thread.run_sync(lambda: cluster.move_slot(slot, source, target))
        await begin(world, runs[11])
        for holder in holders:
            await holder.finish()


def _id(node: Server) -> str:
    with redis.Redis(port=node.port, decode_responses=True) as client:
        return str(client.cluster("MYID"))


async def test_followers_and_claims_go_on_while_slots_move(cluster: Cluster) -> None:
    async with open_redis(cluster.url) as world, open_redis(cluster.url) as other:
        runs = [f"r{n}" for n in range(10)]
        for run in runs:
            await begin(world, run)
        async with watching(other, "r0") as watcher:
            for n in range(20):
                await to_thread.run_sync(move, cluster, slot_of_run(runs[n % 10]))
                committed(await world.append(signal("r0", f"s{n}")))
            await watcher.until_count(22)
            assert watcher.places() == [(seq, 0) for seq in range(1, 23)]
        claimed = await claim_all(other)
        assert sorted(one.claim.run for one in claimed) == runs
        renewer = other.open_renewer()
        for _ in range(5):
            await to_thread.run_sync(move, cluster, slot_of_run("r0"))
            claims = [one.claim for one in claimed]
            assert await to_thread.run_sync(renewer.renew, claims, 30.0) == set(claims)
        renewer.close()
        assert sum(agent.held for agent in await world.stats()) == 10


async def test_a_node_that_is_away_holds_up_only_its_own(cluster: Cluster) -> None:
    async with open_redis(cluster.url, patience_seconds=0.5) as world:
        here, waiting, there = _some_runs(cluster)
        for run in (here, waiting, there):
            await begin(world, run)
        holder = await hold(world, here)
        await to_thread.run_sync(cluster.primaries[2].kill)
        with anyio.fail_after(20):
            await holder.record()
            await refusal(WorldUnavailable, world.run(there))
            assert [one.claim.run for one in await claim_all(world)] == [waiting]
            await to_thread.run_sync(cluster.primaries[2].restart)
            while True:
                try:
                    assert await world.run(there) is not None
                    break
                except (WorldUnavailable, WorldBusy):  # a node that rejoins says CLUSTERDOWN at first
                    continue


def _some_runs(cluster: Cluster) -> tuple[str, str, str]:
    """One of each node; the third node goes away."""
    runs = {owner(cluster, slot_of_run(f"run-{n}")): f"run-{n}" for n in range(50)}
    return runs[0], runs[1], runs[2]


async def test_a_dead_node_among_those_of_the_url(cluster: Cluster) -> None:
    dead = servers.free_port()
    url = cluster.url.replace("redis+cluster://", f"redis+cluster://127.0.0.1:{dead},")
    async with open_redis(url) as world:
        await begin(world, "r")
        renewer = world.open_renewer()
        claim = (await hold(world, "r")).claim
        assert await to_thread.run_sync(renewer.renew, [claim], 30.0) == {claim}
        renewer.close()
    assert parse_address(url).nodes == (("127.0.0.1", dead), ("127.0.0.1", cluster.primaries[0].port))


async def test_a_dead_node_at_open_is_waited_for_within_a_bound(cluster: Cluster) -> None:
    node = cluster.primaries[1]
    await to_thread.run_sync(node.kill)

    async def opened(patience_seconds: float) -> None:
        async with open_redis(cluster.url, patience_seconds=patience_seconds) as world:
            await begin(world, "r")

    error = await refusal(WorldUnavailable, opened(0.5))
    assert str(node.port) in str(error)
    async with asyncio.TaskGroup() as group:
        group.create_task(opened(20))
        await asyncio.sleep(0.3)
        await to_thread.run_sync(node.restart)


async def test_functions_are_brought_to_every_node(cluster: Cluster) -> None:
    async with open_redis(cluster.url) as world:
        for n in range(10):
            await begin(world, f"r{n}")
        for node in cluster.primaries:
            with redis.Redis(port=node.port) as client:
                client.execute_command("FUNCTION FLUSH")
        answers = [await world.append(signal(f"r{n}")) for n in range(10)]
        assert all(isinstance(answer, Committed) for answer in answers)


async def test_a_user_with_few_rights(cluster: Cluster) -> None:
    for node in cluster.primaries:
        with redis.Redis(port=node.port) as client:
            client.execute_command(
                "ACL SETUSER app on >pw ~journal:* ~{journal:* &{journal:* +@all -@dangerous +info +config|get"
            )
    async with open_redis(cluster.url.replace("://", "://app:pw@")) as world:
        assert "log.persistent" in world.capabilities
        assert "pw" not in world.url
        await begin(world, "r")
        holder = await hold(world, "r")
        async with watching(world, "r") as watcher:
            await watcher.until_count(2)
            await holder.record()
            await watcher.until_count(3)
        renewer = world.open_renewer()
        assert await to_thread.run_sync(renewer.renew, [holder.claim], 30.0) == {holder.claim}
        renewer.close()
    error = await refusal(WorldUnavailable, _opened(cluster.url.replace("://", "://app:wrong@")))
    assert "WRONGPASS" in str(error)


async def _opened(url: str) -> None:
    async with open_world(url):
        pass


async def test_what_one_node_may_lose_is_not_declared(cluster: Cluster) -> None:
    async with open_redis(cluster.url) as world:
        assert "log.persistent" in world.capabilities
    node = cluster.primaries[2]
    with redis.Redis(port=node.port) as client:
        client.config_set("appendfsync", "everysec")
    async with open_redis(cluster.url) as world:
        assert "log.persistent" not in world.capabilities
        assert world.notes[0].startswith(f"127.0.0.1:{node.port}: ")


async def test_the_other_scheme_is_named(cluster: Cluster, redis_server: str) -> None:
    error = await refusal(WorldUnknown, _opened(cluster.url.replace("redis+cluster", "redis")))
    assert "redis+cluster://" in str(error)
    if "127.0.0.1" in redis_server:
        alone = redis_server.replace("redis://", "redis+cluster://").removesuffix("/0")
        error = await refusal(WorldUnknown, _opened(alone))
        assert "redis:// instead" in str(error)
    await refusal(WorldUnknown, _opened("redis://127.0.0.1:1,127.0.0.1:2"))
    await refusal(WorldUnknown, _opened("redis+cluster://127.0.0.1:1/3"))

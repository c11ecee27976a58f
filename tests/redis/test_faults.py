"""The server is killed, hangs, cuts connections, is full: nothing is lost and nothing doubled."""

import asyncio
import shutil
from pathlib import Path

import anyio
import pytest
import redis
from anyio import to_thread

from journal.core.errors import WorldError, WorldFull, WorldReadOnly, WorldUnavailable
from journal.core.ids import new_token
from journal.core.ports import Claim, Committed, Duplicate, LogRegressed, Unknown
from journal.testing import servers
from journal.testing.servers import Server
from journal.worlds.contract.harness import begin, claim_all, committed, hold, raw, refusal, signal, watching
from journal.worlds.redis import drop_prefix, open_redis
from journal.worlds.redis.library import NAME

pytestmark = pytest.mark.anyio


def admin(server: Server) -> redis.Redis:
    return redis.Redis(port=server.port)


async def test_a_server_that_hangs_leaves_it_unknown(server: Server) -> None:
    async with open_redis(servers.redis_url(server), patience_seconds=0.3) as world:
        await begin(world, "r")
        batch = signal("r")
        server.pause()
        try:
            answer = await world.append(batch)
            assert isinstance(answer, Unknown)
            assert "0.3 s" in answer.reason
            assert isinstance(await world.append(batch), Unknown), "nobody knows whether it has landed"
            await refusal(WorldUnavailable, world.run("r"))
        finally:
            server.resume()
        with anyio.fail_after(20):
            while True:
                settled = await world.append(batch)
                if not isinstance(settled, Unknown):
                    break
        # What was sent before the hang may have landed since: then the answer says so.
        assert isinstance(settled, Committed | Duplicate)
        assert [record.seq for record in await world.read("r")] == [1, 2, 3]


async def test_a_server_that_is_away_is_waited_for_within_a_bound(server: Server) -> None:
    async with open_redis(servers.redis_url(server), patience_seconds=0.5) as world:
        await begin(world, "r")
        await to_thread.run_sync(server.kill)
        error = await refusal(WorldUnavailable, world.run("r"))
        assert str(server.port) in error.world
        renewer = world.open_renewer()
        claim = Claim("r", 1, new_token())
        await refusal(WorldError, to_thread.run_sync(renewer.renew, [claim], 30.0))
        renewer.close()
        with anyio.fail_after(5):
            await world.wait_for_work(0.1)
        await to_thread.run_sync(server.restart)
        with anyio.fail_after(20):
            while True:
                try:
                    assert await world.run("r") is not None
                    break
                except WorldUnavailable:
                    continue
        assert [c.claim.run for c in await claim_all(world)] == ["r"]


async def test_a_renewer_survives_a_restart(server: Server) -> None:
    async with open_redis(servers.redis_url(server)) as world:
        await begin(world, "r")
        holder = await hold(world, "r")
        renewer = world.open_renewer()
        assert renewer.renew([holder.claim], 30.0) == {holder.claim}
        await to_thread.run_sync(server.restart)
        assert renewer.renew([holder.claim], 30.0) == {holder.claim}
        with admin(server) as client:
            client.execute_command("FUNCTION FLUSH")
        assert renewer.renew([holder.claim], 30.0) == {holder.claim}
        renewer.close()


async def test_followers_and_workers_hear_again_after_a_restart(server: Server) -> None:
    async with open_redis(servers.redis_url(server)) as world:
        await begin(world, "r")
        async with watching(world, "r") as watcher:
            await watcher.until_count(2)
            await to_thread.run_sync(server.restart)
            committed(await world.append(signal("r")))
            await watcher.until_count(3)
            assert watcher.places() == [(1, 0), (2, 0), (3, 0)]
        assert len(await claim_all(world)) == 1
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(begin, world, "r2")
                while not await claim_all(world):
                    await world.wait_for_work(10)


async def test_a_server_that_forgot_the_functions_gets_them_back(server: Server) -> None:
    async with open_redis(servers.redis_url(server)) as world:
        with admin(server) as client:
            client.execute_command("FUNCTION FLUSH")
            await begin(world, "r")
            assert NAME.encode() in client.execute_command("FUNCTION LIST")[0]
            client.execute_command("FUNCTION FLUSH")
        offers = [world.append(signal("r", f"s{n}")) for n in range(10)]
        assert [committed(await offer).first for offer in offers] == list(range(3, 13))


async def test_a_primary_that_becomes_a_replica_and_back(server: Server) -> None:
    async with open_redis(servers.redis_url(server)) as world:
        await begin(world, "r")
        holder = await hold(world, "r")
        with admin(server) as client:
            client.execute_command("REPLICAOF", "127.0.0.1", "1")
            await refusal(WorldReadOnly, world.append(holder.batch(holder.outcome())))
            client.execute_command("REPLICAOF", "NO", "ONE")
        with anyio.fail_after(20):
            while True:
                try:
                    await holder.record()
                    break
                except WorldReadOnly:
                    await asyncio.sleep(0.02)
        assert [record.seq for record in await world.read("r")] == [1, 2, 3]


async def test_a_holder_notices_that_the_log_was_set_back(server: Server, tmp_path: Path) -> None:
    log = server.directory / "appendonlydir"
    async with open_redis(servers.redis_url(server)) as world:
        await begin(world, "r")
        holder = await hold(world, "r")
        for n in range(200):
            await holder.record(f"step#{n}")
        shutil.copytree(log, tmp_path / "log")
        for n in range(3):
            await holder.record(f"lost#{n}")
        await to_thread.run_sync(server.kill)
        shutil.rmtree(log)
        shutil.copytree(tmp_path / "log", log)
        await to_thread.run_sync(server.restart)
        assert await holder.offer(holder.batch(holder.outcome())) == LogRegressed(202)
        assert len(await world.read("r", limit=1000)) == 202


async def test_a_full_server_refuses_before_it_writes(server: Server) -> None:
    async with open_redis(servers.redis_url(server)) as world:
        client = admin(server)
        await begin(world, "r")
        holder = await hold(world, "r")
        client.config_set("maxmemory", "1mb")
        error = await refusal(WorldFull, world.append(holder.batch(holder.outcome())))
        assert "maxmemory" in str(error)
        assert len(await world.read("r")) == 2, "reading goes on"
        client.config_set("maxmemory", "0")
        await holder.record()
        assert [record.seq for record in await world.read("r")] == [1, 2, 3]
        client.close()


async def test_a_large_batch_is_taken_whole(server: Server) -> None:
    async with open_redis(servers.redis_url(server)) as world:
        await begin(world, "r")
        holder = await hold(world, "r")
        records = [raw("r", bytes([n % 256]) * 100_000) for n in range(300)]
        committed(await holder.offer(holder.batch(*records)))
        assert [record.body for record in await world.read("r", after=2)] == [r.body for r in records]


@pytest.mark.parametrize("place", ["redis_server", "cluster_server"])
async def test_a_lost_message_is_found_by_looking(request: pytest.FixtureRequest, place: str) -> None:
    """FAULTS 21: a message is a hint, and whoever waits looks again within a second."""
    url = f"{request.getfixturevalue(place)}?prefix=test-{new_token().hex()[:12]}"
    async with open_redis(url) as world, open_redis(url) as other:
        world._bells.ring = lambda channel: None  # type: ignore[method-assign]  # it hears nothing
        async with watching(world, "r") as watcher:
            await begin(other, "r")
            with anyio.fail_after(10):
                await watcher.until_count(2)
                while not await claim_all(world):
                    await world.wait_for_work(60)
    await drop_prefix(url)

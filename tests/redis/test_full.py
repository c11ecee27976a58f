"""A server that takes nothing: its memory or its disk is full, it is busy, or still reading its own log."""

import asyncio
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import redis
from anyio import to_thread

from journal.core.errors import WorldBusy, WorldFull, WorldReadOnly
from journal.core.ports import Committed, Duplicate, SweepPolicy, Unknown, World
from journal.testing import servers
from journal.testing.cluster import start_cluster
from journal.testing.servers import Server
from journal.worlds.contract.harness import (
    Holder,
    begin,
    close,
    committed,
    hold,
    raw,
    refusal,
    seqs,
    signal,
)
from journal.worlds.redis import open_redis
from tests.disks import enlarge, small_disk
from tests.redis.test_cluster import owner, slot_of_run

pytestmark = pytest.mark.anyio

BODY_BYTES = 30_000


async def team(world: World, count: int) -> list[Holder]:
    for number in range(count):
        await begin(world, f"r{number}")
    return [await hold(world, f"r{number}", lease_seconds=600) for number in range(count)]


async def test_out_of_memory_in_a_group(server: Server) -> None:
    """FAULTS 7 and 54: each batch is there whole or not at all, what is there is spared, and with room it goes on."""
    with redis.Redis(port=server.port) as client:
        async with open_redis(servers.redis_url(server)) as world:
            holders = await team(world, 50)
            client.config_set("maxmemory", client.info("memory")["used_memory"] + 1_000_000)
            batches = [h.batch(raw(h.run, os.urandom(BODY_BYTES)), h.outcome()) for h in holders]
            answers = await asyncio.gather(*map(world.append, batches), return_exceptions=True)
            assert {type(answer) for answer in answers} == {Committed, WorldFull}
            logs = [[1, 2, 3, 4] if isinstance(answer, Committed) else [1, 2] for answer in answers]
            assert [await seqs(world, holder.run) for holder in holders] == logs
            client.config_set("maxmemory", "0")
            for batch, answer in zip(batches, answers, strict=True):
                again = await world.append(batch)
                assert again == Duplicate(answer, True) if isinstance(answer, Committed) else committed(again)
            assert [await seqs(world, holder.run) for holder in holders] == [[1, 2, 3, 4]] * 50


async def test_out_of_memory_there_is_a_way_on(server: Server) -> None:
    """Claims are kept, and closed runs can be swept, as the error says."""
    with redis.Redis(port=server.port) as client:
        async with open_redis(servers.redis_url(server)) as world:
            (holder,) = await team(world, 1)
            await begin(world, "old")
            committed(await world.append(close("old")))
            client.config_set("maxmemory", "1mb")
            error = await refusal(WorldFull, holder.offer(holder.batch(holder.outcome())))
            assert "sweep closed runs" in str(error)
            renewer = world.open_renewer()
            assert await to_thread.run_sync(renewer.renew, [holder.claim], 600.0) == {holder.claim}
            renewer.close()
            assert await world.sweep(SweepPolicy(closed_older_than_seconds=0.0)) == 1


async def test_a_node_that_is_full_refuses_only_its_own() -> None:
    with start_cluster() as cluster:
        async with open_redis(cluster.url) as world:
            holders = await team(world, 30)
            with redis.Redis(port=cluster.primaries[0].port) as client:
                client.config_set("maxmemory", "1mb")
            batches = [holder.batch(holder.outcome()) for holder in holders]
            answers = await asyncio.gather(*map(world.append, batches), return_exceptions=True)
            for holder, answer in zip(holders, answers, strict=True):
                is_there = owner(cluster, slot_of_run(holder.run)) == 0
                assert isinstance(answer, WorldFull if is_there else Committed)
            assert {type(answer) for answer in answers} == {WorldFull, Committed}
            with redis.Redis(port=cluster.primaries[0].port) as client:
                client.config_set("maxmemory", "0")
            for holder in holders:
                await holder.record("again#1")


@pytest.fixture
def small(server: Server) -> Iterator[Path]:
    """The server's log goes to a file system of 3 MiB."""
    folder, kept = server.directory / "appendonlydir", server.directory / "kept"
    server.kill()
    folder.rename(kept)
    with small_disk(folder, "3m") as small:
        for path in kept.iterdir():
            shutil.copy(path, small)
        server.restart()
        yield small
        server.kill()


async def test_a_full_disk_where_every_write_is_synced(server: Server, small: Path) -> None:
    """FAULTS 7 and 54: the server ends itself. What was acknowledged is there when it has room again."""
    async with open_redis(servers.redis_url(server), patience_seconds=1) as world:
        holders = await team(world, 10)
        told: dict[str, int] = dict.fromkeys((holder.run for holder in holders), 2)
        left: list[tuple[Holder, Any]] = []
        with anyio.fail_after(60):
            while not left:
                batches = [h.batch(raw(h.run, os.urandom(BODY_BYTES)), h.outcome()) for h in holders]
                for holder, batch, answer in zip(
                    holders, batches, await asyncio.gather(*map(world.append, batches)), strict=True
                ):
                    if isinstance(answer, Committed):
                        holder.prev, told[holder.run] = batch.id, answer.last
                    else:
                        assert isinstance(answer, Unknown), answer
                        left.append((holder, batch))
        enlarge(small, "30m")
        await to_thread.run_sync(server.restart)
        with anyio.fail_after(60):
            for holder, batch in left:
                while isinstance(again := await holder.offer(batch), Unknown):
                    await asyncio.sleep(0.05)
                assert isinstance(again, Committed | Duplicate), again
                told[holder.run] += 2
        for run, count in told.items():
            assert await seqs(world, run) == list(range(1, count + 1))


async def fill(holder: Holder) -> None:
    while True:
        committed(await holder.offer(holder.batch(raw(holder.run, os.urandom(100_000)))))


async def test_a_full_disk_where_syncs_are_rare(server: Server, small: Path) -> None:
    """FAULTS 7: such a server lives on and refuses what is written, with an error that says so."""
    with redis.Redis(port=server.port) as client:
        client.config_set("appendfsync", "everysec")
    async with open_redis(servers.redis_url(server)) as world:
        assert "log.persistent" not in world.capabilities
        (holder,) = await team(world, 1)
        with anyio.fail_after(60):
            error = await refusal(WorldFull, fill(holder))
        assert "cannot write to its disk" in str(error)
        assert await seqs(world, "r0"), "reading goes on"
        enlarge(small, "30m")
        with anyio.fail_after(60):
            while True:
                try:
                    await holder.record("again#1")
                    break
                except WorldFull:
                    await asyncio.sleep(0.1)
        log = await seqs(world, "r0")
        assert log == list(range(1, len(log) + 1))


async def test_a_server_that_is_busy_is_waited_for_within_a_bound(server: Server) -> None:
    """FAULTS 8: somebody's script runs for seconds; nothing was done meanwhile, and nobody is told that it was."""
    forever = "while true do end"
    with redis.Redis(port=server.port) as client, redis.Redis(port=server.port) as other:
        client.config_set("busy-reply-threshold", 50)
        async with open_redis(servers.redis_url(server), patience_seconds=1.5) as world:
            await begin(world, "r")
            for number, is_long in enumerate((False, True)):
                running = asyncio.ensure_future(to_thread.run_sync(_script, other, forever))
                await asyncio.sleep(0.2)
                batch = signal("r", f"s{number}")
                offered = world.append(batch)
                if is_long:
                    assert isinstance(await offered, Unknown)
                    await refusal(WorldBusy, world.run("r"))
                else:
                    await asyncio.sleep(0.3)
                    assert not offered.done()
                client.script_kill()
                await running
                answer = await world.append(batch) if is_long else await offered
                assert committed(answer).first == 3 + number
            assert await seqs(world, "r") == [1, 2, 3, 4]


def _script(client: Any, text: str) -> None:
    try:
        client.eval(text, 0)
    except redis.ResponseError:
        pass  # it was killed


async def test_a_server_that_reads_its_log_is_waited_for() -> None:
    """FAULTS 11: LOADING, by whoever is connected again and by whoever opens the store."""
    # Between a thousand commands it looks whether anybody asks; each takes it 200 µs.
    with servers.start_valkey(settings=("key-load-delay", "200")) as server:
        url = servers.redis_url(server)
        async with open_redis(url) as world:
            (holder,) = await team(world, 1)
            with redis.Redis(port=server.port) as client:
                pipeline = client.pipeline(transaction=False)
                for number in range(15_000):
                    pipeline.set(f"of-others:{number % 100}", "x")
                pipeline.execute()
            await to_thread.run_sync(server.kill)
            with anyio.fail_after(60):
                async with asyncio.TaskGroup() as group:
                    starting = group.create_task(to_thread.run_sync(server.restart))
                    while not await to_thread.run_sync(_is_loading, server):
                        await asyncio.sleep(0.01)
                    opening = group.create_task(_read(url))
                    batch = holder.batch(holder.outcome("after"))
                    while isinstance(answer := await world.append(batch), Unknown):
                        pass
                    assert committed(answer).first == 3
                    await starting
            assert len(opening.result()) in (2, 3)


def _is_loading(server: Server) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(100).startswith(b"-LOADING")
    except OSError:
        return False


async def _read(url: str) -> list[int]:
    async with open_redis(url) as world:
        return await seqs(world, "r0")


async def test_a_renewal_that_is_refused_says_why(server: Server) -> None:
    async with open_redis(servers.redis_url(server)) as world:
        (holder,) = await team(world, 1)
        renewer = world.open_renewer()
        with redis.Redis(port=server.port) as client:
            client.execute_command("REPLICAOF", "127.0.0.1", "1")
        await refusal(WorldReadOnly, to_thread.run_sync(renewer.renew, [holder.claim], 600.0))
        renewer.close()

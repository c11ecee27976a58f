"""A server that may not write: its disk is full, it was made read-only, it is still in recovery."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from anyio import to_thread

from journal.core.errors import WorldError, WorldFull, WorldReadOnly
from journal.core.ports import Answer, Committed, Duplicate, Unknown
from journal.testing import servers
from journal.worlds.contract.harness import Holder, begin, committed, hold, raw, refusal, seqs
from journal.worlds.postgres import open_postgres
from tests.disks import enlarge, small_disk
from tests.postgres.test_standbys import tell, wait_for

pytestmark = pytest.mark.anyio

BODY_BYTES = 30_000


def owner_of(server: servers.Server) -> int:
    return (server.directory / "data").stat().st_uid


@pytest.fixture
def small_tables(own_server: servers.Server) -> Iterator[Path]:
    """Tables go to a file system of 8 MiB; the server's own log does not."""
    with small_disk(own_server.directory / "small", "8m", owner=owner_of(own_server)) as folder:
        tell(
            own_server,
            f"create tablespace small location '{folder}'",
            "alter role postgres set default_tablespace = small",
        )
        yield folder


async def test_a_full_disk_refuses_each_batch_whole(own_server: servers.Server, small_tables: Path) -> None:
    """FAULTS 7 and 54: in a group; what was stored is spared, and with room it goes on."""
    async with open_postgres(servers.postgres_url(own_server)) as world:
        holders = []
        for number in range(100):
            await begin(world, f"r{number}")
            holders.append(await hold(world, f"r{number}", lease_seconds=600))
        stored = dict.fromkeys((holder.run for holder in holders), 2)
        refused: list[tuple[Holder, Any]] = []
        while not refused:
            batches = [h.batch(raw(h.run, os.urandom(BODY_BYTES)), h.outcome()) for h in holders]
            answers = await asyncio.gather(*map(world.append, batches), return_exceptions=True)
            for holder, batch, answer in zip(holders, batches, answers, strict=True):
                if isinstance(answer, Committed):
                    holder.prev, stored[holder.run] = batch.id, stored[holder.run] + 2
                else:
                    assert isinstance(answer, WorldFull), answer
                    assert "disk is full" in str(answer)
                    refused.append((holder, batch))
        for run, count in stored.items():
            assert await seqs(world, run) == list(range(1, count + 1)), "each batch whole or not at all"
        enlarge(small_tables, "40m")
        for holder, batch in refused:
            committed(await world.append(batch))
            assert await seqs(world, holder.run) == list(range(1, stored[holder.run] + 3))


async def test_no_room_for_the_servers_log(own_server: servers.Server) -> None:
    """FAULTS 7: Postgres stops itself. What was acknowledged is there when it has room again."""
    data = own_server.directory / "data"
    settings = ("alter system set max_wal_size = '10GB'", "alter system set checkpoint_timeout = '1h'")
    tell(own_server, *settings, "checkpoint")
    own_server.kill()
    with small_disk(data / "small", "64m", owner=owner_of(own_server)) as folder:
        subprocess.run(["cp", "-a", f"{data / 'pg_wal'}/.", str(folder)], check=True)
        shutil.rmtree(data / "pg_wal")
        (data / "pg_wal").symlink_to(folder)
        own_server.restart()
        async with open_postgres(servers.postgres_url(own_server)) as world:
            await begin(world, "r")
            holder = await hold(world, "r", lease_seconds=600)
            count = 2
            batch = holder.batch()
            with anyio.fail_after(120):
                while True:
                    batch = holder.batch(raw("r", os.urandom(1_000_000)))
                    try:
                        answer: Answer | None = await holder.offer(batch)
                    except WorldError:
                        answer = None
                    if not isinstance(answer, Committed):
                        break
                    count += 1
            assert answer is None or isinstance(answer, Unknown)
            enlarge(folder, "512m")
            await to_thread.run_sync(own_server.restart)
            with anyio.fail_after(60):
                while isinstance(answer := await holder.offer(batch), Unknown):
                    pass
            assert isinstance(answer, Committed | Duplicate)
            assert await seqs(world, "r") == list(range(1, count + 2))
            await holder.finish()


async def test_made_read_only_while_open(own_server: servers.Server) -> None:
    """FAULTS 7: as an operator does before a move."""
    async with open_postgres(servers.postgres_url(own_server)) as world:
        await begin(world, "r")
        holder = await hold(world, "r")
        setting = "alter system set default_transaction_read_only"
        tell(own_server, f"{setting} = on", "select pg_reload_conf()")
        await to_thread.run_sync(
            wait_for, own_server, "select current_setting('default_transaction_read_only') = 'on'"
        )
        batch = holder.batch(holder.outcome())
        with anyio.fail_after(10):
            await refusal(WorldReadOnly, holder.offer(batch))
        assert await seqs(world, "r") == [1, 2], "reading goes on"
        with psycopg.connect(servers.postgres_url(own_server), autocommit=True) as connection:
            connection.execute("set default_transaction_read_only = off")
            connection.execute("alter system reset default_transaction_read_only")
            connection.execute("select pg_reload_conf()")
        with anyio.fail_after(10):
            while True:
                try:
                    committed(await holder.offer(batch))
                    break
                except WorldReadOnly:
                    await anyio.sleep(0.02)
        assert await seqs(world, "r") == [1, 2, 3]


async def test_a_server_in_recovery_is_waited_for(
    own_server: servers.Server, postgres_programs: Path
) -> None:
    """FAULTS 11: it refuses connections until it is done, and then the store opens."""
    async with open_postgres(servers.postgres_url(own_server)) as world:
        await begin(world, "r")
    with servers.start_standby(own_server, binaries=postgres_programs) as standby:
        await to_thread.run_sync(
            wait_for, own_server, "select count(*) = 1 from pg_stat_replication where state = 'streaming'"
        )
        own_server.kill()
        standby.kill()
        data = standby.directory / "data"
        with open(data / "postgresql.auto.conf", "a") as settings:
            settings.write("hot_standby = off\n")

        async def opened() -> list[int]:
            async with open_postgres(servers.postgres_url(standby)) as world:
                return await seqs(world, "r")

        with anyio.fail_after(60):
            async with asyncio.TaskGroup() as group:
                starting = group.create_task(to_thread.run_sync(standby.restart))
                opening = group.create_task(opened())
                await asyncio.sleep(1)
                assert not opening.done()
                assert not starting.done()
                promote = [str(postgres_programs / "pg_ctl"), "promote", "-W", "-D", str(data)]
                as_owner: dict[str, Any] = {"user": owner_of(standby)} if os.geteuid() == 0 else {}
                await to_thread.run_sync(
                    lambda: subprocess.run(promote, check=True, stdout=subprocess.DEVNULL, **as_owner)
                )
        assert opening.result() == [1, 2]

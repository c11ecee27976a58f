"""Locks and snapshots of others, and backends that commit after their client has gone."""

import asyncio
import os
from typing import Any

import anyio
import psycopg
import pytest
from anyio import to_thread

from journal.core.ports import Committed, Duplicate, Unknown
from journal.testing import servers
from journal.testing.proxy import Proxy
from journal.worlds.contract.harness import begin, claim_all, committed, hold, raw, seqs, signal
from journal.worlds.postgres import link, open_postgres

pytestmark = pytest.mark.anyio


async def locked(own_server: servers.Server, mode: str) -> psycopg.AsyncConnection[Any]:
    """Somebody in a transaction that locks our records."""
    other = await psycopg.AsyncConnection.connect(servers.postgres_url(own_server))
    await other.execute(f"lock table journal.records in {mode} mode".encode())
    return other


async def until_one_waits(own_server: servers.Server) -> None:
    async with await psycopg.AsyncConnection.connect(
        servers.postgres_url(own_server), autocommit=True
    ) as look:
        with anyio.fail_after(20):
            while True:
                found = await look.execute("select from pg_stat_activity where wait_event_type = 'Lock'")
                if await found.fetchone() is not None:
                    return
                await anyio.sleep(0.01)


async def test_the_old_backend_commits_after_a_read_said_absent(own_server: servers.Server) -> None:
    """FAULTS 36, with the real thing: it waits for a lock, and does not notice that its client was cut off."""
    with Proxy(own_server.port) as proxy:
        url = servers.postgres_url(own_server).replace(str(own_server.port), str(proxy.port))
        async with open_postgres(url) as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            other = await psycopg.AsyncConnection.connect(servers.postgres_url(own_server))
            await other.execute("select pg_advisory_xact_lock(lock) from journal.queue")
            batch = holder.batch(holder.outcome("paid#1"))
            offered = world.append(batch)
            await until_one_waits(own_server)
            proxy.cut()
            assert isinstance(await offered, Unknown)
            assert await seqs(world, "r") == [1, 2], "a read says absent"
            again = world.append(batch)
            await asyncio.sleep(0.2)
            assert not again.done()
            await other.rollback()
            await other.close()
            answer = await again
            assert isinstance(answer, Duplicate)
            assert answer == Duplicate(answer.original, True)
            assert await seqs(world, "r") == [1, 2, 3]


@pytest.mark.parametrize("mode", ["share row exclusive", "access exclusive"])
async def test_a_lock_of_somebody_else_is_waited_for(own_server: servers.Server, mode: str) -> None:
    """FAULTS 8."""
    async with open_postgres(servers.postgres_url(own_server)) as world:
        await begin(world, "r")
        holder = await hold(world, "r")
        other = await locked(own_server, mode)
        offered = asyncio.ensure_future(holder.record())
        done, _ = await asyncio.wait([offered], timeout=1.5)
        assert not done
        await other.rollback()
        await other.close()
        await offered
        assert await seqs(world, "r") == [1, 2, 3]


async def test_a_lock_that_is_held_too_long(
    own_server: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULTS 8: the batch is unknown, which says why, and lands once."""
    for bound in ("ANSWER_SECONDS", "CONNECT_SECONDS", "PATIENCE_SECONDS"):
        monkeypatch.setattr(link, bound, 0.5)
    async with open_postgres(servers.postgres_url(own_server)) as world:
        await begin(world, "r")
        other = await locked(own_server, "share row exclusive")
        batch = signal("r")
        answer = await world.append(batch)
        assert isinstance(answer, Unknown)
        assert "somebody has locked our tables" in answer.reason
        await other.rollback()
        await other.close()
        with anyio.fail_after(20):
            while isinstance(answer := await world.append(batch), Unknown):
                pass
        assert isinstance(answer, Committed | Duplicate)
        assert await seqs(world, "r") == [1, 2, 3]


async def test_a_snapshot_held_open_costs_no_appends(own_server: servers.Server) -> None:
    """FAULTS 52: no row is updated for a record, so there is nothing to clean up behind the snapshot."""
    async with open_postgres(servers.postgres_url(own_server)) as world:
        await begin(world, "r")
        holder = await hold(world, "r", lease_seconds=600)
        async with await psycopg.AsyncConnection.connect(servers.postgres_url(own_server)) as reader:
            await reader.execute("set transaction isolation level repeatable read")
            await reader.execute("select count(*) from journal.records")

            async def fill(count: int) -> int:
                for _ in range(count):
                    committed(await holder.offer(holder.batch(raw("r", os.urandom(250)))))
                return await to_thread.run_sync(_dead_and_size, own_server)

            first = await fill(500)
            second = await fill(500)
            third = await fill(500)
            assert third - second <= (second - first) * 1.5, "it grows with what is new"
            renewer = world.open_renewer()
            for _ in range(200):
                assert await to_thread.run_sync(renewer.renew, [holder.claim], 600.0) == {holder.claim}
            renewer.close()
            await holder.finish()
            assert await claim_all(world) == []


def _dead_and_size(server: servers.Server) -> int:
    with psycopg.connect(servers.postgres_url(server), autocommit=True) as connection:
        row = connection.execute(
            "select sum(pg_total_relation_size(c.oid))::bigint from pg_class c "
            "join pg_namespace n on n.oid = c.relnamespace where nspname = 'journal' and relkind = 'r'"
        ).fetchone()
        assert row is not None
        return int(row[0])

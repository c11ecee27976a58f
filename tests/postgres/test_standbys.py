"""Standbys: what is promised with them, and that it is kept when the primary is lost."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import psycopg
import pytest
from anyio import to_thread

from journal.core.errors import WorldReadOnly
from journal.testing import servers
from journal.worlds.contract.harness import begin
from journal.worlds.postgres import open_postgres
from tests.load import Load
from tests.regression import begin_copied, check_older_copy, go_on_alone

pytestmark = pytest.mark.anyio


@pytest.fixture
def standby(own_server: servers.Server, postgres_programs: Path) -> Iterator[servers.Server]:
    """A standby of the test's own server, streaming."""
    with servers.start_standby(own_server, binaries=postgres_programs) as server:
        wait_for(own_server, "select count(*) = 1 from pg_stat_replication where state = 'streaming'")
        yield server


def wait_for(server: servers.Server, question: str) -> None:
    with psycopg.connect(servers.postgres_url(server), autocommit=True) as connection:
        while connection.execute(question.encode()).fetchone() != (True,):
            connection.execute("select pg_sleep(0.02)")


def tell(server: servers.Server, *statements: str) -> None:
    with psycopg.connect(servers.postgres_url(server), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def make_synchronous(primary: servers.Server) -> None:
    tell(primary, "alter system set synchronous_standby_names = '*'", "select pg_reload_conf()")
    wait_for(primary, "select sync_state = 'sync' from pg_stat_replication")


async def notes(server: servers.Server) -> tuple[str, ...]:
    async with open_postgres(servers.postgres_url(server)) as world:
        return world.notes


async def capabilities(server: servers.Server) -> frozenset[str]:
    async with open_postgres(servers.postgres_url(server)) as world:
        return world.capabilities


async def test_only_a_standby_that_is_waited_for_survives_a_failover(
    own_server: servers.Server, standby: servers.Server
) -> None:
    assert "log.survives_failover" not in await capabilities(own_server)
    (note,) = await notes(own_server)
    assert "name them in synchronous_standby_names" in note
    make_synchronous(own_server)
    assert "log.survives_failover" in await capabilities(own_server)
    tell(own_server, "alter role postgres set synchronous_commit = local")
    found = await capabilities(own_server)
    assert "log.survives_failover" not in found, "local: nobody waits for the standby"
    assert "log.persistent" in found
    (note,) = await notes(own_server)
    assert "synchronous_commit is local" in note


async def test_a_standby_is_not_opened(own_server: servers.Server, standby: servers.Server) -> None:
    await capabilities(own_server)
    with pytest.raises(WorldReadOnly, match="connect to the primary"):
        await capabilities(standby)


async def test_what_was_acknowledged_is_on_a_synchronous_standby_that_is_promoted(
    own_server: servers.Server, standby: servers.Server
) -> None:
    """A URL that names both servers follows the promotion by itself."""
    make_synchronous(own_server)
    hosts = f"127.0.0.1:{own_server.port},127.0.0.1:{standby.port}"
    async with open_postgres(
        f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"
    ) as world:
        load = Load(world)
        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(load.work, f"r{number}")
            await load.until(50)
            await to_thread.run_sync(own_server.kill)
            await to_thread.run_sync(tell, standby, "select pg_promote()")
            await load.until(50)
            load.is_over = True
        await load.check()
        await begin(world, "after")
    assert "log.survives_failover" in await capabilities(standby), "alone now"


async def test_a_standby_that_lacks_the_tail(own_server: servers.Server, standby: servers.Server) -> None:
    """FAULTS 11 and 40: a holder that is ahead of the log stops; epochs repeat, and tokens do not."""
    hosts = f"127.0.0.1:{own_server.port},127.0.0.1:{standby.port}"
    async with open_postgres(
        f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"
    ) as world:
        assert "log.survives_failover" not in world.capabilities, "it says so"
        copy = await begin_copied(world)
        replayed = "select pg_current_wal_lsn() = replay_lsn from pg_stat_replication"
        await to_thread.run_sync(wait_for, own_server, replayed)
        await to_thread.run_sync(standby.kill)
        tail = await go_on_alone(world, copy)
        await to_thread.run_sync(own_server.kill)
        await to_thread.run_sync(standby.restart)
        await to_thread.run_sync(tell, standby, "select pg_promote()")
        await check_older_copy(world, copy, tail)

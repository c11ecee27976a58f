"""Through a pooler of transactions: nothing is relied on, or left behind, that outlives a transaction.

A real PgBouncer where one is installed; the statements of that way are tried on the server itself in any case.
"""

import getpass
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import psycopg
import pytest
from anyio import to_thread

from journal.core.errors import WorldUnavailable
from journal.core.ports import Delta, RunQuery, SweepPolicy, WorkerInfo
from journal.testing.servers import free_port
from journal.worlds.contract.harness import begin, close, committed, hold, seqs, signal, watching
from journal.worlds.postgres import bells, drop_schema, open_postgres
from tests.load import Load

pytestmark = pytest.mark.anyio

SESSIONS = 3
"""Connections of the server that all share."""
SETTINGS = """
[databases]
postgres = {server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {sessions}
logfile = {log}
"""


@pytest.fixture(scope="module")
def bouncer(postgres_server: str) -> Iterator[str]:
    """URL of a PgBouncer before the shared server."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    folder = Path(tempfile.mkdtemp(prefix="bouncer-"))  # pytest's own are closed to `nobody`
    is_root = getpass.getuser() == "root"
    if is_root:
        shutil.chown(folder, "nobody")
    known = psycopg.conninfo.conninfo_to_dict(postgres_server)
    server = " ".join(f"{name}={known[name]}" for name in ("host", "port", "user", "dbname"))
    port, log = free_port(), folder / "log"
    (folder / "settings.ini").write_text(
        SETTINGS.format(server=server, port=port, sessions=SESSIONS, log=log)
    )
    command: list[str | Path] = [program, *(["-u", "nobody"] if is_root else []), folder / "settings.ini"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        deadline = time.monotonic() + 20
        while True:
            try:
                psycopg.connect(url).close()
                break
            except psycopg.OperationalError:
                assert process.poll() is None, log.read_text() if log.exists() else "it does not start"
                assert time.monotonic() < deadline
                time.sleep(0.02)
        yield url
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


@pytest.fixture(params=["bouncer", "postgres_server"])
async def pooled(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A store of its own, spoken to as through a pooler."""
    found = f"{request.getfixturevalue(request.param)}?schema=test_{uuid4().hex[:12]}&pooler=transaction"
    yield found
    await drop_schema(found)


async def test_several_worlds_share_a_few_sessions(pooled: str) -> None:
    async with open_postgres(pooled) as world, open_postgres(pooled) as other:
        loads = [Load(world), Load(other)]
        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(loads[number % 2].work, f"r{number}")
            for load in loads:
                await load.until(100)
                load.is_over = True
        for load in loads:
            assert load.unknown == 0
            await load.check()


async def test_everything_else_goes_through_as_well(pooled: str) -> None:
    async with open_postgres(pooled) as world, open_postgres(pooled) as other:
        await begin(world, "r")
        holder = await hold(world, "r")
        renewer = world.open_renewer()
        async with watching(other, "r") as watcher:
            for number in range(20):
                await holder.record(f"step#{number}")
                committed(await other.append(signal("r", f"s{number}")))
                assert await to_thread.run_sync(renewer.renew, [holder.claim], 30.0) == {holder.claim}
                assert await world.publish(holder.claim, [Delta(call="c", number=1, data=b"1")])
            await holder.finish()
            committed(await world.append(close("r")))
            await watcher.until_end()
        renewer.close()
        assert len(await seqs(other, "r")) == 2 + 40 + 1 + 1
        await world.beat(WorkerInfo(worker="w", slots=1, started=0.0))
        assert [info.worker for info in await other.workers()] == ["w"]
        assert len(await world.runs(RunQuery())) == 1
        assert await world.stats() == []
        assert await world.sweep(SweepPolicy(closed_older_than_seconds=-1)) == 1


async def test_who_is_connected_directly_hears_of_what_comes_through_a_pooler(
    pooled: str, postgres_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bells, "LISTENING_POLL_SECONDS", 3600.0)
    schema = pooled.partition("schema=")[2].partition("&")[0]
    async with open_postgres(pooled) as other, open_postgres(f"{postgres_server}?schema={schema}") as direct:
        await begin(other, "r")
        async with watching(direct, "r") as watcher:
            await watcher.until_count(2)
            for number in range(3, 8):
                committed(await other.append(signal("r", f"s{number}")))
                await watcher.until_count(number)


async def test_a_renewal_through_a_pooler_does_not_wait_for_ever(
    bouncer: str, admin: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journal.worlds.postgres.renewer.LOCK_SECONDS", 0.1)
    schema = f"test_{uuid4().hex[:12]}"
    url = f"{bouncer}?schema={schema}&pooler=transaction"
    async with open_postgres(url) as world:
        await begin(world, "r")
        holder = await hold(world, "r")
        renewer = world.open_renewer()
        with admin.transaction():
            admin.execute(f"select from {schema}.queue for update")
            with pytest.raises(Exception, match="lock timeout"):
                await to_thread.run_sync(renewer.renew, [holder.claim], 30.0)
        assert await to_thread.run_sync(renewer.renew, [holder.claim], 30.0) == {holder.claim}
        renewer.close()
    await drop_schema(url)


async def test_nothing_is_left_behind_for_those_who_come_after(bouncer: str) -> None:
    url = f"{bouncer}?schema=test_{uuid4().hex[:12]}&pooler=transaction"
    names = (
        "'enable_seqscan', 'search_path', 'lock_timeout', 'statement_timeout', 'synchronous_commit', 'jit'"
    )
    async with open_postgres(url) as world:
        await begin(world, "r")
        holder = await hold(world, "r")
        renewer = world.open_renewer()
        await to_thread.run_sync(renewer.renew, [holder.claim], 30.0)
        await world.publish(holder.claim, [Delta(call="c", number=1, data=b"1")])
        renewer.close()
        sessions = set()
        async with await psycopg.AsyncConnection.connect(bouncer, prepare_threshold=None) as one:
            for _ in range(2 * SESSIONS):
                async with await psycopg.AsyncConnection.connect(bouncer, prepare_threshold=None) as two:
                    for connection in (one, two):
                        cursor = await connection.execute(
                            "select pg_backend_pid(), (select count(*) from pg_prepared_statements), "
                            f"(select count(*) from pg_settings where name in ({names}) and setting <> reset_val)"
                        )
                        row = await cursor.fetchone()
                        assert row is not None
                        assert row[1:] == (0, 0)
                        sessions.add(row[0])
        assert sessions
    await drop_schema(url)


async def test_another_isolation_is_refused_where_it_cannot_be_set(
    postgres_server: str, admin: psycopg.Connection[Any]
) -> None:
    """A snapshot from before the lock was got would let a batch in twice."""
    admin.execute("alter role postgres set default_transaction_isolation = 'repeatable read'")
    try:
        with pytest.raises(WorldUnavailable, match="repeatable read"):
            async with open_postgres(f"{postgres_server}?schema=unmade&pooler=transaction"):
                pass
    finally:
        admin.execute("alter role postgres reset default_transaction_isolation")

"""The schema: made once, refused by name when it is not ours, and no operation reads a table from end to end."""

from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from journal.core.errors import WorldCorrupt, WorldTooNew, WorldUnavailable, WorldUnknown
from journal.core.ports import Progress, RunQuery, SweepPolicy
from journal.core.records import RunCreated
from journal.worlds.contract.harness import (
    begin,
    claim_all,
    close,
    committed,
    follow_all,
    hold,
    seqs,
    signal,
)
from journal.worlds.postgres import open_postgres, pending_sql
from journal.worlds.postgres import schema as schemas
from journal.worlds.postgres.address import parse_url
from journal.worlds.postgres.statements import migrations
from journal.worlds.versions import stated
from tests.postgres.dump import SCHEMA

pytestmark = pytest.mark.anyio

DUMPS = sorted((Path(__file__).parent / "dumps").glob("*.sql"))


def load(admin: psycopg.Connection[Any], dump: Path, schema: str) -> None:
    """The dumps hold: order-42, worked through; order-43, submitted; order-44, closed."""
    admin.execute(dump.read_text().replace(SCHEMA, schema).encode())


@pytest.mark.parametrize("dump", DUMPS, ids=lambda dump: dump.stem)
async def test_a_store_of_every_schema_ever_shipped_opens_and_goes_on(
    dump: Path, url: str, schema: str, admin: psycopg.Connection[Any]
) -> None:
    load(admin, dump, schema)
    rows = admin.execute(f"select version from {schema}.versions order by version").fetchall()
    assert [version for (version,) in rows] == list(range(1, int(dump.stem) + 1))
    async with open_postgres(url) as world:
        assert await seqs(world, "order-42") == [1, 2, 3, 4, 5, 6]
        assert (await world.read("order-42", limit=1))[0].type == RunCreated.TYPE
        assert await world.get_blob("order-42", "b1") == b"a blob"
        assert len(await follow_all(world, "order-44")) == 4
        assert [claimed.claim.run for claimed in await claim_all(world)] == ["order-43"]
        await begin(world, "order-42", "t2")
        holder = await hold(world, "order-42")
        assert holder.claim.epoch == 2
        await holder.finish()
        await begin(world, "order-45")
        assert [info.run for info in await world.runs(RunQuery(limit=2))] == ["order-45", "order-44"]
    rows = admin.execute(f"select version from {schema}.versions order by version").fetchall()
    assert [version for (version,) in rows] == [number for number, _ in migrations(schema)]


def test_there_is_a_dump_of_every_schema() -> None:
    assert [int(dump.stem) for dump in DUMPS] == [number for number, _ in migrations("any")]


async def test_functions_change_only_with_a_migration(
    url: str, schema: str, admin: psycopg.Connection[Any]
) -> None:
    """A store of this number has the functions that it was dumped with: nothing puts in others."""

    def defined() -> dict[str, str]:
        rows = admin.execute(
            "select oid::regprocedure::text, pg_get_functiondef(oid) from pg_proc "
            "where pronamespace = %s::regnamespace",
            (schema,),
        ).fetchall()
        return dict(rows)

    load(admin, DUMPS[-1], schema)
    shipped = defined()
    admin.execute(f"drop schema {schema} cascade")
    async with open_postgres(url):
        pass
    assert defined() == shipped, "add a migration (it may be empty), and make its dump"


async def test_many_who_open_a_new_store_make_one_schema(
    url: str, schema: str, admin: psycopg.Connection[Any]
) -> None:
    async def open_and_close(number: int) -> None:
        async with open_postgres(url) as world:
            await begin(world, f"r{number}")

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(open_and_close, number)
    rows = admin.execute(f"select version from {schema}.versions").fetchall()
    assert [version for (version,) in rows] == [number for number, _ in migrations(schema)]


async def test_a_store_is_carried_forward_or_left_as_it_was(
    url: str, schema: str, admin: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the missing migrations, or none; whoever has the store open goes on."""
    shipped = migrations(schema)
    numbers = [number for number, _ in shipped]
    following = (len(shipped) + 1, f'create table "{schema}".further (a int)')

    def versions() -> list[int]:
        return [row[0] for row in admin.execute(f"select version from {schema}.versions").fetchall()]

    async with open_postgres(url) as old:
        await begin(old, "r")
        broken = [*shipped, following, (len(shipped) + 2, "select 1 / 0")]
        monkeypatch.setattr(schemas, "migrations", lambda schema: broken)
        with pytest.raises(WorldUnavailable, match="division by zero"):
            async with open_postgres(url):
                pass
        assert versions() == numbers
        monkeypatch.setattr(schemas, "migrations", lambda schema: [*shipped, following])
        async with open_postgres(url) as new:
            assert versions() == [*numbers, following[0]]
            assert await seqs(new, "r") == [1, 2]
            await begin(new, "r", "t2")
        holder = await hold(old, "r")
        await holder.record()
        monkeypatch.undo()
        with pytest.raises(WorldTooNew):
            async with open_postgres(url):
                pass


@pytest.mark.parametrize("is_new", [True, False], ids=["made", "carried forward"])
async def test_older_code_goes_on_until_a_migration_ends_that(
    url: str, schema: str, admin: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    shipped = migrations(schema)
    last = len(shipped)
    adds = (
        last + 1,
        f'-- Adds.\n-- compatible from: {last}\nalter table "{schema}".runs add column later text',
    )
    takes = (last + 2, f'-- compatible from: {last + 1}\nalter table "{schema}".runs drop column later')
    if not is_new:
        load(admin, DUMPS[-1], schema)
    with monkeypatch.context() as newer:
        newer.setattr(schemas, "migrations", lambda schema: [*shipped, adds])
        async with open_postgres(url) as new:
            await begin(new, "r")
    assert await pending_sql(url) == ""
    async with open_postgres(url) as old:
        await (await hold(old, "r")).finish()
    with monkeypatch.context() as newest:
        newest.setattr(schemas, "migrations", lambda schema: [*shipped, adds, takes])
        async with open_postgres(url) as new:
            await begin(new, "r", "t2")
    rows = admin.execute(f"select version, compatible_from from {schema}.versions order by 1").fetchall()
    assert rows[-2:] == [(last + 1, last), (last + 2, last + 1)]
    with pytest.raises(
        WorldTooNew, match=f"schema {last + 2}, which is for .* {last + 1} or newer.*{last}: upgrade"
    ):
        async with open_postgres(url):
            pass
    with pytest.raises(WorldTooNew):
        await pending_sql(url)
    assert (
        admin.execute(f"select version, compatible_from from {schema}.versions order by 1").fetchall() == rows
    )


def test_migrations_say_what_older_code_may_do() -> None:
    """All but the two that came before there was anything to say."""
    for number, script in migrations("any")[2:]:
        says = stated(script)
        assert says is not None, f"migration {number} lacks its line: -- compatible from: NUMBER"
        assert 1 <= says <= number


async def test_a_store_of_a_newer_version_is_refused(
    url: str, schema: str, admin: psycopg.Connection[Any]
) -> None:
    async with open_postgres(url):
        pass
    admin.execute(f"insert into {schema}.versions (version) values (99)")
    with pytest.raises(WorldTooNew, match="schema 99"):
        async with open_postgres(url):
            pass


async def test_a_schema_of_another_program_is_refused(
    url: str, schema: str, admin: psycopg.Connection[Any]
) -> None:
    admin.execute(f"create schema {schema}")
    admin.execute(f"create table {schema}.theirs (a int)")
    with pytest.raises(WorldCorrupt, match="another program"):
        async with open_postgres(url):
            pass


async def test_a_database_that_is_not_utf8_is_refused(
    postgres_server: str, admin: psycopg.Connection[Any]
) -> None:
    admin.execute("drop database if exists plain")
    admin.execute("create database plain encoding 'SQL_ASCII' template template0 locale 'C'")
    try:
        with pytest.raises(WorldUnavailable, match="SQL_ASCII"):
            async with open_postgres(
                postgres_server.replace("/postgres", "/plain").replace("/plain@", "/postgres@")
            ):
                pass
    finally:
        admin.execute("drop database plain with (force)")


async def test_capabilities_are_what_the_server_does(
    url: str, schema: str, admin: psycopg.Connection[Any]
) -> None:
    async with open_postgres(url) as world:
        assert {"log.persistent", "log.survives_failover", "multi_host"} <= world.capabilities
        assert world.notes == ()
    admin.execute("alter role postgres set synchronous_commit = off")
    try:
        async with open_postgres(url) as world:
            assert not {"log.persistent", "log.survives_failover"} & world.capabilities
            assert [note.partition(":")[0] for note in world.notes] == [
                "not log.persistent",
                "not log.survives_failover",
            ]
            assert "synchronous_commit is off" in world.notes[0]
    finally:
        admin.execute("alter role postgres reset synchronous_commit")


@pytest.mark.parametrize(
    "statement", ["update {}.records set turn = 'x'", "delete from {}.records", "truncate {}.records"]
)
async def test_records_never_change(
    url: str, schema: str, admin: psycopg.Connection[Any], statement: str
) -> None:
    async with open_postgres(url) as world:
        await begin(world, "r")
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="append-only"):
            admin.execute(statement.format(schema))
        assert await seqs(world, "r") == [1, 2]


def test_our_parameters_are_not_for_libpq() -> None:
    address = parse_url("postgresql://u:p%40w@h:1/d?schema=s1&sslmode=require&notify=off")
    assert address.conninfo == "postgresql://u:p%40w@h:1/d?sslmode=require"
    assert (address.schema, address.is_notified) == ("s1", False)
    assert address.url == "postgresql://h:1/d?schema=s1&sslmode=require&notify=off"
    assert not address.is_pooled
    assert parse_url("postgresql://h/d?pooler=transaction").is_pooled
    for bad in (
        "schema=S;drop",
        "schema=",
        "schema=pg_catalog",
        "notify=perhaps",
        "pooler=session",
        'schema=a"b',
    ):
        with pytest.raises(WorldUnknown):
            parse_url(f"postgresql://h/d?{bad}")


MANY = 3000


async def _read(admin: psycopg.Connection[Any], schema: str) -> tuple[int, int]:
    """Table scans, and rows or index entries that were read, once every connection of ours has reported."""
    with anyio.fail_after(30):
        while admin.execute(
            "select 1 from pg_stat_activity where application_name = 'durable-journal'"
        ).fetchone():
            await anyio.sleep(0.01)
    if admin.info.server_version >= 150000:
        admin.execute("select pg_stat_force_next_flush()")  # what this connection read itself is told at once
    admin.execute("select pg_stat_clear_snapshot()")
    row = admin.execute(
        "select sum(seq_scan)::bigint, sum(coalesce(idx_tup_fetch, 0) + seq_tup_read)::bigint "
        "from pg_stat_user_tables where schemaname = %s and relname <> 'versions'",
        (schema,),
    ).fetchone()
    assert row is not None
    return row[0], row[1]


async def test_no_operation_reads_a_table_from_end_to_end(
    url: str, schema: str, admin: psycopg.Connection[Any]
) -> None:
    """With a million runs a scan is an outage. What was read is counted by the server itself."""
    async with open_postgres(url) as world:
        await begin(world, "r")
    admin.execute(
        f"insert into {schema}.runs (namespace, run, agent, created) "
        f"select 'default', 'other-' || n, 'agent', 0 from generate_series(1, {MANY}) n"
    )
    admin.execute(
        f"insert into {schema}.queue (rid, namespace, agent, lock, priority, due_at, status) "
        "select rid, 'default', case when rid % 3 = 0 then 'agent' else 'idle' end, rid, rid % 3, "
        "case when rid % 3 = 0 then 1e12 end, 'succeeded' "
        f"from {schema}.runs where run <> 'r'"
    )
    admin.execute(
        f"insert into {schema}.records (rid, seq, time, type, epoch, batch, body, checksum) "
        f"select rid, n, 0, 'x', 0, 'b', '', 0 from {schema}.runs, generate_series(1, 5) n where run <> 'r'"
    )
    scans, rows = await _read(admin, schema)
    async with open_postgres(url) as world:
        holder = await hold(world, "r")
        await holder.start()
        for _ in range(5):
            await holder.change(Progress(), holder.outcome())
        committed(await world.append(signal("r")))
        await holder.finish()
        await holder.world.append(signal("absent"))
        assert len(await claim_all(world, agents={"agent"})) == 1, "woken"
        assert len(await claim_all(world)) == 0
        assert len(await claim_all(world, limit=0)) == 0
        renewer = world.open_renewer()
        assert renewer.renew([holder.claim], 30.0) == set()
        renewer.close()
        assert len(await world.runs(RunQuery(limit=5))) == 5
        assert len(await world.runs(RunQuery(limit=5, agent="agent"))) == 5
        assert len(await world.runs(RunQuery(limit=5, status="succeeded"))) == 5
        committed(await world.append(close("r")))
        assert len(await follow_all(world, "r")) == 11
        assert await world.turn("r", "t1") is not None
        assert await world.sweep(SweepPolicy(closed_older_than_seconds=-1)) == 1
    now_scans, now_rows = await _read(admin, schema)
    assert now_scans == scans, "a table was read from end to end"
    assert now_rows - rows < 400, "an index was read from end to end"

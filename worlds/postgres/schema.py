"""The schema: what number the store has, and the way forward from there.

Migrations are numbered and go forward only. Those that are missing are applied in one transaction, under a lock, so
that several processes that open a new store together make one schema; the functions are then put in anew. A function
that processes of the version before still call keeps its signature, or the new one gets another name. The table
`versions` notes which older code may go on (`worlds/versions.py`).
"""

from typing import Any, LiteralString

import psycopg
from psycopg import sql

from journal.core.errors import WorldCorrupt, WorldUnavailable
from journal.worlds.postgres.address import Address
from journal.worlds.postgres.statements import functions, migrations
from journal.worlds.versions import check_compatible, compatible_from

OLDEST_SERVER = 140000
_LOCK = 0x4A524E4C
"""`JRNL`: the advisory lock under which schemas are made."""
_LOCKING = f"select pg_advisory_xact_lock({_LOCK})"

_FIRST: tuple[LiteralString, ...] = (
    "create schema if not exists {};",
    "create table {}.versions (version integer primary key, applied timestamptz default now());",
)
_COMPATIBLE: LiteralString = "alter table {}.versions add column if not exists compatible_from integer;"
_NOTE: LiteralString = "insert into {}.versions (version, compatible_from) values ({}, {});"


async def check_server(connection: psycopg.AsyncConnection[Any], address: Address) -> None:
    """Raise `WorldUnavailable` for a server that cannot be used: too old, or not UTF-8."""
    version = connection.info.server_version
    if version < OLDEST_SERVER:
        raise WorldUnavailable(
            f"the server is Postgres {version // 10000}: 14 or newer is needed", world=address.url
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise WorldUnavailable(
            f"the database is encoded in {encoding}: make one with encoding UTF8 (create database … encoding 'UTF8')",
            world=address.url,
        )
    if address.is_pooled:
        cursor = await connection.execute("select current_setting('default_transaction_isolation')")
        row = await cursor.fetchone()
        if row is None or row[0] != "read committed":
            raise WorldUnavailable(
                f"transactions are {row[0] if row else 'unknown'} here, and through a pooler we cannot say otherwise: "
                "alter role … set default_transaction_isolation = 'read committed'",
                world=address.url,
            )


async def migrate(connection: psycopg.AsyncConnection[Any], address: Address) -> None:
    """Bring the store to our schema, unless it has a newer one that we may work with.

    Raises `WorldTooNew`, and `WorldCorrupt` for a schema that is no journal.
    """
    if not await pending(connection, address):
        return
    async with connection.transaction():
        await connection.execute(_LOCKING.encode())
        for statement in await pending(connection, address):
            await connection.execute(statement.encode(), prepare=False)


async def pending(connection: psycopg.AsyncConnection[Any], address: Address) -> list[str]:
    """The SQL that is missing there, in order; empty if nothing is. Raises like `migrate`."""
    known = migrations(address.schema)
    found, compatible = await _version(connection, address)
    check_compatible(found=found, compatible=compatible, known=len(known), world=address.url)
    if found >= len(known):
        return []
    schema = sql.Identifier(address.schema)
    statements = []
    if found == 0:
        statements += [_formatted(text, schema) for text in _FIRST]
    statements.append(_formatted(_COMPATIBLE, schema))
    for number, script in known[found:]:
        note = _formatted(_NOTE, schema, sql.Literal(number), sql.Literal(compatible_from(number, known)))
        statements += [script, note]
    return statements + functions(address.schema)


def _formatted(text: LiteralString, *parts: sql.Composable) -> str:
    return sql.SQL(text).format(*parts).as_string()


def as_script(statements: list[str]) -> str:
    """What `migrate` would run, for people to read, or to run as somebody who may."""
    return "\n\n".join(["begin;", f"{_LOCKING};", *(text.strip() for text in statements), "commit;"]) + "\n"


async def has_store(connection: psycopg.AsyncConnection[Any], address: Address) -> bool:
    """Whether a store was made there. Raises `WorldCorrupt` for a schema of another program."""
    return (await _version(connection, address))[0] > 0


async def _version(connection: psycopg.AsyncConnection[Any], address: Address) -> tuple[int, int]:
    """The store's schema, and the oldest whose code may work with it. 0: there is nothing yet."""
    cursor = await connection.execute(
        "select count(*), count(*) filter (where c.relname = 'versions') from pg_catalog.pg_class c "
        "join pg_catalog.pg_namespace n on n.oid = c.relnamespace where n.nspname = %s",
        (address.schema,),
    )
    row = await cursor.fetchone()
    tables, has_versions = row if row is not None else (0, 0)
    if not has_versions:
        if tables:
            raise WorldCorrupt(
                f"the schema {address.schema} belongs to another program: give another one (?schema=…)",
                world=address.url,
            )
        return 0, 0
    # By way of JSON, since stores that no migration has touched for long lack the column: then none may go on.
    newest: LiteralString = (
        "select version, coalesce((to_jsonb(v) ->> 'compatible_from')::integer, version) "
        "from {}.versions v order by version desc limit 1"
    )
    cursor = await connection.execute(sql.SQL(newest).format(sql.Identifier(address.schema)))
    row = await cursor.fetchone()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))

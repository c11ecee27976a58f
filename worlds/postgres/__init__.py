"""The Postgres world: one schema of a server, for a fleet of workers on any number of hosts.

The server's clock decides, the server's locks fence, and one durable commit carries what many runs append at the same
moment. A world takes at most 5 connections (1 that writes, 2 that read and claim, 1 that listens, 1 that rings), and 1
more for each renewer. Next: `functions/` (how a batch gets in), `writer.py` (groups), `world.py` (the parts).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from psycopg import sql

from journal.core.clock import Clock, SystemClock
from journal.worlds.postgres.address import parse_url
from journal.worlds.postgres.capabilities import find_capabilities
from journal.worlds.postgres.connection import connect_patiently
from journal.worlds.postgres.failures import world_error
from journal.worlds.postgres.schema import as_script, check_server, has_store, migrate, pending
from journal.worlds.postgres.world import PostgresWorld

__all__ = ["PostgresWorld", "drop_schema", "exists", "open_postgres", "pending_sql"]


@asynccontextmanager
async def open_postgres(
    url: str, *, namespace: str = "default", clock: Clock | None = None
) -> AsyncIterator[PostgresWorld]:
    """Open the store at `url` (`postgresql://…?schema=journal`), making its schema if it is not there.

    The time is the server's; `clock` takes its place in tests. Raises `WorldUnavailable`, `WorldReadOnly`,
    `WorldTooNew`, `WorldCorrupt`, and `WorldUnknown` for a URL that cannot be meant.
    """
    address = parse_url(url)
    connection = await connect_patiently(address, is_first=True)
    try:
        await check_server(connection, address)
        findings = await find_capabilities(connection, address)
        await migrate(connection, address)
        # The time of a store that many hosts share is the server's; a clock of the host is never asked.
        given = None if isinstance(clock, SystemClock) else clock
        world = PostgresWorld(connection, address, namespace=namespace, clock=given, findings=findings)
    except psycopg.Error as error:
        await connection.close()
        raise world_error(error, address.url) from error
    except BaseException:
        await connection.close()
        raise
    try:
        await world.prepare()
        yield world
    finally:
        await world.aclose()


async def exists(url: str) -> bool:
    """Whether the schema that `url` names is there, and holds a store."""
    address = parse_url(url)
    connection = await connect_patiently(address, is_first=True)
    try:
        return await has_store(connection, address)
    except psycopg.Error as error:
        raise world_error(error, address.url) from error
    finally:
        await connection.close()


async def pending_sql(url: str) -> str:
    """The SQL that opening the store at `url` would run first; empty if its schema is ours already."""
    address = parse_url(url)
    connection = await connect_patiently(address, is_first=True)
    try:
        await check_server(connection, address)
        statements = await pending(connection, address)
    except psycopg.Error as error:
        raise world_error(error, address.url) from error
    finally:
        await connection.close()
    return as_script(statements) if statements else ""


async def drop_schema(url: str) -> None:
    """Delete the store at `url`, with all that is in it: for tests."""
    address = parse_url(url)
    connection = await connect_patiently(address, is_first=True)
    try:
        await connection.execute(
            sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(address.schema))
        )
    finally:
        await connection.close()

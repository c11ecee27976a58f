"""What a server refuses for good is told at once, by name, and not waited for like a server that is away."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from journal.core.errors import WorldError, WorldUnavailable
from journal.testing import servers
from journal.testing.servers import Server
from journal.worlds import pending_sql, world_exists
from journal.worlds.postgres import open_postgres
from journal.worlds.postgres.address import parse_url
from journal.worlds.postgres.connection import connect_patiently

pytestmark = pytest.mark.anyio

AT_ONCE_SECONDS = 5.0


@pytest.fixture(scope="module")
def strict(postgres_programs: Path) -> Iterator[Server]:
    """A server that asks everybody but its owner for a password, and whose database is not for everybody."""
    with servers.start_postgres(binaries=postgres_programs) as server:
        with psycopg.connect(servers.postgres_url(server), autocommit=True) as connection:
            statements: tuple[LiteralString, ...] = (
                "create role worker login password 'right'",
                "create role shut nologin",
                "create database other",
                "revoke connect on database other from public",
            )
            for statement in statements:
                connection.execute(statement)
            rules = server.directory / "data" / "pg_hba.conf"
            rules.write_text(
                "host all postgres,nobody_here,shut 127.0.0.1/32 trust\nhost all worker 127.0.0.1/32 scram-sha-256\n"
            )
            connection.execute("select pg_reload_conf()")
            connection.execute("select pg_sleep(0.2)")
        yield server


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("postgres@{}/nowhere", 'database "nowhere" does not exist.*check user, password and database'),
        ("nobody_here@{}/postgres", 'role "nobody_here" does not exist'),
        ("worker:wrong@{}/postgres", "password authentication failed"),
        ("worker@{}/postgres", "no password supplied"),
        ("stranger@{}/postgres", "no pg_hba.conf entry"),
        ("shut@{}/postgres", "not permitted to log in"),
        ("worker:right@{}/other", 'permission denied for database "other"'),
        ("worker:right@{}/postgres", "permission denied for database"),  # to make the schema
    ],
)
async def test_a_lasting_refusal_is_told_at_once(strict: Server, place: str, told: str) -> None:
    begun = time.monotonic()
    with pytest.raises(WorldError, match=told):
        async with open_postgres("postgresql://" + place.format(f"127.0.0.1:{strict.port}")):
            pass
    assert time.monotonic() - begun < AT_ONCE_SECONDS


async def test_one_of_several_hosts_that_is_away_is_waited_for(
    strict: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the one that lets us in."""
    monkeypatch.setattr("journal.worlds.postgres.connect_patiently.__defaults__", (1.0,))
    hosts = f"127.0.0.1:{strict.port},127.0.0.1:1"
    begun = time.monotonic()
    with pytest.raises(WorldError, match="was not to be reached for 1 s"):
        async with open_postgres(f"postgresql://worker:wrong@{hosts}/postgres"):
            pass
    assert time.monotonic() - begun < AT_ONCE_SECONDS


@pytest.mark.parametrize("hosts", ["no-such-host.invalid", "no-such-host.invalid,nor-this.invalid"])
@pytest.mark.parametrize("look", [world_exists, pending_sql, lambda url: opened(url)])
async def test_a_name_that_is_nowhere_is_told_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, hosts: str, look: Callable[[str], Awaitable[object]]
) -> None:
    monkeypatch.setattr("journal.worlds.postgres.connection.PATIENCE_SECONDS", 3600.0)
    monkeypatch.setattr("journal.worlds.postgres.connect_patiently.__defaults__", (3600.0,))
    with pytest.raises(
        WorldUnavailable, match=r"there is no such host \(.*\.invalid.*check its name in the URL"
    ):
        await look(f"postgresql://me:secret@{hosts}/postgres")


async def opened(url: str) -> None:
    async with open_postgres(url):
        pass


async def test_a_name_that_comes_back_is_found_by_the_second_look(
    strict: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resolver may fail once."""
    loop = asyncio.get_running_loop()
    failures: list[str] = []
    look_up = loop.getaddrinfo

    async def stumbling(host: str, *args: Any, **kwargs: Any) -> Any:
        if not failures:
            failures.append(host)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return await look_up("127.0.0.1", *args, **kwargs)

    monkeypatch.setattr(loop, "getaddrinfo", stumbling)
    with pytest.raises(WorldError, match="password authentication failed"):
        await opened(f"postgresql://worker:wrong@found-later.invalid:{strict.port}/postgres")
    assert failures == ["found-later.invalid"]


async def test_a_name_that_goes_while_the_store_is_open_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a failover by name it may be gone for a moment."""
    with pytest.raises(WorldUnavailable, match="was not to be reached for 1 s"):
        await connect_patiently(parse_url("postgresql://no-such-host.invalid/postgres"), 1.0)

"""What a server refuses for good is told at once, by name, and not waited for like a server that is away."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from journal.core.errors import WorldError
from journal.testing import servers
from journal.testing.servers import Server
from journal.worlds.postgres import open_postgres

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

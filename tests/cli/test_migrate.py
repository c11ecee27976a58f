"""`journal migrate`: what it prints is what it does."""

import json
import sqlite3
from pathlib import Path
from uuid import uuid4

import psycopg

from journal.worlds.postgres.statements import migrations
from tests.cli.conftest import Cli


def test_a_new_file_is_made_once(cli: Cli, home: Path) -> None:
    assert "create table runs" in cli("migrate", "--print").stdout
    assert not (home / "journal.db").exists(), "printing makes nothing"
    assert cli("migrate").stdout.endswith("journal.db: brought up to date\n")
    assert cli("migrate").stdout.endswith("journal.db: nothing to do\n")
    again = cli("migrate", "--print")
    assert (again.stdout, again.stderr) == ("", "nothing to do\n")
    assert json.loads(cli("migrate", "--json").stdout)["changed"] is False


def test_what_is_printed_for_sqlite_makes_a_store(cli: Cli, home: Path) -> None:
    script = cli("migrate", "--print").stdout
    connection = sqlite3.connect(home / "journal.db", isolation_level=None)
    connection.executescript(script)
    connection.close()
    assert cli("migrate").stdout.endswith(": nothing to do\n")
    assert cli("submit", "support", "x", "--run", "r").exit_code == 0


def test_what_is_printed_for_postgres_makes_a_store_that_others_may_use(
    cli: Cli, home: Path, postgres_server: str
) -> None:
    """Whoever opens it afterwards needs no right to make anything."""
    name = f"test_{uuid4().hex[:12]}"
    url = f"{postgres_server}?schema={name}"
    script = cli("--world", url, "migrate", "--print").stdout
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        try:
            admin.execute(script.encode())
            assert cli("--world", url, "migrate", "--print").stdout == ""
            numbers = admin.execute(f"select version from {name}.versions order by 1").fetchall()
            assert [number for (number,) in numbers] == [number for number, _ in migrations(name)]
            admin.execute(f"create role {name} login")
            admin.execute(f"grant usage on schema {name} to {name}")
            admin.execute(f"grant select, insert, update, delete on all tables in schema {name} to {name}")
            plain = url.replace("postgres@", f"{name}@")
            assert cli("--world", plain, "migrate").stdout.endswith(": nothing to do\n")
            assert cli("--world", plain, "submit", "support", "x", "--run", "r").exit_code == 0
            assert cli("--world", plain, "worker", "--until-idle").exit_code == 0
            shown = json.loads(cli("--world", plain, "show", "r", "--json").stdout)
            assert shown["info"]["status"] == "succeeded"
        finally:
            admin.execute(f"drop schema if exists {name} cascade")
            admin.execute(f"drop role if exists {name}")


def test_a_store_without_sql_says_so(cli: Cli) -> None:
    printed = cli("--world", "memory:", "migrate", "--print")
    assert (printed.exit_code, printed.stdout) == (0, "")
    assert "no SQL" in printed.stderr
    assert cli("--world", "memory:", "migrate").exit_code == 0

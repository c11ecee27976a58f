"""The measure of all things here: how many one-row commits a second a store makes by its own driver on this disk.

The tables are as plain as can be: no keys, no triggers, no checksums, 500 bytes a row, durable settings (SQLite in WAL
mode with synchronous=FULL, Postgres as installed, Redis with appendfsync always), one connection, sync drivers.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Self

ROW_BYTES = 500


class RawSqlite:
    """A log table in a file of its own."""

    def __init__(self, directory: Path) -> None:
        self._db = sqlite3.connect(directory / "raw.db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute(
            "CREATE TABLE log (id INTEGER PRIMARY KEY, stream INT, seq INT, kind INT, payload BLOB)"
        )
        self._seq = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def rate(self, seconds: float) -> float:
        """One-row commits a second, over a window of `seconds`."""
        payload = os.urandom(ROW_BYTES)
        insert = "INSERT INTO log (stream, seq, kind, payload) VALUES (1, ?, 1, ?)"
        execute, first = self._db.execute, self._seq
        begun = perf_counter()
        while perf_counter() - begun < seconds:
            self._seq += 1
            execute(insert, (self._seq, payload))
        return (self._seq - first) / (perf_counter() - begun)

    def paced_rate(self, seconds: float, work_seconds: float) -> float:
        """One-row commits a second, each after `work_seconds` of computing, which is not counted."""
        payload = os.urandom(ROW_BYTES)
        insert = "INSERT INTO log (stream, seq, kind, payload) VALUES (1, ?, 1, ?)"
        execute, first, spent = self._db.execute, self._seq, 0.0
        begun = perf_counter()
        while (idle := perf_counter()) - begun < seconds:
            while perf_counter() - idle < work_seconds:
                pass
            started = perf_counter()
            self._seq += 1
            execute(insert, (self._seq, payload))
            spent += perf_counter() - started
        return (self._seq - first) / spent


class RawPostgres:
    """A log table on the server."""

    def __init__(self, url: str) -> None:
        import psycopg

        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        self._connection.execute("create schema if not exists raw")
        self._connection.execute("drop table if exists raw.log")
        self._connection.execute(
            "create table raw.log (id bigserial primary key, stream int, seq int, kind int, payload bytea)"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def rate(self, seconds: float) -> float:
        """One-row commits a second, over a window of `seconds`."""
        payload = os.urandom(ROW_BYTES)
        insert = "insert into raw.log (stream, seq, kind, payload) values (1, %s, 1, %s)"
        execute, done = self._connection.execute, 0
        begun = perf_counter()
        while perf_counter() - begun < seconds:
            done += 1
            execute(insert, (done, payload))
        return done / (perf_counter() - begun)


class RawRedis:
    """A stream on the server."""

    def __init__(self, url: str) -> None:
        from redis import Redis

        self._client = Redis.from_url(url)
        self._client.delete("raw")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.delete("raw")
        self._client.close()

    def rate(self, seconds: float) -> float:
        """XADDs a second, over a window of `seconds`."""
        payload, done = os.urandom(ROW_BYTES), 0
        begun = perf_counter()
        while perf_counter() - begun < seconds:
            done += 1
            self._client.xadd("raw", {"p": payload})
        return done / (perf_counter() - begun)


def create_database(url: str, name: str) -> None:
    """An empty database on the server."""
    import psycopg
    from psycopg import sql

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))


def settle_postgres(url: str) -> None:
    """What autovacuum and the checkpointer are about to do."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("vacuum (analyze)")
        connection.execute("checkpoint")


@contextmanager
def open_snapshot(url: str) -> Iterator[None]:
    """A transaction that sees the database as it is now, and so keeps vacuum from its work."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("begin isolation level repeatable read")
        connection.execute("select count(*) from pg_class")
        yield

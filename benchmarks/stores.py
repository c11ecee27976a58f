"""The stores to measure, each with its raw self beside it. Servers come from wheels, and are gone afterwards.

A server's data lies in the temporary directory ($TMPDIR): set that to the disk in question.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

from benchmarks.raw import RawPostgres, RawRedis, RawSqlite, create_database, open_snapshot, settle_postgres


class Raw(AbstractContextManager["Raw"], Protocol):
    """A log table in the store, without anything of ours."""

    def rate(self, seconds: float) -> float:
        """One-row commits a second, over a window of `seconds`, on one connection."""
        ...


Peers = Callable[[int, Path], dict[str, str]]


class Store:
    """A store under measurement."""

    settle: Callable[[], None] = staticmethod(lambda: None)
    """Does at once what the store would do by itself after much was written, so that it is not measured."""
    hold_snapshot: Callable[[], AbstractContextManager[object]] | None = None
    """Keeps what the store holds now from being cleaned up, where there is such a thing."""

    def __init__(self, world: str, fresh: Callable[[int], str], raw: Callable[[], Raw], peers: Peers) -> None:
        self.world = world
        self._fresh = fresh
        self._count = count()
        self.raw = raw
        self.peers = peers
        """By name: the URL of a store for each peer that works on this kind; for so many runs, in a directory."""

    def fresh_url(self) -> str:
        """The URL of an empty store of ours on it."""
        return self._fresh(next(self._count))


@contextmanager
def sqlite(directory: Path) -> Iterator[Store]:
    """Files in `directory`."""

    def peers(runs: int, place: Path) -> dict[str, str]:
        found = {"dbos": f"sqlite:{place / 'dbos.db'}", "dbos-wal": f"sqlite-wal:{place / 'wal.db'}"}
        return found if runs > 1 else {**found, "langgraph": f"sqlite:{place / 'langgraph.db'}"}

    yield Store(
        "sqlite", lambda n: f"sqlite:{directory / f'journal-{n}.db'}", lambda: RawSqlite(directory), peers
    )


@contextmanager
def postgres(_: Path) -> Iterator[Store]:
    """A server of its own, with default settings: fsync and synchronous_commit on."""
    from journal.testing.servers import postgres_url, start_postgres

    with start_postgres(settings=["max_connections=200"]) as server:
        url = postgres_url(server)
        names = count()

        def peers(runs: int, _: Path) -> dict[str, str]:
            found = {}
            for name in ("dbos", "absurd") if runs > 1 else ("dbos", "absurd", "langgraph"):
                database = f"{name}_{next(names)}"
                create_database(url, database)
                found[name] = f"{url.rpartition('/')[0]}/{database}"
            return found

        store = Store("postgres", lambda n: f"{url}?schema=bench_{n}", lambda: RawPostgres(url), peers)
        store.settle = lambda: settle_postgres(url)
        store.hold_snapshot = lambda: open_snapshot(url)
        yield store


@contextmanager
def redis(_: Path) -> Iterator[Store]:
    """A Valkey of its own, appendfsync always."""
    from journal.testing.servers import redis_url, start_valkey

    with start_valkey() as server:
        url = redis_url(server)
        yield Store(
            "redis", lambda n: f"{url}?prefix=bench-{n}", lambda: RawRedis(url), lambda _runs, _place: {}
        )


STORES: dict[str, Callable[[Path], AbstractContextManager[Store]]] = {
    "sqlite": sqlite,
    "postgres": postgres,
    "redis": redis,
}

"""The SQLite world: one file, embedded, for a laptop or for all the processes of one host.

Durable when it answers (WAL, synchronous=FULL), dense and checked on every read, fair between processes, and quick:
group commit. Leases are on the boot clock, and a holder that has died is taken over at once.
Next: `world.py` (the parts put together), `door.py` (how a batch gets in), `migrations/` (the tables).
"""

import errno
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qsl

from anyio import to_thread

from journal.core.clock import Clock, SystemClock
from journal.core.errors import WorldBusy, WorldReadOnly, WorldUnavailable, WorldUnknown
from journal.worlds.opening import resolve_url
from journal.worlds.sqlite.connection import StoreFile, connect, damaged, world_error
from journal.worlds.sqlite.door import Door
from journal.worlds.sqlite.locks import Holder, Turnstile
from journal.worlds.sqlite.migrate import migrate, pending_script, prepare_path, refuse_strangers
from journal.worlds.sqlite.readonly import open_readonly
from journal.worlds.sqlite.transaction import Transactor
from journal.worlds.sqlite.world import SqliteWorld
from journal.worlds.url_parameters import check_parameters

__all__ = ["SqliteWorld", "exists", "open_sqlite", "open_to_read", "pending_sql"]

BUSY_SECONDS = 10.0
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)


@asynccontextmanager
async def open_sqlite(
    url: str,
    *,
    namespace: str = "default",
    clock: Clock | None = None,
    busy_seconds: float = BUSY_SECONDS,
) -> AsyncIterator[SqliteWorld]:
    """Open the store in the file of `url` (`sqlite:path`, made if missing, for this user alone).

    `busy_seconds` bounds every wait for other processes. Raises `WorldReadOnly`, `WorldBusy`, `WorldCorrupt`,
    `WorldTooNew`, `WorldFull`, `WorldUnavailable`, and `WorldUnknown` for a URL that names no file.
    """
    url, path = _place(url)
    clock = clock or SystemClock()
    parts = await to_thread.run_sync(_open, path, url, namespace, clock, busy_seconds)
    transactor, holder = parts
    try:
        world = SqliteWorld(
            transactor,
            holder,
            path=path,
            url=url,
            namespace=namespace,
            clock=clock,
            busy_seconds=busy_seconds,
        )
    except BaseException:
        transactor.close()
        holder.close()
        raise
    try:
        yield world
    finally:
        await world.aclose()


@asynccontextmanager
async def open_to_read(
    url: str, *, namespace: str = "default", clock: Clock | None = None
) -> AsyncIterator[SqliteWorld]:
    """Open a store that this user cannot write, for reading alone. Raises `WorldReadOnly` if it cannot be."""
    url, path = _place(url)
    async with open_readonly(path, url, namespace=namespace, clock=clock or SystemClock()) as world:
        yield world


async def exists(url: str) -> bool:
    """Whether there is a file at `url`. Raises `WorldUnknown`."""
    return await to_thread.run_sync(os.path.lexists, _place(url)[1])


async def pending_sql(url: str) -> str:
    """The SQL that opening the store at `url` would run first; empty if its schema is ours. Makes no file."""
    url, path = _place(url)
    try:
        return await to_thread.run_sync(pending_script, path, url)
    except sqlite3.Error as error:
        raise world_error(error, url) from error


def _place(url: str) -> tuple[str, Path]:
    """The URL with its path made absolute, and the path. Raises `WorldUnknown` where it names no file."""
    url = resolve_url(url)
    place, _, query = url.removeprefix("sqlite:").partition("?")
    check_parameters(dict(parse_qsl(query, keep_blank_values=True)), (), world=url)
    if place == ":memory:":
        raise WorldUnknown(
            "a SQLite store is a file here: for one that is not kept, write memory:", world=url
        )
    return f"sqlite:{place}", Path(place)


def _open(
    path: Path, url: str, namespace: str, clock: Clock, busy_seconds: float
) -> tuple[Transactor, Holder]:
    try:
        prepare_path(path)
        refuse_strangers(path, url)
        return _open_file(path, url, namespace, clock, busy_seconds)
    except sqlite3.Error as error:
        raise world_error(error, url) from error
    except UnicodeDecodeError as error:  # of a message of SQLite's that quotes a damaged schema
        raise damaged("its schema cannot be read", url) from error
    except OSError as error:
        what = f"it cannot be opened ({error.strerror}: {error.filename})"
        if error.errno in _NOT_WRITABLE:
            advice = "make the file, those beside it and its directory writable for this user"
            raise WorldReadOnly(f"{what}: {advice}", world=url) from error
        raise WorldUnavailable(f"{what}: check the path, which is to be that of a file", world=url) from error


def _open_file(
    path: Path, url: str, namespace: str, clock: Clock, busy_seconds: float
) -> tuple[Transactor, Holder]:
    turnstile = Turnstile(path)
    if not turnstile.enter_within(busy_seconds):
        raise WorldBusy(
            f"another process has kept it locked for {busy_seconds:g} s: see who has the file open (fuser)",
            world=url,
        )
    try:
        connection = connect(path, busy_seconds=busy_seconds)
        try:
            migrate(connection, url)
            connection.execute(
                "pragma busy_timeout = 0"
            )  # from here on the transactor waits, and not in the loop
            transactor = Transactor(
                lambda: connect(path, busy_seconds=0.0),
                StoreFile(path, url, is_watched=True),
                turnstile,
                Door(connection, namespace=namespace, clock=clock),
                busy_seconds=busy_seconds,
            )
            transactor.look_around()
            return transactor, Holder(path)
        except BaseException:
            connection.close()
            raise
        finally:
            turnstile.leave()
    except BaseException:
        turnstile.close()
        raise

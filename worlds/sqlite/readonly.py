"""A store that may only be read: its file, or the directory around it, cannot be written by this user.

SQLite reads a log that is being written through files beside the database. Where those cannot be made, the database
is read as it lies there, provided that nothing stands in a write-ahead log; and before and after each look it must be
the same file, or somebody is writing to it.
"""

import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from anyio import to_thread

from journal.core.clock import Clock
from journal.core.codec import Blob
from journal.core.errors import WorldBusy, WorldReadOnly
from journal.core.ports import Batch, Claim, Claims, Delta, RunImage, SweepPolicy, WorkerInfo
from journal.core.records import Record
from journal.worlds.sqlite.bells import Bells
from journal.worlds.sqlite.claims import Search
from journal.worlds.sqlite.connection import StoreFile, primary_code, world_error
from journal.worlds.sqlite.migrate import check_schema
from journal.worlds.sqlite.reads import Reader
from journal.worlds.sqlite.world import CAPABILITIES, NOTES, SqliteWorld, signs_reader

if TYPE_CHECKING:
    from journal.worlds.sqlite.locks import Holder

T = TypeVar("T")
_State = tuple[int, int, int, int]


@asynccontextmanager
async def open_readonly(path: Path, url: str, *, namespace: str, clock: Clock) -> AsyncIterator[SqliteWorld]:
    """Open what is there, and make nothing. Raises `WorldReadOnly` where it cannot be read like that."""
    try:
        connection, is_still = await to_thread.run_sync(_connect, path, url)
    except sqlite3.Error as error:
        raise world_error(error, url) from error
    world = ReadOnlyWorld(connection, is_still=is_still, path=path, url=url, namespace=namespace, clock=clock)
    try:
        yield world
    finally:
        await world.aclose()


def _connect(path: Path, url: str) -> tuple[sqlite3.Connection, bool]:
    """A connection that reads, and whether it takes the file for one that nobody writes to."""
    try:
        return _connected(path, url, "mode=ro"), False
    except sqlite3.Error as error:
        if primary_code(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
        if _log_size(path):
            raise WorldReadOnly(
                "it cannot be written, and what stands in its write-ahead log can only be read where files can be made "
                f"beside it: copy {path.name} and {path.name}-wal to a directory of your own, and read it there",
                world=url,
            ) from error
    return _connected(path, url, "immutable=1"), True


def _connected(path: Path, url: str, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?{how}", uri=True, isolation_level=None, check_same_thread=False
    )
    try:
        check_schema(connection, url)
    except BaseException:
        connection.close()
        raise
    return connection


def _log_size(path: Path) -> int:
    try:
        return os.stat(f"{path}-wal").st_size
    except FileNotFoundError:
        return 0


class _NoHolders:
    """Whoever holds a run cannot be asked without opening their file for writing: leases alone tell."""

    def is_dead(self, byte: int, file: int) -> bool:
        return False


class ReadOnlyWorld(SqliteWorld):
    """Reads what a `SqliteWorld` reads; whatever would write raises `WorldReadOnly`."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        is_still: bool,
        path: Path,
        url: str,
        namespace: str,
        clock: Clock,
    ) -> None:
        self.url = url
        self.namespace = namespace
        self.capabilities = CAPABILITIES
        self.notes = (*NOTES, "it is open for reading alone: it cannot be written by this user")
        self._path = path
        self._clock = clock
        self._is_open = True
        self._file = StoreFile(path, url)
        self._reads = connection
        self._state = self._look() if is_still else None
        self._reader = Reader(namespace, url)
        self._search = Search(namespace, clock, cast("Holder", _NoHolders()))
        self._bells = Bells(lambda: self._inline(_version))
        self._bells.read_signs = signs_reader(connection, namespace)
        self._work_seen = 0

    def _look(self) -> _State:
        found = os.stat(self._path)
        return (found.st_ino, found.st_size, found.st_mtime_ns, _log_size(self._path))

    def _inline(self, read: Callable[[sqlite3.Connection], T]) -> T:
        self._check_open()
        try:
            found = read(self._reads)
        except sqlite3.Error as error:
            self._check_still()
            raise world_error(error, self.url) from error
        self._check_still()
        return found

    async def _aside(self, read: Callable[[sqlite3.Connection], T]) -> T:
        return self._inline(read)

    def _check_still(self) -> None:
        if self._state is not None and self._look() != self._state:
            raise WorldBusy(
                "somebody is writing to it, and here it can only be read while nobody does: try again later, or copy "
                "it to a directory of your own",
                world=self.url,
            )

    async def aclose(self) -> None:
        """See `World.aclose`."""
        if self._is_open:
            self._is_open = False
            await self._bells.aclose()
            self._reads.close()

    # What would write

    def _refuse(self) -> NoReturn:
        raise WorldReadOnly(
            "it cannot be written: make the file, those beside it and its directory writable for this user",
            world=self.url,
        )

    def append(self, batch: Batch) -> Any:
        """Refused."""
        self._refuse()

    async def sweep(self, policy: SweepPolicy) -> int:
        """Refused."""
        self._refuse()

    async def build(self, image: RunImage, records: Sequence[Record], blobs: Sequence[Blob]) -> int:
        """Refused."""
        self._refuse()

    async def settle(self, run: str, *, is_live: bool) -> None:
        """Refused."""
        self._refuse()

    async def claim(
        self,
        *,
        worker: str,
        limit: int,
        lease_seconds: float,
        agents: Collection[str] | None,
        reads: int,
        run: str | None = None,
    ) -> Claims:
        """Refused."""
        self._refuse()

    def open_renewer(self) -> Any:
        """Refused."""
        self._refuse()

    async def beat(self, info: WorkerInfo) -> None:
        """Refused."""
        self._refuse()

    async def leave(self, worker: str) -> None:
        """Refused."""
        self._refuse()

    async def publish(self, claim: Claim, deltas: Sequence[Delta]) -> bool:
        """Refused."""
        self._refuse()


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("pragma data_version").fetchone()[0]
    return version

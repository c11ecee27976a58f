"""Connections: how they are opened, and what an error of SQLite means to us, in one place each."""

import os
import sqlite3
from pathlib import Path

from journal.core.errors import (
    WorldBusy,
    WorldCorrupt,
    WorldError,
    WorldFull,
    WorldMissing,
    WorldReadOnly,
    WorldUnavailable,
)
from journal.worlds.sqlite.watch import FileWatch, open_watch

CACHED_STATEMENTS = 256

BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
"""Someone else has a lock; nothing happened."""
DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
"""Some page is not what was written. Other pages may be in good order."""
CONTENT = frozenset(
    {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE}
)
"""What was offered is at fault."""


def connect(path: Path, *, busy_seconds: float, synchronous: str = "full") -> sqlite3.Connection:
    """A connection that may change threads, in autocommit: transactions are begun by name.

    `busy_seconds` is how long a statement waits for a lock of another process.
    """
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw",
        uri=True,
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=CACHED_STATEMENTS,
    )
    try:
        connection.execute(f"pragma synchronous = {synchronous}")
        # SQLite's default, said aloud. While the log file still grows each commit also syncs its new size, which
        # costs half as much again; a short log is soon written over in place.
        connection.execute("pragma wal_autocheckpoint = 1000")
        connection.execute("pragma mmap_size = 0")
    except BaseException:
        connection.close()
        raise
    return connection


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 where the error came from Python's module itself."""
    code: int = getattr(error, "sqlite_errorcode", 0) or 0
    return code & 0xFF


def world_error(error: sqlite3.Error, world: str) -> WorldError:
    """The one mapping from SQLite's errors to ours."""
    code: int = getattr(error, "sqlite_errorcode", 0) or 0
    primary = code & 0xFF
    if primary in BUSY:
        return WorldBusy(
            "another process has had it locked for too long: see who has the file open (fuser), "
            "and whether that process hangs",
            world=world,
        )
    if code == sqlite3.SQLITE_READONLY_DBMOVED:
        return missing(world)
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return WorldReadOnly(
            "it cannot be written: make the file and its directory writable for this user", world=world
        )
    if primary == sqlite3.SQLITE_FULL:
        return WorldFull("the disk (or its quota) is full: free some space; nothing was stored", world=world)
    if code == sqlite3.SQLITE_IOERR_SHORT_READ:
        return WorldCorrupt(
            "the file or its write-ahead log is cut short, and what was in it is lost: restore it from a backup",
            world=world,
        )
    if primary in DAMAGE:
        return damaged(str(error), world)
    if primary == sqlite3.SQLITE_CANTOPEN:
        return WorldUnavailable(
            f"it cannot be opened ({error}): check the path and its permissions", world=world
        )
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    return WorldUnavailable(f"SQLite failed with {name}: {error}", world=world)


def damaged(reason: str, world: str) -> WorldCorrupt:
    """The error for a file with pages that are not what was written."""
    return WorldCorrupt(
        f"it is damaged ({reason}): restore the file from a backup, or recover it with sqlite3 .recover",
        world=world,
    )


def missing(world: str) -> WorldMissing:
    """The error for a file that is not ours any more."""
    return WorldMissing(
        "the file was deleted or replaced while it was open: nothing more is written to it; put it back and reopen",
        world=world,
    )


class StoreFile:
    """The database file as it was opened, by `stat`, or by a watch between two looks.

    A commit to a deleted file, or with a deleted or cut write-ahead log, is acknowledged into the void, so every
    commit looks first. Never opened from Python: closing a descriptor would drop SQLite's own locks on the file.
    """

    def __init__(self, path: Path, url: str, *, is_watched: bool = False) -> None:
        self.path = path
        self.url = url
        self._database = str(path)
        self._log = f"{path}-wal"
        self._memory = f"{path}-shm"
        found = os.stat(path)
        self._identity = (found.st_dev, found.st_ino)
        self._size = found.st_size
        self._log_inode = 0
        self._memory_inode = 0
        self._log_size = 0
        self._may_watch = is_watched
        self._watch: FileWatch | None = None

    def check_identity(self) -> os.stat_result:
        """Raise `WorldMissing` if the path leads to another file than was opened, or to none."""
        try:
            found = os.stat(self._database)
        except FileNotFoundError:
            raise missing(self.url) from None
        if (found.st_dev, found.st_ino) != self._identity:
            raise missing(self.url)
        return found

    def check(self, connection: sqlite3.Connection) -> None:
        """Raise `WorldMissing` or `WorldCorrupt` if the file is not what this connection has been writing to."""
        watch = self._watch
        if watch is not None:
            size = watch.quiet_log_size()
            if size >= self._log_size:
                self._log_size = size
                return
            watch.restart()
        try:
            self._look(connection)
            if self._may_watch and self._log_inode:
                self._may_watch = False
                self._watch = open_watch(self._database, self._log, self._memory)
                self._look(connection)  # what happened before the watch
        except BaseException:
            self.close()  # it says a thing once, and the next commit is to be refused too
            raise

    def _look(self, connection: sqlite3.Connection) -> None:
        try:
            found, log, memory = os.stat(self._database), os.stat(self._log), os.stat(self._memory)
        except FileNotFoundError:
            self._look_closer(connection)
            return
        if (
            log.st_ino == self._log_inode
            and memory.st_ino == self._memory_inode
            and (found.st_dev, found.st_ino) == self._identity
            and log.st_size >= self._log_size
            and found.st_size >= self._size
        ):
            self._size, self._log_size = found.st_size, log.st_size
        else:
            self._look_closer(connection)

    def _look_closer(self, connection: sqlite3.Connection) -> None:
        """Something is not as it was: say what, or take note of it where it is in order."""
        found = self.check_identity()
        if found.st_size < self._size:
            self._explain_shrunk(connection, found.st_size)
        self._size = found.st_size
        self._check_log(connection)

    def forget_log(self) -> None:
        """The connection is opened anew: with nobody else there, the log starts over as another file."""
        self._log_inode = self._log_size = self._memory_inode = 0
        self._may_watch = self._may_watch or self._watch is not None
        self.close()

    def close(self) -> None:
        """Let the watch go, where there is one."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def _check_log(self, connection: sqlite3.Connection) -> None:
        try:
            found = os.stat(self._log)
        except FileNotFoundError:
            if self._log_inode:
                raise missing(self.url) from None
            return  # nothing was written yet
        if self._log_inode == 0:
            self._log_inode = found.st_ino
        elif found.st_ino != self._log_inode:
            raise missing(self.url)
        if found.st_size < self._log_size:
            self._explain_shrunk_log(connection, found.st_size)
        self._log_size = found.st_size
        # Those who share the log find each other through this file; without it two write over one another.
        try:
            memory = os.stat(self._memory).st_ino
        except FileNotFoundError:
            raise missing(self.url) from None
        if self._memory_inode == 0:
            self._memory_inode = memory
        elif memory != self._memory_inode:
            raise missing(self.url)

    def _explain_shrunk(self, connection: sqlite3.Connection, size: int) -> None:
        """A vacuum by hand may shrink the file; then the database knows that it has fewer pages."""
        pages: int = connection.execute("pragma page_count").fetchone()[0]
        page_size: int = connection.execute("pragma page_size").fetchone()[0]
        if pages * page_size > size:
            raise WorldCorrupt(
                f"the file was cut to {size:,} bytes while it was open: restore it from a backup",
                world=self.url,
            )

    def _explain_shrunk_log(self, connection: sqlite3.Connection, size: int) -> None:
        """A checkpoint by hand may empty the log; then the database knows that nothing is left in it."""
        page_size: int = connection.execute("pragma page_size").fetchone()[0]
        frames: int = connection.execute("pragma wal_checkpoint(passive)").fetchone()[1]
        if frames * (page_size + 24) > size:
            raise WorldCorrupt(
                f"its write-ahead log was cut to {size:,} bytes while it was open, and what was in it is lost: "
                "restore the store from a backup",
                world=self.url,
            )

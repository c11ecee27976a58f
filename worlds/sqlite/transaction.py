"""One durable commit of several members, and what its failure means for each of them.

Before every transaction: the turnstile, a look at the file, `begin immediate`. Failures are classed by who is to
blame: the contents of one member (halve, until it stands alone), the environment (a `WorldError`: certainly nothing
landed), or nobody knows (`Unsure`: the commit itself failed, the connection is opened anew before the next offer).
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from typing import Any

import msgspec

from journal.core.errors import InvalidValue, JournalError, WorldError
from journal.core.ports import Batch, Committed
from journal.worlds.sqlite.connection import BUSY, CONTENT, DAMAGE, StoreFile, primary_code, world_error
from journal.worlds.sqlite.door import Changes, Door
from journal.worlds.sqlite.locks import Turnstile

POLL_SECONDS = 0.002
"""Between two tries for SQLite's own lock, where someone else has it without having come through the turnstile."""


def _nothing() -> None:
    """Nobody waits to hear that a commit is under way."""


class Member(msgspec.Struct, eq=False):
    """One of those who share a transaction."""

    apply: Callable[[Any], Any]
    argument: Any
    future: "asyncio.Future[Any]"
    rows: int
    size: int
    is_batch: bool
    is_lazy: bool
    """Whether it may be lost in a crash, as deltas may: a group of nothing else does not wait for the disk."""


class Unsure:
    """The store failed in a way that leaves open whether the member landed."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Landing:
    """What became of a group: an answer (or exception) a member, in order, and what was changed."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.changes: list[Changes] = []


class Transactor:
    """A writing connection behind its turnstile. Used by one thread at a time."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        file: StoreFile,
        turnstile: Turnstile,
        door: Door,
        *,
        busy_seconds: float,
    ) -> None:
        self.url = file.url
        self.door = door
        self.foreign_commits = 0
        """How often commits of other connections were noticed."""
        self._connect = connect
        self._file = file
        self._turnstile = turnstile
        self._busy_seconds = busy_seconds
        self._version: int | None = None
        self._is_lazy = False
        self._is_broken = False

    def try_append(self, batch: Batch) -> Committed | None:
        """Commit a holder's next batch if that takes one statement and no waiting.

        None: it takes more, or the store failed. Then it is to be offered again like any other: should it have landed
        all the same, the door recognizes it.
        """
        if self._is_broken or self._is_lazy:
            return None
        turnstile, is_writing = self._turnstile, False
        try:
            if not turnstile.try_enter():
                return None
            try:
                self._file.check(self.door.connection)
                is_writing = True
                return self.door.append_next(batch)
            finally:
                turnstile.leave()
        except sqlite3.Error as error:
            if is_writing and primary_code(error) in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL):
                self._roll_back(error, is_committing=True)
        except Exception:  # noqa: BLE001, S110 - whoever offers it again is told
            pass
        self.door.forget()
        return None

    def try_commit(self, member: Member) -> Landing | None:
        """Commit that one if it can be done without waiting for anybody, else None: nothing happened."""
        landing = Landing()
        try:
            if self._is_broken or not self._turnstile.try_enter():
                return None
            try:
                self._transact([member], landing, until=0.0)
            finally:
                self._turnstile.leave()
        except Exception as error:  # noqa: BLE001 - every failure becomes the answer of somebody
            if isinstance(error, sqlite3.Error) and primary_code(error) in BUSY:
                return None
            self._fail([member], landing, error)
        return landing

    def commit(
        self, members: list[Member], *, may_start: Callable[[], bool], under_way: Callable[[], None]
    ) -> tuple[Landing | None, float]:
        """Commit the group, however long the turnstile takes; and how long it took behind it.

        None: `may_start`, which is asked once the turnstile has let us in, said no. `under_way` is called, once or
        more often, when there is nothing left to do but to wait: for the turnstile, or for SQLite.
        """
        landing = Landing()
        started = 0.0
        try:
            if not self._turnstile.try_enter():
                under_way()
                self._turnstile.enter()
            try:
                if not may_start():
                    return None, 0.0
                started = time.perf_counter()
                self._settle(members, landing, time.monotonic() + self._busy_seconds, under_way)
            finally:
                self._turnstile.leave()
        except Exception as error:  # noqa: BLE001 - the thread must outlive it, and somebody must be told
            landing = Landing()
            self._fail(members, landing, error)
        return landing, time.perf_counter() - started

    def look_around(self) -> None:
        """Notice commits of other connections. Not inside a transaction, not while `commit` runs."""
        version: int = self.door.connection.execute("pragma data_version").fetchone()[0]
        if version != self._version:
            if self._version is not None:
                self.foreign_commits += 1
            self._version = version
            self.door.forget()

    def close(self) -> None:
        """Let the connection and the turnstile go."""
        try:
            self.door.connection.close()
        finally:
            self._file.close()
            self._turnstile.close()

    # One transaction

    def _settle(
        self, members: list[Member], landing: Landing, until: float, under_way: Callable[[], None] = _nothing
    ) -> None:
        try:
            self._transact(members, landing, until, under_way)
        except Exception as error:  # noqa: BLE001 - every failure becomes the answer of somebody
            if len(members) > 1 and _is_of_one(error):
                middle = len(members) // 2
                self._settle(members[:middle], landing, until)
                self._settle(members[middle:], landing, until)
            else:
                self._fail(members, landing, error)

    def _transact(
        self, members: list[Member], landing: Landing, until: float, under_way: Callable[[], None] = _nothing
    ) -> None:
        if self._is_broken:
            self._reconnect()
        door = self.door
        execute = door.connection.execute
        self._file.check(door.connection)
        if members[0].is_lazy != self._is_lazy or self._is_lazy:
            self._set_lazy(all(member.is_lazy for member in members))
        self.look_around()
        if self._commit_records(members, landing, under_way):
            return
        under_way()
        self._begin(until)
        is_committing = False
        try:
            self.look_around()  # under the lock: nobody can commit between this and our own commit
            door.begin()
            answers = [member.apply(member.argument) for member in members]
            door.flush()
            is_committing = True
            execute("commit")
        except BaseException as error:
            self._roll_back(error, is_committing)
            raise
        landing.answers += answers
        landing.changes.append(door.changes)

    def _commit_records(self, members: list[Member], landing: Landing, under_way: Callable[[], None]) -> bool:
        """Commit a group of nothing but records: by one statement, but for segments. False: it takes more.

        The interpreter is free while SQLite works: between the statements of a transaction this thread would have to
        wait for it each time, and the event loop, which prepares the next group meanwhile, does not hurry.
        What was seen of the runs still holds without `begin`: all who write come through the turnstile.
        """
        door = self.door
        if not all(member.is_batch for member in members):
            return False
        door.begin()
        try:
            answers = door.stage([member.argument for member in members])
            if answers is None:
                return False
            under_way()
            door.write_staged()
        except sqlite3.Error as error:
            is_of_disk = primary_code(error) in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL)
            self._roll_back(error, is_committing=is_of_disk)
            if is_of_disk:
                raise
            return False  # busy, or the contents of one: the transaction finds out
        except Exception as error:  # noqa: BLE001 - contents that never reach SQLite, a lone surrogate say: likewise
            self._roll_back(error, is_committing=False)
            return False
        landing.answers += answers
        landing.changes.append(door.changes)
        return True

    def _set_lazy(self, is_lazy: bool) -> None:
        if is_lazy != self._is_lazy:
            self.door.connection.execute(f"pragma synchronous = {'normal' if is_lazy else 'full'}")
            self._is_lazy = is_lazy

    def _begin(self, until: float) -> None:
        """`begin immediate`; others than us may have the lock: a shell, a backup."""
        while True:
            try:
                self.door.connection.execute("begin immediate")
            except sqlite3.OperationalError as error:
                if primary_code(error) not in BUSY or time.monotonic() >= until:
                    raise
                time.sleep(POLL_SECONDS)
            else:
                return

    def _roll_back(self, error: BaseException, is_committing: bool) -> None:
        self.door.forget()
        connection = self.door.connection
        try:
            if connection.in_transaction:  # a full disk has rolled back already
                connection.execute("rollback")
        except sqlite3.Error:
            self._is_broken = True
        if isinstance(error, sqlite3.Error) and primary_code(error) == sqlite3.SQLITE_IOERR:
            # After a failed sync the kernel may call clean what is not on the disk: begin again from the file.
            self._is_broken = True
        elif is_committing and not (
            isinstance(error, sqlite3.Error) and primary_code(error) == sqlite3.SQLITE_FULL
        ):
            self._is_broken = True

    def _fail(self, members: list[Member], landing: Landing, error: Exception) -> None:
        answer: object
        if isinstance(error, WorldError):
            answer = error
        elif isinstance(error, sqlite3.Error) and not _is_content(error):
            mapped = world_error(error, self.url)
            # A rolled back transaction has not landed; but of a disk that fails, nothing is certain.
            is_unsure = self._is_broken
            answer = Unsure(str(mapped)) if is_unsure else mapped
            mapped.__cause__ = error
        elif isinstance(error, JournalError):
            answer = error
        elif isinstance(error, OSError):
            answer = Unsure(
                f"{self.url}: {error}"
            )  # of the locks or of the file: it may have come after the commit
        else:
            answer = InvalidValue(
                what="batch", path="", reason=f"the store cannot take it ({type(error).__name__}: {error})"
            )
            answer.__cause__ = error
        landing.answers += [answer] * len(members)

    def _reconnect(self) -> None:
        self._file.check(self.door.connection)
        connection = self._connect()
        try:
            self.door.connection.close()
        except sqlite3.Error:
            pass  # it is the broken one
        self.door.use(connection)
        self._file.forget_log()
        self._version = None
        self._is_lazy = self._is_broken = False


def _is_content(error: sqlite3.Error) -> bool:
    """Whether what was offered is at fault, not the store. Without a code, Python's module refused a value."""
    code = primary_code(error)
    return code in CONTENT or code == 0


def _is_of_one(error: Exception) -> bool:
    """Whether one member may be at fault (its contents, or a damaged page of its run), so that halving helps."""
    if isinstance(error, sqlite3.Error):
        return _is_content(error) or primary_code(error) in DAMAGE
    return not isinstance(error, WorldError | OSError)

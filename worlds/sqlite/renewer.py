"""Renewing claims, from the thread of whoever calls, on a connection of its own.

A renewal need not survive a power cut (the next boot ends every lease), so it does not wait for the disk.
"""

import sqlite3
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

from journal.core.clock import Clock
from journal.core.errors import WorldBusy
from journal.core.ports import Claim
from journal.worlds.sqlite.connection import BUSY, StoreFile, connect, primary_code, world_error
from journal.worlds.sqlite.locks import Turnstile
from journal.worlds.sqlite.statements import SQL


class SqliteRenewer:
    """A `Renewer`: one thread at a time."""

    def __init__(self, path: Path, *, url: str, namespace: str, clock: Clock, busy_seconds: float) -> None:
        self._path = path
        self._url = url
        self._namespace = namespace
        self._clock = clock
        self._busy_seconds = busy_seconds
        self._file = StoreFile(path, url)
        self._turnstile = Turnstile(path)
        self._connection = connect(path, busy_seconds=0.0, synchronous="normal")
        # For one that nobody closed: a connection that is merely dropped is a warning.
        self._finalizer = weakref.finalize(self, self._connection.close)

    def renew(self, claims: Sequence[Claim], lease_seconds: float) -> set[Claim]:
        """See `Renewer.renew`."""
        if not claims:
            return set()
        until = time.monotonic() + self._busy_seconds
        if not self._turnstile.enter_within(self._busy_seconds):
            self._turnstile = Turnstile(self._path)
            raise WorldBusy(
                f"claims could not be renewed: another process has kept it locked for {self._busy_seconds:g} s",
                world=self._url,
            )
        try:
            return self._renew(claims, lease_seconds, until)
        except sqlite3.Error as error:
            raise world_error(error, self._url) from error
        finally:
            self._turnstile.leave()

    def _renew(self, claims: Sequence[Claim], lease_seconds: float, until: float) -> set[Claim]:
        execute = self._connection.execute
        self._file.check(self._connection)
        while True:
            try:
                execute("begin immediate")
                break
            except sqlite3.OperationalError as error:
                if primary_code(error) not in BUSY or time.monotonic() >= until:
                    raise
                time.sleep(0.005)
        try:
            lease = (self._clock.boottime() + lease_seconds, self._clock.boot_id(), self._namespace)
            renewed = {
                claim
                for claim in claims
                if execute(SQL["renew"], (*lease, claim.run, claim.epoch, claim.token)).rowcount
            }
            execute("commit")
        except BaseException:
            if self._connection.in_transaction:
                execute("rollback")
            raise
        return renewed

    def close(self) -> None:
        """See `Renewer.close`."""
        self._finalizer()
        self._turnstile.close()

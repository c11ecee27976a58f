"""The measure of all things here: how many one-row commits a second `sqlite3` makes on this disk.

The table is as plain as can be: no keys, no triggers, no checksums, 500 bytes a row, WAL and synchronous=FULL.
"""

import os
import sqlite3
from pathlib import Path
from time import perf_counter
from typing import Self

ROW_BYTES = 500


class RawStore:
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

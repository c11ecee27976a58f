"""Sweeping: closed runs leave whole, in transactions small enough that appends pass between them.

First the tombstone, which alone lets the database delete records; from then on the run is gone to everybody, and a
sweep that dies halfway is finished by the next one.
"""

import json
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from math import inf
from typing import Any

from journal.core.ports import SweepPolicy
from journal.worlds.sqlite.door import Door
from journal.worlds.sqlite.statements import SQL

ROWS = 500
"""Deleted in one transaction."""
_DROPS = ("drop_records", "drop_segments", "drop_blobs", "drop_deltas", "drop_turns", "drop_moved_keys")

Submit = Callable[[Callable[[Any], Any], object], Awaitable[Any]]
"""Runs a function in a transaction of the writer."""


class Sweep:
    """The members of transactions that a sweep is made of."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def run(self, policy: SweepPolicy, submit: Submit) -> int:
        """Remove what the policy allows; how many runs went."""
        while await submit(self._forget_some, None):
            pass
        count = 0
        for rid in await submit(self._choose, policy):
            count += await submit(self._bury, (rid, policy))
        while rids := await submit(self._unemptied, None):
            for rid in rids:
                while not await submit(self._empty_some, rid):
                    pass
        rid = 0
        while (rid := await submit(self._drop_old_deltas, (rid, policy))) is not None:
            pass
        return count

    def _choose(self, policy: SweepPolicy) -> list[int]:
        execute, namespace = self._door.connection.execute, self._door.namespace
        if policy.moved is None:
            before = self._door.now - policy.closed_older_than_seconds
            found = execute(SQL["sweepable"], (namespace, before, policy.limit))
        else:
            found = execute(SQL["sweepable_moved"], (namespace, json.dumps(policy.moved), policy.limit))
        return [rid for (rid,) in found.fetchall()]

    def _bury(self, asked: tuple[int, SweepPolicy]) -> bool:
        """The tombstone keeps the id, what the log hashed to, and the keys."""
        rid, policy = asked
        execute = self._door.connection.execute
        log, seq = blake2b(digest_size=16), 0
        while rows := execute(SQL["checksums"], (rid, seq, 1000)).fetchall():
            for (checksum,) in rows:
                log.update(checksum.to_bytes(8, "big"))
            seq += len(rows)
        row = execute(SQL["name_of"], (rid,)).fetchone()
        if row is None:
            return False
        run, moved_to = row
        until = self._door.now + policy.tombstone_seconds if moved_to is None else inf
        buried = execute(SQL["bury"], (until, log.digest(), rid)).rowcount
        self._door.forget_run(run)
        return bool(buried)

    def _unemptied(self, _: None) -> list[int]:
        rows = self._door.connection.execute(SQL["unemptied"], (self._door.namespace, 100)).fetchall()
        return [rid for (rid,) in rows]

    def _empty_some(self, rid: int) -> bool:
        """Delete some of what is left of the run; True once nothing is."""
        for name in _DROPS:
            if self._door.connection.execute(SQL[name], {"rid": rid, "limit": ROWS}).rowcount:
                return False
        self._door.connection.execute(SQL["mark_emptied"], (rid,))
        self._door.forget()
        return True

    def _forget_some(self, _: None) -> bool:
        """Give back the ids of tombstones whose time is over; True if there may be more."""
        execute = self._door.connection.execute
        asked = (self._door.namespace, self._door.now, 100)
        rids = [rid for (rid,) in execute(SQL["expired_tombstones"], asked).fetchall()]
        for rid in rids:
            # What the door knows of it would bring the tombstone back, were the clock stepped back.
            self._door.forget_run(execute(SQL["name_of"], (rid,)).fetchone()[0])
            execute(SQL["forget_keys"], (rid,))
            execute(SQL["forget_run"], (rid,))
        return bool(rids)

    def _drop_old_deltas(self, asked: tuple[int, SweepPolicy]) -> int | None:
        """Of the next run that has deltas, drop those of turns that ended long ago; the run's rid, None: no more."""
        after, policy = asked
        execute = self._door.connection.execute
        row = execute(SQL["next_with_deltas"], (after,)).fetchone()
        if row is None:
            return None
        rid: int = row[0]
        if row[1] == self._door.namespace:
            before = self._door.now - policy.deltas_older_than_seconds
            execute(SQL["drop_old_deltas"], {"rid": rid, "before": before})
        return rid

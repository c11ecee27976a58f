"""Sweeping: closed runs leave whole, in transactions small enough that appends pass between them.

The steps are functions of the server (`functions/sweep.sql`); a sweep that dies halfway is finished by the next one.
"""

from typing import Any

from journal.core.clock import Clock
from journal.core.ports import SweepPolicy
from journal.worlds.postgres.pool import Pool

ROWS = 500
"""Deleted in one transaction."""
RUNS = 100


class Sweep:
    """Sweeps of one namespace."""

    def __init__(self, pool: Pool, namespace: str, clock: Clock | None) -> None:
        self._pool = pool
        self._namespace = namespace
        self._clock = clock

    async def run(self, policy: SweepPolicy) -> list[int]:
        """Remove what the policy allows; the rids of the runs that went."""
        while await self._first("forget", limit=RUNS):
            pass
        gone = []
        if policy.moved is None:
            seconds = policy.closed_older_than_seconds
            rows = await self._fetch("sweepable", seconds=seconds, limit=policy.limit)
        else:
            rows = await self._fetch("sweepable_moved", runs=list(policy.moved), limit=policy.limit)
        for (rid,) in rows:
            if await self._first("bury", rid=rid, seconds=policy.tombstone_seconds):
                gone.append(rid)
        while rows := await self._fetch("unemptied", limit=RUNS):
            for (rid,) in rows:
                while not await self._first("empty", rid=rid, limit=ROWS):
                    pass
        rid = 0
        while rows := await self._fetch("next_with_deltas", rid=rid):
            rid, namespace = rows[0]
            if namespace == self._namespace:
                await self._fetch("drop_old_deltas", rid=rid, seconds=policy.deltas_older_than_seconds)
        return gone

    async def _first(self, name: str, **asked: Any) -> Any:
        rows = await self._fetch(name, **asked)
        return rows[0][0]

    async def _fetch(self, name: str, **asked: Any) -> list[tuple[Any, ...]]:
        at = None if self._clock is None else self._clock.time()
        # Every step may be taken twice: what is gone already is not found again.
        return await self._pool.fetch(name, {"namespace": self._namespace, "at": at, **asked})

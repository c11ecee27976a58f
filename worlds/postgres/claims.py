"""Claiming: one statement that takes what is due without waiting for anybody (`functions/claim.sql`)."""

from collections.abc import Collection

from journal.core.clock import Clock
from journal.core.ids import new_token
from journal.core.ports import Claim, Claimed, Claims
from journal.worlds.postgres.places import Places
from journal.worlds.postgres.pool import Pool

MAX_LIMIT = 1000
"""Entries taken by one statement, however many are asked for."""
TAKEN_SECONDS = 0.02
"""When to look again for an entry that is due, and that somebody else had locked at this moment."""


class Claiming:
    """Claims of one namespace."""

    def __init__(self, pool: Pool, places: Places, clock: Clock | None) -> None:
        self._pool = pool
        self._places = places
        self._clock = clock

    async def claim(
        self, *, limit: int, lease_seconds: float, agents: Collection[str] | None, reads: int, run: str | None
    ) -> Claims:
        """See `Queue.claim`."""
        wanted = max(0, min(limit, MAX_LIMIT))
        asked = {
            "at": None if self._clock is None else self._clock.time(),
            "namespace": self._places.namespace,
            "tokens": [new_token() for _ in range(wanted)],
            "lease_seconds": lease_seconds,
            "agents": None if agents is None else sorted(set(agents)),
            "reads": reads,
            "run": run,
        }
        *taken, rest = await self._pool.fetch("claim", asked, is_read=False)
        claimed = []
        for row in taken:
            name, rid, epoch, token, agent, turn, submitted, head, takeovers, taken_over, min_reader, _ = row
            self._places.learn(name, rid)
            claimed.append(
                Claimed(
                    claim=Claim(name, epoch, token),
                    agent=agent,
                    turn=None if turn is None else turn.decode(),
                    submitted=submitted,
                    head=head,
                    takeovers=takeovers,
                    taken_over=taken_over,
                    min_reader=min_reader,
                )
            )
        seconds: float | None = rest[-1]
        if seconds is not None and seconds <= 0 and len(claimed) < wanted:
            seconds = TAKEN_SECONDS
        return Claims(tuple(claimed), seconds if seconds is None else max(seconds, 0.0))

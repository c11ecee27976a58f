"""Claiming: first every partition is asked what it has to offer, then the best are taken, each checked again.

Across partitions the order is that of one look: what falls due between the look and the taking waits for the next.
"""

import asyncio
import time
from collections.abc import Collection
from typing import Any

import msgspec

from journal.core.errors import WorldCorrupt
from journal.core.ids import new_token
from journal.core.ports import Claim, Claimed, Claims
from journal.worlds.redis.connection import Part
from journal.worlds.redis.keys import Keys, RunKeys, escaped, run_of_rank
from journal.worlds.redis.library import function
from journal.worlds.redis.wire import Wire

_LOOK, _TAKE = function("look"), function("take")
_RANK = 36
"""Digits of a rank that order it: priority, due time, position."""
LOOK_SECONDS = 2.0
"""How long nodes of a cluster that are away are waited for by a claim."""
AWAY_SECONDS = 1.0
"""After how long they are asked again."""
DAMAGED_SECONDS = 60.0
"""For how long a damaged run is passed over."""
ROUNDS = 8
"""How often is looked again when others were quicker."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker asks for."""

    limit: int
    lease_seconds: float
    agents: tuple[str, ...] | None
    reads: int


class Claiming:
    """Claims of one namespace."""

    def __init__(self, wire: Wire, keys: Keys) -> None:
        self._wire = wire
        self._keys = keys
        self._damaged: dict[str, float] = {}
        """Runs whose state cannot be read, and until when they are passed over."""

    async def claim(self, wish: Wish, at: str) -> tuple[Claims, bool]:
        """What could be taken, and whether more was left."""
        claimed: list[Claimed] = []
        next_seconds: float | None = None
        has_more = False
        for _ in range(ROUNDS):
            next_seconds, ranks = await self._look(wish, at)
            wanted = wish.limit - len(claimed)
            was_beaten = False
            while ranks and wanted > 0:
                asked, ranks = ranks[:wanted], ranks[wanted:]
                for found, left in await self._take_all([run_of_rank(rank) for rank in asked], wish, at):
                    if found is not None:
                        claimed.append(found)
                    else:
                        was_beaten = True
                        if left is not None:
                            next_seconds = _sooner(next_seconds, left)
                wanted = wish.limit - len(claimed)
            has_more = bool(ranks)
            if not was_beaten or wanted == 0:
                break
        if has_more:
            next_seconds = 0.0
        elif claimed:
            next_seconds = _sooner(next_seconds, wish.lease_seconds)
        return Claims(tuple(claimed), next_seconds), has_more

    async def claim_run(self, run: str, wish: Wish, at: str) -> Claims:
        """The one run, if it may be claimed."""
        found, left = (await self._take_all([run], wish, at))[0]
        if found is not None:
            return Claims((found,), wish.lease_seconds)
        return Claims((), left)

    async def _look(self, wish: Wish, at: str) -> tuple[float | None, list[bytes]]:
        indexes = self._keys.indexes
        agents: list[Part] = ["*"] if wish.agents is None else ["=", *map(escaped, wish.agents)]
        asked = []
        for names in [[index] for index in indexes] if self._wire.is_split else [indexes]:
            limit = wish.limit + 1 + len(self._damaged)
            parts = (b"FCALL", _LOOK, len(names), *names, at, limit, wish.reads, *agents)
            asked.append(self._wire.call(parts, within=LOOK_SECONDS if self._wire.is_split else None))
        answers = await asyncio.gather(*asked, return_exceptions=True)
        soonest: float | None = None
        found: list[bytes] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                # Work of the nodes that answer is not held up by one that does not.
                if not any(isinstance(other, list) for other in answers):
                    raise answer
                soonest = _sooner(soonest, AWAY_SECONDS)
                continue
            first, *ranks = answer
            found += ranks
            if first:
                soonest = _sooner(soonest, float(first))
        now = time.monotonic()
        self._damaged = {run: until for run, until in self._damaged.items() if until > now}
        return soonest, sorted(rank for rank in found if run_of_rank(rank) not in self._damaged)

    async def _take_all(
        self, runs: list[str], wish: Wish, at: str
    ) -> list[tuple[Claimed | None, float | None]]:
        """What each take brought. What was claimed is handed out even where others failed: it is held."""
        offers = [self._take(run, self._keys.of_run(run), wish, at) for run in runs]
        answers = await asyncio.gather(*offers, return_exceptions=True)
        found = [answer for answer in answers if not isinstance(answer, BaseException)]
        for run, answer in zip(runs, answers, strict=True):
            if isinstance(answer, WorldCorrupt):
                # Whoever reads it is told; here it must not stand in the way of the others.
                self._damaged[run] = time.monotonic() + DAMAGED_SECONDS
                found.append((None, None))
            elif isinstance(answer, BaseException) and not any(claimed for claimed, _ in found):
                raise answer
        return found

    def _take(self, run: str, keys: RunKeys, wish: Wish, at: str) -> Any:
        token = new_token()
        agents: tuple[Part, ...] = ("*",) if wish.agents is None else ("=", *wish.agents)
        lease = repr(float(wish.lease_seconds))
        parts = (
            b"FCALL",
            _TAKE,
            2,
            keys.hash,
            keys.index,
            at,
            keys.name,
            token,
            lease,
            wish.reads,
            *agents,
        )
        return self._wire.call(parts, decode=lambda reply: _taken(run, token, reply))


def _taken(run: str, token: bytes, reply: Any) -> tuple[Claimed | None, float | None]:
    """The claim; or in how many seconds it may be had."""
    if len(reply) < 2:
        return None, float(reply[0]) if reply else None
    epoch, agent, has_turn, turn, submitted, head, takeovers, is_over, reader = reply
    claimed = Claimed(
        claim=Claim(run, epoch, token),
        agent=agent.decode(),
        turn=turn.decode() if has_turn else None,
        submitted=submitted,
        head=head,
        takeovers=takeovers,
        taken_over=bool(is_over),
        min_reader=reader,
    )
    return claimed, None


def _sooner(seconds: float | None, other: float) -> float:
    return other if seconds is None else min(seconds, other)


def wish(*, limit: int, lease_seconds: float, agents: Collection[str] | None, reads: int) -> Wish:
    """As `Queue.claim` is asked."""
    kept = None if agents is None else tuple(sorted(set(agents)))
    return Wish(limit=limit, lease_seconds=lease_seconds, agents=kept, reads=reads)

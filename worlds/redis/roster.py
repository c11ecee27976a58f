"""Who is at work, and where runs stand: what operators ask for."""

from collections import Counter

import msgspec
from msgspec.structs import replace

from journal.core.ports import ROSTER_SECONDS, AgentStats, WorkerInfo
from journal.worlds.redis.calls import ignored
from journal.worlds.redis.keys import Keys, unescaped
from journal.worlds.redis.library import function
from journal.worlds.redis.wire import Wire

_BEAT, _WORKERS, _STATS = function("beat"), function("workers"), function("stats")
_PLACES = ("due", "later", "held", "parked", "blocked", "idle")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(WorkerInfo).decode


class Roster:
    """Workers and counts of one namespace."""

    def __init__(self, wire: Wire, keys: Keys) -> None:
        self._wire = wire
        self._keys = keys

    async def beat(self, info: WorkerInfo, at: str) -> None:
        """Note the worker."""
        parts = (b"FCALL", _BEAT, 1, self._keys.roster, at, ROSTER_SECONDS, info.worker, _encode(info))
        await self._wire.call(parts)

    async def leave(self, worker: str) -> None:
        """Forget that one."""
        await self._wire.call(("HDEL", self._keys.roster, worker))

    async def workers(self, at: str) -> list[WorkerInfo]:
        """Those that were heard of lately, by id."""
        words = await self._wire.call((b"FCALL", _WORKERS, 1, self._keys.roster, at, ROSTER_SECONDS))
        found = []
        for word in words:
            seen, _, info = word.partition(b" ")
            found.append(replace(_decode(info), seen=float(seen)))
        return sorted(found, key=lambda info: info.worker)

    async def stats(self, at: str) -> list[AgentStats]:
        """Counts by agent. Partitions are counted one after the other: a run that moves meanwhile is counted where it
        was found."""
        counts: dict[str, Counter[str]] = {}
        oldest: dict[str, float] = {}
        asked = [ignored(self._wire.call((b"FCALL", _STATS, 1, index, at))) for index in self._keys.indexes]
        for reply in asked:
            for name, *numbers, since in await reply:
                agent = unescaped(name)
                counts.setdefault(agent, Counter()).update(dict(zip(_PLACES, numbers, strict=True)))
                if since:
                    seconds = int(since, 16) / 1_000_000
                    oldest[agent] = min(oldest.get(agent, seconds), seconds)
        return [
            AgentStats(agent=agent, oldest_due=oldest.get(agent), **counts[agent]) for agent in sorted(counts)
        ]

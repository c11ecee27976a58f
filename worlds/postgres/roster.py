"""Who is at work, and where runs stand: what operators ask for."""

from typing import Any

import msgspec
from msgspec.structs import replace

from journal.core.clock import Clock
from journal.core.ports import ROSTER_SECONDS, AgentStats, WorkerInfo
from journal.worlds.postgres.pool import Pool, Row

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(WorkerInfo).decode


class Roster:
    """The workers of one namespace, and the counts of its runs."""

    def __init__(self, pool: Pool, namespace: str, clock: Clock | None) -> None:
        self._pool = pool
        self._namespace = namespace
        self._clock = clock

    async def beat(self, info: WorkerInfo) -> None:
        """See `Queue.beat`. Those that were silent for too long are forgotten on the way."""
        worker = info.worker.encode()
        await self._fetch("note_worker", worker=worker, info=_encode(info), seconds=ROSTER_SECONDS)

    async def leave(self, worker: str) -> None:
        """See `Queue.leave`."""
        await self._fetch("forget_worker", worker=worker.encode())

    async def workers(self) -> list[WorkerInfo]:
        """See `Queue.workers`."""
        rows = await self._fetch("list_workers", seconds=ROSTER_SECONDS)
        return [replace(_decode(info), seen=seen) for info, seen in rows]

    async def stats(self) -> list[AgentStats]:
        """See `Queue.stats`."""
        found: dict[str, dict[str, Any]] = {}
        for agent, place, count, oldest in await self._fetch("count_runs"):
            counts = found.setdefault(agent, {"agent": agent})
            counts[place] = count
            if place == "due":
                counts["oldest_due"] = oldest
        return [AgentStats(**found[agent]) for agent in sorted(found)]

    async def _fetch(self, name: str, **asked: Any) -> list[Row]:
        at = None if self._clock is None else self._clock.time()
        # Whatever is said here may be said twice.
        return await self._pool.fetch(name, {"namespace": self._namespace, "at": at, **asked})

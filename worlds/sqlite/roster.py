"""Who is at work, and where runs stand: what operators ask for."""

import sqlite3
from typing import Any

import msgspec
from msgspec.structs import replace

from journal.core.ports import ROSTER_SECONDS, AgentStats, WorkerInfo
from journal.worlds.sqlite.door import Door
from journal.worlds.sqlite.statements import SQL

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(WorkerInfo).decode


class Roster:
    """The members of transactions that a worker's word is; and the reads."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def beat(self, info: WorkerInfo) -> None:
        """Note the worker, and forget those that were silent for too long."""
        execute, now = self._door.connection.execute, self._door.now
        execute(SQL["forget_workers"], (self._door.namespace, now - ROSTER_SECONDS))
        execute(SQL["note_worker"], (self._door.namespace, info.worker, _encode(info), now))

    def leave(self, worker: str) -> None:
        """Forget that one."""
        self._door.connection.execute(SQL["forget_worker"], (self._door.namespace, worker))


def workers(connection: sqlite3.Connection, namespace: str, now: float) -> list[WorkerInfo]:
    """Those that were heard of lately, by id."""
    rows = connection.execute(SQL["list_workers"], (namespace, now - ROSTER_SECONDS)).fetchall()
    return [replace(_decode(info), seen=seen) for info, seen in rows]


def stats(connection: sqlite3.Connection, namespace: str, now: float) -> list[AgentStats]:
    """Counts by agent."""
    found: dict[str, dict[str, Any]] = {}
    for agent, place, count, oldest in connection.execute(
        SQL["count_runs"], {"namespace": namespace, "now": now}
    ):
        counts = found.setdefault(agent, {"agent": agent})
        counts[place] = count
        if place == "due":
            counts["oldest_due"] = oldest
    return [AgentStats(**found[agent]) for agent in sorted(found)]

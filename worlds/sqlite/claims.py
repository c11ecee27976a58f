"""Who may be claimed: the search, and the taking.

The search runs twice: on a reading connection, to leave the writers alone while there is nothing to do, and inside
the transaction that takes. It steps from agent to agent and from priority to priority by index, so that a million
runs cost as much as ten.
"""

import json
import sqlite3
from collections.abc import Collection

import msgspec

from journal.core.clock import Clock
from journal.core.ids import new_token
from journal.core.ports import Claim, Claimed, Claims, agents_match
from journal.worlds.queue import take
from journal.worlds.sqlite.door import Door
from journal.worlds.sqlite.locks import Holder
from journal.worlds.sqlite.statements import SQL

_HIGHEST = 2**63 - 1


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker asks for."""

    limit: int
    lease_seconds: float
    agents: frozenset[str] | None
    reads: int
    run: str | None


def wish(
    *, limit: int, lease_seconds: float, agents: Collection[str] | None, reads: int, run: str | None
) -> Wish:
    """As `Queue.claim` is asked."""
    kept = None if agents is None else frozenset(agents)
    return Wish(limit=limit, lease_seconds=lease_seconds, agents=kept, reads=reads, run=run)


class Found(msgspec.Struct, frozen=True):
    """Who may be claimed now, in the order of the port, and in how many seconds the next one may be."""

    rids: tuple[int, ...]
    next_seconds: float | None


class Search:
    """Finds what may be claimed, through any connection."""

    def __init__(self, namespace: str, clock: Clock, holder: Holder) -> None:
        self._namespace = namespace
        self._clock = clock
        self._holder = holder

    def find(self, connection: sqlite3.Connection, wish: Wish) -> Found:
        """One entry more than the limit, so that the caller knows whether something is left."""
        if wish.run is not None:
            return self._find_one(connection, wish, wish.run)
        entries, soonest = self._due(connection, wish)
        leases, next_lease = self._over(connection, wish)
        entries += leases
        entries.sort(key=lambda entry: (-entry[0], entry[1], entry[2]))
        rids = tuple(dict.fromkeys(rid for _, _, rid in entries))[: wish.limit + 1]
        times = [seconds for seconds in (soonest, next_lease) if seconds is not None]
        if len(rids) > wish.limit:
            return Found(rids, 0.0)
        return Found(rids, min(times, default=None))

    def _due(
        self, connection: sqlite3.Connection, wish: Wish
    ) -> tuple[list[tuple[int, float, int]], float | None]:
        """Unclaimed and due: (priority, due at, rid), and in how many seconds the next one is."""
        now = self._clock.time()
        found: list[tuple[int, float, int]] = []
        soonest: float | None = None
        for agent in self._agents(connection, wish):
            priority = _HIGHEST
            while True:
                place = (self._namespace, agent, priority)
                row = connection.execute(SQL["next_priority"], place).fetchone()
                if row is None:
                    break
                priority = row[0]
                place = (self._namespace, agent, priority)
                due = connection.execute(SQL["due_entries"], (*place, now, wish.reads, wish.limit + 1))
                found += [(at, when, rid) for rid, at, when in due.fetchall()]
                row = connection.execute(SQL["next_due"], (*place, now, wish.reads)).fetchone()
                if row is not None and (soonest is None or row[0] - now < soonest):
                    soonest = row[0] - now
        return found, soonest

    def _agents(self, connection: sqlite3.Connection, wish: Wish) -> list[str]:
        if wish.agents is not None:
            return sorted(wish.agents)
        found: list[str] = []
        agent = ""
        while True:
            row = connection.execute(SQL["next_agent"], (self._namespace, agent)).fetchone()
            if row is None:
                return found
            agent = row[0]
            found.append(agent)

    def _over(
        self, connection: sqlite3.Connection, wish: Wish
    ) -> tuple[list[tuple[int, float, int]], float | None]:
        """Claimed by a holder whose lease is over or who is dead, and in how many seconds the next lease is over."""
        boottime = self._clock.boottime()
        asked: dict[str, object] = {
            "namespace": self._namespace,
            "boot": self._clock.boot_id(),
            "boottime": boottime,
            "reads": wish.reads,
            "agents": None if wish.agents is None else json.dumps(sorted(wish.agents)),
        }
        rows = connection.execute(SQL["expired_leases"], asked).fetchall()
        for byte in self.dead_holders(connection):
            rows += connection.execute(SQL["held_by"], {**asked, "holder": byte}).fetchall()
        row = connection.execute(SQL["next_lease"], asked).fetchone()
        return [(at, when, rid) for rid, at, when in rows], row and row[0] - boottime

    def dead_holders(self, connection: sqlite3.Connection) -> list[int]:
        dead: list[int] = []
        byte = -1
        while True:
            row = connection.execute(SQL["next_holder"], (byte,)).fetchone()
            if row is None:
                return dead
            byte = row[0]
            if self._holder.is_dead(byte, row[1]):
                dead.append(byte)

    def lease_left(self, lease_until: float, boot: str, holder: int | None, holder_file: int | None) -> float:
        """In how many seconds that lease is over; 0 or less: it is. No holder: that of another store, who is gone."""
        is_over = (
            boot != self._clock.boot_id()
            or holder is None
            or holder_file is None
            or self._holder.is_dead(holder, holder_file)
        )
        return 0.0 if is_over else lease_until - self._clock.boottime()

    def _find_one(self, connection: sqlite3.Connection, wish: Wish, run: str) -> Found:
        row = connection.execute(SQL["get_lease"], (self._namespace, run)).fetchone()
        if row is None:
            return Found((), None)
        rid, agent, due_at, is_held, lease_until, boot, holder, holder_file, min_reader = row
        if not agents_match(agent, wish.agents) or min_reader > wish.reads:
            return Found((), None)
        if is_held:
            left = self.lease_left(lease_until, boot, holder, holder_file)
        elif due_at is None:
            return Found((), None)
        else:
            left = due_at - self._clock.time()
        return Found((rid,), None) if left <= 0 else Found((), left)


class Taking:
    """Takes what the search finds: the member of a transaction that a claim is."""

    def __init__(self, door: Door, search: Search, holder: Holder) -> None:
        self._door = door
        self._search = search
        self._holder = holder

    def claim(self, wish: Wish) -> Claims:
        """Search again, now that nobody else writes, and take."""
        self._door.flush()
        found = self._search.find(self._door.connection, wish)
        claimed = tuple(self._take(rid, wish) for rid in found.rids[: wish.limit])
        left = found.next_seconds
        if claimed and (left is None or left > wish.lease_seconds):
            left = wish.lease_seconds
        if len(found.rids) > wish.limit:
            self._door.changes.has_work = bool(claimed)  # for whoever came too late for the first bell
        return Claims(claimed, left)

    def _take(self, rid: int, wish: Wish) -> Claimed:
        door, execute = self._door, self._door.connection.execute
        before = door.entries.read(rid)
        is_takeover = before.token is not None
        token = new_token()
        after = take(before, token=token, is_takeover=is_takeover, unfinished=door.entries.unfinished(rid))
        clock = door.clock
        values = (
            after.epoch,
            token,
            after.woken,
            after.takeovers,
            after.draining,
            after.status,
            clock.boottime() + wish.lease_seconds,
            clock.boot_id(),
            self._holder.byte,
            self._holder.file,
            rid,
        )
        execute(SQL["take_entry"], values)
        run, head = execute(SQL["claimed_run"], (rid,)).fetchone()
        door.forget_run(run)
        oldest = execute(SQL["oldest_unfinished"], (rid,)).fetchone()
        turn, submitted = oldest or (None, 0)
        return Claimed(
            claim=Claim(run, after.epoch, token),
            agent=after.agent,
            turn=turn,
            submitted=submitted,
            head=head,
            takeovers=after.takeovers,
            taken_over=is_takeover,
            min_reader=after.min_reader,
        )

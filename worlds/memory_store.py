"""What the memory world keeps: runs, tombstones, and the bells that wake those who wait.

A `Store` may be used from several threads and event loops at once (renewers run on threads, and two journals
of one process may share it), so everything happens under one lock, and no lock is held across an await.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from heapq import merge
from math import inf
from typing import Any

import msgspec
from msgspec.structs import replace

from journal.core.ports import (
    AgentStats,
    Answer,
    Batch,
    Claim,
    Claimed,
    Close,
    Committed,
    Delta,
    Finish,
    Held,
    Item,
    Keyed,
    Move,
    QueueChange,
    Retry,
    RunImage,
    RunInfo,
    Submit,
    SweepPolicy,
    TurnInfo,
    WorkerInfo,
)
from journal.core.records import NewRecord, Record, TurnFinished, TurnSubmitted
from journal.worlds.door import Sight, decide
from journal.worlds.memory_bells import WORK, Bells, Key
from journal.worlds.queue import Entry, change, standing, take


class Run:
    """One run: its log, its queue entry, its turns, deltas and blobs."""

    def __init__(self, key: Key, agent: str, *, min_reader: int, position: int, created: float) -> None:
        self.namespace, self.run = key
        self.agent = agent
        self.min_reader = min_reader
        self.position = position
        self.created = created
        self.records: list[Record] = []
        self.deltas: list[Delta] = []
        self.blobs: dict[str, bytes] = {}
        self.turns: dict[str, TurnInfo] = {}
        self.unfinished: dict[str, TurnInfo] = {}
        """Those of `turns` that have not ended, oldest first."""
        self.batches: dict[bytes, Committed] = {}
        self.keys: dict[str, tuple[bytes, Committed]] = {}
        self.entry = Entry(agent=agent, min_reader=min_reader)
        """Once the run is closed: the last one it had, without its claim. It is in no queue then."""
        self.lease_until = 0.0
        self.is_closed = False
        self.closed_at = 0.0
        self.moved_to: str | None = None
        self.building: RunImage | None = None
        """What it will be once it is settled."""

    @property
    def head(self) -> int:
        return len(self.records)

    def oldest(self) -> TurnInfo | None:
        """The turn to work on."""
        return next(iter(self.unfinished.values()), None)

    def holds(self, claim: Claim) -> bool:
        return self.entry.token == claim.token and self.entry.epoch == claim.epoch

    def info(self) -> RunInfo:
        oldest = self.oldest()
        return RunInfo(
            run=self.run,
            agent=self.agent,
            namespace=self.namespace,
            status=self.entry.status,
            closed=self.is_closed,
            head=self.head,
            created=self.created,
            turn=oldest.turn if oldest else None,
            turns=len(self.turns),
            epoch=self.entry.epoch,
            takeovers=self.entry.takeovers,
            due_at=None if self.is_closed else self.entry.due_at,
            position=self.position,
            moved_to=self.moved_to,
            building=self.building is not None,
        )

    def sight(self, batch: Batch) -> Sight:
        """What the door has to know."""
        author = batch.author
        key = self.keys.get(author.key) if isinstance(author, Keyed) else None
        prev = author.prev_batch if isinstance(author, Held) else None
        return Sight(
            exists=True,
            moved_to=self.moved_to,
            is_building=self.building is not None,
            closed=self.is_closed,
            head=self.head,
            epoch=self.entry.epoch,
            token=self.entry.token,
            batch=self.batches.get(batch.id),
            key=key[1] if key else None,
            key_digest=key[0] if key else None,
            has_prev=prev is None or prev in self.batches,
        )

    def write(self, batch: Batch, new: Sequence[NewRecord], now: float) -> Committed:
        """All of the batch. What can fail comes before the first thing that is kept."""
        first = self.head + 1
        last = self.head + len(new)
        author = batch.author
        epoch = author.claim.epoch if isinstance(author, Held) else 0
        records = [
            Record(
                run=self.run,
                seq=seq,
                time=now,
                type=record.type,
                turn=record.turn,
                key=record.key,
                epoch=epoch,
                batch=batch.id,
                body=bytes(record.body),
                checksum=record.checksum,
                key_id=record.key_id,
            )
            for seq, record in enumerate(new, first)
        ]
        turn = _turn_after(self.turns, batch.queue, records, last)
        unfinished = self.unfinished if turn is None else _unfinished_after(self.unfinished, turn)
        entry = self.entry
        if batch.queue is not None:
            changed = change(entry, batch.queue, now=now, unfinished=len(unfinished))
            entry = changed or replace(entry, token=None, due_at=None, woken=False, draining=False)
        answer = Committed(first, last, now)

        self.records += records
        self.blobs.update((blob.id, bytes(blob.data)) for blob in batch.blobs)
        self.unfinished, self.entry = unfinished, entry
        if turn is not None:
            self.turns[turn.turn] = turn
        self.batches[batch.id] = answer
        if isinstance(author, Keyed):
            self.keys[author.key] = (author.digest, answer)
        if isinstance(batch.queue, Close | Move) and not self.is_closed:
            self.is_closed, self.closed_at = True, now
        if isinstance(batch.queue, Move):
            self.moved_to = batch.queue.to
        return answer

    def take(self, token: bytes, *, boot: float, lease_seconds: float) -> Claimed:
        """Give the claim to whoever asked."""
        oldest = self.oldest()
        is_takeover = self.entry.token is not None
        self.entry = take(self.entry, token=token, is_takeover=is_takeover, unfinished=len(self.unfinished))
        self.lease_until = boot + lease_seconds
        return Claimed(
            claim=Claim(self.run, self.entry.epoch, token),
            agent=self.agent,
            turn=oldest.turn if oldest else None,
            submitted=oldest.submitted if oldest else 0,
            head=self.head,
            takeovers=self.entry.takeovers,
            taken_over=is_takeover,
            min_reader=self.min_reader,
        )

    def behind(self, place: tuple[int, int], limit: int) -> list[Item]:
        """Up to `limit` records and deltas behind `place`, by offset."""
        records: list[Item] = list(self.records[place[0] : place[0] + limit])
        start = bisect_right(self.deltas, place, key=_place)
        deltas: list[Item] = list(self.deltas[start : start + limit])
        return list(merge(records, deltas, key=_place))[:limit]


def _place(item: Item) -> tuple[int, int]:
    return item.seq, item.sub if isinstance(item, Delta) else 0


def _turn_after(
    turns: dict[str, TurnInfo], event: QueueChange | None, records: Sequence[Record], last: int
) -> TurnInfo | None:
    """The turn that `event` changes, as it is afterwards."""

    def seq_of(type_: str, turn: str) -> int:
        return next((r.seq for r in records if r.type == type_ and r.turn == turn), last)

    match event:
        case Submit(turn=turn):
            return TurnInfo(turn, seq_of(TurnSubmitted.TYPE, turn), None, None)
        case Finish(turn=turn, status=status) if turn in turns:
            return TurnInfo(turn, turns[turn].submitted, status, seq_of(TurnFinished.TYPE, turn))
        case Retry(turn=turn) if turn in turns:
            return TurnInfo(turn, turns[turn].submitted, None, None)
        case _:
            return None


def _unfinished_after(unfinished: dict[str, TurnInfo], turn: TurnInfo) -> dict[str, TurnInfo]:
    """A retried turn goes back to its old place: before those that were submitted after it."""
    others = [other for other in unfinished.values() if other.turn != turn.turn]
    if turn.status is None:
        others.append(turn)
    return {other.turn: other for other in sorted(others, key=lambda other: other.submitted)}


class Grave(msgspec.Struct, frozen=True):
    """What is left of a swept run."""

    until: float
    """Wall clock: how long its id stays taken."""
    to: str | None


class Store:
    """Runs of all namespaces, and who is to be told when something changes."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.runs: dict[Key, Run] = {}
        self.order: list[Run] = []
        """The same runs, by position."""
        self.queued: dict[Key, Run] = {}
        """Runs that are due at some time, or claimed: all that a claim has to look at."""
        self.tombstones: dict[Key, Grave] = {}
        self.roster: dict[Key, WorkerInfo] = {}
        """By namespace and worker id."""
        self.bells = Bells()
        self.work_count = 0
        """How often an entry may have become claimable."""
        self._position = 0

    def grave(self, key: Key, now: float) -> Grave | None:
        """The tombstone that holds that id."""
        grave = self.tombstones.get(key)
        return grave if grave is not None and now < grave.until else None

    def append(self, key: Key, batch: Batch, now: float) -> Answer:
        """The door."""
        with self.lock:
            run = self.runs.get(key)
            grave = self.grave(key, now)
            if grave is not None:
                sight = Sight(exists=False, gone=True, moved_to=grave.to)
            else:
                sight = run.sight(batch) if run else Sight(exists=False)
            refusal = decide(batch, sight)
            if refusal is not None:
                return refusal
            new = batch.records
            if run is None:
                create = batch.create
                assert create is not None, "the door lets only a create pass where no run is"
                run = Run(
                    key,
                    create.agent,
                    min_reader=create.min_reader,
                    position=self._position + 1,
                    created=now,
                )
                new = (create.record, *new)
            answer = run.write(batch, new, now)
            if key not in self.runs:
                self._keep(key, run)
            self._requeue(key, run)
            if batch.queue is not None and run.entry.token is None and run.entry.due_at is not None:
                self.ring_work()
        self.bells.ring(key)
        return answer

    def add(self, key: Key, agent: str, *, min_reader: int, created: float) -> Run:
        """A run that is there, and empty."""
        run = Run(key, agent, min_reader=min_reader, position=self._position + 1, created=created)
        self._keep(key, run)
        return run

    def _keep(self, key: Key, run: Run) -> None:
        self._position += 1
        self.runs[key] = run
        self.order.append(run)
        self.tombstones.pop(key, None)

    def changed(self, key: Key, run: Run) -> None:
        """Its entry was changed by other means than the door."""
        self._requeue(key, run)
        if key in self.queued:
            self.ring_work()
        self.bells.ring(key)

    def ring_work(self) -> None:
        """An entry may have become claimable."""
        self.work_count += 1
        self.bells.ring(WORK)

    def _requeue(self, key: Key, run: Run) -> None:
        if run.is_closed or (run.entry.due_at is None and run.entry.token is None):
            self.queued.pop(key, None)
        else:
            self.queued[key] = run

    def claimable(
        self, is_wanted: Callable[[Key, Run], bool], *, wall: float, boot: float
    ) -> tuple[list[Run], float | None]:
        """Who may be claimed now, in the order of the port; and how long until the next one may be."""
        ready: list[tuple[int, float, int, Run]] = []
        soonest: float | None = None
        for key, run in self.queued.items():
            if not is_wanted(key, run):
                continue
            due = run.entry.due_at
            if run.entry.token is not None:
                left = run.lease_until - boot
            elif due is not None:
                left = due - wall
            else:
                continue
            if left <= 0:
                ready.append((-run.entry.priority, wall if due is None else due, run.position, run))
            elif soonest is None or left < soonest:
                soonest = left
        ready.sort(key=lambda found: found[:3])
        return [run for *_, run in ready], soonest

    def publish(self, key: Key, claim: Claim, deltas: Sequence[Delta], now: float) -> bool:
        """Fenced like the door: the store says where they go."""
        with self.lock:
            run = self.runs.get(key)
            if run is None or not run.holds(claim):
                return False
            newest = run.deltas[-1] if run.deltas else None
            sub = newest.sub if newest is not None and newest.seq == run.head else 0
            for count, delta in enumerate(deltas, 1):
                placed = replace(delta, data=bytes(delta.data), seq=run.head, sub=sub + count, time=now)
                run.deltas.append(placed)
        self.bells.ring(key)
        return True

    def stats(self, namespace: str, now: float) -> list[AgentStats]:
        """Each open run of the namespace, counted under its agent."""
        found: dict[str, dict[str, Any]] = {}
        with self.lock:
            for (of, _), run in self.runs.items():
                if of != namespace or run.is_closed or run.building is not None:
                    continue
                counts = found.setdefault(run.agent, {"agent": run.agent})
                place = standing(run.entry, now=now)
                counts[place] = counts.get(place, 0) + 1
                if place == "due" and run.entry.due_at is not None:
                    counts["oldest_due"] = min(counts.get("oldest_due", now), run.entry.due_at)
        return [AgentStats(**found[agent]) for agent in sorted(found)]

    def sweep(self, namespace: str, policy: SweepPolicy, now: float) -> int:
        """Closed runs that are old enough, whole; deltas of turns that ended; tombstones whose time is over."""
        with self.lock:
            for key in [key for key, grave in self.tombstones.items() if grave.until <= now]:
                del self.tombstones[key]
            mine = [(key, run) for key, run in self.runs.items() if key[0] == namespace]
            before = now - policy.closed_older_than_seconds
            closed = [
                key
                for key, run in mine
                if (
                    run.is_closed and run.closed_at <= before
                    if policy.moved is None
                    else run.moved_to is not None and run.run in policy.moved
                )
            ][: policy.limit]
            for key in closed:
                to = self.runs.pop(key).moved_to
                self.tombstones[key] = Grave(now + policy.tombstone_seconds if to is None else inf, to)
            if closed:
                self.order = list(self.runs.values())
            for _, run in mine:
                if run.building is not None:
                    continue  # it has no deltas, and its turns end in records that are still to come
                run.deltas = _kept_deltas(run, now - policy.deltas_older_than_seconds)
        for key in closed:
            self.bells.ring(key)
        return len(closed)


def _kept_deltas(run: Run, before: float) -> list[Delta]:
    """Turns are worked one at a time: deltas below a `turn.finished` belong to turns that ended by then."""
    ended = max(
        (
            turn.finished
            for turn in run.turns.values()
            if turn.finished is not None and run.records[turn.finished - 1].time <= before
        ),
        default=0,
    )
    return [delta for delta in run.deltas if delta.seq >= ended]

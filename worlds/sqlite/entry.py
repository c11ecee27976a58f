"""The rest of a run's row: turns and the queue entry, changed at turn boundaries."""

import sqlite3

from journal.core.ports import Close, Committed, Finish, Move, QueueChange, Retry, Submit
from journal.core.records import NewRecord, TurnFinished, TurnSubmitted
from journal.worlds.queue import Entry, change
from journal.worlds.sqlite.statements import SQL


class Known:
    """What was seen of a run, and is so still."""

    __slots__ = (
        "batch",
        "closed_at",
        "epoch",
        "gone_until",
        "head",
        "is_building",
        "is_emptied",
        "last_batch",
        "last_head",
        "last_time",
        "moved_to",
        "rid",
        "segment",
        "takeovers",
        "token",
    )

    def __init__(
        self,
        rid: int,
        closed_at: float | None = None,
        gone_until: float | None = None,
        is_emptied: int = 0,
        epoch: int = 0,
        token: bytes | None = None,
        takeovers: int = 0,
        last_batch: bytes | None = None,
        last_head: int | None = None,
        last_time: float | None = None,
        moved_to: str | None = None,
        is_building: int = 0,
        head: int = 0,
        batch: bytes | None = None,
        segment: int = 0,
    ) -> None:
        self.rid = rid
        self.closed_at = closed_at
        self.gone_until = gone_until
        self.is_emptied = bool(is_emptied)
        self.epoch = epoch
        self.token = token
        self.takeovers = takeovers
        self.segment = segment
        """The last of its segments: its next record goes to that one or to a later one."""
        self.last_batch = last_batch
        """The holder's last batch without a record, and the head and time it was answered with."""
        self.last_head = last_head or 0
        self.last_time = last_time or 0.0
        self.moved_to = moved_to
        self.is_building = bool(is_building)
        self.head = head
        self.batch = batch
        """Of the last record."""


class Entries:
    """Reads and writes them through one connection, within a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute

    def apply(self, known: Known, event: QueueChange, new: tuple[NewRecord, ...], answer: Committed) -> bool:
        """What `event` changes; whether the entry may have become claimable."""
        rid, now = known.rid, answer.time
        match event:
            case Submit(turn=turn):
                seq = _seq_of(TurnSubmitted.TYPE, turn, new, answer)
                self._execute(SQL["add_turn"], (rid, turn, seq))
                self._execute(SQL["count_turn"], (rid,))
            case Finish(turn=turn, status=status):
                seq = _seq_of(TurnFinished.TYPE, turn, new, answer)
                self._execute(SQL["finish_turn"], (status, seq, now, rid, turn))
            case Retry(turn=turn):
                self._execute(SQL["reopen_turn"], (rid, turn))
            case Close():
                self._execute(SQL["close_run"], (now, rid))
                known.closed_at, known.token = now, None
                return False
            case Move(to=to):
                self._execute(SQL["move_run"], (to, now, rid))
                known.closed_at, known.token, known.moved_to = known.closed_at or now, None, to
                return False
            case _:
                pass
        return self._change(known, event, now)

    def _change(self, known: Known, event: QueueChange, now: float) -> bool:
        before = self.read(known.rid)
        after = change(before, event, now=now, unfinished=self.unfinished(known.rid))
        assert after is not None, "only a close or a move removes the entry"
        if after == before:
            return False
        values = (
            after.priority,
            after.due_at,
            after.epoch,
            after.token,
            after.woken,
            after.takeovers,
            after.draining,
            after.min_reader,
            after.status,
            known.rid,
        )
        self._execute(SQL["set_entry"], values)
        known.epoch, known.token, known.takeovers = after.epoch, after.token, after.takeovers
        return after.token is None and after.due_at is not None

    def read(self, rid: int) -> Entry:
        """The queue entry of the run."""
        row = self._execute(SQL["get_entry"], (rid,)).fetchone()
        agent, priority, due_at, epoch, token, woken, takeovers, draining, min_reader, status = row
        return Entry(
            agent=agent,
            priority=priority,
            due_at=due_at,
            epoch=epoch,
            token=token,
            woken=bool(woken),
            takeovers=takeovers,
            draining=bool(draining),
            min_reader=min_reader,
            status=status,
        )

    def unfinished(self, rid: int) -> int:
        """How many turns of the run are unfinished."""
        count: int = self._execute(SQL["count_unfinished"], (rid,)).fetchone()[0]
        return count


def _seq_of(type_: str, turn: str, new: tuple[NewRecord, ...], answer: Committed) -> int:
    for seq, record in enumerate(new, answer.first):
        if record.type == type_ and record.turn == turn:
            return seq
    return answer.last

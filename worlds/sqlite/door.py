"""The door on SQLite: looks, decides, writes; inside a transaction that the writer began.

A batch is decided by what `journal.worlds.door` says, from one look at its run. Its records wait until the group
is complete, or until a later batch of the group has to see them, and go in by one statement.
"""

import sqlite3
from typing import Any
from zlib import crc32

from journal.core.clock import Clock
from journal.core.ports import (
    Answer,
    Batch,
    Close,
    Committed,
    Finish,
    Held,
    Keyed,
    Progress,
    QueueChange,
    Retry,
    Submit,
)
from journal.core.records import NewRecord, TurnFinished, TurnSubmitted
from journal.worlds.door import Sight, decide
from journal.worlds.queue import Entry, change
from journal.worlds.sqlite.statements import SQL

_LOOK = SQL["look"]
_ADD_RECORD = SQL["add_record"]
_NOWHERE = Sight(exists=False)


class Changes:
    """What a transaction changed, for those who wait for it."""

    def __init__(self) -> None:
        self.runs: set[str] = set()
        self.has_work = False
        """Whether an entry may have become claimable."""


class Door:
    """Belongs to one writing connection; `begin` at the start of each transaction, `flush` before its commit."""

    def __init__(self, connection: sqlite3.Connection, *, namespace: str, clock: Clock) -> None:
        self.namespace = namespace
        self.clock = clock
        self.now = 0.0
        self.changes = Changes()
        self._records: list[tuple[Any, ...]] = []
        self.use(connection)

    def use(self, connection: sqlite3.Connection) -> None:
        """Write through that connection from now on."""
        self.connection = connection
        self._execute = connection.execute

    def begin(self) -> None:
        """A transaction begins; whatever another left behind is forgotten."""
        self.now = self.clock.time()
        self.changes = Changes()
        self._records = []

    def flush(self) -> None:
        """Write the records that wait."""
        if self._records:
            self.connection.executemany(_ADD_RECORD, self._records)
            self._records = []

    def append(self, batch: Batch) -> Answer:
        """The door's answer to `batch`; if that is `Committed`, all of it is written or waits for `flush`."""
        run = batch.run
        if run in self.changes.runs:
            self.flush()  # an earlier batch of this group went to the same run
        author = batch.author
        prev = author.prev_batch if isinstance(author, Held) else None
        row = self._execute(_LOOK, (batch.id, prev, self.namespace, run)).fetchone()
        if row is None:
            refusal = decide(batch, _NOWHERE)
            return self._create(batch) if refusal is None else refusal
        (
            rid,
            closed_at,
            gone_until,
            is_emptied,
            epoch,
            token,
            last_batch,
            takeovers,
            head,
            landed,
            has_prev,
        ) = row
        if gone_until is not None:
            return self._append_to_gone(batch, rid, gone_until, bool(is_emptied))
        key, key_digest = self._find_key(rid, author.key) if isinstance(author, Keyed) else (None, None)
        sight = Sight(
            exists=True,
            closed=closed_at is not None,
            head=head,
            epoch=epoch,
            token=token,
            batch=None if landed is None and last_batch != batch.id else self._landed(rid, landed),
            key=key,
            key_digest=key_digest,
            has_prev=has_prev is not None or prev is None or prev == last_batch,
        )
        refusal = decide(batch, sight)
        if refusal is not None:
            return refusal
        return self._write(batch, batch.records, rid, head, takeovers)

    # Deciding

    def _append_to_gone(self, batch: Batch, rid: int, until: float, is_emptied: bool) -> Answer:
        if until > self.now or not is_emptied:
            return decide(batch, Sight(exists=False, gone=True)) or Committed(0, 0, 0)
        refusal = decide(batch, _NOWHERE)
        if refusal is not None:
            return refusal
        self._execute(SQL["forget_keys"], (rid,))
        self._execute(SQL["forget_run"], (rid,))
        return self._create(batch)

    def _find_key(self, rid: int, key: str) -> tuple[Committed | None, bytes | None]:
        found = self._execute(SQL["find_key"], (rid, key)).fetchone()
        if found is None:
            return None, None
        first, last, time, digest = found
        return Committed(first, last, time), digest

    def _landed(self, rid: int, first: int | None) -> Committed:
        if first is not None:
            return Committed(*self._execute(SQL["landed"], (rid, first)).fetchone())
        head, time = self._execute(SQL["last_landed"], (rid,)).fetchone()
        return Committed(head + 1, head, time)

    # Writing

    def _create(self, batch: Batch) -> Committed:
        create = batch.create
        assert create is not None, "the door lets only a create pass where no run is"
        values = (self.namespace, batch.run, create.agent, self.now, create.min_reader)
        rid = self._execute(SQL["add_run"], values).lastrowid
        assert rid is not None, "an insert has a rowid"
        return self._write(batch, (create.record, *batch.records), rid, 0, 0)

    def _write(
        self, batch: Batch, new: tuple[NewRecord, ...], rid: int, head: int, takeovers: int
    ) -> Committed:
        now = self.now
        author = batch.author
        answer = Committed(head + 1, head + len(new), now)
        self.changes.runs.add(batch.run)
        epoch = author.claim.epoch if isinstance(author, Held) else 0
        batch_id = batch.id
        count = len(new)
        self._records += [
            (
                rid,
                head + nth,
                now,
                r.type,
                r.turn,
                r.key,
                epoch,
                batch_id,
                nth,
                count,
                r.body,
                r.checksum,
                r.key_id,
            )
            for nth, r in enumerate(new, 1)
        ]
        if isinstance(author, Keyed):
            values = (rid, author.key, author.digest, answer.first, answer.last, now)
            self._execute(SQL["add_key"], values)
        elif not new:
            self._execute(SQL["note_batch"], (batch_id, head, now, rid))
        for blob in batch.blobs:
            self._execute(SQL["add_blob"], (rid, blob.id, crc32(blob.data), blob.data))
        event = batch.queue
        # Progress comes with every outcome, and mostly changes nothing.
        if event is not None and not (isinstance(event, Progress) and takeovers == 0):
            self._change_turns(rid, event, new, answer)
            self._change_entry(rid, event)
        return answer

    def _change_turns(
        self, rid: int, event: QueueChange, new: tuple[NewRecord, ...], answer: Committed
    ) -> None:
        match event:
            case Submit(turn=turn):
                seq = _seq_of(TurnSubmitted.TYPE, turn, new, answer)
                self._execute(SQL["add_turn"], (rid, turn, seq))
                self._execute(SQL["count_turn"], (rid,))
            case Finish(turn=turn, status=status):
                seq = _seq_of(TurnFinished.TYPE, turn, new, answer)
                self._execute(SQL["finish_turn"], (status, seq, self.now, rid, turn))
            case Retry(turn=turn):
                self._execute(SQL["reopen_turn"], (rid, turn))

    def _change_entry(self, rid: int, event: QueueChange) -> None:
        if isinstance(event, Close):
            self._execute(SQL["close_run"], (self.now, rid))
            return
        before = self.entry(rid)
        after = change(before, event, now=self.now, unfinished=self.unfinished(rid))
        assert after is not None, "only a close removes the entry"
        if after == before:
            return
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
            rid,
        )
        self._execute(SQL["set_entry"], values)
        if after.token is None and after.due_at is not None:
            self.changes.has_work = True

    def entry(self, rid: int) -> Entry:
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

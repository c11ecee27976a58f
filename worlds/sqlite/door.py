"""The door on SQLite: looks, decides, writes; inside a transaction that the writer began.

A batch is decided by what `journal.worlds.door` says, from one look at its run. What was seen of a run stays known
for as long as nobody else has committed to the file, so that a run that is worked on is not looked up for every batch.
Records wait until the group is complete, and go in by one statement. Bytes are bound as bytearrays: Python's module
takes those as they are, and of every `bytes` asks whether somebody has registered an adapter: a microsecond each.
Records lie in the order in which they came, and segment by segment so does their index: by run alone, each run of a
group would write a page of its own.
Next: `entry.py` (turns and the queue entry).
"""

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from zlib import crc32

from journal.core.clock import Clock
from journal.core.errors import CorruptRecord
from journal.core.ports import Answer, Batch, Committed, Held, Progress
from journal.core.records import NewRecord, Record
from journal.worlds.door import Sight, decide
from journal.worlds.sqlite.entry import Entries, Known
from journal.worlds.sqlite.statements import SQL

SEGMENT_RECORDS = 2048
"""So many records, of whatever runs, make a segment. More: their part of the index fills more pages, each written by a
group of many runs; fewer: more of `segments`, of which each run at work gets a row a segment."""
KNOWN_RUNS = 10_000
"""How many runs are kept known; then all are forgotten, which costs each of them one look."""

_LOOK = SQL["look"]
_ADD_RECORD = SQL["add_record"]
_OPEN_SEGMENT = SQL["open_segment"]
_NOWHERE = Sight(exists=False)
_COLUMNS = 11
"""Of a record whose values are not encrypted: to bind a null takes as long as to bind five values."""
_ROW = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


@lru_cache(maxsize=256)
def _add_plain(count: int) -> str:
    """`add_plain` for so many records."""
    return SQL["add_plain"].replace(_ROW, ", ".join([_ROW] * count))


@lru_cache(maxsize=256)
def _add_next(count: int) -> str:
    """`add_next` for so many records."""
    rows = (
        f"(?1, ?2 + {n}, ?3, ?4, ?5, ?6, ?8, ?{4 * n + 9}, ?{4 * n + 10}, ?{4 * n + 11}, ?{4 * n + 12})"
        for n in range(count)
    )
    return SQL["add_next"].replace("(?1, ?2, ?3, ?4, ?5, ?6, ?8, ?9, ?10, ?11, ?12)", ", ".join(rows))


def _is_plain_next(batch: Batch, known: Known) -> bool:
    """Whether the batch is the holder's next one, right behind the one before, and brings nothing but records.

    Nothing speaks against it, and it cannot have landed already: what lies behind its `prev_batch` would be it.
    """
    author, event = batch.author, batch.queue
    if type(author) is not Held or not batch.records:
        return False
    claim = author.claim
    return (
        author.prev_batch is not None
        and author.prev_batch == known.batch
        and claim.token == known.token
        and claim.epoch == known.epoch
        and batch.at_head in (None, known.head)
        and not batch.blobs
        # Progress comes with every outcome, and mostly changes nothing.
        and (event is None or (type(event) is Progress and known.takeovers == 0))
    )


def _rows_of(batch: Batch, known: Known, now: float) -> tuple[Committed, list[Any]] | None:
    """The answer to a batch whose records go in behind the head, and their values, row after row; None: encrypted."""
    rid, segment, seq, epoch, batch_id = (
        known.rid,
        known.segment,
        known.head,
        known.epoch,
        bytearray(batch.id),
    )
    values: list[Any] = []
    for record in batch.records:
        if record.key_id is not None:
            return None
        seq += 1
        values += (
            rid,
            segment,
            seq,
            now,
            epoch,
            batch_id,
            record.type,
            record.turn,
            record.key,
            bytearray(record.body),
            record.checksum,
        )
    return Committed(known.head + 1, seq, now), values


class Changes:
    """What a transaction changed, for those who wait for it."""

    __slots__ = ("has_work", "runs")

    def __init__(self) -> None:
        self.runs: set[str] = set()
        self.has_work = False
        """Whether an entry may have become claimable."""


class Door:
    """Belongs to one writing connection. `begin` at the start of each transaction, `flush` before its commit."""

    def __init__(self, connection: sqlite3.Connection, *, namespace: str, clock: Clock) -> None:
        self.namespace = namespace
        self.clock = clock
        self.now = 0.0
        self.changes = Changes()
        self._records: list[tuple[Any, ...]] = []
        self._staged: list[Any] = []
        self._opened: list[tuple[int, int, int]] = []
        """Segments that the staged records begin: rid, segment, first seq."""
        self._last_row: int | None = None
        """The rowid of the last record of all, as far as we know; None: to be looked up."""
        self._segment = 0
        """Which one records go to now."""
        self._known: dict[str, Known] = {}
        self.use(connection)

    def use(self, connection: sqlite3.Connection) -> None:
        """Write through that connection from now on."""
        self.connection = connection
        self.entries = Entries(connection)
        self._execute = connection.execute
        self._write_next = connection.cursor().execute
        self.forget()

    def begin(self) -> None:
        """A transaction begins."""
        if self._last_row is None:
            self._last_row = self._execute(SQL["last_row"]).fetchone()[0]
        self._segment = 1 + self._last_row // SEGMENT_RECORDS
        self.now = self.clock.time()
        self.changes = Changes()
        self._records.clear()  # of a transaction that failed
        if len(self._known) > KNOWN_RUNS:
            self._known.clear()

    def forget(self) -> None:
        """Somebody else has committed, or our own transaction has not: what was known of any run may be wrong."""
        self._known.clear()
        self._last_row = None

    def append_next(self, batch: Batch) -> Committed | None:
        """Write a holder's next batch if it is only records, by one statement that commits itself. None: it takes more.

        What is known of the run need not be so any more: the statement looks at the claim, and the index refuses a seq
        that is taken.
        """
        known = self._known.get(batch.run)
        if known is None or not _is_plain_next(batch, known) or known.segment < self._segment:
            return None
        now, head, records = self.clock.time(), known.head, batch.records
        turn, count = records[0].turn, len(records)
        claim = batch.author.claim  # type: ignore[union-attr]  # a holder's: `_is_plain_next`
        batch_id, token = bytearray(batch.id), bytearray(claim.token)
        values = [known.rid, head + 1, now, claim.epoch, batch_id, turn, token, known.segment]
        for record in records:
            if record.key_id is not None or record.turn != turn:
                return None
            values += (record.type, record.key, bytearray(record.body), record.checksum)
        if self._write_next(_add_next(count), values).rowcount != count:
            return None
        known.head, known.batch = head + count, batch.id
        self._count(count)
        return Committed(head + 1, head + count, now)

    def stage(self, batches: list[Batch]) -> list[Answer] | None:
        """Answer batches like that, whose rows then wait for `write_staged`; None: one of them takes more.

        What is known of their runs must be so.
        """
        now, answers, staged, opened = self.now, list[Answer](), list[Any](), list[tuple[int, int, int]]()
        for batch in batches:
            known = self._known.get(batch.run)
            rows = None
            if known is not None and _is_plain_next(batch, known):
                if known.segment < self._segment:
                    known.segment = self._segment
                    opened.append((known.rid, known.segment, known.head + 1))
                rows = _rows_of(batch, known, now)
            if known is None or rows is None:
                for staged_before in batches[: len(answers) + 1]:
                    self._known.pop(staged_before.run, None)
                return None
            answer, values = rows
            answers.append(answer)
            staged += values
            known.head, known.batch = answer.last, batch.id
            self.changes.runs.add(batch.run)
        self._staged, self._opened = staged, opened
        return answers

    def write_staged(self) -> None:
        """Write and commit what waits: by one statement, but for a segment that begins."""
        count = len(self._staged) // _COLUMNS
        if self._opened:
            self._execute("begin immediate")
            self.connection.executemany(_OPEN_SEGMENT, self._opened)
        self._execute(_add_plain(count), self._staged)
        if self._opened:
            self._execute("commit")
        self._count(count)

    def _count(self, records: int) -> None:
        """So many went in."""
        if self._last_row is not None:
            self._last_row += records
            self._segment = 1 + self._last_row // SEGMENT_RECORDS

    def flush(self) -> None:
        """Write the records that wait."""
        if self._records:
            self.connection.executemany(_ADD_RECORD, self._records)
            self._count(len(self._records))
            self._records.clear()

    def look(self, run: str) -> Known | None:
        """The run as it is now, within this transaction; None: there is none."""
        known = self._known.get(run)
        if known is None:
            self.flush()  # an earlier batch of this group may have gone to the same run
            row = self._execute(_LOOK, (self.namespace, run)).fetchone()
            if row is None:
                return None
            known = Known(*row)
            if known.head == 0 and known.gone_until is None and not known.is_building:
                # A run begins with its first record: what hides it is a damaged index.
                raise CorruptRecord(run_id=run, seq=1, reason="it is missing")
            self._known[run] = known
        return known

    def forget_run(self, run: str) -> None:
        """Its row was changed by other means than the door."""
        self._known.pop(run, None)
        self.changes.runs.add(run)

    def append(self, batch: Batch) -> Answer:
        """The door's answer to `batch`; if that is `Committed`, all of it is written or waits for `flush`."""
        known = self.look(batch.run)
        if known is None:
            refusal = decide(batch, _NOWHERE)
            return self._create(batch) if refusal is None else refusal
        if known.gone_until is not None:
            return self._append_to_gone(batch, known)
        author = batch.author
        landed = key = key_digest = None
        has_prev = True
        if isinstance(author, Held):
            landed, has_prev = self._trace(known, batch.id, author.prev_batch)
        else:
            # An author from outside is known by its key; its batch id says nothing more.
            found = self._execute(SQL["find_key"], (known.rid, author.key)).fetchone()
            if found is not None:
                key, key_digest = Committed(*found[:3]), found[3]
        sight = Sight(
            exists=True,
            moved_to=known.moved_to,
            is_building=known.is_building,
            closed=known.closed_at is not None,
            head=known.head,
            epoch=known.epoch,
            token=known.token,
            batch=landed,
            key=key,
            key_digest=key_digest,
            has_prev=has_prev,
        )
        refusal = decide(batch, sight)
        return self._write(batch, batch.records, known) if refusal is None else refusal

    def _trace(self, known: Known, batch: bytes, prev: bytes | None) -> tuple[Committed | None, bool]:
        """Where the holder's batch is, if it has landed, and whether the one before it has.

        A batch lands behind its `prev_batch`: with that at the very end of the log, it has not. That is all but always
        so; the scans are for what others appended meanwhile, and for answers that were lost.
        """
        if batch == known.last_batch:
            return Committed(known.last_head + 1, known.last_head, known.last_time), True
        if prev is not None and prev == known.batch:
            return None, True
        self.flush()
        behind, has_prev = 0, True
        if prev is not None and prev == known.last_batch:
            behind = known.last_head
        elif prev is not None:
            found = self._execute(SQL["find_batch"], (known.rid, prev, 0)).fetchone()
            behind, has_prev = (0, False) if found is None else (found[0], True)
        last = self._execute(SQL["find_batch"], (known.rid, batch, behind)).fetchone()
        if last is None:
            return None, has_prev
        asked = {"rid": known.rid, "last": last[0], "batch": batch}
        return Committed(*self._execute(SQL["landed"], asked).fetchone()), True

    def _append_to_gone(self, batch: Batch, known: Known) -> Answer:
        """The tombstone refuses until its time is over; then the id is free, but for a sweep that is not done yet."""
        grave = Sight(exists=False, gone=True, moved_to=known.moved_to)
        refusal = decide(batch, _NOWHERE if self.is_free(known) else grave)
        if refusal is not None:
            return refusal
        self.free(batch.run, known)
        return self._create(batch)

    def is_free(self, known: Known) -> bool:
        """Whether the time of that tombstone is over, and all of its run gone."""
        return known.gone_until is not None and known.gone_until <= self.now and known.is_emptied

    def free(self, run: str, known: Known) -> None:
        """Give the id of a tombstone back."""
        self.forget_run(run)
        self._execute(SQL["forget_keys"], (known.rid,))
        self._execute(SQL["forget_run"], (known.rid,))

    # Writing

    def _create(self, batch: Batch) -> Committed:
        create = batch.create
        assert create is not None, "the door lets only a create pass where no run is"
        rid = self.add_run(batch.run, create.agent, self.now, create.min_reader)
        known = self._known[batch.run] = Known(rid)
        return self._write(batch, (create.record, *batch.records), known)

    def add_run(self, run: str, agent: str, created: float, min_reader: int) -> int:
        """A run without records; its rid."""
        rid = self._execute(SQL["add_run"], (self.namespace, run, agent, created, min_reader)).lastrowid
        assert rid is not None, "an insert has a rowid"
        return rid

    def open_segment(self, rid: int, first: int) -> int:
        """The segment that records go to now; it becomes the last of that run, from that seq on."""
        self._execute(_OPEN_SEGMENT, (rid, self._segment, first))
        return self._segment

    def copy_records(self, rid: int, segment: int, records: Sequence[Record]) -> None:
        """Write records of elsewhere as they are, behind what the run has so far, which ends in that segment."""
        if records and segment < self._segment:
            segment = self.open_segment(rid, records[0].seq)
        self.connection.executemany(
            _ADD_RECORD,
            [
                (
                    rid,
                    segment,
                    r.seq,
                    r.time,
                    r.type,
                    r.turn,
                    r.key,
                    r.epoch,
                    r.batch,
                    r.body,
                    r.checksum,
                    r.key_id,
                )
                for r in records
            ],
        )
        self._count(len(records))

    def _write(self, batch: Batch, new: tuple[NewRecord, ...], known: Known) -> Committed:
        now, rid, head, batch_id = self.now, known.rid, known.head, bytearray(batch.id)
        author = batch.author
        epoch = author.claim.epoch if isinstance(author, Held) else 0
        self.changes.runs.add(batch.run)
        if new and known.segment < self._segment:
            known.segment = self.open_segment(rid, head + 1)
        seq, segment = head, known.segment
        for record in new:
            seq += 1
            values = (
                rid,
                segment,
                seq,
                now,
                record.type,
                record.turn,
                record.key,
                epoch,
                batch_id,
                bytearray(record.body),
                record.checksum,
                record.key_id,
            )
            self._records.append(values)
        answer = Committed(head + 1, seq, now)
        if new:
            known.head, known.batch = seq, batch.id
        if not isinstance(author, Held):
            self._execute(SQL["add_key"], (rid, author.key, author.digest, head + 1, seq, now))
        elif not new:
            # The run's row stands in for a record that carries the id.
            self._execute(SQL["note_batch"], (batch_id, head, now, rid))
            known.last_batch, known.last_head, known.last_time = batch.id, head, now
        for blob in batch.blobs:
            self._execute(SQL["add_blob"], (rid, blob.id, crc32(blob.data), blob.data))
        event = batch.queue
        # Progress comes with every outcome, and mostly changes nothing.
        if event is not None and not (isinstance(event, Progress) and known.takeovers == 0):
            self.changes.has_work |= self.entries.apply(known, event, new, answer)
        return answer

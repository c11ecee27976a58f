"""Whether a run's log is what it must be. Pure: feed it the records in order, then the blobs, then ask for the end.

What it finds it collects, and goes on: a damaged record must not hide the next one. It promises that each seq stands
once, that no record, blob or submitted input was changed, that inputs which build on others come out whole, that
batches are together and holders follow each other, that no call has two outcomes, and that what the store says of the
turns is what the log says. Snapshots are compared by whoever folds the records a second time (`compare`).
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from journal.core import codec, values
from journal.core.errors import CorruptRecord, LogError
from journal.core.ports import RunImage, TurnInfo
from journal.core.records import (
    BlobRef,
    Body,
    CallIntent,
    CallOutcome,
    Record,
    RunCreated,
    Snapshot,
    TurnFinished,
    TurnRetried,
    TurnStarted,
    TurnSubmitted,
)
from journal.replay.digest import RunDigest
from journal.replay.inputs import Input, Inputs, Whole
from journal.replay.snapshot import FORMAT, Folded

MOST = 1000
"""How many problems are kept."""
_BATCH_BYTES = 16
_UP_TO = ", and so are all up to record "


class Problem(msgspec.Struct, frozen=True):
    """Something that is wrong; `seq` says at which record, None: with the run."""

    seq: int | None
    what: str


class Verifier:
    """Checks one run. `problems` is empty as long as all is well."""

    def __init__(self, run: str) -> None:
        self.problems: list[Problem] = []
        self.records = 0
        self.snapshots: dict[int, dict[Snapshot, int]] = {}
        """By the last record that they cover; and the first record that names each."""
        self._run = run
        self._last = 0
        self._damage_end = 0
        self._digest = RunDigest()
        self._batch = b""
        self._batch_epoch = 0
        self._batches: set[bytes] = set()
        self._epoch = 0
        self._turns: dict[str, TurnInfo] = {}
        self._outcomes: dict[tuple[str | None, str | None], int] = {}
        self._refs: dict[str, tuple[int, int]] = {}
        """Blobs that records refer to: the first such record, and the size it names."""
        self._inputs = Inputs()
        self._differences: list[Input] = []
        self._parts: dict[str, bytes] = {}
        """Blobs that those are put together from."""

    @property
    def digest(self) -> str:
        """`RunDigest` of what was added, in hexadecimal."""
        return self._digest.digest().hex()

    def add(self, record: Record) -> None:
        """The next record."""
        self.records += 1
        self._digest.add_record(record)
        try:
            msgspec.convert(msgspec.structs.asdict(record), Record)
        except msgspec.ValidationError as error:
            self.damaged(
                self._last + 1, f"it is of the wrong types: {error}"
            )  # a store's columns may take any
            return
        self._check_place(record)
        self._check_batch(record)
        try:
            codec.verify(record)
            body = codec.open_record(record)
        except CorruptRecord as damage:
            self._tell(record.seq, damage.reason)
        except LogError as error:
            self._tell(record.seq, f"it {str(error).partition(f'{record.run!r} ')[2]}")
        else:
            self._check_body(record, body)

    def damaged(self, seq: int, reason: str) -> None:
        """The record of that seq cannot be read at all."""
        self._skip_to(seq)
        self._last = seq
        last = self.problems[-1] if self.problems else None
        if last is not None and last.what.partition(_UP_TO)[0] == reason and self._damage_end == seq - 1:
            self.problems[-1] = Problem(last.seq, f"{reason}{_UP_TO}{seq}")
        else:
            self._tell(seq, reason)
        self._damage_end = seq

    def add_blob(self, blob: str, data: bytes) -> None:
        """The next blob, by id."""
        self._digest.add_blob(blob, data)
        seq, size = self._refs.pop(blob, (None, len(data)))
        if values.digest(data).hex() != blob:
            self._tell(seq, f"blob {blob} is not what its name says")
        elif len(data) != size:
            self._tell(seq, f"blob {blob} has {len(data):,} bytes, and {size:,} are named")
        if blob in self._parts:
            self._parts[blob] = data

    def damaged_blob(self, blob: str, reason: str) -> None:
        """That blob is there, and cannot be read."""
        self._tell(self._refs.pop(blob, (None, 0))[0], reason)

    def compare(self, folded: Folded, upto: int) -> None:
        """What the records up to that one come to: snapshots of it must be the same, though nobody trusts them."""
        for snapshot, seq in self.snapshots.get(upto, {}).items():
            if snapshot.format == FORMAT and values.digest(folded.encode()).hex() != snapshot.blob:
                self._tell(seq, f"its snapshot is not what the records up to {upto} come to")

    def finish(self, image: RunImage) -> None:
        """All was added: compare it with what the store says of the run."""
        for blob, (seq, _) in self._refs.items():
            self._tell(seq, f"its blob {blob} is missing")
        if self._last != image.head:
            self._tell(None, f"the log ends at record {self._last}, and its store says {image.head}")
        elif not self.problems and (found := tuple(self._turns.values())) != image.turns:
            self._tell(
                None, f"its turns are {_named(found)} by the log, and {_named(image.turns)} by its store"
            )
        for key in image.keys:
            if not 0 < key.first <= key.last + 1 <= image.head + 1:
                self._tell(None, f"key {key.key!r} is of records {key.first} to {key.last}, which are none")
        if not self.problems:
            self._check_inputs()
        self.problems.sort(key=lambda problem: problem.seq or image.head + 1)

    # One record

    def _check_place(self, record: Record) -> None:
        if record.run != self._run:
            self._tell(record.seq, f"it is of run {record.run!r}")
        if "\0" in f"{record.type}{record.turn}{record.key}{record.key_id}":
            self._tell(record.seq, "its type, turn or key holds a NUL, which no store takes")
        if record.seq <= self._last:
            self._tell(record.seq, f"it stands behind record {self._last}: doubled, or out of order")
            return
        self._skip_to(record.seq)
        self._last = record.seq

    def _skip_to(self, seq: int) -> None:
        first, last = self._last + 1, seq - 1
        if first < last:
            self._tell(first, f"it is missing{_UP_TO}{last}")
        elif first == last:
            self._tell(first, "it is missing")

    def _check_batch(self, record: Record) -> None:
        if len(record.batch) != _BATCH_BYTES:
            self._tell(record.seq, f"its batch id has {len(record.batch)} bytes instead of {_BATCH_BYTES}")
        if record.batch == self._batch:
            if record.epoch != self._batch_epoch:
                self._tell(record.seq, f"epoch {record.epoch} in a batch of epoch {self._batch_epoch}")
        elif record.batch in self._batches:
            self._tell(record.seq, f"its batch {record.batch.hex()} had ended before")
        self._batches.add(record.batch)
        self._batch, self._batch_epoch = record.batch, record.epoch
        if 0 < record.epoch < self._epoch:
            self._tell(record.seq, f"its holder had lost the claim: epoch {record.epoch} after {self._epoch}")
        self._epoch = max(self._epoch, record.epoch)

    def _check_body(self, record: Record, body: Body) -> None:
        if isinstance(body, RunCreated) != (record.seq == 1):
            self._tell(
                record.seq, f"{record.type} stands here: run.created is the first record, and no other"
            )
        for ref in _refs(body):
            self._refs.setdefault(ref.blob, (record.seq, ref.size))
        self._note_input(record, body)
        if isinstance(body, TurnStarted | TurnFinished) and body.snapshot is not None:
            self._note_snapshot(record.seq, body.snapshot)
        turn = self._turns.get(record.turn or "")
        match body:
            case TurnSubmitted():
                self._submit(record, body, turn)
            case _ if record.turn is not None and turn is None:
                self._tell(record.seq, f"turn {record.turn!r} was never submitted")
            case TurnFinished() if turn is not None:
                if turn.finished is not None:
                    self._tell(record.seq, f"turn {turn.turn!r} had ended at record {turn.finished}")
                self._turns[turn.turn] = TurnInfo(turn.turn, turn.submitted, body.status, record.seq)
            case TurnRetried() if turn is not None:
                self._turns[turn.turn] = TurnInfo(turn.turn, turn.submitted, None, None)
                gone = set(body.superseded)
                self._outcomes = {call: seq for call, seq in self._outcomes.items() if seq not in gone}
            case CallOutcome():
                first = self._outcomes.setdefault((record.turn, record.key), record.seq)
                if first != record.seq:
                    self._tell(record.seq, f"call {record.key!r} has an outcome already: record {first}")
            case _:
                pass

    def _submit(self, record: Record, body: TurnSubmitted, turn: TurnInfo | None) -> None:
        if record.turn is None or turn is not None:
            where = "" if turn is None else f" at record {turn.submitted}"
            self._tell(record.seq, f"turn {record.turn!r} was submitted before{where}")
            return
        self._turns[record.turn] = TurnInfo(record.turn, record.seq, None, None)
        given = body.input
        found = given.blob if isinstance(given, BlobRef) else values.digest(given).hex()
        if found != body.input_digest.hex():
            self._tell(record.seq, "its input is not the one that was submitted: the digest differs")

    def _note_input(self, record: Record, body: Body) -> None:
        self._inputs.add(record, body)
        if not isinstance(body, CallIntent) or body.difference is None:
            return
        if (found := self._inputs.at(record.seq)) is None:
            self._tell(record.seq, f"a {body.kind} call has its input whole, and this one builds on another")
            return
        self._differences.append(found)
        base = () if found.base is None else (found.base.intent.input,)
        for value in (body.input, *found.outcomes, *base):
            if isinstance(value, BlobRef):
                self._parts.setdefault(value.blob, b"")

    def _note_snapshot(self, seq: int, snapshot: Snapshot) -> None:
        if 0 < snapshot.upto < seq:
            self.snapshots.setdefault(snapshot.upto, {}).setdefault(snapshot, seq)
        else:
            self._tell(seq, f"its snapshot is of record {snapshot.upto}, which does not stand before it")

    def _check_inputs(self) -> None:
        """Each is put together; those that build on one that cannot be are not told of besides."""
        putting, broken = Whole(self._parts), set()
        for found in self._differences:
            if found.base is not None and found.base.record.seq in broken:
                broken.add(found.record.seq)
                continue
            try:
                putting.of(found)
            except CorruptRecord as damage:
                broken.add(found.record.seq)
                self._tell(found.record.seq, damage.reason)

    def _tell(self, seq: int | None, what: str) -> None:
        if len(self.problems) < MOST:
            self.problems.append(Problem(seq, what))


def _refs(part: Any) -> Iterator[BlobRef]:
    if isinstance(part, BlobRef):
        yield part
    elif isinstance(part, msgspec.Struct):
        for name in part.__struct_fields__:
            yield from _refs(getattr(part, name))
    elif isinstance(part, tuple | list):
        for item in part:
            yield from _refs(item)
    elif isinstance(part, dict):
        for item in part.values():
            yield from _refs(item)


def _named(turns: tuple[TurnInfo, ...]) -> str:
    shown = (f"{turn.turn} (from {turn.submitted}, {_ending(turn)})" for turn in turns)
    return ", ".join(shown) or "none"


def _ending(turn: TurnInfo) -> str:
    return "unfinished" if turn.finished is None else f"{turn.status} at {turn.finished}"

"""Which records of a run a fork of it takes over, and what they say there.

Pure. What stands before the call at which they part is taken as it lies; of what came later only the outcomes of
calls that had begun by then. An edit in one of these that rests on what is not taken over is rejected in the copy, as
it is where somebody else was quicker. A call without an outcome is unknown: its origin may be at work on it. Next:
`engine/fork.py`, which builds the copy up.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from journal.core.codec import checksum, open_record, seal
from journal.core.ports import KeyInfo, TurnInfo
from journal.core.records import (
    BlobRef,
    Body,
    CallEvidence,
    CallIntent,
    CallOutcome,
    CancelRequested,
    DocumentEdit,
    DocumentEdited,
    FilesChanged,
    Origin,
    Record,
    RunCreated,
    Snapshot,
    TurnBlocked,
    TurnFinished,
    TurnRetried,
    TurnStarted,
    TurnStatus,
    TurnSubmitted,
    Value,
)
from journal.replay.documents import EDITED_MEANWHILE, Documents
from journal.replay.fold import RunFold
from journal.replay.history import is_of_run
from journal.replay.state import CallState
from journal.replay.workspace import Workspace, resting, standing

_decode = msgspec.msgpack.Decoder(dict[str, Any]).decode
_encode = msgspec.msgpack.Encoder().encode
_LAST = 2**62
"""Behind every seq."""


class NoSuchCall(ValueError):
    """The run has no call of that number; `calls` says how many there are."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        super().__init__(f"there are {calls}")


class Given(msgspec.Struct, frozen=True):
    """The input that the turn begins anew with."""

    input: Value
    digest: bytes


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What a fork takes over: seqs of its origin in the order of the copy, and what is settled behind them."""

    turn: str
    """The one that the fork carries on."""
    created: RunCreated
    seqs: list[int]
    settled: list[tuple[str, CallOutcome]]
    """Outcomes, by call key, that the copy has and its origin has not."""
    turns: tuple[TurnInfo, ...]
    keys: tuple[KeyInfo, ...]
    blobs: frozenset[str]
    epoch: int
    """The highest of any record that is taken over."""
    outcomes: dict[int, CallOutcome]
    """Those that say something else in the copy, by seqs of the origin: not all of their edits count."""
    places: dict[int, int]
    """From seqs of the origin to those of the copy."""
    pinned: int
    """How many calls of the turn are taken over."""
    unknown: tuple[int, ...]
    """Numbers of those that are in doubt in the origin."""
    repeats: tuple[str, ...]
    """Keys of `never` calls of the turn that the origin has started and that are not taken over."""

    @property
    def head(self) -> int:
        """Last seq of the copy."""
        return len(self.seqs) + len(self.settled)


class _Taken(msgspec.Struct, frozen=True, gc=False):
    seq: int
    turn: str | None
    epoch: int
    blobs: tuple[str, ...]
    is_edit: bool
    """Whether the application edited a document, or files."""


class _Turn(msgspec.Struct):
    submitted: int
    time: float
    digest: bytes
    finished: tuple[int, TurnStatus] | None = None
    endings: list[int] = []
    """Seqs of what ended or stopped it, and no retry has taken back."""
    nevers: dict[str, None] = {}
    """Keys of its `never` calls that were started."""


class Prefix:
    """Finds the part before call `at`, as `fold` numbers calls: `add` each record of the origin, then `part`.

    One more than the last number takes over all calls of the turn that was worked on last. With `given` no call of
    the turn is taken over.
    """

    def __init__(self, at: int, given: Given | None = None) -> None:
        self._at = at
        self._given = given
        self._fold = RunFold()
        self._taken: list[_Taken] = []
        self._turns: dict[str, _Turn] = {}
        self._evidence: dict[int, CallOutcome] = {}
        self._created: RunCreated | None = None
        self._turn: str | None = None
        """Once it is found: the turn of the call."""
        self._pinned: list[CallState] = []
        self._doubtful: dict[str, CallState] = {}
        """Calls that had begun at the parting and have not ended, by key."""
        self._repeats: dict[str, None] = {}
        self._outcomes: dict[int, CallOutcome] = {}
        self._documents = Documents()
        self._workspace = Workspace()
        self._is_over = False
        """Whether what is recorded under their keys may be of other calls."""

    def add(self, record: Record) -> None:
        """Take in the next record. Raises a `LogError` for one that cannot be read."""
        body = open_record(record)
        if isinstance(body, RunCreated):
            self._created = body
        elif isinstance(body, CallEvidence) and is_of_run(body, self._created):
            self._evidence[record.seq] = body.outcome
        if self._turn is None:
            self._fold.add(record)
            if len(self._fold.state.calls) >= self._at:
                self._find(self._fold.state.calls[self._at - 1].turn)
        if self._turn is None:
            self._before(record, body)
        elif record.turn == self._turn:
            self._after(record, body)

    def part(self) -> Part:
        """What was found. Raises `NoSuchCall`."""
        state = self._fold.state
        if self._turn is None:
            if self._at != len(state.calls) + 1:
                raise NoSuchCall(len(state.calls))
            begun = [turn for turn in state.turns if turn.attempts] or state.turns
            self._find(begun[-1].id)
        turn, created = self._turn, self._created
        assert turn is not None
        assert created is not None
        kept = [taken for taken in self._taken if self._is_kept(taken, turn)]
        places = {taken.seq: place for place, taken in enumerate(kept, 1)}
        blobs = {blob for taken in kept for blob in taken.blobs}
        if self._given is not None and isinstance(self._given.input, BlobRef):
            blobs.add(self._given.input.blob)
        return Part(
            turn=turn,
            created=created,
            seqs=[taken.seq for taken in kept],
            settled=[(key, self._settlement(call, places)) for key, call in self._doubtful.items()],
            turns=tuple(self._turn_infos(turn, places)),
            keys=tuple(sorted(self._keys(turn, places), key=lambda key: key.key)),
            blobs=frozenset(blobs),
            epoch=max(taken.epoch for taken in kept),
            outcomes=self._outcomes,
            places=places,
            pinned=len(self._pinned),
            unknown=tuple(call.number for call in self._doubtful.values()),
            repeats=tuple(self._repeats),
        )

    def _find(self, turn: str) -> None:
        self._turn = turn
        if self._given is not None:
            self._repeats.update(self._turns[turn].nevers)
            return
        self._pinned = [call for call in self._fold.state.calls[: self._at - 1] if call.turn == turn]
        self._doubtful = {
            call.key: call for call in self._pinned if call.outcome is None and call.superseded_by is None
        }

    def _before(self, record: Record, body: Body) -> None:
        turn = self._turns.get(record.turn or "")
        match body:
            case TurnSubmitted() if record.turn is not None:
                self._turns[record.turn] = _Turn(record.seq, record.time, body.input_digest)
            case TurnFinished() if turn is not None:
                turn.finished = (record.seq, body.status)
                turn.endings.append(record.seq)
            case TurnBlocked() | CancelRequested() if turn is not None:
                turn.endings.append(record.seq)
            case TurnRetried() if turn is not None:
                turn.finished = None
                turn.endings.clear()
            case CallIntent(policy="never") if turn is not None:
                turn.nevers[record.key or ""] = None
            case _:
                pass
        self._take(record, body)
        self._documents.add(record)
        self._workspace.add(record)

    def _after(self, record: Record, body: Body) -> None:
        call = None if self._is_over else self._doubtful.get(record.key or "")
        match body:
            case CallIntent(policy="never") if call is None:
                self._repeats[record.key or ""] = None
            case CallOutcome() if call is not None:
                # One that was cancelled was so over something that the fork has yet to come to.
                if not body.cancelled and body.status != "cancelled":
                    counting = self._counting(body, record.seq)
                    if counting is not body:
                        self._outcomes[record.seq] = counting
                    self._take(record, counting)
                    del self._doubtful[call.key]
            case CallEvidence() if call is not None and record.seq in self._evidence:
                call.evidence += (record.seq,)
                self._take(record, body)
            case TurnRetried():
                self._is_over = True
            case _:
                pass

    def _take(self, record: Record, body: Body) -> None:
        self._taken.append(
            _Taken(
                record.seq,
                record.turn,
                record.epoch,
                tuple(_blobs(body)),
                isinstance(body, DocumentEdited | FilesChanged),
            )
        )

    def _is_kept(self, taken: _Taken, turn: str) -> bool:
        of = self._turns.get(taken.turn or "")
        if of is None:
            is_before = self._given is None or taken.seq < self._turns[turn].submitted
            return taken.seq == 1 or (taken.is_edit and is_before)
        if taken.turn != turn:
            return of.finished is not None  # the others wait for this one
        return taken.seq == of.submitted or (self._given is None and taken.seq not in of.endings)

    def _settlement(self, call: CallState, places: dict[int, int]) -> CallOutcome:
        known = next((seq for seq in call.evidence if seq in self._evidence), None)
        if known is None:
            return CallOutcome(status="unknown")
        return replace(self._counting(self._evidence[known], _LAST + call.number), evidence=places[known])

    def _counting(self, outcome: CallOutcome, seq: int) -> CallOutcome:
        """`outcome` of a call that ended behind the parting, with what it edited as that counts in the copy."""
        if not outcome.edits and not outcome.files:
            return outcome
        edits = tuple(map(self._edit, outcome.edits))
        now = self._workspace.snapshot
        files = tuple(resting(change, None if now is None else now.id) for change in outcome.files)
        if all(change.snapshot is None for change in files):
            files = standing(files, self._workspace.tree)
        self._documents.apply(edits, seq)
        self._workspace.apply(files, seq)
        is_same = (edits, files) == (outcome.edits, outcome.files)
        return outcome if is_same else replace(outcome, edits=edits, files=files)

    def _edit(self, edit: DocumentEdit) -> DocumentEdit:
        latest = self._documents.latest(edit.doc)
        if edit.rejected is not None or (None if latest is None else latest.digest) == edit.base:
            return edit
        return replace(edit, value=None, rejected=EDITED_MEANWHILE)

    def _turn_infos(self, turn: str, places: dict[int, int]) -> Iterator[TurnInfo]:
        for name, of in self._turns.items():
            if name == turn:
                yield TurnInfo(name, places[of.submitted], None, None)
            elif of.finished is not None:
                yield TurnInfo(name, places[of.submitted], of.finished[1], places[of.finished[0]])

    def _keys(self, turn: str, places: dict[int, int]) -> Iterator[KeyInfo]:
        """Those that turns were submitted under: whoever asks for such a turn again is given it."""
        for name, of in self._turns.items():
            if of.submitted in places:
                digest = self._given.digest if self._given is not None and name == turn else of.digest
                last = places[of.submitted]
                yield KeyInfo(f"turn:{name}", digest, 1 if last == 2 else last, last, of.time)


class Fork(msgspec.Struct, frozen=True):
    """A part as the beginning of another run."""

    run: str
    origin: Origin
    nonce: bytes
    time: float
    """When it was made: wall clock, seconds."""
    part: Part
    given: Given | None = None

    def copied(self, record: Record) -> Record:
        """That record of the origin. Fields that this version does not know are kept."""
        changed = self._changed(record)
        body = _encode({**_decode(record.body), **changed}) if changed else record.body
        seq = self.part.places[record.seq]
        crc = checksum(self.run, record.type, record.turn, record.key, record.key_id, body)
        time = self.time if seq == 1 else record.time
        return replace(record, run=self.run, seq=seq, time=time, body=body, checksum=crc)

    def _changed(self, record: Record) -> dict[str, Any]:
        body = open_record(record)
        match body:
            case RunCreated():
                return {"nonce": self.nonce, "origin": self.origin}
            case TurnSubmitted() if self.given is not None and record.turn == self.part.turn:
                return {"input": self.given.input, "input_digest": self.given.digest}
            case CallIntent(nonce=b""):
                return {"nonce": self.part.created.nonce}
            case CallOutcome():
                return self._outcome(body, record.seq)
            case CallEvidence() if is_of_run(body, self.part.created):
                return {"nonce": self.nonce}
            case TurnRetried():
                return self._retried(body)
            case TurnStarted(snapshot=Snapshot()) | TurnFinished(snapshot=Snapshot()):
                return {"snapshot": None}  # of what was there, at places that are other ones here
            case _:
                return {}

    def _outcome(self, body: CallOutcome, seq: int) -> dict[str, Any]:
        changed: dict[str, Any] = {}
        if body.evidence is not None:
            changed["evidence"] = self.part.places.get(body.evidence)
        if (counting := self.part.outcomes.get(seq)) is not None:
            changed |= {"edits": counting.edits, "files": counting.files}
        return changed

    def _retried(self, body: TurnRetried) -> dict[str, Any]:
        places = self.part.places
        changed: dict[str, Any] = {"superseded": [places[seq] for seq in body.superseded if seq in places]}
        if body.from_seq is not None:
            changed["from_seq"] = places.get(body.from_seq, len(places) + 1)
        if body.settled:
            changed["settled"] = {places[seq]: told for seq, told in body.settled.items() if seq in places}
        return changed

    def settlement(self, number: int) -> Record:
        """The outcome, by place from 0, that the origin has not."""
        key, outcome = self.part.settled[number]
        sealed = seal(self.run, outcome, turn=self.part.turn, key=key)
        seq = len(self.part.seqs) + number + 1
        batch = blake2b(self.nonce + seq.to_bytes(8, "big"), digest_size=16).digest()
        return Record(
            self.run,
            seq,
            self.time,
            sealed.type,
            sealed.turn,
            sealed.key,
            0,
            batch,
            sealed.body,
            sealed.checksum,
        )


def _blobs(part: Any) -> Iterator[str]:
    """Addresses of values within a body."""
    if isinstance(part, BlobRef):
        yield part.blob
    elif isinstance(part, msgspec.Struct):
        for name in part.__struct_fields__:
            yield from _blobs(getattr(part, name))
    elif isinstance(part, dict):
        for value in part.values():
            yield from _blobs(value)
    elif isinstance(part, tuple):
        for value in part:
            yield from _blobs(value)

"""Where two runs part: at which call, and how. Pure.

Calls are compared by key within turns of the same id, those that count at the end: what a retry set aside is left
out. Two runs that did the same things are alike, whenever, by whom and in how many attempts they did them.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec

from journal.core.codec import open_record
from journal.core.records import (
    BlobRef,
    CallOutcome,
    ErrorInfo,
    FileChange,
    Record,
    RunCreated,
    TurnFinished,
    TurnSubmitted,
    Value,
)
from journal.replay.fold import RunFold
from journal.replay.history import CallHistory, TurnHistory
from journal.replay.inputs import blobs_of, whole
from journal.replay.workspace import file_of

How = Literal[
    "turn", "input of the turn", "call", "name", "input", "outcome", "documents", "files", "end of the turn"
]
"""`turn`, `call`: only one of them has it. `name`: another name or kind."""
Changes = Callable[[CallOutcome | None], dict[str, str]]
_SHOWN = 200
_NAMES = 5


class Parting(msgspec.Struct, frozen=True, kw_only=True):
    """One difference; None on the side that has nothing there."""

    turn: str
    how: How
    key: str | None = None
    """Of the call; where the runs make another call each, that of the left one."""
    left_call: int | None = None
    """Its number in `journal show`."""
    right_call: int | None = None
    left: str | None = None
    right: str | None = None


class _Found(msgspec.Struct, frozen=True):
    how: How
    left: str | None
    right: str | None


class Recorded:
    """One of the runs: `add` its records in order."""

    def __init__(self) -> None:
        self.turns: dict[str, TurnHistory] = {}
        self._fold = RunFold()
        self._created: Record | None = None

    def add(self, record: Record) -> None:
        """Take in the next record. Raises a `LogError` for one that cannot be read."""
        self._fold.add(record)
        if record.type == RunCreated.TYPE:
            self._created = record
        if record.turn is None:
            return
        history = self.turns.get(record.turn)
        if history is None and isinstance(open_record(record), TurnSubmitted):
            history = self.turns[record.turn] = TurnHistory(record.turn)
            if self._created is not None:
                history.add(self._created)
        if history is not None:
            history.add(record)

    def numbers(self, turn: str) -> dict[str, int]:
        """The numbers of the turn's calls, by key: of the last where several had it."""
        return {call.key: call.number for call in self._fold.state.calls if call.turn == turn}


class Difference(msgspec.Struct, frozen=True):
    """How two runs compare."""

    alike: int
    """How many calls they have in common before they part."""
    partings: list[Parting]
    """None at all: they did the same."""


def recorded(records: Iterable[Record]) -> Recorded:
    """The run of which these are the records."""
    run = Recorded()
    for record in records:
        run.add(record)
    return run


def diff(left: Recorded, right: Recorded) -> Difference:
    """Where they part, in the order of the left one."""
    partings: list[Parting] = []
    alike = 0
    for turn in [*left.turns, *(turn for turn in right.turns if turn not in left.turns)]:
        for parting in _turn(turn, left, right):
            if parting is not None:
                partings.append(parting)
            elif not partings:
                alike += 1
    return Difference(alike, partings)


def _turn(turn: str, left: Recorded, right: Recorded) -> Iterator[Parting | None]:
    """How it differs; None for each call that does not."""
    here, there = left.turns.get(turn), right.turns.get(turn)
    if here is None or there is None:
        words = ["submitted" if history else None for history in (here, there)]
        yield Parting(turn=turn, how="turn", left=words[0], right=words[1])
        return
    assert here.submitted is not None
    assert there.submitted is not None
    if here.submitted.input_digest != there.submitted.input_digest:
        yield Parting(
            turn=turn,
            how="input of the turn",
            left=_shown(here.submitted.input),
            right=_shown(there.submitted.input),
        )
    numbers, others = left.numbers(turn), right.numbers(turn)
    calls, theirs = _made(here), _made(there)
    only_there = [call for key, call in theirs.items() if key not in calls]
    for key, call in calls.items():
        other = theirs.get(key)
        instead = only_there.pop(0) if other is None and only_there else None
        found = (
            _Found("call", _name(call), _name(instead))
            if other is None
            else _difference((here, call), (there, other))
        )
        if found is None:
            yield None
            continue
        their_key = key if instead is None else instead.key
        yield Parting(
            turn=turn,
            how=found.how,
            key=key,
            left_call=numbers.get(key),
            right_call=others.get(their_key),
            left=found.left,
            right=found.right,
        )
    for call in only_there:
        yield Parting(turn=turn, how="call", key=call.key, right_call=others.get(call.key), right=_name(call))
    ends = _end(here.finished), _end(there.finished)
    if ends[0] != ends[1]:
        yield Parting(turn=turn, how="end of the turn", left=ends[0], right=ends[1])


def _made(history: TurnHistory) -> dict[str, CallHistory]:
    """Calls, without those of which there is only a late result."""
    return {key: call for key, call in history.calls.items() if call.intent or call.outcome}


def _difference(
    one: tuple[TurnHistory, CallHistory], another: tuple[TurnHistory, CallHistory]
) -> _Found | None:
    left, right = one[1], another[1]
    mine, other = left.intent, right.intent
    if mine is not None and other is not None:
        if (mine.name, mine.kind) != (other.name, other.kind):
            return _Found("name", _name(left), _name(right))
        if mine.input_digest != other.input_digest:
            return _Found("input", _input(*one), _input(*another))
    if _result(left.outcome) != _result(right.outcome):
        return _Found("outcome", _outcome(left.outcome), _outcome(right.outcome))
    changes: tuple[tuple[How, Changes], ...] = (("documents", _documents), ("files", _files))
    for how, changed in changes:
        mine_changed, others_changed = changed(left.outcome), changed(right.outcome)
        if mine_changed != others_changed:
            return _Found(how, _only(mine_changed, others_changed), _only(others_changed, mine_changed))
    return None


def _documents(outcome: CallOutcome | None) -> dict[str, str]:
    """What the call made of each document that it edited, as people read it."""
    edits = () if outcome is None else outcome.edits
    return {e.doc: f"rejected: {e.rejected}" if e.rejected is not None else _shown(e.value) for e in edits}


def _files(outcome: CallOutcome | None) -> dict[str, str]:
    """What the call made of each file that it changed."""
    return {change.path: _change(change) for change in (() if outcome is None else outcome.files)}


def _change(change: FileChange) -> str:
    file = file_of(change, 0)
    if change.rejected is not None:
        return f"rejected: {change.rejected}"
    if change.snapshot is not None:
        return f"snapshot {change.snapshot.id}"
    if file is None:
        return "deleted"
    return f"{file.size:,} bytes, digest {file.digest.hex()}{', executable' if file.is_executable else ''}"


def _only(one: dict[str, str], other: dict[str, str]) -> str | None:
    """What `other` has not, or otherwise; cut short."""
    found = [f"{name}: {said}" for name, said in sorted(one.items()) if other.get(name) != said]
    more = f" and {len(found) - _NAMES:,} more" if len(found) > _NAMES else ""
    return f"{'; '.join(found[:_NAMES])}{more}" if found else None


def _input(history: TurnHistory, call: CallHistory) -> str:
    """What the call was given, whole."""
    assert call.intent is not None
    digest = call.intent.input_digest
    found = history.difference_of(call.key)
    if found is None:
        return _shown(call.intent.input, digest)
    if any(True for _ in blobs_of(found)):
        return f"{found.size:,} bytes, digest {digest.hex()}"
    return _shown(whole(found), digest)


def _result(outcome: CallOutcome | None) -> object:
    """What the handler saw of it."""
    return outcome and (outcome.status, outcome.value, outcome.error, outcome.cancelled)


def _name(call: CallHistory | None) -> str | None:
    if call is None:
        return None
    return f"{call.intent.kind} {call.key} ({call.intent.name})" if call.intent is not None else call.key


def _outcome(outcome: CallOutcome | None) -> str | None:
    return None if outcome is None else _ended(outcome.status, outcome.value, outcome.error)


def _end(finished: TurnFinished | None) -> str | None:
    return None if finished is None else _ended(finished.status, finished.output, finished.error)


def _ended(status: str, value: Value | None, error: ErrorInfo | None) -> str:
    if error is not None:
        said = error.args if error.args is not None else error.data
        return f"{status} {error.type}{f' ({error.code})' if error.code else ''} {_shown(said)}".rstrip()
    return f"{status} {_shown(value)}".rstrip()


def _shown(value: Value | None, digest: bytes = b"") -> str:
    """A value as people read it; one that is long by its beginning and its digest."""
    if value is None:
        return digest.hex()
    if isinstance(value, BlobRef):
        return f"{value.size:,} bytes, blob {value.blob}"
    text = value.decode(errors="replace")
    if len(text) <= _SHOWN:
        return text
    return f"{text[:_SHOWN]}… ({len(value):,} bytes{f', digest {digest.hex()}' if digest else ''})"

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
from journal.replay.documents import Documents
from journal.replay.fields import cut
from journal.replay.fold import RunFold
from journal.replay.history import CallHistory, TurnHistory
from journal.replay.inputs import blobs_of, whole
from journal.replay.workspace import File, Workspace, file_of

How = Literal[
    "turn", "input of the turn", "call", "name", "input", "outcome", "documents", "files", "end of the turn"
]
"""`turn`, `call`: only one of them has it. `name`: another name or kind."""
_SHOWN = 200
_NAMES = 5


class Parting(msgspec.Struct, frozen=True, kw_only=True):
    """One difference; None on the side that has nothing there."""

    turn: str
    """Empty for what both runs hold in the end, whoever wrote it: documents and files."""
    how: How
    key: str | None = None
    """Of the call; where the runs make another call each, that of the left one."""
    left_call: int | None = None
    """Its number in `journal show`."""
    right_call: int | None = None
    left: str | None = None
    right: str | None = None


class _Said(msgspec.Struct, frozen=True):
    """What one side says, whole."""

    text: str
    head: str = ""
    """What is not to be cut off before it."""
    note: str = ""
    """What stands for the rest where the text is cut."""


class _Found(msgspec.Struct, frozen=True):
    how: How
    left: _Said | None
    right: _Said | None


class Recorded:
    """One of the runs: `add` its records in order."""

    def __init__(self) -> None:
        self.turns: dict[str, TurnHistory] = {}
        self.blobs: dict[str, bytes] = {}
        """The bytes of values that do not lie in their records, as far as somebody has fetched them."""
        self.wanted: set[str] = set()
        """Those that would have been shown, had they been there."""
        self.documents, self.workspace = Documents(), Workspace()
        self._fold = RunFold()
        self._created: Record | None = None

    def add(self, record: Record) -> None:
        """Take in the next record. Raises a `LogError` for one that cannot be read."""
        self._fold.add(record)
        self.documents.add(record)
        self.workspace.add(record)
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

    def shown(self, value: Value | None, digest: bytes = b"") -> _Said:
        """A value as people read it; `digest` is that of an input, which stands for one that was not kept."""
        if isinstance(value, BlobRef):
            if value.blob not in self.blobs:
                self.wanted.add(value.blob)
                return _Said(f"{value.size:,} bytes, blob {value.blob}")
            value = self.blobs[value.blob]
        if value is None:
            return _Said(digest.hex())
        note = f"{len(value):,} bytes{f', digest {digest.hex()}' if digest else ''}"
        return _Said(value.decode(errors="replace"), note=note)

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
    told = {parting.how for parting in partings}
    partings += [parting for parting in _contents(left, right) if parting.how not in told]
    return Difference(alike, partings)


def _contents(left: Recorded, right: Recorded) -> Iterator[Parting]:
    """Where documents and files differ in the end: no call may say so, since the application edits them too."""
    docs = [
        {doc: run.shown(versions[-1].value) for doc, versions in run.documents.versions.items() if versions}
        for run in (left, right)
    ]
    files = [_standing(run.workspace) for run in (left, right)]
    hows: tuple[tuple[How, list[dict[str, _Said]]], ...] = (("documents", docs), ("files", files))
    for how, (one, other) in hows:
        if one != other:
            yield _parting("", _Found(how, *_only(one, other)))


def _standing(workspace: Workspace) -> dict[str, _Said]:
    """Each file, or the snapshot of all."""
    if workspace.snapshot is not None:
        return {"/": _Said(f"snapshot {workspace.snapshot.id}")}
    return {path: _Said(_file(workspace.tree.get(path))) for path in workspace.tree.paths()}


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
        ways = left.shown(here.submitted.input), right.shown(there.submitted.input)
        yield _parting(turn, _Found("input of the turn", *ways))
    numbers, others = left.numbers(turn), right.numbers(turn)
    calls, theirs = _made(here), _made(there)
    only_there = [call for key, call in theirs.items() if key not in calls]
    for key, call in calls.items():
        other = theirs.get(key)
        instead = only_there.pop(0) if other is None and only_there else None
        found = (
            _Found("call", _name(call), _name(instead))
            if other is None
            else _difference((left, here, call), (right, there, other))
        )
        if found is None:
            yield None
            continue
        their_key = key if instead is None else instead.key
        yield _parting(turn, found, key, numbers.get(key), others.get(their_key))
    for call in only_there:
        yield _parting(turn, _Found("call", None, _name(call)), call.key, None, others.get(call.key))
    ends = _end(left, here.finished), _end(right, there.finished)
    if ends[0] != ends[1]:
        yield _parting(turn, _Found("end of the turn", *ends))


def _parting(
    turn: str, found: _Found, key: str | None = None, left: int | None = None, right: int | None = None
) -> Parting:
    shown = _pair(found.left, found.right)
    return Parting(
        turn=turn,
        how=found.how,
        key=key,
        left_call=left,
        right_call=right,
        left=shown[0],
        right=shown[1],
    )


def _pair(left: _Said | None, right: _Said | None) -> tuple[str | None, str | None]:
    """Both sides as they are shown: long ones by what stands around the place where they differ."""
    one, other = left or right, right or left
    if one is None or other is None:
        return None, None
    ways = cut(one.text, other.text, _SHOWN)
    return _spelled(left, ways[0]), _spelled(right, ways[1])


def _spelled(said: _Said | None, shown: str) -> str | None:
    if said is None:
        return None
    note = f" ({said.note})" if said.note and shown != said.text else ""
    return f"{said.head} {shown}{note}".strip()


def _made(history: TurnHistory) -> dict[str, CallHistory]:
    """Calls, without those of which there is only a late result."""
    return {key: call for key, call in history.calls.items() if call.intent or call.outcome}


_Side = tuple[Recorded, TurnHistory, CallHistory]


def _difference(one: _Side, another: _Side) -> _Found | None:
    left, right = one[2], another[2]
    mine, other = left.intent, right.intent
    if mine is not None and other is not None:
        if (mine.name, mine.kind) != (other.name, other.kind):
            return _Found("name", _name(left), _name(right))
        if mine.input_digest != other.input_digest:
            return _Found("input", _input(*one), _input(*another))
    if _result(left.outcome) != _result(right.outcome):
        return _Found("outcome", _outcome(one[0], left.outcome), _outcome(another[0], right.outcome))
    changes: tuple[tuple[How, Changes], ...] = (("documents", _documents), ("files", _files))
    for how, changed in changes:
        ways = changed(one[0], left.outcome), changed(another[0], right.outcome)
        if ways[0] != ways[1]:
            return _Found(how, *_only(*ways))
    return None


Changes = Callable[[Recorded, CallOutcome | None], dict[str, _Said]]


def _documents(run: Recorded, outcome: CallOutcome | None) -> dict[str, _Said]:
    """What the call made of each document that it edited, as people read it."""
    edits = () if outcome is None else outcome.edits
    return {
        e.doc: _Said(f"rejected: {e.rejected}") if e.rejected is not None else run.shown(e.value)
        for e in edits
    }


def _files(run: Recorded, outcome: CallOutcome | None) -> dict[str, _Said]:
    """What the call made of each file that it changed."""
    del run
    return {change.path: _Said(_change(change)) for change in (() if outcome is None else outcome.files)}


def _change(change: FileChange) -> str:
    if change.rejected is not None:
        return f"rejected: {change.rejected}"
    if change.snapshot is not None:
        return f"snapshot {change.snapshot.id}"
    return _file(file_of(change, 0))


def _file(file: File | None) -> str:
    if file is None:
        return "deleted"
    return f"{file.size:,} bytes, digest {file.digest.hex()}{', executable' if file.is_executable else ''}"


def _only(one: dict[str, _Said], other: dict[str, _Said]) -> tuple[_Said | None, _Said | None]:
    """What each has that the other has not, or otherwise; the first few."""
    names = [name for name in sorted({*one, *other}) if one.get(name) != other.get(name)]
    pairs = {name: _pair(one.get(name), other.get(name)) for name in names[:_NAMES]}
    more = f" and {len(names) - _NAMES:,} more" if len(names) > _NAMES else ""
    sides = []
    for place in range(2):
        said = [f"{name}: {shown}" for name, pair in pairs.items() if (shown := pair[place]) is not None]
        sides.append(_Said("", head=f"{'; '.join(said)}{more}") if said else None)
    return sides[0], sides[1]


def _input(run: Recorded, history: TurnHistory, call: CallHistory) -> _Said:
    """What the call was given, whole."""
    assert call.intent is not None
    digest = call.intent.input_digest
    found = history.difference_of(call.key)
    if found is None:
        return run.shown(call.intent.input, digest)
    missing = {ref.blob for ref in blobs_of(found)} - run.blobs.keys()
    if missing:
        run.wanted |= missing
        return _Said(f"{found.size:,} bytes, digest {digest.hex()}")
    return run.shown(whole(found, run.blobs), digest)


def _result(outcome: CallOutcome | None) -> object:
    """What the handler saw of it."""
    return outcome and (outcome.status, outcome.value, outcome.error, outcome.cancelled)


def _name(call: CallHistory | None) -> _Said | None:
    if call is None:
        return None
    return _Said(
        f"{call.intent.kind} {call.key} ({call.intent.name})" if call.intent is not None else call.key
    )


def _outcome(run: Recorded, outcome: CallOutcome | None) -> _Said | None:
    return None if outcome is None else _ended(run, outcome.status, outcome.value, outcome.error)


def _end(run: Recorded, finished: TurnFinished | None) -> _Said | None:
    return None if finished is None else _ended(run, finished.status, finished.output, finished.error)


def _ended(run: Recorded, status: str, value: Value | None, error: ErrorInfo | None) -> _Said:
    if error is not None:
        said = run.shown(error.args if error.args is not None else error.data)
        status = f"{status} {error.type}{f' ({error.code})' if error.code else ''}"
    else:
        said = run.shown(value)
    return msgspec.structs.replace(said, head=status)

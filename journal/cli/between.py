"""What changed in a run between two of its calls: `journal diff RUN N M`."""

from collections.abc import AsyncIterator, Iterator

import msgspec

from journal.cli.output import say
from journal.cli.reading import Found, place, records
from journal.core import values
from journal.core.errors import InvalidOptions, SnapshotMissing
from journal.core.records import BlobRef, FileSnapshot, Value
from journal.engine.stored_files import stored_files
from journal.replay import changes
from journal.replay.changes import Content, sign
from journal.replay.checkpoints import Checkpoint
from journal.replay.documents import DocumentVersion
from journal.replay.fields import MISSING, Difference, cut, differences
from journal.replay.fold import RunFold
from journal.replay.state import CallState
from journal.replay.timeline import Mark, marks, printable
from journal.replay.workspace import File, Workspace

_MARKS: dict[str, Mark] = {"+": "good", "-": "bad", "~": "carried"}


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that the later call found otherwise."""

    what: str
    """`document`, `file` or `checkpoint`."""
    name: str
    sign: changes.Sign
    before: str | None = None
    """In words; None: it was not there."""
    after: str | None = None
    fields: list[Difference] = []
    """Of a document or a checkpoint: where the values differ."""


class Call(msgspec.Struct, frozen=True):
    """A call that began between the two."""

    number: int
    kind: str | None
    key: str
    status: str | None
    """None: it had not ended when the later call began."""
    changes: list[str]


class Between(msgspec.Struct, frozen=True):
    """What happened from one call's beginning to another's."""

    run: str
    first: int
    last: int
    calls: list[Call]
    changes: list[Change]


async def between(found: Found, first: int, last: int) -> Between:
    """What changed from what call `first` found to what call `last` found; one more than the last call: until now."""
    if first > last:
        raise InvalidOptions(f"call {first} comes after call {last}: name the earlier one first")
    start = await place(found, first)
    end = await place(found, last)
    before, after, fold = Content(), Content(), RunFold()
    async for record in records(found, upto=end):
        fold.add(record)
        after.add(record)
        if start is None or record.seq <= start:
            before.add(record)
    calls = [_call(call) for call in fold.state.calls if first <= call.number < last]
    return Between(found.info.run, first, last, calls, [c async for c in _changes(found, before, after)])


def _call(call: CallState) -> Call:
    outcome = call.outcome
    changed = [] if outcome is None else marks(outcome.body)
    return Call(call.number, call.kind, call.key, None if outcome is None else outcome.status, changed)


async def _changes(found: Found, before: Content, after: Content) -> AsyncIterator[Change]:
    for doc in changes.documents(before.documents, after.documents):
        yield await _change(found, "document", doc.doc, _version(doc.before), _version(doc.after))
    for change in await _files(found, before.workspace, after.workspace):
        yield change
    for point in changes.checkpoints(before.checkpoints, after.checkpoints):
        name = f"{point.name} {point.sequence}"
        yield await _change(found, "checkpoint", name, _written(point.before), _written(point.after))


async def _files(found: Found, before: Workspace, after: Workspace) -> list[Change]:
    named = before.snapshot, after.snapshot
    if named[0] is not None and named[0] == named[1]:
        return []
    try:
        for workspace in (before, after):
            if workspace.snapshot is not None:
                workspace.hold((await stored_files(found.source, found.info.run, workspace)).tree)
    except SnapshotMissing:  # which files these are, only their root knows
        return [Change("file", "/", sign(*named), _snapshot(named[0]), _snapshot(named[1]))]
    return [
        Change("file", file.path, sign(file.before, file.after), _file(file.before), _file(file.after))
        for file in changes.files(before, after)
    ]


def _snapshot(snapshot: FileSnapshot | None) -> str | None:
    if snapshot is None:
        return None
    return f"files: {snapshot.files:,}, {snapshot.size:,} bytes, snapshot {snapshot.id} under {snapshot.root}"


_Kept = tuple[int, Value]
"""The record that wrote it, and what."""


def _version(version: DocumentVersion | None) -> _Kept | None:
    return None if version is None else (version.seq, version.value)


def _written(checkpoint: Checkpoint | None) -> _Kept | None:
    return None if checkpoint is None else (checkpoint.seq, checkpoint.payload)


async def _change(found: Found, what: str, name: str, before: _Kept | None, after: _Kept | None) -> Change:
    words = [None if kept is None else f"record {kept[0]}" for kept in (before, after)]
    texts = [MISSING if kept is None else await _read(found, kept[1]) for kept in (before, after)]
    if before is None or after is None:
        fields = [Difference("", *texts)]
    else:
        fields = differences(*(values.decode(text.encode()) for text in texts))
    return Change(what, name, sign(before, after), words[0], words[1], fields)


async def _read(found: Found, value: Value) -> str:
    return (await found.get_blob(value.blob) if isinstance(value, BlobRef) else value).decode()


def _file(file: File | None) -> str | None:
    if file is None:
        return None
    return f"{file.size:,} bytes, digest {file.digest.hex()}{', executable' if file.is_executable else ''}"


def tell(told: Between) -> None:
    """Print it for people."""
    for call in told.calls:
        status = "no outcome yet" if call.status is None else call.status
        changed = "".join(f", {mark}" for mark in call.changes)
        say(printable(f"{call.number:>4}  {call.kind or '?':<5}  {call.key}: {status}{changed}"), "quiet")
    for change in told.changes:
        for line in _lines(change):
            say(printable(line), _MARKS[change.sign])
    if not told.changes:
        say("documents, files and checkpoints are the same", "good")


def _lines(change: Change) -> Iterator[str]:
    words = " → ".join(part for part in (change.before, change.after) if part is not None)
    yield f"{change.sign} {change.what} {change.name}: {words}"
    for field in change.fields:
        where = f"{field.path}: " if field.path else ""
        parts = (cut(part, "")[0] for part in (field.recorded, field.asked) if part != MISSING or field.path)
        yield f"    {where}{' → '.join(parts)}"

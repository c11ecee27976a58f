"""What a run's records come to beside its turns (documents, files, checkpoints), and that as bytes: its snapshot.

A snapshot spares whoever goes on with a long run the records before it. It is a shortcut and never the truth: it holds
exactly what folding the records up to its last one gives, so that one that is lost, damaged or of another format costs
the reading and nothing else. It knows only what stands, not what stood before: so it serves nobody who may need an
older value, which is a turn that had begun by then, or a retry that sets aside a record that it covers.
Next: `engine/snapshots.py` (who writes and who finds it), `verify.py`.
"""

import msgspec

from journal.core import values
from journal.core.codec import Blob, open_record
from journal.core.records import (
    CallOutcome,
    CheckpointDeleted,
    CheckpointWritten,
    DocumentEdited,
    FilesChanged,
    FileSnapshot,
    Record,
    RunCreated,
    Snapshot,
    TurnRetried,
    Value,
)
from journal.replay.checkpoints import Checkpoint, Checkpoints
from journal.replay.documents import Documents, DocumentVersion
from journal.replay.workspace import File, Workspace

FORMAT = 1
"""Of the bytes. Another one is not read."""
MOST_BYTES = 4 * 1024 * 1024
"""Of a snapshot; of what is larger none is made."""
EVERY = 500
"""Records after which another pays, at the earliest."""
BYTES_A_RECORD = 128
"""It may add so many to each record since the last one: about a quarter of what that takes in a store."""
_BYTES_A_FILE, _BYTES_A_NAME = 96, 34


class SnapshotOutdated(Exception):
    """A retry sets aside a record that the snapshot covers: fold from the start."""


class _Document(msgspec.Struct, frozen=True, array_like=True, gc=False):
    kind: str
    seq: int
    version: int
    value: Value


class _File(msgspec.Struct, frozen=True, array_like=True, gc=False):
    path: str
    seq: int
    digest: bytes
    size: int
    is_inline: bool
    is_executable: bool


class _Named(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The snapshot of a directory workspace that counts, by the record that named it."""

    seq: int
    id: str
    files: int
    size: int
    root: str


class _Checkpoint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    name: str
    sequence: int
    seq: int
    time: float
    payload: Value


class _State(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Everything in order, so that equal states are equal bytes."""

    documents: tuple[_Document, ...]
    files: tuple[_File, ...]
    checkpoints: tuple[_Checkpoint, ...]
    highest: tuple[tuple[str, int], ...]
    """Of the sequences ever given, by name of checkpoint."""
    nonce: bytes
    """Of the run."""
    directory: _Named | None
    named: tuple[str, ...]
    """All snapshots of directories that any record named."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_State).decode
_TYPES = frozenset(
    body.TYPE
    for body in (
        CallOutcome,
        CheckpointDeleted,
        CheckpointWritten,
        DocumentEdited,
        FilesChanged,
        RunCreated,
        TurnRetried,
    )
)


class Folded:
    """Feed it the records of a run in order, all of them or those behind the snapshot that it was made from."""

    def __init__(self) -> None:
        self.documents = Documents()
        self.workspace = Workspace()
        self.checkpoints = Checkpoints()
        self.covered = 0
        """Seq of the last record that the snapshot covers; 0: there was none."""

    def add(self, record: Record) -> None:
        """Take in the next record. Raises `SnapshotOutdated`, and a `LogError` for one that cannot be read."""
        if record.type not in _TYPES:
            return
        if self.covered and record.type == TurnRetried.TYPE:
            body = open_record(record)
            assert isinstance(body, TurnRetried)
            if min(body.superseded, default=record.seq) <= self.covered:
                raise SnapshotOutdated
        self.documents.add(record)
        self.workspace.add(record)
        self.checkpoints.add(record)

    def is_due(self, records: int) -> bool:
        """Whether a snapshot pays that covers so many records more than the one before."""
        if records < EVERY:
            return False
        size = self._size()
        return size <= MOST_BYTES and records >= size // BYTES_A_RECORD

    def _size(self) -> int:
        """About the bytes of a snapshot, without making one."""
        sizes = [_inline(versions[-1].value) for versions in self.documents.versions.values() if versions]
        sizes += [_inline(known.payload) for known in self.checkpoints.all()]
        named = _BYTES_A_NAME * len(self.workspace.named)
        return sum(sizes) + _BYTES_A_FILE * self.workspace.tree.count + named

    def encode(self) -> bytes:
        """What stands, as bytes that depend on nothing else."""
        files = self.workspace.tree.files
        latest = {kind: versions[-1] for kind, versions in self.documents.versions.items() if versions}
        state = _State(
            tuple(_Document(kind, v.seq, v.version, v.value) for kind, v in sorted(latest.items())),
            tuple(
                _File(path, file.seq, file.digest, file.size, file.is_inline, file.is_executable)
                for path in sorted(files)
                if (file := files[path]) is not None
            ),
            tuple(_Checkpoint(c.name, c.sequence, c.seq, c.time, c.payload) for c in self.checkpoints.all()),
            tuple(sorted(self.checkpoints.highest.items())),
            self.workspace.nonce,
            self._named(),
            tuple(sorted(self.workspace.named)),
        )
        return _encode(state)

    def _named(self) -> _Named | None:
        workspace = self.workspace
        last = workspace.snapshot
        if last is None:
            return None
        return _Named(workspace.snapshot_seq, last.id, last.files, last.size, last.root)

    def snapshot(self, upto: int) -> tuple[Snapshot, Blob]:
        """What stands, where record `upto` was the last that was taken in."""
        data = self.encode()
        blob = Blob(values.digest(data).hex(), data)
        return Snapshot(upto=upto, blob=blob.id, size=len(data), format=FORMAT), blob


def restored(snapshot: Snapshot, data: bytes) -> Folded | None:
    """What `data`, the bytes of `snapshot`, hold. None: they are none, or not for this version to read."""
    if snapshot.format != FORMAT or values.digest(data).hex() != snapshot.blob:
        return None
    try:
        state = _decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    folded = Folded()
    folded.covered = snapshot.upto
    for doc in state.documents:
        folded.documents.versions[doc.kind] = [DocumentVersion(doc.seq, doc.version, doc.value)]
    folded.workspace.restore(
        (of.path, File(of.digest, of.size, of.seq, of.is_inline, of.is_executable)) for of in state.files
    )
    folded.workspace.nonce = state.nonce
    folded.workspace.named.update(state.named)
    if (last := state.directory) is not None:
        there = FileSnapshot(id=last.id, files=last.files, size=last.size, root=last.root)
        folded.workspace.restore_snapshot(last.seq, there)
    for each in state.checkpoints:
        folded.checkpoints.written(Checkpoint(each.name, each.sequence, each.seq, each.time, each.payload))
    folded.checkpoints.highest.update(state.highest)
    return folded


def _inline(value: Value) -> int:
    return len(value) if isinstance(value, bytes) else 0

"""A snapshot and the records behind it come to what all records come to; and its bytes are for ever."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from journal.core import values
from journal.core.codec import seal
from journal.core.records import (
    BlobRef,
    Body,
    CallOutcome,
    CheckpointDeleted,
    CheckpointWritten,
    DocumentEdit,
    DocumentEdited,
    FileChange,
    FilesChanged,
    FileSnapshot,
    Record,
    RunCreated,
    Snapshot,
    TurnRetried,
)
from journal.replay.snapshot import Folded, SnapshotOutdated, restored
from tests.core.hand_msgpack import pack

DIGEST = bytes(range(16))


def record(seq: int, body: Body) -> Record:
    sealed = seal("r", body, turn="t", key="k")
    return Record("r", seq, 0.0, sealed.type, "t", "k", 1, b"", sealed.body, sealed.checksum)


def fold(records: list[Record], folded: Folded | None = None) -> Folded:
    folded = folded or Folded()
    for each in records:
        folded.add(each)
    return folded


kinds = st.sampled_from(["todo", "plan"])
paths = st.sampled_from(["/a", "/b", "/d/a", "/d/b", "/d/e/a"])
inline = st.sampled_from([b"1", b'"x"', b"[]"])
kept = inline | st.just(BlobRef(DIGEST.hex(), 70_000))
edits = st.builds(DocumentEdit, doc=kinds, version=st.integers(1, 3), value=kept) | st.builds(
    DocumentEdit, doc=kinds, version=st.just(1), rejected=st.just("so")
)
changes = st.builds(
    FileChange, path=paths, content=st.none() | kept, is_executable=st.booleans()
) | st.builds(FileChange, path=paths, rejected=st.just("so"))
trees = st.builds(
    FileSnapshot, id=st.sampled_from(["00aa", "00bb", "00cc"]), files=st.integers(0, 3), root=st.just("/r")
)
changes |= st.builds(FileChange, path=st.just("/"), snapshot=trees)
names = st.sampled_from(["n", "m"])
bodies = st.one_of(
    st.builds(DocumentEdited, edit=edits),
    st.builds(FilesChanged, changes=st.lists(changes, max_size=3).map(tuple)),
    st.builds(
        CallOutcome,
        status=st.just("ok"),
        edits=st.lists(edits, max_size=2).map(tuple),
        files=st.lists(changes, max_size=3).map(tuple),
    ),
    st.builds(CheckpointWritten, name=names, sequence=st.integers(0, 3), payload=kept),
    st.builds(CheckpointDeleted, name=names, sequence=st.integers(0, 3)),
    st.builds(
        TurnRetried, superseded=st.lists(st.integers(1, 25), max_size=4).map(lambda s: tuple(sorted(s)))
    ),
)


def seen(folded: Folded) -> Any:
    """What readers see of it, each part in its own way."""
    tree = folded.workspace.tree
    workspace = folded.workspace
    return (
        (workspace.nonce, workspace.snapshot, workspace.snapshot_seq, sorted(workspace.named)),
        {kind: folded.documents.latest(kind) for kind in ("todo", "plan")},
        {path: tree.get(path) for path in sorted(tree.paths())},
        (tree.count, tree.size),
        {path: tree.below_directory(path) for path in ("/", "/d", "/d/e", "/a")},
        folded.checkpoints.all(),
        [folded.checkpoints.next(name) for name in ("n", "m")],
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(bodies, max_size=25), st.integers(1, 25))
def test_a_snapshot_and_what_comes_behind_it_is_the_fold(said: list[Body], cut: int) -> None:
    records = [record(1, RunCreated(agent="a", nonce=DIGEST))]
    records += [record(seq, body) for seq, body in enumerate(said, 2)]
    cut = min(cut, len(records))
    behind = [b for b in said[cut - 1 :] if isinstance(b, TurnRetried)]
    is_outdated = any(seq <= cut for body in behind for seq in body.superseded)
    snapshot, blob = fold(records[:cut]).snapshot(cut)
    begun = restored(snapshot, blob.data)
    assert begun is not None
    assert begun.encode() == blob.data
    assert seen(begun) == seen(fold(records[:cut]))
    if is_outdated:
        with pytest.raises(SnapshotOutdated):
            fold(records[cut:], begun)
        return
    found, whole = fold(records[cut:], begun), fold(records)
    assert seen(found) == seen(whole)
    assert found.encode() == whole.encode()


GOLDEN = pack(
    [
        [["plan", 5, 1, {"blob": DIGEST.hex(), "size": 70_000}], ["todo", 4, 2, b"[]"]],
        [["/a", 3, values.digest(b"x"), 1, True, False], ["/d/b", 3, DIGEST, 9_000, False, True]],
        [["n", 2, 6, 0.0, b"{}"]],
        [["m", 7], ["n", 2]],
        DIGEST,
        [12, "00ff", 2, 70_000, "/srv/files"],
        ["00ee", "00ff"],
    ]
)
"""Format 1, as the specification of MessagePack has it."""


def test_the_bytes_are_those_of_format_1() -> None:
    first, second = (
        FileSnapshot(id=name, files=2, size=70_000, root="/srv/files") for name in ("00ee", "00ff")
    )
    records = [
        record(1, RunCreated(agent="a", nonce=DIGEST)),
        record(
            3,
            FilesChanged(
                changes=(
                    FileChange(path="/d/b", content=BlobRef(DIGEST.hex(), 9_000), is_executable=True),
                    FileChange(path="/a", content=b"x"),
                    FileChange(path="/gone", content=b"x"),
                )
            ),
        ),
        record(4, DocumentEdited(edit=DocumentEdit(doc="todo", version=2, value=b"[]"))),
        record(
            5, DocumentEdited(edit=DocumentEdit(doc="plan", version=1, value=BlobRef(DIGEST.hex(), 70_000)))
        ),
        record(6, CheckpointWritten(name="n", sequence=2, payload=b"{}")),
        record(7, CheckpointWritten(name="m", sequence=7, payload=b"{}")),
        record(8, CheckpointDeleted(name="m", sequence=7)),
        record(9, FilesChanged(changes=(FileChange(path="/gone"),))),
        record(11, FilesChanged(v=2, changes=(FileChange(path="/", snapshot=first),))),
        record(12, CallOutcome(v=3, status="ok", files=(FileChange(path="/", snapshot=second),))),
    ]
    folded = fold(records)
    assert folded.encode() == GOLDEN
    snapshot = Snapshot(upto=12, blob=values.digest(GOLDEN).hex(), size=len(GOLDEN))
    begun = restored(snapshot, GOLDEN)
    assert begun is not None
    assert seen(begun) == seen(folded)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GOLDEN[:-1],
        GOLDEN + b"\0",
        pack([[], [], [], [], b"", None]),
        pack([[], [], [], [], b"", None, [], []]),
        pack([[["todo", "4", 2, b"[]"]], [], [], [], b"", None, []]),
        b"\x97" * 100_000,
    ],
    ids=["none", "cut", "more", "too few", "too many", "types", "deep"],
)
def test_other_bytes_are_none(data: bytes) -> None:
    """Though their digest is right."""
    assert restored(Snapshot(upto=9, blob=values.digest(data).hex(), size=len(data)), data) is None


def test_other_formats_and_digests_are_none() -> None:
    name = values.digest(GOLDEN).hex()
    assert restored(Snapshot(upto=9, blob=name, size=len(GOLDEN), format=2), GOLDEN) is None
    assert restored(Snapshot(upto=9, blob=DIGEST.hex(), size=len(GOLDEN)), GOLDEN) is None


def test_none_is_made_that_is_larger_than_what_it_spares(monkeypatch: pytest.MonkeyPatch) -> None:
    """128 bytes for each record at most, and nothing above the bound."""
    folded = fold([record(2, DocumentEdited(edit=DocumentEdit(doc="d", version=1, value=b"x" * 64_000)))])
    assert not folded.is_due(499)
    assert folded.is_due(500)
    fold([record(3, DocumentEdited(edit=DocumentEdit(doc="e", version=1, value=b"x" * 64_000)))], folded)
    assert not folded.is_due(999)
    assert folded.is_due(1000)
    monkeypatch.setattr("journal.replay.snapshot.MOST_BYTES", 127_999)
    assert not folded.is_due(1_000_000)

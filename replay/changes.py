"""What changed of documents, files and checkpoints between two places of a run's log. Pure."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from journal.core.records import Record
from journal.replay.checkpoints import Checkpoint, Checkpoints
from journal.replay.documents import Documents, DocumentVersion
from journal.replay.workspace import File, Workspace, digest_of

Sign = Literal["+", "~", "-"]
"""New, changed, gone."""


class Content:
    """What a run holds besides its calls. Feed it all records of a run in order."""

    def __init__(self) -> None:
        self.documents = Documents()
        self.workspace = Workspace()
        self.checkpoints = Checkpoints()

    def add(self, record: Record) -> None:
        """Take in the next record."""
        self.documents.add(record)
        self.workspace.add(record)
        self.checkpoints.add(record)

    def __str__(self) -> str:
        """How much there is, as in ``2 documents, 1 file``; empty if there is nothing."""
        counts = {
            "document": sum(1 for versions in self.documents.versions.values() if versions),
            "file": self.workspace.count,
            "checkpoint": len(self.checkpoints.all()),
        }
        return ", ".join(
            f"{count:,} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items() if count
        )


class DocumentChange(msgspec.Struct, frozen=True):
    """A document that is not what it was."""

    doc: str
    before: DocumentVersion | None
    after: DocumentVersion | None


class FileDifference(msgspec.Struct, frozen=True):
    """A file that is not what it was."""

    path: str
    before: File | None
    after: File | None


class CheckpointChange(msgspec.Struct, frozen=True):
    """A checkpoint that is not what it was."""

    name: str
    sequence: int
    before: Checkpoint | None
    after: Checkpoint | None


def sign(before: object | None, after: object | None) -> Sign:
    """What became of something."""
    return "+" if before is None else "-" if after is None else "~"


def documents(before: Documents, after: Documents) -> Iterator[DocumentChange]:
    """Those with another value, by kind."""
    for doc in sorted({*before.versions, *after.versions}):
        old, new = before.latest(doc), after.latest(doc)
        if (old and old.digest) != (new and new.digest):
            yield DocumentChange(doc, old, new)


def files(before: Workspace, after: Workspace) -> Iterator[FileDifference]:
    """Those with other bytes, or that can be run now and could not be, by path. Directories hold their trees."""
    for path in sorted({*before.tree.paths(), *after.tree.paths()}):
        old, new = before.tree.get(path), after.tree.get(path)
        if _file_of(old) != _file_of(new):
            yield FileDifference(path, old, new)


def _file_of(file: File | None) -> tuple[bytes | None, bool]:
    return digest_of(file), file is not None and file.is_executable


def checkpoints(before: Checkpoints, after: Checkpoints) -> Iterator[CheckpointChange]:
    """Those with another payload, by name and sequence."""
    known = [{(each.name, each.sequence): each for each in found.all()} for found in (before, after)]
    for name, sequence in sorted({*known[0], *known[1]}):
        old, new = (found.get((name, sequence)) for found in known)
        if (old and old.digest) != (new and new.digest):
            yield CheckpointChange(name, sequence, old, new)

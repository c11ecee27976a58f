"""The documents of a run: typed JSON that lives in its log. A pure fold of the edits, which never fails on one.

An edit carries the whole new value, so the last one that counts is the document. Edits of calls that a retry set aside
count no more. Next: `tools/documents.py` (what a document is), `engine/documents.py` (how edits get in).
"""

from collections.abc import Iterable

import msgspec

from journal.core import values
from journal.core.codec import open_record
from journal.core.records import (
    BlobRef,
    CallIntent,
    CallOutcome,
    DocumentEdit,
    DocumentEdited,
    Record,
    TurnRetried,
    TurnStarted,
    Value,
)

READ_MARK = "@doc:"
"""What the keys of documents that a handler read begin with."""
_HAS_EDITS = b"\xa5edits"
"""The field's name in msgpack: an outcome without these bytes edits nothing."""


class DocumentVersion(msgspec.Struct, frozen=True, gc=False):
    """A value that a document had from `seq` on."""

    seq: int
    version: int
    """Of the document's type."""
    value: Value
    """Canonical JSON, or where it lies."""

    @property
    def digest(self) -> bytes:
        """Of the value's bytes."""
        return (
            bytes.fromhex(self.value.blob) if isinstance(self.value, BlobRef) else values.digest(self.value)
        )


class Documents:
    """Feed it all records of a run in order."""

    def __init__(self) -> None:
        self.versions: dict[str, list[DocumentVersion]] = {}
        """Every value that counted, oldest first, by kind."""
        self.rejected = 0
        """How many edits were refused."""
        self._turn: str | None = None
        self._began: dict[str, int] = {}
        """Seq of the first intent of each call of the turn that is worked on, by key."""
        self._by_call: dict[int, int] = {}
        """Where a call of that turn edited: seq of its outcome, and when it began."""

    def add(self, record: Record) -> None:
        """Take in the next record."""
        if record.type == CallOutcome.TYPE:
            if _HAS_EDITS in record.body:
                body = open_record(record)
                assert isinstance(body, CallOutcome)
                self._by_call[record.seq] = self._began.get(record.key or "", record.seq)
                self.apply(body.edits, record.seq)
        elif record.type == CallIntent.TYPE:
            self._began.setdefault(record.key or "", record.seq)
        elif record.type == TurnStarted.TYPE:
            if record.turn != self._turn:
                self._turn, self._began, self._by_call = record.turn, {}, {}
        elif record.type == DocumentEdited.TYPE:
            body = open_record(record)
            assert isinstance(body, DocumentEdited)
            self.apply((body.edit,), record.seq)
        elif record.type == TurnRetried.TYPE:
            body = open_record(record)
            assert isinstance(body, TurnRetried)
            self._set_aside(body)

    def apply(self, edits: Iterable[DocumentEdit], seq: int) -> None:
        """Let `edits` of record `seq` count. Foreign ones may come late: the order is that of the log all the same."""
        for edit in edits:
            if edit.rejected is not None or edit.value is None:
                self.rejected += 1
                continue
            versions = self.versions.setdefault(edit.doc, [])
            if any(known.seq == seq for known in reversed(versions)):
                continue
            versions.append(DocumentVersion(seq, edit.version, edit.value))
            if len(versions) > 1 and versions[-2].seq > seq:
                versions.sort(key=_seq)

    def _set_aside(self, retried: TurnRetried) -> None:
        gone = set(retried.superseded)
        if retried.from_seq is not None:
            gone.update(seq for seq, began in self._by_call.items() if began >= retried.from_seq)
        for kind, versions in self.versions.items():
            self.versions[kind] = [version for version in versions if version.seq not in gone]

    def latest(self, kind: str) -> DocumentVersion | None:
        """The document as it stands; None: nobody has written it."""
        versions = self.versions.get(kind)
        return versions[-1] if versions else None

    def with_digest(self, kind: str, digest: bytes) -> DocumentVersion | None:
        """The document when it had the value of that digest."""
        return next((v for v in reversed(self.versions.get(kind, ())) if v.digest == digest), None)


def _seq(version: DocumentVersion) -> int:
    return version.seq

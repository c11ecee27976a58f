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
    CallOutcome,
    DocumentEdit,
    DocumentEdited,
    Record,
    TurnRetried,
    Value,
)
from journal.replay.versions import insert, set_aside, without

READ_MARK = "@doc:"
"""What the keys of documents that a handler read begin with."""
EDITED_MEANWHILE = "the document was edited meanwhile"
"""Why an edit is rejected that can only be taken as it is, and was made on another value."""
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

    def add(self, record: Record) -> None:
        """Take in the next record."""
        if record.type == CallOutcome.TYPE:
            if _HAS_EDITS in record.body:
                body = open_record(record)
                assert isinstance(body, CallOutcome)
                self.apply(body.edits, record.seq)
        elif record.type == DocumentEdited.TYPE:
            body = open_record(record)
            assert isinstance(body, DocumentEdited)
            self.apply((body.edit,), record.seq)
        elif record.type == TurnRetried.TYPE:
            gone = set_aside(record)
            for kind, versions in self.versions.items():
                self.versions[kind] = without(versions, gone)

    def apply(self, edits: Iterable[DocumentEdit], seq: int) -> None:
        """Let `edits` of record `seq` count."""
        for edit in edits:
            if edit.rejected is not None or edit.value is None:
                continue
            insert(self.versions.setdefault(edit.doc, []), DocumentVersion(seq, edit.version, edit.value))

    def latest(self, kind: str) -> DocumentVersion | None:
        """The document as it stands; None: nobody has written it."""
        versions = self.versions.get(kind)
        return versions[-1] if versions else None

    def with_digest(self, kind: str, digest: bytes) -> DocumentVersion | None:
        """The document when it had the value of that digest."""
        return next((v for v in reversed(self.versions.get(kind, ())) if v.digest == digest), None)

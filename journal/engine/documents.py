"""Documents in a turn: what a call and a handler read and edit, and how an edit gets into the log.

A call edits a draft of its own; the edits lie in its outcome, so they are durable with it or not at all. The outcome is
made when its batch is packed, and lands at just the head that was read (`editing.py`): where a document has changed
since the draft was made, the update functions are applied again. An outcome is never refused over a document: an
edit that cannot be applied again is recorded as rejected.
"""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from journal.core import values
from journal.core.codec import Blob, open_record, pack
from journal.core.errors import InvalidOptions, NotInTurn
from journal.core.records import BlobRef, DocumentEdit, DocumentEdited, Record
from journal.replay.documents import READ_MARK, Documents, DocumentVersion
from journal.tools.documents import Document, check_document

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt

T = TypeVar("T")
Update = Callable[[T], T]


class AttemptDocs:
    """The documents of the run as one attempt knows them."""

    def __init__(self, attempt: "Attempt") -> None:
        self._attempt = attempt
        folded = attempt.history.folded
        self.documents = Documents() if folded is None else folded.documents
        self._loaded: dict[str, bytes] = {}
        """Values that lie in blobs, by id."""
        self._ahead: dict[str, DocumentVersion] = {}
        """What edits that are packed into one batch make of the documents, before it has landed."""

    async def load(self) -> None:
        """Fetch what may be read without waiting: the documents as they stand, and as the handler saw them."""
        if not self._attempt.agent.docs:
            return
        seen = {
            values.decode(observed.value)
            for key, observed in self._attempt.history.observed.items()
            if key.rpartition("/")[2].startswith(READ_MARK)
        }
        for versions in self.documents.versions.values():
            wanted = versions[-1:] + [v for v in versions if v.digest.hex() in seen]
            for version in wanted:
                await self._fetch(version)

    async def add(self, record: Record) -> None:
        """Somebody else edited."""
        body = open_record(record)
        assert isinstance(body, DocumentEdited)
        await self.fetch((body.edit,), record.seq)  # first: from then on it may be read
        self.documents.add(record)

    async def fetch(self, edits: tuple[DocumentEdit, ...], seq: int) -> None:
        """Make ready what `edits`, of evidence at `seq`, would write."""
        for edit in edits:
            if edit.value is not None:
                await self._fetch(DocumentVersion(seq, edit.version, edit.value))

    async def _fetch(self, version: DocumentVersion) -> None:
        if isinstance(version.value, BlobRef) and version.value.blob not in self._loaded:
            data = await self._attempt.recorded(version.value, version.seq)
            assert data is not None
            self._loaded[version.value.blob] = data

    def landed(self, edits: tuple[DocumentEdit, ...], blobs: tuple[Blob, ...], seq: int) -> None:
        """Edits of ours are durable, as record `seq`."""
        self._loaded.update((blob.id, blob.data) for blob in blobs)
        self.documents.apply(edits, seq)
        for edit in edits:
            self._ahead.pop(edit.doc, None)

    def begin_batch(self) -> None:
        """What is made next rests on the log alone."""
        self._ahead = {}

    def ahead(self, edits: tuple[DocumentEdit, ...], blobs: tuple[Blob, ...]) -> None:
        """What is made next in the same batch rests on these edits too."""
        self._loaded.update((blob.id, blob.data) for blob in blobs)
        for edit in edits:
            if edit.value is not None:
                self._ahead[edit.doc] = DocumentVersion(0, edit.version, edit.value)

    def base(self, kind: str) -> DocumentVersion | None:
        """What an edit that is made now is made on."""
        return self._ahead.get(kind) or self.documents.latest(kind)

    def checked(self, doc: Document[Any]) -> Document[Any]:
        """`doc`, if the agent lists it."""
        check_document(doc, "docs")
        agent = self._attempt.agent
        if agent.docs.get(doc.kind) is not doc:
            raise InvalidOptions(
                f"agent {agent.name!r} does not list {doc!r}: say @journal.agent(docs=[...]), so that it is there "
                "when a turn begins"
            )
        return doc

    def value_of(self, doc: Document[T], version: DocumentVersion | None) -> T:
        """The document as it was in that version."""
        if version is None:
            return doc.initial()
        return doc.read(self.data_of(version), version.version)

    def data_of(self, version: DocumentVersion) -> bytes:
        """The bytes of that version."""
        value = version.value
        return self._loaded[value.blob] if isinstance(value, BlobRef) else value


class _Draft:
    """A document as one call has it."""

    def __init__(self, doc: Document[Any], base: DocumentVersion | None) -> None:
        self.doc = doc
        self.base = base
        self.updates: list[Update[Any]] = []
        self.data = b""


class CallDocs:
    """`io.docs`: the documents as the running call sees them, its own edits included."""

    def __init__(self, docs: AttemptDocs) -> None:
        self._docs = docs
        self._drafts: dict[str, _Draft] = {}
        self._is_over = False

    def get(self, doc: Document[T]) -> T:
        """The value. Changing it changes nothing: use `update`. Raises `DocumentNotRead`."""
        self._check()
        draft = self._drafts.get(self._docs.checked(doc).kind)
        if draft is not None:
            return doc.read(draft.data, doc.version)
        return self._docs.value_of(doc, self._docs.documents.latest(doc.kind))

    def update(self, doc: Document[T], fn: Update[T]) -> T:
        """Edit: `fn` gets the value and returns the next one, which is returned.

        Others see it once the call has ended well; if it raises, or is interrupted, nothing was edited. `fn` may run
        again on a newer value, so it must do nothing else. Raises `DocumentNotRead`, `InvalidValue`, what `fn` raises.
        """
        self._check()
        draft = self._drafts.get(self._docs.checked(doc).kind)
        if draft is None:
            base = self._docs.documents.latest(doc.kind)
            before = self._docs.value_of(doc, base)
            draft = _Draft(doc, base)
        else:
            before = doc.read(draft.data, doc.version)
        draft.data = applied(doc, fn, before)
        draft.updates.append(fn)
        self._drafts[doc.kind] = draft
        return doc.read(draft.data, doc.version)

    def _check(self) -> None:
        if self._is_over:
            raise NotInTurn(what="io.docs of a call that has ended", where="a call")

    # For the engine ----------------------------------------------------------------------------------

    @property
    def has_edits(self) -> bool:
        """Whether anything was updated."""
        return bool(self._drafts)

    def forget(self) -> None:
        """The act is tried again: what it edited counts for nothing."""
        self._drafts = {}

    def close(self) -> None:
        """The act has ended."""
        self._is_over = True

    def edits(self) -> tuple[tuple[DocumentEdit, ...], tuple[Blob, ...]]:
        """What was edited, on the documents as they are now; and what lies in blobs."""
        edits: list[DocumentEdit] = []
        blobs: list[Blob] = []
        for draft in self._drafts.values():
            edit, blob = self._edit(draft)
            edits.append(edit)
            if blob is not None:
                blobs.append(blob)
        return tuple(edits), tuple(blobs)

    def _edit(self, draft: _Draft) -> tuple[DocumentEdit, Blob | None]:
        doc, latest = draft.doc, self._docs.base(draft.doc.kind)
        base = None if latest is None else latest.digest
        if base != (None if draft.base is None else draft.base.digest):
            try:
                value: Any = self._docs.value_of(doc, latest)
                for fn in draft.updates:
                    draft.data = applied(doc, fn, value)
                    value = doc.read(draft.data, doc.version)
            except Exception as error:  # noqa: BLE001 - what happened has happened
                reason = f"applied again on a newer value, it raised {type(error).__qualname__}"
                return DocumentEdit(doc=doc.kind, version=doc.version, base=base, rejected=reason), None
            draft.base = latest
        packed, blob = pack(draft.data)
        return DocumentEdit(doc=doc.kind, version=doc.version, base=base, value=packed), blob


def applied(doc: Document[T], fn: Update[T], before: T) -> bytes:
    """The bytes of what `fn` makes of `before`. Raises `InvalidOptions`, `InvalidValue`, and what `fn` raises."""
    if not callable(fn):
        raise InvalidOptions(f"an update of document {doc.kind!r} is a function, not {fn!r}")
    after = fn(before)
    if inspect.iscoroutine(after):
        after.close()
        raise InvalidOptions(
            f"an update of document {doc.kind!r} is a plain function, not an `async def`: it may run again, so it "
            "waits for nothing"
        )
    if after is None and doc.type is not type(None):
        raise InvalidOptions(
            f"an update of document {doc.kind!r} returned None: return the next value, changed in place or not"
        )
    return doc.encode(after)

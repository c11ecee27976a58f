"""An outcome that edits documents or changes files: made when it is known what it is made on.

It lands at just the head that was read (`claim.py`). An outcome is never refused over what it edits: what cannot be
applied to what is there by then is recorded as rejected.
"""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from journal.core.codec import Blob, seal
from journal.core.records import CallOutcome, DocumentEdit, NewRecord
from journal.engine.claim import Late
from journal.engine.directories import CallChanges, LeftChanges
from journal.engine.documents import CallDocs
from journal.engine.files import CallFiles
from journal.replay.documents import EDITED_MEANWHILE
from journal.tools.workspace import settled

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt

EDITS_VERSION, SNAPSHOT_VERSION = 2, 3
"""Of an outcome that edits, or that names a snapshot."""


class EditingOutcome(Late):
    """See above. Without drafts it is one that another process left as evidence."""

    def __init__(
        self,
        attempt: "Attempt",
        key: str,
        outcome: CallOutcome,
        blob: Blob | None,
        docs: CallDocs | None = None,
        files: CallFiles | None = None,
        snapshot: CallChanges | None = None,
    ) -> None:
        super().__init__(self._make, self._landed)
        self._attempt = attempt
        self._key = key
        self._docs = docs
        self.outcome = outcome
        self._blobs = () if blob is None else (blob,)
        self._edit_blobs: tuple[Blob, ...] = ()
        self._file_blobs: tuple[Blob, ...] = ()
        self._contents: dict[bytes, bytes] = {}
        self._wanted = outcome.files
        """Changes of files, whether they count or not."""
        self._snapshot: CallChanges | LeftChanges | None = snapshot
        """What becomes of files that are in a directory."""
        if attempt.files.directory is not None:
            if snapshot is None and outcome.files:
                self._snapshot = LeftChanges(attempt.files.directory, outcome.files)
            self._wanted = ()
        elif files is not None:
            self._wanted, self._file_blobs, self._contents = files.changes()
        self._changes = self._wanted
        self._is_made = False

    def as_it_stands(self) -> tuple[CallOutcome, tuple[Blob, ...]]:
        """The outcome that was made last, or would be by now; and its blobs."""
        if not self._is_made:
            self._remake()
        return self.outcome, self._all_blobs

    def _remake(self) -> None:
        """On the documents and files as they are now."""
        self._is_made = True
        attempt = self._attempt
        if self._docs is not None:
            edits, self._edit_blobs = self._docs.edits()
        else:
            edits = tuple(map(self._settled, self.outcome.edits))
        if self._snapshot is not None:
            self._changes = self._snapshot.recorded()
        else:
            self._changes = settled(self._wanted, attempt.files.base(), attempt.files.limits)
        files = self._changes
        if not attempt.files.durable:
            files = tuple(change for change in files if change.rejected is not None)
        version = EDITS_VERSION if edits or files else 1
        if any(change.snapshot is not None for change in files):
            version = SNAPSHOT_VERSION
        self.outcome = replace(self.outcome, edits=edits, files=files, v=version)

    def _settled(self, edit: DocumentEdit) -> DocumentEdit:
        """An edit whose function is gone, with the process that made it: it stands if nothing has changed since."""
        latest = self._attempt.docs.base(edit.doc)
        if edit.rejected is not None or (None if latest is None else latest.digest) == edit.base:
            return edit
        return replace(edit, value=None, rejected=EDITED_MEANWHILE)

    def _make(self, is_first: bool) -> tuple[NewRecord, tuple[Blob, ...]]:
        attempt = self._attempt
        if is_first:
            attempt.docs.begin_batch()
            attempt.files.begin_batch()
        self._remake()
        attempt.docs.ahead(self.outcome.edits, self._edit_blobs)
        if self._changes and self._snapshot is None:
            attempt.files.ahead(self._changes)
        record = seal(attempt.holding.run, self.outcome, turn=attempt.turn_id, key=self._key)
        return record, self._all_blobs

    @property
    def _all_blobs(self) -> tuple[Blob, ...]:
        """Of the result, of the documents and of the files."""
        files = self._file_blobs if self._attempt.files.durable else ()
        return self._blobs + self._edit_blobs + files

    def _landed(self, seq: int) -> None:
        attempt = self._attempt
        attempt.docs.landed(self.outcome.edits, self._edit_blobs, seq)
        attempt.files.landed(self._changes, self._contents, seq)
        if self._snapshot is not None:
            self._snapshot.landed()
        for edit in self.outcome.edits:
            if edit.rejected is not None:
                attempt.log.warning("edit rejected", call=self._key, doc=edit.doc, reason=edit.rejected)
        if (refused := sum(change.rejected is not None for change in self._changes)) > 0:
            attempt.log.warning("files rejected", call=self._key, count=refused)

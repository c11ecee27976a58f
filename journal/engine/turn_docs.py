"""`turn.docs`: the documents of the run as the handler sees them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from journal.core.errors import DocumentNotRead
from journal.engine import outside
from journal.engine.context import in_call
from journal.replay.documents import READ_MARK
from journal.tools.awaiting import awaited
from journal.tools.documents import Document
from journal.tools.tool import step

if TYPE_CHECKING:
    from journal.engine.turn import Turn

T = TypeVar("T")


class TurnDocs:
    """Reads are recorded, so that a replay reads the same; an edit is a step."""

    def __init__(self, turn: "Turn") -> None:
        self._turn = turn
        self._attempt = turn._attempt  # noqa: SLF001 - the handler's side of the same thing

    def get(self, doc: Document[T]) -> T:
        """The value now; on replay, that of then. Raises `DocumentNotRead`."""
        docs = self._attempt.docs
        latest = docs.documents.latest(docs.checked(doc).kind)
        now = None if latest is None else latest.digest.hex()
        digest = outside.seen(self._attempt, "turn.docs.get", f"{READ_MARK}{doc.kind}", now)
        if digest is None:
            return doc.initial()
        version = docs.documents.with_digest(doc.kind, bytes.fromhex(digest))
        if version is None:
            raise DocumentNotRead(kind=doc.kind, reason="the log no longer holds what was read here")
        return docs.value_of(doc, version)

    @awaited("turn.docs.update")
    async def update(self, doc: Document[T], fn: Callable[[T], T]) -> None:
        """Edit, as a step of its own; `get` tells what came of it. `fn` may run again on a newer value."""
        self._attempt.docs.checked(doc)

        @step(name="update_document")
        async def update_document(kind: str) -> None:
            del kind
            context = in_call()
            assert context is not None, "a step runs in its call"
            context.docs.update(doc, fn)

        await self._turn.step(update_document, doc.kind)

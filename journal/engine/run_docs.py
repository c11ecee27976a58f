"""`journal.docs`: the documents of a run, read and edited by the application."""

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, TypeVar

from journal.core.codec import Blob, pack
from journal.core.errors import DocumentBusy
from journal.core.ids import check_id
from journal.core.ports import Delta, offset_at
from journal.core.records import BlobRef, Body, DocumentEdit, DocumentEdited
from journal.engine.documents import applied
from journal.engine.run_reader import UPDATE_SECONDS, RunReader, reader_of
from journal.tools.documents import Document, check_document

if TYPE_CHECKING:
    from journal.engine.journal import Journal

T = TypeVar("T")
MOST_BEHIND = 100
"""Records by which a watcher may lag before it is shown only the newest value."""


class RunDocs:
    """Documents by run id. Made by the journal."""

    def __init__(self, journal: "Journal") -> None:
        self._journal = journal

    async def get(self, run_id: str, doc: Document[T], *, upto: int | None = None) -> T:
        """The document as it stands, or stood behind record `upto` of the log.

        Raises `RunNotFound` and `DocumentNotRead`.
        """
        reader = await self._reader(run_id, doc)
        await reader.read_on(upto)
        return await _value_of(reader, doc)

    async def update(self, run_id: str, doc: Document[T], fn: Callable[[T], T]) -> T:
        """Edit: `fn` gets the value and returns the next one, which is returned once it is durable.

        Whoever works on the run sees it from then on. `fn` runs again where somebody else edited meanwhile, so it must
        do nothing else. Raises `RunNotFound`, `DocumentNotRead`, `InvalidValue`, what `fn` raises, and `DocumentBusy`.
        """
        reader = await self._reader(run_id, doc)
        data = b""

        async def make() -> tuple[Body, tuple[Blob, ...]]:
            nonlocal data
            latest = reader.folded.documents.latest(doc.kind)
            data = applied(doc, fn, await _value_of(reader, doc))
            value, blob = pack(data)
            base = None if latest is None else latest.digest
            edit = DocumentEdit(doc=doc.kind, version=doc.version, base=base, value=value)
            return DocumentEdited(edit=edit), () if blob is None else (blob,)

        def busy() -> Exception:
            return DocumentBusy(run_id=run_id, kind=doc.kind, seconds=UPDATE_SECONDS)

        await reader.append("document", make, self._journal.clock, busy)
        return doc.read(data, doc.version)

    async def watch(self, run_id: str, doc: Document[T]) -> AsyncIterator[T]:
        """The document as it stands, then each newer value; ends when the run is closed.

        Whoever looks too seldom is shown only the newest. Raises as `get` does.
        """
        reader = await self._reader(run_id, doc)
        world = reader.world
        await reader.read_on()
        yield await _value_of(reader, doc)
        shown, upto = reader.folded.documents.latest(doc.kind), 0
        async for item in world.follow(run_id, offset=offset_at(reader.head)):
            if isinstance(item, Delta):
                continue
            await reader.add(item)
            latest = reader.folded.documents.latest(doc.kind)
            if latest is shown or item.seq < upto:
                continue
            info = await world.run(run_id)
            if info is not None and info.head - item.seq > MOST_BEHIND:
                upto = info.head
                continue
            shown = latest
            yield await _value_of(reader, doc)

    async def _reader(self, run_id: str, doc: Document[T]) -> RunReader:
        check_document(doc, "journal.docs")
        return await reader_of(self._journal, check_id(run_id, "run id"))


async def _value_of(reader: RunReader, doc: Document[T]) -> T:
    latest = reader.folded.documents.latest(doc.kind)
    if latest is None:
        return doc.initial()
    value = latest.value
    data = await reader.world.get_blob(reader.run, value.blob) if isinstance(value, BlobRef) else value
    return doc.read(data, latest.version)

"""`journal.docs`: the documents of a run, read and edited by the application."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, TypeVar

from journal.core.codec import Blob, pack, seal
from journal.core.errors import DocumentBusy, RunGone, RunNotFound
from journal.core.ids import check_id, new_batch_id, new_token
from journal.core.ports import START, Batch, Delta, HeadMoved, Keyed, World, offset_of
from journal.core.records import BlobRef, DocumentEdit, DocumentEdited, Record
from journal.engine.documents import applied
from journal.engine.offering import offer
from journal.replay.documents import Documents, DocumentVersion
from journal.tools.documents import Document

if TYPE_CHECKING:
    from journal.engine.journal import Journal

T = TypeVar("T")
UPDATE_SECONDS = 30.0
"""How long an edit looks for its place between those of others."""
MOST_BEHIND = 100
"""Records by which a watcher may lag before it is shown only the newest value."""
_PAGE = 500
_chance = random.SystemRandom()


class RunDocs:
    """Documents by run id. Made by the journal."""

    def __init__(self, journal: "Journal") -> None:
        self._journal = journal

    async def get(self, run_id: str, doc: Document[T]) -> T:
        """The document as it stands. Raises `RunNotFound` and `DocumentNotRead`."""
        reader = _Reader(await self._world(), check_id(run_id, "run id"))
        await reader.read_on()
        return await reader.value_of(doc)

    async def update(self, run_id: str, doc: Document[T], fn: Callable[[T], T]) -> T:
        """Edit: `fn` gets the value and returns the next one, which is returned once it is durable.

        Whoever works on the run sees it from then on. `fn` runs again where somebody else edited meanwhile, so it must
        do nothing else. Raises `RunNotFound`, `DocumentNotRead`, `InvalidValue`, what `fn` raises, and `DocumentBusy`.
        """
        world = await self._world()
        reader = _Reader(world, check_id(run_id, "run id"))
        clock = self._journal.clock
        until = clock.boottime() + UPDATE_SECONDS
        while True:
            await reader.read_on()
            latest = reader.documents.latest(doc.kind)
            data = applied(doc, fn, await reader.value_of(doc))
            value, blob = pack(data)
            base = None if latest is None else latest.digest
            edit = DocumentEdit(doc=doc.kind, version=doc.version, base=base, value=value)
            answer = await offer(world, _batch(run_id, edit, blob, reader.head), clock)
            if not isinstance(answer, HeadMoved):
                return doc.read(data, doc.version)
            if clock.boottime() > until:
                raise DocumentBusy(run_id=run_id, kind=doc.kind, seconds=UPDATE_SECONDS)
            await asyncio.sleep(_chance.uniform(0, 0.005))

    async def watch(self, run_id: str, doc: Document[T]) -> AsyncIterator[T]:
        """The document as it stands, then each newer value; ends when the run is closed.

        Whoever looks too seldom is shown only the newest. Raises as `get` does.
        """
        world = await self._world()
        reader = _Reader(world, check_id(run_id, "run id"))
        last = await reader.read_on()
        yield await reader.value_of(doc)
        shown, upto = reader.documents.latest(doc.kind), 0
        async for item in world.follow(run_id, offset=START if last is None else offset_of(last)):
            if isinstance(item, Delta):
                continue
            reader.add(item)
            latest = reader.documents.latest(doc.kind)
            if latest is shown or item.seq < upto:
                continue
            info = await world.run(run_id)
            if info is not None and info.head - item.seq > MOST_BEHIND:
                upto = info.head
                continue
            shown = latest
            yield await reader.value_of(doc)

    async def _world(self) -> World:
        return (await self._journal.runtime()).world


class _Reader:
    """The documents of one run, read as far as its log went."""

    def __init__(self, world: World, run: str) -> None:
        self._world = world
        self._run = run
        self.documents = Documents()
        self.head = 0

    def add(self, record: Record) -> None:
        self.documents.add(record)
        self.head = record.seq

    async def read_on(self) -> Record | None:
        """Read what is new; the last record of it."""
        last: Record | None = None
        while True:
            page = await self._world.read(self._run, after=self.head, limit=_PAGE)
            for last in page:
                self.add(last)
            if len(page) < _PAGE:
                break
        if self.head == 0:
            info = await self._world.run(self._run)
            if info is not None and info.moved_to is not None:
                raise RunGone(run_id=self._run, to=info.moved_to)
            raise RunNotFound(run_id=self._run, world=self._world.url)
        return last

    async def value_of(self, doc: Document[T]) -> T:
        latest = self.documents.latest(doc.kind)
        if latest is None:
            return doc.initial()
        return doc.read(await self._bytes_of(latest), latest.version)

    async def _bytes_of(self, version: DocumentVersion) -> bytes:
        if isinstance(version.value, BlobRef):
            return await self._world.get_blob(self._run, version.value.blob)
        return version.value


def _batch(run: str, edit: DocumentEdit, blob: Blob | None, head: int) -> Batch:
    record = seal(run, DocumentEdited(edit=edit))
    author = Keyed(f"document:{new_token().hex()}", b"")
    return Batch(run, new_batch_id(), author, (record,), at_head=head, blobs=() if blob is None else (blob,))

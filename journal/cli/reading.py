"""A run's records, page by page, up to the end or to the first that is damaged; and inputs, put together."""

from collections.abc import AsyncIterator

from journal.core.codec import open_record
from journal.core.errors import LogError
from journal.core.records import CallIntent, Record
from journal.engine.journal import Journal
from journal.replay.fold import RunFold
from journal.replay.inputs import Inputs, blobs_of, whole

PAGE = 500


async def records(
    journal: Journal, run_id: str, *, after: int = 0, upto: int | None = None
) -> AsyncIterator[Record]:
    """Records with seq > `after`, up to `upto` or the end.

    A store refuses a page for one damaged record; what precedes it is given before the `LogError` is raised.
    """
    limit = PAGE
    while upto is None or after < upto:
        wanted = limit if upto is None else min(limit, upto - after)
        try:
            page = await journal.read(run_id, after=after, limit=wanted)
        except LogError as damage:
            before = damage.seq - 1 - after
            if not 0 < before < wanted:
                raise
            limit = before
            continue
        for record in page:
            yield record
        if len(page) < wanted:
            return
        after = page[-1].seq


async def fill(journal: Journal, fold: RunFold) -> None:
    """Put all inputs of the run together; what lies in blobs is fetched."""
    world = (await journal.runtime()).world
    blobs: dict[str, bytes] = {}
    for call in fold.state.calls:
        found = None if call.input is None or call.input.seq is None else fold.inputs.at(call.input.seq)
        for ref in () if found is None else blobs_of(found):
            if ref.blob not in blobs:
                blobs[ref.blob] = await world.get_blob(fold.state.run, ref.blob)
    fold.fill(blobs)


class WholeInputs:
    """Whole inputs of the records of one run, which are given one after the other."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._inputs: Inputs | None = None

    async def of(self, record: Record) -> bytes | None:
        """The input of the next record, put together if it is a difference; else it stands there by itself."""
        try:
            body = open_record(record)
            if self._inputs is None:
                if not isinstance(body, CallIntent) or body.difference is None:
                    return None
                self._inputs = Inputs()  # the first: from here on what came before it matters
                async for earlier in records(self._journal, record.run, upto=record.seq - 1):
                    self._inputs.add(earlier, open_record(earlier))
            self._inputs.add(record, body)
            if (found := self._inputs.at(record.seq)) is None:
                return None
            world = (await self._journal.runtime()).world
            blobs = {ref.blob: await world.get_blob(record.run, ref.blob) for ref in blobs_of(found)}
            return whole(found, blobs)
        except LogError:
            return None  # what stands in the record is shown

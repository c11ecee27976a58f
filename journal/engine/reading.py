"""A run read whole from a store, for a replay that then needs none."""

from typing import Protocol

from journal.core.records import Record
from journal.replay.recorded import RecordedRun, blobs_of

_PAGE = 500


class Source(Protocol):
    """What a run is read from: a world, or a file."""

    async def read(self, run: str, *, after: int = 0, limit: int = 500) -> list[Record]:
        """See `Log.read`."""
        ...

    async def get_blob(self, run: str, blob: str) -> bytes:
        """See `Log.get_blob`."""
        ...


async def read_run(source: Source, run: str) -> RecordedRun:
    """Its records and blobs as they are now. Raises what reading raises."""
    records: list[Record] = []
    blobs: dict[str, bytes] = {}
    while page := await source.read(run, after=len(records), limit=_PAGE):
        records += page
        for record in page:
            for blob in blobs_of(record):
                blobs[blob] = await source.get_blob(run, blob)
        if len(page) < _PAGE:
            break
    return RecordedRun(records, blobs)

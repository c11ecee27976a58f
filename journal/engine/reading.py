"""A run read whole, from a store or a file, for a replay that then needs neither."""

import os

from journal.core.records import Record
from journal.engine.bundles import BundleSource, open_bundle
from journal.engine.digest import Source
from journal.replay.recorded import RecordedRun, blobs_of

_PAGE = 500


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


async def read_file(path: str | os.PathLike[str]) -> RecordedRun:
    """The run that was exported to `path`. Raises a `BundleError`, and what reading raises."""
    with open_bundle(path) as bundle:
        return await read_run(BundleSource(bundle), bundle.run)

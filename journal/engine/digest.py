"""What tells whether two worlds hold the same run."""

from typing import Protocol

from journal.core.ports import RunImage
from journal.core.records import Record
from journal.replay.digest import RunDigest

PIECE_ROWS = 200
"""Records read in one go."""


class Source(Protocol):
    """What a run is read from: a world, or a file."""

    async def read(self, run: str, *, after: int = 0, limit: int = 500) -> list[Record]:
        """See `Log.read`."""
        ...

    async def get_blob(self, run: str, blob: str) -> bytes:
        """See `Log.get_blob`."""
        ...


async def digest(source: Source, image: RunImage) -> bytes:
    """Of every field of the run's records up to the image's head, and of its blobs. Raises what reading raises."""
    found = RunDigest()
    head = 0
    while head < image.head:
        page = await source.read(image.run, after=head, limit=min(PIECE_ROWS, image.head - head))
        if not page:
            break
        for record in page:
            found.add_record(record)
        head = page[-1].seq
    for name in image.blobs:
        found.add_blob(name, await source.get_blob(image.run, name))
    return found.digest()

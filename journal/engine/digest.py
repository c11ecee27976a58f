"""What tells whether two worlds hold the same run."""

from hashlib import blake2b
from typing import Protocol

import msgspec

from journal.core.ports import RunImage
from journal.core.records import Record

PIECE_ROWS = 200
"""Records read in one go."""
_pack = msgspec.msgpack.Encoder().encode


class Source(Protocol):
    """What holds runs, as far as copying them goes: `Log` has the promises."""

    async def read(self, run: str, *, after: int = 0, limit: int = 500) -> list[Record]:
        """See `Log.read`."""
        ...

    async def get_blob(self, run: str, blob: str) -> bytes:
        """See `Log.get_blob`."""
        ...


async def digest(world: Source, image: RunImage) -> bytes:
    """Of every field of the run's records up to the image's head, and of its blobs. Raises what reading raises."""
    found = blake2b(digest_size=32)
    head = 0
    while head < image.head:
        page = await world.read(image.run, after=head, limit=min(PIECE_ROWS, image.head - head))
        if not page:
            break
        for record in page:
            found.update(_pack(record))
        head = page[-1].seq
    for name in image.blobs:
        data = await world.get_blob(image.run, name)
        found.update(f"{name} {len(data)} ".encode())
        found.update(data)
    return found.digest()

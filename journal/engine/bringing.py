"""Building a run up in a target until it is as its image says, and reading it back: the first half of a copy.

Every step may be taken twice, and by several at once. Next: `moving.py`, which decides what is copied and what moves.
"""

from collections.abc import AsyncIterator, Callable, Sequence

import anyio
from msgspec.structs import replace

from journal.core.codec import Blob
from journal.core.errors import RunDiffers
from journal.core.ports import RunImage, RunInfo, World
from journal.core.records import Record
from journal.engine.digest import PIECE_ROWS, Source, digest

PIECE_BYTES = 4 * 1024 * 1024
"""Written in one go; a longer blob goes alone."""
POLL_SECONDS = 0.2
"""How often it is looked whether a holder has let go, or another who copies the same run has gone on."""
NEVER = 2**62
"""The head that is promised while turns and keys are yet to come."""
VERIFY_TRIES = 5
"""How often the target is brought to the image, where another copies the same run."""

Progress = Callable[[int], None]
"""Told how many records more there are in the target."""


async def bring(
    source: Source,
    target: World,
    image: RunImage,
    there: RunInfo | None,
    on_progress: Progress,
) -> None:
    """Bring the target, where the run is as `there` says, to the image, and read it back.

    Until the last piece more records are promised than will ever come: nobody, who builds it up too, can settle it
    before. Raises `RunDiffers`, and what the stores raise.
    """
    run = image.run
    # Turns and keys come with the last piece: one that may fall on what another has settled meanwhile.
    last = replace(image, head=NEVER)
    bare = replace(last, turns=(), keys=())
    head = 0 if there is None else there.head
    if head > image.head:
        raise RunDiffers(run_id=run, world=target.url, reason="it is longer there")
    # A settled copy goes on behind its last record, which is shown again.
    after = head if there is None or there.building else head - 1
    is_whole = False
    while after < image.head:
        page = await source.read(run, after=after, limit=min(PIECE_ROWS, image.head - after))
        for piece in _pieces(page):
            is_last = piece[-1].seq == image.head
            is_whole = is_last and not image.blobs
            promised = image if is_whole else last if is_last else bare
            before, head = head, await target.build(promised, piece, ())
            on_progress(head - before)
            after = piece[-1].seq
    if not is_whole:
        known = frozenset((await target.image(run)).blobs)
        async for blobs in _blobs(source, image, known):
            await target.build(last, (), blobs)
        await target.build(image, (), ())
    await _verify(source, target, image)


async def _blobs(source: Source, image: RunImage, known: frozenset[str]) -> AsyncIterator[list[Blob]]:
    """Those that are missing, some at a time."""
    blobs: list[Blob] = []
    size = 0
    for name in image.blobs:
        if name in known:
            continue
        data = await source.get_blob(image.run, name)
        if blobs and size + len(data) > PIECE_BYTES:
            yield blobs
            blobs, size = [], 0
        blobs.append(Blob(name, data))
        size += len(data)
    if blobs:
        yield blobs


async def _verify(source: Source, target: World, image: RunImage) -> None:
    expected = replace(image, held=False, abandoned=False, building=True, due_at=None, closed=None)
    tries = VERIFY_TRIES
    while (found := await target.image(image.run)) != expected:
        names = [name for name in image.__struct_fields__ if getattr(found, name) != getattr(expected, name)]
        tries -= 1
        if not tries:
            raise RunDiffers(run_id=image.run, world=target.url, reason=f"in its {', '.join(names)}")
        # Another, who copies it too, may have been there in between.
        await anyio.sleep(POLL_SECONDS)
        await target.build(image, (), ())
    if await digest(source, image) != await digest(target, image):
        raise RunDiffers(run_id=image.run, world=target.url, reason="in its records or blobs")


def _pieces(page: Sequence[Record]) -> list[list[Record]]:
    pieces: list[list[Record]] = [[]]
    size = 0
    for record in page:
        if pieces[-1] and size + record.size > PIECE_BYTES:
            pieces.append([])
            size = 0
        pieces[-1].append(record)
        size += record.size
    return pieces

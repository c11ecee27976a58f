"""A run read from its store or file, and checked: what `journal verify` does, and `journal import` before it begins."""

import msgspec

from journal.core.errors import LogError
from journal.core.ports import RunImage
from journal.engine.digest import PIECE_ROWS, Source
from journal.replay.snapshot import Folded
from journal.replay.verify import MOST, Problem, Verifier


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    run: str
    records: int
    blobs: int
    digest: str
    """Of its records and blobs, in hexadecimal: the same for the same run in any store or file."""
    problems: tuple[Problem, ...]


async def verify(source: Source, image: RunImage) -> Verified:
    """Check the run as far as the image goes. Damage is reported, not raised; raises what else reading raises."""
    run = image.run
    verifier = Verifier(run)
    after, limit, damages = 0, PIECE_ROWS, 0
    while after < image.head and damages < MOST:  # a damaged head may be anywhere
        wanted = min(limit, image.head - after)
        try:
            page = await source.read(run, after=after, limit=wanted)
        except LogError as damage:
            before = damage.seq - 1 - after
            if 0 < before < wanted:
                limit = before  # a page is refused for one damaged record: first what precedes it
                continue
            verifier.damaged(max(damage.seq, after + 1), getattr(damage, "reason", str(damage)))
            after, limit, damages = max(damage.seq, after + 1), PIECE_ROWS, damages + 1
            continue
        for record in page:
            verifier.add(record)
        limit = PIECE_ROWS
        if not page:
            break
        after = page[-1].seq
    if verifier.snapshots and not verifier.problems:
        await _compare_snapshots(source, run, verifier)
    for blob in image.blobs:
        try:
            verifier.add_blob(blob, await source.get_blob(run, blob))
        except LogError as damage:
            verifier.damaged_blob(blob, getattr(damage, "reason", str(damage)))
    verifier.finish(image)
    return Verified(
        run=run,
        records=verifier.records,
        blobs=len(image.blobs),
        digest=verifier.digest,
        problems=tuple(verifier.problems),
    )


async def _compare_snapshots(source: Source, run: str, verifier: Verifier) -> None:
    folded, after, upto = Folded(), 0, max(verifier.snapshots)
    while after < upto:
        page = await source.read(run, after=after, limit=min(PIECE_ROWS, upto - after))
        if not page:
            break
        for record in page:
            folded.add(record)
            after = record.seq
            if after in verifier.snapshots:
                verifier.compare(folded, after)

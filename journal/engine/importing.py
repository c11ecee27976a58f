"""An exported run built up in a store, as it is: what `journal import` does.

As a copy from another store is (`bringing.py`): in pieces, in a state in which the run takes nothing, read back and
compared, then settled. The same again finishes what a crash left, and does nothing where it is done.
"""

from typing import Literal

import msgspec

from journal.core.errors import (
    BundleDamaged,
    CorruptRecord,
    InvalidOptions,
    InvalidValue,
    RunDiffers,
    RunNotBuilding,
    RunTooNew,
)
from journal.core.ports import RunImage, World
from journal.core.records import MIN_READER
from journal.engine.bringing import VERIFY_TRIES, Progress, bring
from journal.engine.bundles import BundleSource
from journal.engine.digest import digest
from journal.engine.verifying import verify
from journal.replay.bundle import Bundle

_SENT_ON = "it was sent on there, or closed, or began there by itself"


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it."""

    run: str
    result: Literal["imported", "present"]
    """`present`: it was there already, the same, and may have gone on since."""
    records: int
    """How many it has in the store."""
    held_back: bool = False
    """Whether it is blocked there until somebody sends it on: its origin may be at work on it."""


async def import_bundle(bundle: Bundle, target: World, on_progress: Progress) -> Imported:
    """Put the run into `target`. All of the file is checked before anything is written.

    Raises `BundleDamaged`, `RunTooNew`, `InvalidOptions` for another namespace, `RunDiffers` if another run has its
    id, `RunGone`, and what the store raises.
    """
    image, source = bundle.image, BundleSource(bundle)
    await check_bundle(bundle, target.namespace)
    tries = VERIFY_TRIES
    while True:
        there = await target.run(image.run)
        if there is not None and not there.building and await _is_there(source, image, target):
            return Imported(run=image.run, result="present", records=there.head)
        try:
            await bring(source, target, image, there, on_progress)
            await target.settle(image.run, is_live=False)
        except (RunNotBuilding, InvalidValue):
            # Another may import it too, and have settled it first, or begun it anew.
            tries -= 1
            if not tries or there == await target.run(image.run):
                raise RunDiffers(run_id=image.run, world=target.url, reason=_SENT_ON) from None
        else:
            held_back = image.is_unfinished and image.closed is None
            return Imported(run=image.run, result="imported", records=image.head, held_back=held_back)


async def check_bundle(bundle: Bundle, namespace: str) -> None:
    """Raise what speaks against bringing the run, or a part of it, into that namespace, before anything is written."""
    image, source = bundle.image, BundleSource(bundle)
    if bundle.header.namespace != namespace:
        raise InvalidOptions(
            f"{bundle.path} is a run of namespace {bundle.header.namespace!r}, and {namespace!r} was asked for: "
            f"give --namespace {bundle.header.namespace}"
        )
    if image.min_reader > MIN_READER:
        raise RunTooNew(run_id=image.run, min_reader=image.min_reader, reads=MIN_READER)
    for seq, what in ((p.seq, p.what) for p in (await verify(source, image)).problems):
        raise BundleDamaged(
            f"{'the run' if seq is None else f'record {seq}'}: {what}; nothing was written (journal verify says all)",
            path=bundle.path,
            line=1 if seq is None else seq + 1,
        )


async def _is_there(source: BundleSource, image: RunImage, target: World) -> bool:
    """Whether all of it is in the target; False: only its beginning. Raises `RunDiffers` if another run is."""
    copied = await target.image(image.run)
    is_whole = copied.head >= image.head
    least = image if is_whole else copied
    try:
        is_same = await digest(source, least) == await digest(target, least)
    except CorruptRecord as error:
        if error.seq:
            raise
        is_same = False  # a blob is missing in one of them
    if not is_same:
        raise RunDiffers(
            run_id=image.run, world=target.url, reason=f"in its records or blobs up to seq {least.head}"
        )
    return is_whole

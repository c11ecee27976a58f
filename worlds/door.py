"""The door's decision, in the one order that is safe; shared by the worlds that run Python under their lock.

A check for a known batch or key comes before every other: a retry after a lost answer must find its own
records, never a false conflict.
"""

import msgspec

from journal.core.ports import (
    Answer,
    Batch,
    Building,
    Closed,
    Committed,
    Duplicate,
    Gone,
    HeadMoved,
    Held,
    KeyConflict,
    Keyed,
    LogRegressed,
    Move,
    NoRun,
    StaleClaim,
)


class Sight(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a world looked up under the run's lock, after the lock."""

    exists: bool
    gone: bool = False
    moved_to: str | None = None
    is_building: bool = False
    closed: bool = False
    head: int = 0
    epoch: int = 0
    token: bytes | None = None
    batch: Committed | None = None
    """Where this very batch landed before, if it did."""
    key: Committed | None = None
    """Where the author's key was used before, if it was."""
    key_digest: bytes | None = None
    has_prev: bool = True
    """Whether `prev_batch` is in the log (or is None)."""


def decide(batch: Batch, sight: Sight) -> Answer | None:
    """The refusal or the duplicate; None: write all of it."""
    author = batch.author
    if sight.gone or sight.moved_to is not None:
        return Gone(sight.moved_to)
    if not sight.exists:
        return None if batch.create is not None and isinstance(author, Keyed) else NoRun()
    if sight.is_building:
        return Building()
    if isinstance(author, Held):
        holds = (
            sight.token is not None
            and sight.token == author.claim.token
            and sight.epoch == author.claim.epoch
        )
        if sight.batch is not None:
            return Duplicate(sight.batch, holds)
        if not holds:
            return StaleClaim(author.claim.epoch, sight.epoch)
        if not sight.has_prev:
            return LogRegressed(sight.head)
    else:
        if sight.batch is not None:
            return Duplicate(sight.batch, True)
        if sight.key is not None:
            same = sight.key_digest == author.digest
            return Duplicate(sight.key, True) if same else KeyConflict(sight.key)
        if sight.closed and not isinstance(batch.queue, Move):
            return Closed()
    if batch.at_head is not None and batch.at_head != sight.head:
        return HeadMoved(sight.head)
    return None

"""A batch on its way through the door."""

import asyncio

from journal.core.ports import Answer, Batch, Held, Progress, batch_bytes
from journal.worlds.postgres.places import Places


class Offer:
    """A batch on its way."""

    __slots__ = ("batch", "future", "goes_long", "has_work", "lock")

    def __init__(self, batch: Batch, future: "asyncio.Future[Answer]", lock: int) -> None:
        self.batch = batch
        self.future = future
        self.lock = lock
        self.goes_long = False
        """The quick way did not take it."""
        self.has_work = False
        """Whether it may have made an entry claimable."""

    @property
    def rows(self) -> int:
        """How many it adds to a group, itself included."""
        return len(self.batch.records) + 1

    @property
    def size(self) -> int:
        """What it weighs in a group, in bytes."""
        return batch_bytes(self.batch)

    def may_go_quick(self, places: Places) -> bool:
        batch = self.batch
        author = batch.author
        return (
            not self.goes_long
            and isinstance(author, Held)
            and author.prev_batch is not None
            and batch.at_head is None
            and (batch.queue is None or isinstance(batch.queue, Progress))
            and bool(batch.records)
            and not batch.blobs
            and batch.run in places.rids
        )

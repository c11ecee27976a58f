"""A batch on its way through the door."""

import asyncio

from journal.core.ports import Answer, Batch, Held, Progress, batch_bytes
from journal.worlds.postgres.places import Places


class Offer:
    """A batch on its way."""

    __slots__ = ("batch", "future", "goes_long", "has_work", "lock", "rows", "size")

    def __init__(self, batch: Batch, future: "asyncio.Future[Answer]", lock: int) -> None:
        self.batch = batch
        self.future = future
        self.lock = lock
        self.rows = len(batch.records) + 1
        self.size = batch_bytes(batch)
        self.goes_long = False
        """The quick way did not take it."""
        self.has_work = False
        """Whether it may have made an entry claimable."""

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

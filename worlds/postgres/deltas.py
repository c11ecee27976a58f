"""Publishing deltas: fenced like the door, several publications in one statement that does not wait for the disk."""

import asyncio
from collections.abc import Sequence

from psycopg import pq

from journal.core.ports import Claim, Delta
from journal.worlds.postgres.binary import (
    bytes_array,
    double,
    int_array,
    long_array,
    text_array,
    to_bools,
)

PUBLISH = b"publish"


class Publication:
    """Deltas of one claim on their way."""

    __slots__ = ("claim", "deltas", "future", "lock", "rows", "size")

    def __init__(
        self, claim: Claim, deltas: Sequence[Delta], future: "asyncio.Future[bool]", lock: int
    ) -> None:
        self.claim = claim
        self.deltas = deltas
        self.future = future
        self.lock = lock
        self.rows = len(deltas) + 1
        self.size = 256 + sum(len(delta.data) for delta in deltas)


def publish_parameters(offers: list[Publication], namespace: str, at: float | None) -> list[bytes | None]:
    """What the statement `publish` takes."""
    deltas = [delta for offer in offers for delta in offer.deltas]
    return [
        double(at),
        namespace.encode(),
        long_array(sorted({offer.lock for offer in offers})),
        text_array([offer.claim.run for offer in offers]),
        long_array([offer.claim.epoch for offer in offers]),
        bytes_array([offer.claim.token for offer in offers]),
        int_array([len(offer.deltas) for offer in offers]),
        bytes_array([delta.call.encode() for delta in deltas]),
        long_array([delta.number for delta in deltas]),
        bytes_array([delta.data for delta in deltas]),
    ]


def publish_answers(result: "pq.abc.PGresult") -> tuple[bool, ...]:
    """Which publications were taken."""
    found = result.get_value(0, 0)
    assert found is not None, "the function always answers"
    return to_bools(found)

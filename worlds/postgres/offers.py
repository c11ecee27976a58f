"""Batches to parameters and answers: how a group is put to the server, and what it says of each.

The quick way (`append_records`) is for a holder's batch that brings records and changes nothing else, alone of its run
in the group; the server takes it if one look suffices, else it goes the long way (`append_batches`) with the others.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any
from zlib import crc32

from psycopg import pq

from journal.core.ports import (
    Answer,
    Batch,
    Block,
    Close,
    Closed,
    Committed,
    Drain,
    Duplicate,
    Finish,
    Gone,
    HeadMoved,
    Held,
    KeyConflict,
    Keyed,
    LogRegressed,
    NoRun,
    Park,
    Progress,
    QueueChange,
    Release,
    Retry,
    StaleClaim,
    Submit,
    Wake,
    batch_bytes,
)
from journal.core.records import NewRecord
from journal.worlds.postgres.binary import (
    bool_array,
    bytes_array,
    double,
    int_array,
    long,
    long_array,
    optional_doubles,
    optional_longs,
    text_array,
    to_double,
    to_int,
    to_longs,
)
from journal.worlds.postgres.wire import Step

_KNOWN_RUNS = 10_000
_EVENTS: dict[type[Any], str] = {
    Submit: "submit",
    Park: "park",
    Wake: "wake",
    Progress: "progress",
    Finish: "finish",
    Block: "block",
    Release: "release",
    Drain: "drain",
    Retry: "retry",
    Close: "close",
}


_BARE: dict[int, Callable[[], Answer]] = {7: NoRun, 8: Closed, 9: Gone}


class Places:
    """Where the runs of one namespace are: the key of their lock, and their rid once it was told."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._prefix = f"{namespace}\x01".encode()
        self._locks: dict[str, int] = {}
        self.rids: dict[str, int] = {}

    def lock(self, run: str) -> int:
        """The same number in every process: claims find it in the run's entry."""
        key = self._locks.get(run)
        if key is None:
            if len(self._locks) > _KNOWN_RUNS:
                self._locks.clear()
                self.rids.clear()
            digest = blake2b(self._prefix + run.encode(), digest_size=8).digest()
            key = self._locks[run] = int.from_bytes(digest, "big", signed=True)
        return key

    def learn(self, run: str, rid: int) -> None:
        """A claim or an answer told where the run is. It may have moved since: a claim's token tells."""
        self.rids[run] = rid


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


class Group:
    """A group of offers as the statements of one transaction; the last one answers."""

    __slots__ = ("_is_one_record", "_long", "_quick", "steps")

    def __init__(self, offers: list[Offer], places: Places, at: float | None) -> None:
        self._quick: list[Offer] = []
        self._long: list[Offer] = []
        self.steps: list[Step]
        first = offers[0]
        self._is_one_record = (
            len(offers) == 1 and len(first.batch.records) == 1 and first.may_go_quick(places)
        )
        if self._is_one_record:
            self._quick = offers
            lock: Step = (b"lock_run", [long(first.lock)])
            self.steps = [lock, (b"append_record", _record_parameters(first, places, at))]
            return
        count = Counter(offer.lock for offer in offers)
        for offer in offers:
            is_quick = count[offer.lock] == 1 and offer.may_go_quick(places)
            (self._quick if is_quick else self._long).append(offer)
        parameters = [double(at), long_array(sorted(count)), *_quick_parameters(self._quick, places)]
        if self._long:
            parameters += _long_parameters(self._long, places.namespace)
        self.steps = [(b"append_batches" if self._long else b"append_records", parameters)]

    def answers(self, result: "pq.abc.PGresult", places: Places) -> list[tuple[Offer, Answer | None]]:
        """What became of each; None: the quick way did not take it, so it has to go the long way."""
        if self._is_one_record:
            if not result.ntuples:
                return [(self._quick[0], None)]
            seq = to_int(_cell(result, 0, 0))
            return [(self._quick[0], Committed(seq, seq, to_double(_cell(result, 0, 1))))]
        if not self._long:
            heads, now = to_longs(_cell(result, 0, 0)), to_double(_cell(result, 0, 1))
            return [
                (offer, _landed(offer, head, now)) for offer, head in zip(self._quick, heads, strict=True)
            ]
        found: list[tuple[Offer, Answer | None]] = []
        for nth, offer in enumerate(self._quick):
            head = to_int(_cell(result, nth, 2)) - 1 if to_int(_cell(result, nth, 0)) else 0
            found.append((offer, _landed(offer, head, to_double(_cell(result, nth, 4)))))
        for nth, offer in enumerate(self._long, len(self._quick)):
            found.append((offer, _answer(result, nth, offer, places)))
        return found


def _landed(offer: Offer, head: int, now: float) -> Committed | None:
    return Committed(head + 1, head + len(offer.batch.records), now) if head else None


def _cell(result: "pq.abc.PGresult", row: int, column: int) -> bytes:
    value = result.get_value(row, column)
    assert value is not None, "the functions answer these columns always"
    return value


def _answer(result: "pq.abc.PGresult", row: int, offer: Offer, places: Places) -> Answer:
    code = to_int(_cell(result, row, 0))
    author = offer.batch.author
    if code in (1, 2, 3):
        first, last = to_int(_cell(result, row, 2)), to_int(_cell(result, row, 3))
        landed = Committed(first, last, to_double(_cell(result, row, 4)))
        places.learn(offer.batch.run, to_int(_cell(result, row, 1)))
        if code == 1:
            offer.has_work = result.get_value(row, 7) == b"\x01"
            return landed
        return Duplicate(landed, result.get_value(row, 5) == b"\x01") if code == 2 else KeyConflict(landed)
    if code == 4:
        assert isinstance(author, Held), "only a holder has a claim"
        return StaleClaim(author.claim.epoch, to_int(_cell(result, row, 6)))
    if code == 5:
        return LogRegressed(to_int(_cell(result, row, 3)))
    if code == 6:
        return HeadMoved(to_int(_cell(result, row, 3)))
    return _BARE[code]()


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _record_columns(records: Sequence[NewRecord]) -> list[bytes]:
    return [
        text_array([record.type for record in records]),
        bytes_array([_encoded(record.turn) for record in records]),
        bytes_array([_encoded(record.key) for record in records]),
        bytes_array([record.body for record in records]),
        long_array([record.checksum for record in records]),
        bytes_array([_encoded(record.key_id) for record in records]),
    ]


def _record_parameters(offer: Offer, places: Places, at: float | None) -> list[bytes | None]:
    batch = offer.batch
    author, record = batch.author, batch.records[0]
    assert isinstance(author, Held), "only a holder's batch goes the quick way"
    claim = author.claim
    return [
        long(places.rids[batch.run]),
        double(at),
        record.type.encode(),
        _encoded(record.turn),
        _encoded(record.key),
        long(claim.epoch),
        batch.id,
        record.body,
        long(record.checksum),
        _encoded(record.key_id),
        claim.token,
        author.prev_batch,
        b"\x00" if batch.queue is None else b"\x01",
    ]


def _quick_parameters(offers: list[Offer], places: Places) -> list[bytes]:
    rids: list[int] = []
    epochs: list[int] = []
    tokens: list[bytes | None] = []
    previous: list[bytes | None] = []
    progress: list[bool] = []
    of_batch: list[int] = []
    nths: list[int] = []
    record_rids: list[int] = []
    record_epochs: list[int] = []
    ids: list[bytes | None] = []
    records: list[NewRecord] = []
    for place, offer in enumerate(offers, 1):
        batch = offer.batch
        author = batch.author
        assert isinstance(author, Held), "only a holder's batch goes the quick way"
        claim = author.claim
        rid = places.rids[batch.run]
        rids.append(rid)
        epochs.append(claim.epoch)
        tokens.append(claim.token)
        previous.append(author.prev_batch)
        progress.append(batch.queue is not None)
        for nth, record in enumerate(batch.records, 1):
            of_batch.append(place)
            nths.append(nth)
            record_rids.append(rid)
            record_epochs.append(claim.epoch)
            ids.append(batch.id)
            records.append(record)
    return [
        long_array(rids),
        long_array(epochs),
        bytes_array(tokens),
        bytes_array(previous),
        bool_array(progress),
        int_array(of_batch),
        int_array(nths),
        long_array(record_rids),
        long_array(record_epochs),
        bytes_array(ids),
        *_record_columns(records),
    ]


def _long_parameters(offers: list[Offer], namespace: str) -> list[bytes]:
    batches = [offer.batch for offer in offers]
    held = [batch.author if isinstance(batch.author, Held) else None for batch in batches]
    keyed = [batch.author if isinstance(batch.author, Keyed) else None for batch in batches]
    creates = [batch.create if isinstance(batch.author, Keyed) else None for batch in batches]
    events = [batch.queue for batch in batches]
    records = [
        ((create.record, *batch.records) if create is not None else batch.records)
        for batch, create in zip(batches, creates, strict=True)
    ]
    blobs = [blob for batch in batches for blob in batch.blobs]
    return [
        namespace.encode(),
        long_array([offer.lock for offer in offers]),
        text_array([batch.run for batch in batches]),
        bytes_array([batch.id for batch in batches]),
        optional_longs([None if author is None else author.claim.epoch for author in held]),
        bytes_array([None if author is None else author.claim.token for author in held]),
        bytes_array([None if author is None else author.prev_batch for author in held]),
        bytes_array([None if author is None else author.key.encode() for author in keyed]),
        bytes_array([None if author is None else author.digest for author in keyed]),
        optional_longs([batch.at_head for batch in batches]),
        text_array([None if create is None else create.agent for create in creates]),
        optional_longs([None if create is None else create.min_reader for create in creates]),
        text_array([None if event is None else _EVENTS[type(event)] for event in events]),
        bytes_array([_encoded(getattr(event, "turn", None)) for event in events]),
        text_array([getattr(event, "status", None) for event in events]),
        optional_longs([getattr(event, "priority", None) for event in events]),
        optional_doubles([_due(event) for event in events]),
        int_array([len(found) for found in records]),
        int_array([len(batch.blobs) for batch in batches]),
        *_record_columns([record for found in records for record in found]),
        bytes_array([blob.id.encode() for blob in blobs]),
        long_array([crc32(blob.data) for blob in blobs]),
        bytes_array([blob.data for blob in blobs]),
    ]


def _due(event: QueueChange | None) -> float | None:
    match event:
        case Submit(due_at=due_at) | Park(due_at=due_at):
            return due_at
        case Release(delay_seconds=delay):
            return delay
        case _:
            return None

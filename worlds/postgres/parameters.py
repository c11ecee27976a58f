"""Batches as the parameters of the door's statements, in binary: a column at a time."""

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from journal.core.ports import (
    Block,
    Close,
    Drain,
    Finish,
    Held,
    Keyed,
    Move,
    Park,
    Progress,
    QueueChange,
    Release,
    Retry,
    Submit,
    Wake,
)
from journal.core.records import NewRecord
from journal.worlds.postgres.binary import (
    bool_array,
    bytes_array,
    encoded,
    int_array,
    long_array,
    optional_doubles,
    optional_longs,
    text_array,
)
from journal.worlds.postgres.offer import Offer
from journal.worlds.postgres.places import Places

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
    Move: "move",
}


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _record_columns(records: Sequence[NewRecord]) -> list[bytes]:
    return [
        text_array([record.type for record in records]),
        bytes_array(encoded([record.turn for record in records])),
        bytes_array(encoded([record.key for record in records])),
        bytes_array([record.body for record in records]),
        long_array([record.checksum for record in records]),
        bytes_array(encoded([record.key_id for record in records])),
    ]


def quick_parameters(offers: list[Offer], places: Places) -> list[bytes]:
    batches = [offer.batch for offer in offers]
    authors = [batch.author for batch in batches if isinstance(batch.author, Held)]
    assert len(authors) == len(batches), "only a holder's batch goes the quick way"
    claims = [author.claim for author in authors]
    rids = [places.rids[batch.run] for batch in batches]
    epochs = [claim.epoch for claim in claims]
    records = [record for batch in batches for record in batch.records]
    of_batch = [place for place, batch in enumerate(batches) for _ in batch.records]
    return [
        long_array(rids),
        long_array(epochs),
        bytes_array([claim.token for claim in claims]),
        bytes_array([author.prev_batch for author in authors]),
        bool_array([batch.queue is not None for batch in batches]),
        int_array([place + 1 for place in of_batch]),
        int_array([nth for batch in batches for nth in range(1, len(batch.records) + 1)]),
        long_array([rids[place] for place in of_batch]),
        long_array([epochs[place] for place in of_batch]),
        bytes_array([batches[place].id for place in of_batch]),
        *_record_columns(records),
    ]


def long_parameters(offers: list[Offer], namespace: str) -> list[bytes]:
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
        text_array(
            [event.to if isinstance(event, Move) else getattr(event, "status", None) for event in events]
        ),
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

"""The door as a command: a batch to the arguments of `lua/append.lua`, and its reply to an answer."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from zlib import crc32

import msgspec

from journal.core.codec import Blob
from journal.core.ports import (
    Answer,
    Batch,
    Block,
    Building,
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
    LogRegressed,
    Move,
    NoRun,
    Park,
    Progress,
    QueueChange,
    Release,
    Retry,
    StaleClaim,
    Submit,
    Wake,
)
from journal.core.records import NewRecord, Record, TurnFinished, TurnSubmitted
from journal.worlds.redis.connection import Part
from journal.worlds.redis.keys import RunKeys
from journal.worlds.redis.library import function

CHUNK_BYTES = 1024 * 1024
"""A longer blob is kept in pieces, so that no single reply is longer than that."""

_APPEND = function("append")
_pack_meta = msgspec.msgpack.Encoder().encode
_NOTHING: tuple[Part, ...] = ("", "", "", "", 0)
_PROGRESS: tuple[Part, ...] = ("progress", "", "", "", 0)


def append_command(batch: Batch, keys: RunKeys, at: str) -> tuple[Part, ...]:
    """The command that offers `batch`."""
    author = batch.author
    create = batch.create
    event = batch.queue
    names: list[Part] = [keys.hash, keys.stream]
    if create is not None or not (event is None or isinstance(event, Progress | Drain)):
        names.append(keys.index)
    if batch.blobs:
        names.append(keys.blobs)
    if isinstance(author, Held):
        claim = author.claim
        who: tuple[Part, ...] = (claim.epoch, claim.token, author.prev_batch or b"")
    else:
        who = ("", author.key, author.digest)
    parts: list[Part] = [
        b"FCALL",
        _APPEND,
        len(names),
        *names,
        at,
        batch.id,
        "" if batch.at_head is None else batch.at_head,
        *who,
        *(_NOTHING if event is None else _event(event, batch.records)),
        keys.name,
        len(batch.records),
    ]
    for record in batch.records:
        parts += (meta(record), record.body)
    if create is None:
        parts.append(b"0")
    else:
        parts += (b"1", create.agent, create.min_reader, meta(create.record), create.record.body)
    of_blobs = [piece for blob in batch.blobs for piece in pieces(blob)]
    parts.append(len(of_blobs))
    for piece in of_blobs:
        parts += piece
    return tuple(parts)


def meta(record: NewRecord | Record) -> bytes:
    """What its writer knows of it, but for its body."""
    return _pack_meta((record.type, record.turn, record.key, record.checksum, record.key_id))


def _event(event: QueueChange, records: tuple[NewRecord, ...]) -> tuple[Part, ...]:
    """Name, three arguments, and which of the records it is about (0: the last)."""
    match event:
        case Progress():
            return _PROGRESS
        case Submit(turn=turn, priority=priority, due_at=due_at):
            return "submit", turn, priority, _time(due_at), _place(TurnSubmitted.TYPE, turn, records)
        case Finish(turn=turn, status=status):
            return "finish", turn, status, "", _place(TurnFinished.TYPE, turn, records)
        case Retry(turn=turn):
            return "retry", turn, "", "", 0
        case Park(due_at=due_at):
            return "park", _time(due_at), "", "", 0
        case Release(delay_seconds=delay):
            return "release", repr(float(delay)), "", "", 0
        case Move(to=to):
            return "move", to, "", "", 0
        case Wake() | Block() | Drain() | Close():
            return _NAMES[type(event)], "", "", "", 0


_NAMES: dict[type, str] = {Wake: "wake", Block: "block", Drain: "drain", Close: "close"}


def _place(kind: str, turn: str, records: tuple[NewRecord, ...]) -> int:
    for place, record in enumerate(records, 1):
        if record.type == kind and record.turn == turn:
            return place
    return 0


def _time(seconds: float | None) -> str:
    return "" if seconds is None else repr(float(seconds))


def pieces(blob: Blob) -> list[tuple[Part, Part]]:
    """Fields of the blobs' hash: what the blob weighs and hashes to, and its pieces."""
    data, name = blob.data, blob.id
    count = -(-len(data) // CHUNK_BYTES)
    pieces: list[tuple[Part, Part]] = [(f"=:{name}", f"{len(data)} {crc32(data)}")]
    pieces += [(f"{n}:{name}", data[n * CHUNK_BYTES : (n + 1) * CHUNK_BYTES]) for n in range(count)]
    return pieces


def answer_reader(batch: Batch) -> Callable[[Any], Answer]:
    """What the reply to `append_command` means; only a stale claim has to know what was offered."""
    author = batch.author
    return _reader(author.claim.epoch if isinstance(author, Held) else 0)


@lru_cache(maxsize=1024)
def _reader(epoch: int) -> Callable[[Any], Answer]:
    def read(reply: Any) -> Answer:
        code = reply[0]
        if code == 0:
            return Committed(reply[1], reply[2], float(reply[3]))
        match code:
            case 1:
                return Duplicate(Committed(reply[1], reply[2], float(reply[3])), bool(reply[4]))
            case 2:
                return KeyConflict(Committed(reply[1], reply[2], float(reply[3])))
            case 3:
                return StaleClaim(epoch, reply[1])
            case 4:
                return LogRegressed(reply[1])
            case 5:
                return HeadMoved(reply[1])
            case 6:
                return NoRun()
            case 7:
                return Closed()
            case 9:
                return Building()
            case _:
                return Gone(reply[1].decode() or None)

    return read

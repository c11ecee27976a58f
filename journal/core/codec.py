"""Records to bytes and back, and values that are too large to stay in their record.

Reading fails closed: an unknown type, a newer version, bytes that do not decode or a checksum that does not
match name the run and the seq, and nothing in the bytes is ever executed.
"""

from collections.abc import Callable
from zlib import crc32

import msgspec

from journal.core import values
from journal.core.errors import CorruptRecord, RecordTooNew, UnknownRecordType
from journal.core.records import BODIES, BlobRef, Body, NewRecord, Record, Value


class _Version(msgspec.Struct):
    v: int = 1


_version = msgspec.msgpack.Decoder(_Version).decode
_encode = msgspec.msgpack.Encoder().encode
DECODE: dict[str, Callable[[bytes], Body]] = {
    name: msgspec.msgpack.Decoder(body).decode for name, body in BODIES.items()
}
"""By type, for loops over whole runs; what these refuse, or has a `v` above 1, is for `open_record` to judge."""


class Blob(msgspec.Struct, frozen=True):
    """A value's bytes, stored beside the records of its run."""

    id: str
    data: bytes


def checksum(run: str, type: str, turn: str | None, key: str | None, key_id: str | None, body: bytes) -> int:  # noqa: A002 - the field's name
    """CRC-32 over what the writer knows; a record moved to another run or key does not match either."""
    return crc32(body, crc32(f"{run}\0{type}\0{turn}\0{key}\0{key_id}".encode()))


def seal(run: str, body: Body, turn: str | None = None, key: str | None = None) -> NewRecord:
    """Make `body` ready to be appended to `run`."""
    data, kind = _encode(body), body.TYPE
    # `checksum`, written out: once for every record.
    return NewRecord(
        kind, turn, key, data, crc32(data, crc32(f"{run}\0{kind}\0{turn}\0{key}\0None".encode()))
    )


def open_record(record: Record) -> Body:
    """What `record` says; raises a `LogError` that names it if it cannot be read."""
    decode = DECODE.get(record.type)
    if decode is None:
        raise UnknownRecordType(run_id=record.run, seq=record.seq, type=record.type)
    try:
        body = decode(record.body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        check_version(record)
        raise CorruptRecord(
            run_id=record.run, seq=record.seq, reason=f"its body does not decode: {error}"
        ) from None
    if body.v > body.VERSION:
        check_version(record)
    return body


def check_version(record: Record) -> None:
    """Raise `RecordTooNew` if the body states a version that we do not know."""
    try:
        found: int = _version(record.body).v
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return
    reads = BODIES[record.type].VERSION
    if found > reads:
        raise RecordTooNew(run_id=record.run, seq=record.seq, type=record.type, version=found, reads=reads)


def verify(record: Record) -> None:
    """Raise `CorruptRecord` if the record is not what its writer sealed."""
    expected = checksum(record.run, record.type, record.turn, record.key, record.key_id, record.body)
    if expected != record.checksum:
        raise CorruptRecord(run_id=record.run, seq=record.seq, reason="its checksum does not match")


def pack(data: bytes, limit: int = values.INLINE_BYTES) -> tuple[Value, Blob | None]:
    """Keep a value of up to `limit` bytes inline; give a large one an address, and the blob to store there."""
    if len(data) <= limit:
        return data, None
    name = values.digest(data).hex()
    return BlobRef(blob=name, size=len(data)), Blob(name, data)

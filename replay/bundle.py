"""A run as one file of text: a header line, one record a line, blobs last. Line n + 1 is record n.

Every line is a JSON object and ends with the CRC-32 of what stands before it. Bytes are shown as what they are: JSON
as `{"json": …}`, others as `{"base64": …}`; a body that cannot be shown so and come back to the very same bytes
stands there as `raw`. The same run gives the same file, from any store. Pure: streams are opened elsewhere
(`engine/bundles.py`). Formats are for ever: a golden file holds the first.
"""

from array import array
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Annotated, Any, BinaryIO, Literal, TypeVar
from zlib import crc32

import msgspec
from msgspec import UNSET, Raw, UnsetType

from journal.core import codec
from journal.core.errors import (
    BundleDamaged,
    BundleTooNew,
    CorruptRecord,
    InvalidId,
    NotABundle,
    ValueTooLarge,
)
from journal.core.ids import check_id
from journal.core.ports import RunImage
from journal.core.records import Record
from journal.replay.digest import RunDigest

FORMAT = 1
"""The format this version writes, and the newest it reads."""
START = b'{"journal":"bundle","format":'
"""How such a file begins, whatever its format."""
MAX_LINE_BYTES = 64 * 1024 * 1024
AGAIN = "get the file again, or export the run again"
_MAX_DEPTH = 32
_CRC_BYTES = len(',"crc":"01234567"}')
_OTHERS = (
    (b"SQLite format 3", "it is a SQLite store: name it as --world sqlite:FILE"),
    (b"\x1f\x8b", "it is compressed: unpack it first (gunzip)"),
    (b"PK\x03\x04", "it is compressed: unpack it first (unzip)"),
    (b"\x28\xb5\x2f\xfd", "it is compressed: unpack it first (unzstd)"),
)
T = TypeVar("T")
_LARGEST = 2**63 - 1
_Count = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: what the run is, beside its records."""

    journal: Literal["bundle"] = "bundle"
    format: int = FORMAT
    namespace: str
    digest: str
    """`RunDigest` of all that follows, in hexadecimal."""
    image: RunImage


class _Format(msgspec.Struct):
    format: int


class _RecordLine(msgspec.Struct, omit_defaults=True, gc=False):
    seq: _Count
    time: float
    type: str
    turn: str | None
    key: str | None
    epoch: _Count
    body: Raw | UnsetType = UNSET
    raw: bytes | UnsetType = UNSET
    key_id: str | None = None
    batch: str = ""
    checksum: _Count = 0


class _Box(msgspec.Struct, omit_defaults=True, gc=False):
    json: Raw | UnsetType = UNSET
    base64: bytes | UnsetType = UNSET


class _BlobLine(msgspec.Struct, gc=False):
    blob: str
    size: int
    data: _Box


_encode = msgspec.json.Encoder().encode
_encode_canonical = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder().decode
_decode_map = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_decode_format = msgspec.json.Decoder(_Format).decode
_header = msgspec.json.Decoder(Header)
_record = msgspec.json.Decoder(_RecordLine)
_blob = msgspec.json.Decoder(_BlobLine)
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode

# Writing ---------------------------------------------------------------------------------------------


def header_line(header: Header) -> bytes:
    """The first line. Raises `ValueTooLarge` if nobody could read it."""
    return _sealed(_encode(header), f"the header of run {header.image.run!r}")


def record_line(record: Record) -> bytes:
    """The line of a record. Raises `ValueTooLarge` if nobody could read it."""
    shown = _shown(record.body)
    line = _RecordLine(
        record.seq,
        record.time,
        record.type,
        record.turn,
        record.key,
        record.epoch,
        body=UNSET if shown is None else Raw(shown),
        raw=record.body if shown is None else UNSET,
        key_id=record.key_id,
        batch=record.batch.hex(),
        checksum=record.checksum,
    )
    return _sealed(_encode(line), f"record {record.seq} of run {record.run!r}")


def blob_line(blob: str, data: bytes) -> bytes:
    """The line of a blob. Raises `ValueTooLarge` if nobody could read it."""
    box = _Box(json=Raw(data)) if _is_canonical(data) else _Box(base64=data)
    return _sealed(_encode(_BlobLine(blob, len(data), box)), f"blob {blob}")


def _sealed(line: bytes, what: str) -> bytes:
    if len(line) > MAX_LINE_BYTES - _CRC_BYTES:
        raise ValueTooLarge(what=what, size=len(line), limit=MAX_LINE_BYTES - _CRC_BYTES)
    line = line[:-1]
    return line + _crc(line) + b"\n"


def _crc(line: bytes) -> bytes:
    return b',"crc":"%08x"}' % crc32(line)


def _is_canonical(data: bytes) -> bool:
    try:
        return _encode_canonical(_decode(data)) == data
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError):
        return False


def _shown(body: bytes) -> bytes | None:
    """The body as JSON from which the same bytes can be made again; None: there is none."""
    try:
        shown = _encode(_boxed(_unpack(body)))
        return shown if _pack(_unboxed(shown)) == body else None
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError):
        return None


def _boxed(part: Any) -> Any:
    if isinstance(part, bytes):
        return {"json": Raw(part)} if _is_canonical(part) else {"base64": b64encode(part).decode()}
    if isinstance(part, dict):
        return {name: _boxed(item) for name, item in part.items()}
    if isinstance(part, list):
        return [_boxed(item) for item in part]
    return part


def _unboxed(data: bytes, depth: int = 0) -> Any:
    """What `_boxed` was given. Values stay bytes: a hostile one is not built up in memory."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {_MAX_DEPTH}")
    if data[:1] == b"{":
        parts = _decode_map(data)
        if len(parts) == 1:
            ((name, item),) = parts.items()
            if name == "json":
                return bytes(item)
            if name == "base64":
                return b64decode(_decode(item), validate=True)
        return {name: _unboxed(bytes(item), depth + 1) for name, item in parts.items()}
    if data[:1] == b"[":
        return [_unboxed(bytes(item), depth + 1) for item in _decode_list(data)]
    return _decode(data)


def _is_possible(image: RunImage) -> bool:
    """Whether a store could hold it, whoever made it up."""
    texts = [image.agent, *(turn.turn for turn in image.turns), *(key.key for key in image.keys)]
    places = [image.epoch, *(turn.submitted for turn in image.turns), *(key.last for key in image.keys)]
    return (
        image.head >= 1
        and all(0 <= place <= _LARGEST for place in places)
        and all(-(2**31) <= small < 2**31 for small in (image.priority, image.takeovers, image.min_reader))
        and list(image.blobs) == sorted(set(image.blobs))
        and "\0" not in "".join(texts)
    )


# Reading ---------------------------------------------------------------------------------------------


class Bundle:
    """A file that was exported, open: `header`, `records()`, `blob()`. It holds one line in memory at a time.

    All of it is checked once, at the start: raises `NotABundle`, `BundleTooNew` or `BundleDamaged`, which name
    `path` and the line. The stream must be seekable, and is its opener's to close.
    """

    def __init__(self, stream: BinaryIO, path: str) -> None:
        self.path = path
        self._stream = stream
        self._records = array("Q")
        self._blobs: dict[str, tuple[int, int]] = {}
        """Line and place in the file."""
        self.header = self._read_header()
        self._check_all()

    @property
    def image(self) -> RunImage:
        """The run beside its records and blobs."""
        return self.header.image

    @property
    def run(self) -> str:
        """Its id."""
        return self.header.image.run

    def records(self, *, after: int = 0, upto: int | None = None) -> Iterator[Record]:
        """Records with seq > `after`, up to `upto` or the last, in order."""
        last = self.image.head if upto is None else min(upto, self.image.head)
        for seq in range(max(0, after) + 1, last + 1):
            self._stream.seek(self._records[seq - 1])
            yield self._record(self._line(seq + 1), seq)

    def blob(self, blob: str) -> bytes:
        """The bytes of a blob. Raises `CorruptRecord` (seq 0) if there is none of that id, as a store does."""
        if blob not in self._blobs:
            raise CorruptRecord(run_id=self.run, seq=0, reason=f"its blob {blob} is missing")
        number, place = self._blobs[blob]
        self._stream.seek(place)
        return self._blob(self._line(number), number, blob)

    # The whole of it

    def _read_header(self) -> Header:
        self._stream.seek(0)
        start = self._stream.read(len(START))
        if start != START:
            other = next((hint for magic, hint in _OTHERS if start.startswith(magic)), None)
            empty = None if start else "it is empty"
            hint = other or empty or "make one with journal export RUN -o FILE"
            raise NotABundle(f"it is no exported run: {hint}", path=self.path)
        self._stream.seek(0)
        line = self._line(1)
        try:
            found = _decode_format(line).format
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            raise self._damaged(1, "it does not say its format") from None
        if found > FORMAT:
            raise BundleTooNew(
                f"it is of format {found}, and this version reads up to {FORMAT}: upgrade durable-journal",
                path=self.path,
                line=1,
            )
        header = self._parsed(_header, line, 1)
        try:
            check_id(header.image.run, "run id")
            check_id(header.namespace, "namespace")
        except InvalidId as error:
            raise self._damaged(1, str(error)) from None
        if not _is_possible(header.image):
            raise self._damaged(1, "it says of the run what cannot be")
        return header

    def _check_all(self) -> None:
        image, found, number = self.image, RunDigest(), 1
        for seq in range(1, image.head + 1):
            number += 1
            self._records.append(self._stream.tell())
            found.add_record(self._record(self._line(number), seq))
        for blob in image.blobs:
            number += 1
            self._blobs[blob] = number, self._stream.tell()
            found.add_blob(blob, self._blob(self._line(number), number, blob))
        if self._stream.read(1):
            raise self._damaged(number + 1, "something stands behind the last line that the header names")
        if found.digest().hex() != self.header.digest:
            raise self._damaged(1, "the digest that it names is not that of the lines below")

    # One line

    def _line(self, number: int) -> bytes:
        """The next line, as it was before it was sealed."""
        line = self._stream.readline(MAX_LINE_BYTES + 1)
        if not line:
            raise self._damaged(number - 1, f"the file ends behind this line: {self._missing(number)}")
        if len(line) > MAX_LINE_BYTES:
            raise self._damaged(number, f"it is longer than {MAX_LINE_BYTES:,} bytes")
        if line[-1:] != b"\n":
            raise self._damaged(number, "the file ends within this line: it was cut")
        line, tail = line[: -_CRC_BYTES - 1], line[-_CRC_BYTES - 1 : -1]
        if tail != _crc(line):
            raise self._damaged(number, "its crc does not match: it was changed, or is damaged")
        return line + b"}"

    def _missing(self, number: int) -> str:
        image = self.image
        if number - 1 <= image.head:
            return f"record {number - 1} of {image.head} is missing, and what follows it"
        return f"blob {image.blobs[number - 2 - image.head]} is missing"

    def _record(self, line: bytes, seq: int) -> Record:
        number = seq + 1
        found = self._parsed(_record, line, number)
        if found.seq != seq:
            raise self._damaged(number, f"record {found.seq} stands where record {seq} must stand")
        try:
            if isinstance(found.raw, bytes):
                body = found.raw
            elif isinstance(found.body, Raw):
                body = _pack(_unboxed(bytes(found.body)))
            else:
                raise ValueError("it has no body")
            batch = bytes.fromhex(found.batch)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError) as error:
            raise self._damaged(number, f"record {seq} cannot be read: {error}") from None
        record = Record(
            self.run,
            seq,
            found.time,
            found.type,
            found.turn,
            found.key,
            found.epoch,
            batch,
            body,
            found.checksum,
            found.key_id,
        )
        try:
            codec.verify(record)
        except CorruptRecord as error:
            raise self._damaged(number, f"record {seq}: {error.reason}") from None
        return record

    def _blob(self, line: bytes, number: int, blob: str) -> bytes:
        found = self._parsed(_blob, line, number)
        if found.blob != blob:
            raise self._damaged(number, f"blob {found.blob} stands where blob {blob} must stand")
        if isinstance(found.data.json, Raw):
            data = bytes(found.data.json)
        else:
            data = found.data.base64 if isinstance(found.data.base64, bytes) else b""
        if len(data) != found.size:
            raise self._damaged(number, f"blob {blob} has {len(data):,} bytes, and {found.size:,} are named")
        return data

    def _parsed(self, decoder: "msgspec.json.Decoder[T]", line: bytes, number: int) -> T:
        try:
            return decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise self._damaged(number, f"it is not as it must be: {error}") from None

    def _damaged(self, number: int, reason: str) -> BundleDamaged:
        return BundleDamaged(f"{reason}: {AGAIN}", path=self.path, line=number)

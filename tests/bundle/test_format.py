"""The file of an exported run: the first version as written by hand, the same bytes back, and refused by line."""

import io
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.core import codec
from journal.core.codec import seal
from journal.core.errors import (
    BundleDamaged,
    BundleError,
    BundleTooNew,
    CorruptRecord,
    NotABundle,
    ValueTooLarge,
)
from journal.core.ports import KeyInfo, RunImage, TurnInfo
from journal.core.records import Record, RunCreated
from journal.replay import bundle as bundles
from journal.replay.bundle import MAX_LINE_BYTES, Bundle, Header, blob_line, header_line, record_line
from journal.replay.digest import RunDigest
from tests.bundle import by_hand
from tests.bundle.by_hand import GOLDEN, sealed


def read(data: bytes) -> Bundle:
    return Bundle(io.BytesIO(data), "run.jsonl")


def written(records: list[Record], blobs: dict[str, bytes] | None = None, **header: Any) -> bytes:
    """A file that holds those, by our own code."""
    found = RunDigest()
    for record in records:
        found.add_record(record)
    chosen = sorted((blobs or {}).items())
    for name, data in chosen:
        found.add_blob(name, data)
    image = RunImage(
        run=records[0].run, agent="a", created=0.0, min_reader=1, closed=None, epoch=0, head=len(records), turns=(),
        keys=(), blobs=tuple(name for name, _ in chosen), status="pending", priority=0, due_at=None, takeovers=0,
    )  # fmt: skip
    first = header_line(Header(namespace="default", digest=found.digest().hex(), image=image))
    return first + b"".join([*map(record_line, records), *(blob_line(name, data) for name, data in chosen)])


def record_of(body: bytes, seq: int = 1, **fields: Any) -> Record:
    said: dict[str, Any] = {"type": "note", "turn": None, "key": None, "key_id": None} | fields
    check = codec.checksum("r", said["type"], said["turn"], said["key"], said["key_id"], body)
    return Record(run="r", seq=seq, time=1.5, epoch=0, batch=b"b" * 16, body=body, checksum=check, **said)


# The first version -------------------------------------------------------------------------------------


def test_the_golden_file_is_what_was_written_by_hand() -> None:
    assert GOLDEN.read_bytes() == b"".join(by_hand.lines())


def test_the_first_version_is_read() -> None:
    bundle = read(GOLDEN.read_bytes())
    records = list(bundle.records())
    assert [record.body for record in records] == by_hand.bodies()
    assert [(r.run, r.seq, r.time) for r in records] == [
        ("order/42", seq, 1_700_000_000.5 + seq) for seq in range(1, 8)
    ]
    assert [(r.type, r.turn, r.key, r.epoch, r.key_id) for r in records] == [
        line[:5] for line in by_hand.LINES
    ]
    assert [r.batch for r in records] == [bytes([line[5]]) * 16 for line in by_hand.LINES]
    assert {blob: bundle.blob(blob) for blob in bundle.image.blobs} == dict(by_hand.BLOBS)
    assert (bundle.run, bundle.header.namespace, bundle.image.agent) == ("order/42", "eu", "support")
    assert bundle.image.turns == (TurnInfo("start", 2, "succeeded", 7),)
    digest = by_hand.digest(by_hand.HELLO)
    assert bundle.image.keys == (KeyInfo("turn:start", digest, 1, 2, by_hand.time_of(2)),)


def test_the_first_version_is_written_to_the_byte() -> None:
    bundle = read(GOLDEN.read_bytes())
    again = [
        header_line(bundle.header),
        *map(record_line, bundle.records()),
        *(blob_line(blob, bundle.blob(blob)) for blob in bundle.image.blobs),
    ]
    assert again == by_hand.lines()


def test_part_of_the_records() -> None:
    bundle = read(GOLDEN.read_bytes())
    assert [record.seq for record in bundle.records(after=2, upto=4)] == [3, 4]
    assert [record.seq for record in bundle.records(after=5)] == [6, 7]
    assert list(bundle.records(after=7)) == []
    with pytest.raises(CorruptRecord, match="its blob 00ff is missing"):
        bundle.blob("00ff")


# Any bytes ---------------------------------------------------------------------------------------------

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text()
)
JSON = st.recursive(
    SCALARS,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(), part, max_size=3),
    max_leaves=8,
)
VALUES = JSON.map(msgspec.json.Encoder(order="deterministic").encode)
NAMES = st.text(max_size=8) | st.sampled_from(["json", "base64", "raw", "blob"])
TREES = st.recursive(
    SCALARS | st.binary(max_size=20) | VALUES,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(NAMES, part, max_size=3),
    max_leaves=12,
)


@given(st.lists(TREES.map(msgspec.msgpack.encode) | st.binary(max_size=40), min_size=1, max_size=4), TREES)
def test_any_body_and_any_blob_come_back_to_the_byte(bodies: list[bytes], blob: Any) -> None:
    records = [record_of(body, seq) for seq, body in enumerate(bodies, 1)]
    blobs = {"b1": msgspec.msgpack.encode(blob), "b2": b"", "b3": b'{"a":1}', "b4": b'{"a": 1}\n'}
    data = written(records, blobs)
    assert data.count(b"\n") == 1 + len(records) + len(blobs), "a line each"
    bundle = read(data)
    assert list(bundle.records()) == records
    assert {name: bundle.blob(name) for name in blobs} == blobs


@given(
    st.text(max_size=10), st.text(max_size=10), st.text(max_size=10) | st.none(), st.integers(0, 2**63 - 1)
)
def test_any_envelope_comes_back(kind: str, turn: str, key_id: str | None, epoch: int) -> None:
    record = msgspec.structs.replace(record_of(b"\x80", type=kind, turn=turn, key_id=key_id), epoch=epoch)
    assert list(read(written([record])).records()) == [record]


def test_what_people_said_can_be_read_in_the_file() -> None:
    sealed_body = seal("r", RunCreated(agent="a", nonce=b"n" * 16, metadata={"team": "é"}))
    line = json.loads(record_line(record_of(sealed_body.body, type=sealed_body.type)))
    assert line["body"] == {
        "agent": "a",
        "nonce": {"base64": "bm5ubm5ubm5ubm5ubm5ubg=="},
        "metadata": {"team": "é"},
    }


# What is refused ---------------------------------------------------------------------------------------

LINES = by_hand.lines()
Change = Callable[[list[bytes]], list[bytes]]


def put(number: int, line: bytes) -> Change:
    """That line instead of line `number`."""
    return lambda lines: [*lines[: number - 1], line, *lines[number:]]


def changed_record(seq: int, **fields: Any) -> Change:
    return put(seq + 1, sealed(by_hand.record(seq) | fields))


def changed_image(**fields: Any) -> Change:
    return put(1, sealed(by_hand.header(**fields)))


HIDDEN = LINES[3].replace(b'"w"', b'"v"')
CASES: dict[str, tuple[Change, type[BundleError], int | None, str]] = {
    "empty": (lambda _: [], NotABundle, None, "it is empty"),
    "something else": (lambda _: [b"# Notes\n"], NotABundle, None, "journal export RUN -o FILE"),
    "a store": (lambda _: [b"SQLite format 3\0" + bytes(100)], NotABundle, None, "--world sqlite:FILE"),
    "compressed": (lambda _: [b"\x1f\x8b" + bytes(100)], NotABundle, None, "gunzip"),
    "newer": (put(1, sealed(by_hand.header() | {"format": 2})), BundleTooNew, 1, "upgrade durable-journal"),
    "no header": (put(1, sealed({"journal": "bundle", "format": 1})), BundleDamaged, 1, "not as it must be"),
    "bad format": (put(1, sealed({"journal": "bundle", "format": "x"})), BundleDamaged, 1, "does not say its format"),
    "bad run id": (changed_image(run="-rf"), BundleDamaged, 1, "begins with '-'"),
    "bad head": (changed_image(head=-1), BundleDamaged, 1, "what cannot be"),
    "a large epoch": (changed_image(epoch=2**63), BundleDamaged, 1, "what cannot be"),
    "a large priority": (changed_image(priority=2**31), BundleDamaged, 1, "what cannot be"),
    "a NUL": (changed_image(agent="a\0"), BundleDamaged, 1, "what cannot be"),
    "a blob twice": (changed_image(blobs=[by_hand.BLOBS[0][0]] * 2), BundleDamaged, 1, "what cannot be"),
    "a longer head": (changed_image(head=8), BundleDamaged, 9, "not as it must be"),
    "a shorter head": (changed_image(head=6), BundleDamaged, 8, "not as it must be"),
    "one blob less": (changed_image(blobs=[by_hand.BLOBS[0][0]]), BundleDamaged, 10, "behind the last line"),
    "another digest": (put(1, sealed(by_hand.header() | {"digest": "00" * 32})), BundleDamaged, 1, "digest"),
    "flipped": (put(4, HIDDEN), BundleDamaged, 4, "crc does not match"),
    "no crc": (put(4, b'{"seq":3}\n'), BundleDamaged, 4, "crc does not match"),
    "an empty line": (put(4, b"\n"), BundleDamaged, 4, "crc does not match"),
    "reformatted": (put(4, json.dumps(json.loads(LINES[3])).encode() + b"\n"), BundleDamaged, 4, "crc"),
    "windows line ends": (lambda lines: [line[:-1] + b"\r\n" for line in lines], BundleDamaged, 1, "crc"),
    "doubled": (lambda lines: [*lines[:4], *lines[3:]], BundleDamaged, 5, "record 3 stands where record 4 must"),
    "lost": (lambda lines: [*lines[:3], *lines[4:]], BundleDamaged, 4, "record 4 stands where record 3 must"),
    "swapped": (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], BundleDamaged, 3, "record 3 stands"),
    "no records": (lambda lines: lines[:1], BundleDamaged, 1, "record 1 of 7 is missing"),
    "cut behind a line": (lambda lines: lines[:4], BundleDamaged, 4, "record 4 of 7 is missing"),
    "cut in a line": (lambda lines: [*lines[:4], lines[4][:20]], BundleDamaged, 5, "it was cut"),
    "no last line end": (lambda lines: [*lines[:-1], lines[-1][:-1]], BundleDamaged, 10, "it was cut"),
    "no blob": (lambda lines: lines[:-1], BundleDamaged, 9, f"blob {by_hand.BLOBS[1][0]} is missing"),
    "another blob": (lambda lines: [*lines[:8], lines[9], lines[8]], BundleDamaged, 9, "stands where blob"),
    "a longer blob": (
        put(10, sealed(by_hand.blob(*by_hand.BLOBS[1]) | {"size": 1})), BundleDamaged, 10, "and 1 are named"
    ),
    "an empty box": (
        put(10, sealed(by_hand.blob(*by_hand.BLOBS[1]) | {"data": {}})), BundleDamaged, 10, "has 0 bytes, and 3 are"
    ),
    "more behind it": (lambda lines: [*lines, b"{}\n"], BundleDamaged, 11, "behind the last line"),
    "of another run": (changed_image(run="other"), BundleDamaged, 2, "record 1: its checksum does not match"),
    "another key": (changed_record(4, key="look#2"), BundleDamaged, 5, "record 4: its checksum does not match"),
    "another time": (changed_record(3, time=1.5), BundleDamaged, 1, "the digest that it names"),
    "another epoch": (changed_record(3, epoch=7), BundleDamaged, 1, "the digest that it names"),
    "a negative epoch": (changed_record(3, epoch=-7), BundleDamaged, 4, "not as it must be"),
    "no seq": (put(4, sealed({"time": 1.5})), BundleDamaged, 4, "not as it must be"),
    "no body": (put(4, sealed({**by_hand.record(3), "body": None})), BundleDamaged, 4, "checksum"),
    "no body at all": (
        put(4, sealed({k: v for k, v in by_hand.record(3).items() if k != "body"})), BundleDamaged, 4, "no body"
    ),
    "a batch that is none": (changed_record(3, batch="xyz"), BundleDamaged, 4, "record 3 cannot be read"),
    "no base64": (changed_record(3, body={"base64": "é"}), BundleDamaged, 4, "record 3 cannot be read"),
    "base64 of nothing": (changed_record(3, body={"base64": 1}), BundleDamaged, 4, "record 3 cannot be read"),
    "deep": (put(4, b'{"seq":3,"body":' + b"[" * 200_000 + b"\n"), BundleDamaged, 4, "crc"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_no_whole_export_is_refused_by_line(name: str) -> None:
    change, kind, line, words = CASES[name]
    with pytest.raises(kind) as refused:
        read(b"".join(change(list(LINES))))
    assert words in str(refused.value)
    assert refused.value.line == line
    assert str(refused.value).startswith("run.jsonl: " if line is None else f"run.jsonl, line {line}: ")
    if kind is BundleDamaged:
        assert "get the file again, or export the run again" in str(refused.value)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_nesting_is_refused_and_breaks_nothing(opening: bytes) -> None:
    text = b'{"seq":3,"time":1.5,"type":"t","turn":null,"key":null,"epoch":0,"body":' + opening * 100_000
    line = text + b"1" + (b"]" if opening == b"[" else b"}") * 100_000
    with pytest.raises(BundleDamaged) as refused:
        read(b"".join([*LINES[:3], bundles._sealed(line + b"}", "x"), *LINES[4:]]))
    assert refused.value.line == 4


def test_no_bit_may_flip() -> None:
    small = written([record_of(b"\x80", 1), record_of(b'\x81\xa1a\xc4\x03"x"', 2)], {"00": b"\xff\x00"})
    read(small)
    for place in range(len(small)):
        for bit in (0, 5):
            flipped = bytearray(small)
            flipped[place] ^= 1 << bit
            with pytest.raises(BundleError):
                read(bytes(flipped))


def test_no_byte_may_be_missing() -> None:
    small = written([record_of(b"\x80", 1), record_of(b"\x81\xa1a\x01", 2)], {"00": b"\xff\x00"})
    for place in range(len(small)):
        with pytest.raises(BundleError):
            read(small[:place])
        with pytest.raises(BundleError):
            read(small[:place] + small[place + 1 :])


# Memory ------------------------------------------------------------------------------------------------


def test_a_line_that_never_ends_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "MAX_LINE_BYTES", 200_000)
    stream = io.BytesIO(LINES[0] + b" " * 50_000_000)
    with pytest.raises(BundleDamaged, match="line 2: it is longer than 200,000 bytes"):
        Bundle(stream, "run.jsonl")
    assert stream.tell() < 1_000_000


def test_what_nobody_could_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_LINE_BYTES > 8 * 1024 * 1024 * 4 / 3, "the largest value, as base64"
    monkeypatch.setattr(bundles, "MAX_LINE_BYTES", 1000)
    blob_line("00", b"\xff" * 600)
    with pytest.raises(ValueTooLarge, match="blob 00 takes"):
        blob_line("00", b"\xff" * 800)
    with pytest.raises(ValueTooLarge, match="record 1 of run 'r' takes"):
        record_line(record_of(b"\xc4\xff" + b"\xff" * 800))


def test_a_large_file_is_read_a_line_at_a_time() -> None:
    line = 1_000_000
    blobs = {f"{n:02}": b'"' + b"%02d" % n * (line // 2) + b'"' for n in range(30)}
    data = written([record_of(b"\x80")], blobs)
    tracemalloc.start()
    try:
        bundle = read(data)
        for name in blobs:
            bundle.blob(name)
        peak = tracemalloc.get_traced_memory()[1] - len(data)  # BytesIO copies what it is given
    finally:
        tracemalloc.stop()
    assert peak < 8 * line

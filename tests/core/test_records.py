"""Stored bytes are for ever: every record type is read from golden bytes, and hostile bytes raise only `LogError`.

`tests/golden/records-v1.jsonl` holds the bytes, and `-v2` to `-v4` those of what came later. They were made by
`hand_msgpack.py` from the maps below, never by our own encoder: ``python -m tests.core.test_records`` from the root
writes the last. A line that was shipped is never changed; a new version of a record gets lines, and a file, of its own.
"""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from journal.core import codec, values
from journal.core.codec import open_record, seal, verify
from journal.core.errors import CorruptRecord, LogError, RecordTooNew, UnknownRecordType
from journal.core.records import (
    BODIES,
    Accepted,
    BlobRef,
    Body,
    CallEvidence,
    CallIntent,
    CallOutcome,
    CancelRequested,
    CheckpointDeleted,
    CheckpointWritten,
    Difference,
    DocumentEdit,
    DocumentEdited,
    ErrorInfo,
    FileChange,
    FilesChanged,
    FileSnapshot,
    Observed,
    Origin,
    Packed,
    Record,
    RunClosed,
    RunCreated,
    Snapshot,
    ThreadCheckpoint,
    ThreadDropped,
    ThreadHeld,
    ThreadHolder,
    ThreadWrite,
    ThreadWrites,
    TurnBlocked,
    TurnFinished,
    TurnRetried,
    TurnStarted,
    TurnSubmitted,
)
from tests.core.hand_msgpack import pack

GOLDEN = Path(__file__).parent.parent / "golden" / "records-v1.jsonl"
SECOND = GOLDEN.with_name("records-v2.jsonl")
THIRD = GOLDEN.with_name("records-v3.jsonl")
FOURTH = GOLDEN.with_name("records-v4.jsonl")
DIGEST = bytes(range(16))
PACKED = Packed("msgpack", b"\x80")
HOLDER = ThreadHolder(run="r", turn="start", scope="graph#1", claim=DIGEST)

# name, what the stored map says, what we read
SAMPLES: list[tuple[str, dict[str, Any], Body]] = [
    ("run.created least", {"agent": "support", "nonce": DIGEST}, RunCreated(agent="support", nonce=DIGEST)),
    (
        "run.created full",
        {
            "agent": "support", "nonce": DIGEST, "namespace": "eu", "metadata": {"team": "é"}, "subject": "u-1",
            "versions": {"durable-journal": "0.1.0"}, "min_reader": 2,
        },
        RunCreated(
            agent="support", nonce=DIGEST, namespace="eu", metadata={"team": "é"}, subject="u-1",
            versions={"durable-journal": "0.1.0"}, min_reader=2,
        ),
    ),
    (
        "run.created of a fork",
        {
            "agent": "support", "nonce": DIGEST,
            "origin": {"run": "order-42", "seq": 70_000, "at": 7, "input_digest": DIGEST},
        },
        RunCreated(
            agent="support", nonce=DIGEST, origin=Origin(run="order-42", seq=70_000, at=7, input_digest=DIGEST)
        ),
    ),
    (
        "turn.submitted inline",
        {"input": b'"hi"', "input_digest": DIGEST, "seed": 2**63},
        TurnSubmitted(input=b'"hi"', input_digest=DIGEST, seed=2**63),
    ),
    (
        "turn.submitted blob",
        {"input": {"blob": "00ff", "size": 70_000}, "input_digest": DIGEST},
        TurnSubmitted(input=BlobRef("00ff", 70_000), input_digest=DIGEST),
    ),
    ("turn.started least", {"worker": "w", "attempt": 1}, TurnStarted(worker="w", attempt=1)),
    (
        "turn.started full",
        {"worker": "w" * 40, "attempt": 300, "version": "1.2", "taken_over": True},
        TurnStarted(worker="w" * 40, attempt=300, version="1.2", taken_over=True),
    ),
    (
        "call.intent least",
        {"kind": "step", "name": "f", "input_digest": DIGEST, "policy": "safe", "attempt": 1},
        CallIntent(kind="step", name="f", input_digest=DIGEST, policy="safe", attempt=1),
    ),
    (
        "call.intent full",
        {
            "kind": "tool", "name": "refund", "input": b'{"a":1}', "input_digest": DIGEST, "config_digest": DIGEST,
            "policy": "never", "attempt": 2, "number": 3,
        },
        CallIntent(
            kind="tool", name="refund", input=b'{"a":1}', input_digest=DIGEST, config_digest=DIGEST,
            policy="never", attempt=2, number=3,
        ),
    ),
    (
        "call.intent in a fork",
        {
            "kind": "step", "name": "f", "input_digest": DIGEST, "policy": "safe", "attempt": 1, "nonce": DIGEST,
        },
        CallIntent(kind="step", name="f", input_digest=DIGEST, policy="safe", attempt=1, nonce=DIGEST),
    ),
    (
        "call.intent of a task",
        {
            "kind": "step", "name": "f", "input_digest": DIGEST, "policy": "safe", "attempt": 1, "task_digest": DIGEST,
        },
        CallIntent(kind="step", name="f", input_digest=DIGEST, policy="safe", attempt=1, task_digest=DIGEST),
    ),
    ("call.outcome ok", {"status": "ok", "value": b"null"}, CallOutcome(status="ok", value=b"null")),
    (
        "call.outcome error",
        {"status": "error", "error": {"type": "ValueError", "args": b'["x"]'}, "tries": 3},
        CallOutcome(status="error", error=ErrorInfo(type="ValueError", args=b'["x"]'), tries=3),
    ),
    (
        "call.outcome lost",
        {"status": "value_lost", "lost": "<object>", "usage": {"input_tokens": 70_000}, "evidence": 12, "probed": True},
        CallOutcome(status="value_lost", lost="<object>", usage={"input_tokens": 70_000}, evidence=12, probed=True),
    ),
    ("call.outcome unknown", {"status": "unknown"}, CallOutcome(status="unknown")),
    ("call.outcome cancelled", {"status": "cancelled"}, CallOutcome(status="cancelled")),
    (
        "call.evidence",
        {"outcome": {"status": "ok", "value": b"1"}, "epoch": 4},
        CallEvidence(outcome=CallOutcome(status="ok", value=b"1"), epoch=4),
    ),
    (
        "call.evidence of a run",
        {"outcome": {"status": "ok", "value": b"1"}, "epoch": 4, "nonce": b"n"},
        CallEvidence(outcome=CallOutcome(status="ok", value=b"1"), epoch=4, nonce=b"n"),
    ),
    ("observed", {"value": b"1764500000.25"}, Observed(value=b"1764500000.25")),
    (
        "observed of a task",
        {"value": b'"turn.now"', "task_digest": DIGEST},
        Observed(value=b'"turn.now"', task_digest=DIGEST),
    ),
    (
        "turn.finished ok",
        {"status": "succeeded", "output": b'"done"'},
        TurnFinished(status="succeeded", output=b'"done"'),
    ),
    (
        "turn.finished failed",
        {
            "status": "failed",
            "error": {"type": "m.E", "code": "429", "data": {"blob": "aa", "size": 9}},
            "cause": "refund#1",
        },
        TurnFinished(
            status="failed", error=ErrorInfo(type="m.E", code="429", data=BlobRef("aa", 9)), cause="refund#1"
        ),
    ),
    (
        "turn.blocked",
        {"reason": "divergence", "detail": "d" * 300, "recorded": b"1", "asked": b"2", "version": "1"},
        TurnBlocked(reason="divergence", detail="d" * 300, recorded=b"1", asked=b"2", version="1"),
    ),
    ("turn.retried least", {}, TurnRetried()),
    ("turn.retried full", {"superseded": [1, 127, 128, 65_536]}, TurnRetried(superseded=(1, 127, 128, 65_536))),
    (
        "turn.retried with what was said",
        {
            "superseded": [5], "from_seq": 300, "settled": {7: b"1", 9: None, 70_000: {"blob": "aa", "size": 9}},
            "accepted": {
                "recorded": "a#1", "key": "b#1", "kind": "tool", "name": "b", "input_digest": DIGEST,
            },
        },
        TurnRetried(
            superseded=(5,), from_seq=300, settled={7: b"1", 9: None, 70_000: BlobRef("aa", 9)},
            accepted=Accepted(recorded="a#1", key="b#1", kind="tool", name="b", input_digest=DIGEST),
        ),
    ),
    (
        "turn.retried that lets a call go unasked",
        {"accepted": {"recorded": "a#1"}},
        TurnRetried(accepted=Accepted(recorded="a#1")),
    ),
    ("cancel.requested least", {}, CancelRequested()),
    ("cancel.requested full", {"reason": "asked"}, CancelRequested(reason="asked")),
    ("run.closed", {}, RunClosed()),
    (
        "thread.held",
        {"holder": {"run": "r", "turn": "start", "scope": "graph#1", "claim": DIGEST}},
        ThreadHeld(holder=HOLDER),
    ),
    (
        "thread.checkpoint least",
        {
            "id": "1f0", "checkpoint": {"kind": "msgpack", "data": b"\x80"},
            "metadata": {"kind": "msgpack", "data": b"\x80"},
        },
        ThreadCheckpoint(id="1f0", checkpoint=PACKED, metadata=PACKED),
    ),
    (
        "thread.checkpoint full",
        {
            "namespace": "node:1", "id": "1f1", "parent": "1f0", "checkpoint": {"kind": "msgpack", "data": b"\x80"},
            "metadata": {"kind": "msgpack", "data": b"\x80"}, "versions": {"messages": "2.5", "gone": 3},
            "channels": {"messages": {"kind": "msgpack", "data": {"blob": "00ff", "size": 70_000}}, "gone": None},
            "holder": {"run": "r", "turn": "start", "scope": "graph#1", "claim": DIGEST},
        },
        ThreadCheckpoint(
            namespace="node:1", id="1f1", parent="1f0", checkpoint=PACKED, metadata=PACKED,
            versions={"messages": "2.5", "gone": 3},
            channels={"messages": Packed("msgpack", BlobRef("00ff", 70_000)), "gone": None}, holder=HOLDER,
        ),
    ),
    ("thread.writes least", {"checkpoint": "1f0", "task": "t"}, ThreadWrites(checkpoint="1f0", task="t")),
    (
        "thread.writes full",
        {
            "namespace": "node:1", "checkpoint": "1f0", "task": "t", "path": "~__pregel_pull, a",
            "writes": [
                {"index": 0, "channel": "messages", "value": {"kind": "msgpack", "data": b"\x80"}},
                {"index": -4, "channel": "__resume__", "value": {"kind": "null", "data": b""}},
            ],
            "holder": {"run": "r", "turn": "start", "scope": "graph#1", "claim": DIGEST},
        },
        ThreadWrites(
            namespace="node:1", checkpoint="1f0", task="t", path="~__pregel_pull, a",
            writes=(ThreadWrite(0, "messages", PACKED), ThreadWrite(-4, "__resume__", Packed("null", b""))),
            holder=HOLDER,
        ),
    ),
    ("thread.dropped all", {}, ThreadDropped()),
    (
        "thread.dropped some",
        {"checkpoints": [["", "1f0"], ["node:1", "1f1"]]},
        ThreadDropped(checkpoints=(("", "1f0"), ("node:1", "1f1"))),
    ),
]  # fmt: skip


def record(type: str, body: bytes, *, checksum: int = 0, **changes: Any) -> Record:  # noqa: A002 - the field's name
    fields: dict[str, Any] = {
        "run": "order-42", "seq": 7, "time": 1.5, "type": type, "turn": "start", "key": "refund#1", "epoch": 1,
        "batch": DIGEST, "body": body, "checksum": checksum,
    }  # fmt: skip
    return Record(**(fields | changes))


FIRST = len(SAMPLES)
SAMPLES += [
    (
        "call.intent difference",
        {
            "v": 2, "kind": "model", "name": "ask", "input": b',{"n":9}', "input_digest": DIGEST, "policy": "safe",
            "attempt": 1,
            "difference": {"base": "ask#1", "outcomes": ["ask#1"], "keep": [0, 0, 70_000, 8, 70_000, 2], "size": 70_010,
                           "crc": 0x9D080C13},
        },
        CallIntent(
            v=2, kind="model", name="ask", input=b',{"n":9}', input_digest=DIGEST, policy="safe", attempt=1,
            difference=Difference(
                base="ask#1", outcomes=("ask#1",), keep=(0, 0, 70_000, 8, 70_000, 2), size=70_010, crc=0x9D080C13
            ),
        ),
    ),
    (
        "call.outcome facts",
        {
            "status": "ok", "value": b"1", "usage": {"input_tokens": 3}, "finish": "length", "raw_finish": "max_tokens",
            "rate_limits": {"requests_remaining": 49.0},
        },
        CallOutcome(
            status="ok", value=b"1", usage={"input_tokens": 3}, finish="length", raw_finish="max_tokens",
            rate_limits={"requests_remaining": 49.0},
        ),
    ),
]  # fmt: skip

FIRST = len(SAMPLES)
SAMPLES += [
    (
        "call.outcome edits",
        {
            "v": 2, "status": "ok",
            "edits": [
                {"doc": "todo", "version": 2, "base": DIGEST, "value": b'["tea"]'},
                {"doc": "plan", "version": 1, "rejected": "changed"},
            ],
        },
        CallOutcome(
            v=2, status="ok",
            edits=(
                DocumentEdit(doc="todo", version=2, base=DIGEST, value=b'["tea"]'),
                DocumentEdit(doc="plan", version=1, rejected="changed"),
            ),
        ),
    ),
    (
        "document.edited",
        {"edit": {"doc": "todo", "version": 1, "value": {"blob": "00ff", "size": 70_000}}},
        DocumentEdited(edit=DocumentEdit(doc="todo", version=1, value=BlobRef(blob="00ff", size=70_000))),
    ),
    (
        "call.outcome files",
        {
            "v": 2, "status": "ok",
            "files": [
                {"path": "/a.sh", "base": DIGEST, "content": b"\x00\xff", "is_executable": True, "source": "/b.sh"},
                {"path": "/b.sh", "base": DIGEST},
                {"path": "/c", "content": {"blob": "00ff", "size": 70_000}},
                {"path": "/d", "rejected": "changed"},
            ],
        },
        CallOutcome(
            v=2, status="ok",
            files=(
                FileChange(path="/a.sh", base=DIGEST, content=b"\x00\xff", is_executable=True, source="/b.sh"),
                FileChange(path="/b.sh", base=DIGEST),
                FileChange(path="/c", content=BlobRef(blob="00ff", size=70_000)),
                FileChange(path="/d", rejected="changed"),
            ),
        ),
    ),
    (
        "files.changed",
        {"changes": [{"path": "/a", "content": b""}]},
        FilesChanged(changes=(FileChange(path="/a", content=b""),)),
    ),
    (
        "checkpoint.written",
        {"name": "plan", "sequence": 3, "payload": b'{"step":3}'},
        CheckpointWritten(name="plan", sequence=3, payload=b'{"step":3}'),
    ),
    ("checkpoint.deleted", {"name": "plan", "sequence": 3}, CheckpointDeleted(name="plan", sequence=3)),
]  # fmt: skip

FIRST = len(SAMPLES)
SAMPLES += [
    (
        "turn.started snapshot",
        {"worker": "w", "attempt": 1, "snapshot": {"upto": 900, "blob": "00ff", "size": 7_000}},
        TurnStarted(worker="w", attempt=1, snapshot=Snapshot(upto=900, blob="00ff", size=7_000)),
    ),
    (
        "turn.finished snapshot",
        {"status": "succeeded", "snapshot": {"upto": 900, "blob": "00ff", "size": 7_000, "format": 2}},
        TurnFinished(status="succeeded", snapshot=Snapshot(upto=900, blob="00ff", size=7_000, format=2)),
    ),
    (
        "call.outcome snapshot",
        {
            "v": 3, "status": "ok",
            "files": [
                {
                    "path": "/", "base": DIGEST,
                    "snapshot": {"id": "00ff", "files": 2, "size": 70_000, "root": "/srv/files"},
                },
                {"path": "/pipe", "rejected": "it is a pipe"},
            ],
        },
        CallOutcome(
            v=3, status="ok",
            files=(
                FileChange(
                    path="/", base=DIGEST, snapshot=FileSnapshot(id="00ff", files=2, size=70_000, root="/srv/files")
                ),
                FileChange(path="/pipe", rejected="it is a pipe"),
            ),
        ),
    ),
    (
        "files.changed snapshot",
        {"v": 2, "changes": [{"path": "/", "snapshot": {"id": "00ff"}}]},
        FilesChanged(v=2, changes=(FileChange(path="/", snapshot=FileSnapshot(id="00ff")),)),
    ),
    (
        "turn.blocked workspace",
        {"v": 2, "reason": "workspace", "detail": "snapshot 00ff is not there"},
        TurnBlocked(v=2, reason="workspace", detail="snapshot 00ff is not there"),
    ),
]  # fmt: skip


def golden() -> dict[str, bytes]:
    lines = [
        json.loads(line) for file in (GOLDEN, SECOND, THIRD, FOURTH) for line in file.read_text().splitlines()
    ]
    return {line["name"]: bytes.fromhex(line["hex"]) for line in lines}


@pytest.mark.parametrize(("name", "says", "expected"), SAMPLES, ids=[name for name, _, _ in SAMPLES])
def test_golden_bytes_are_read_and_written(name: str, says: dict[str, Any], expected: Body) -> None:
    data = golden()[name]
    assert data == pack(says)
    assert open_record(record(name.split()[0], data)) == expected
    assert seal("order-42", expected).body == data


def test_there_is_a_golden_sample_of_every_record_type() -> None:
    assert {name.split()[0] for name in golden()} == set(BODIES)
    assert set(golden()) == {name for name, _, _ in SAMPLES}


@pytest.mark.parametrize("name", [name for name, _, _ in SAMPLES])
def test_unknown_fields_are_ignored(name: str) -> None:
    says, expected = next((says, body) for n, says, body in SAMPLES if n == name)
    more = {"later": {"nested": [1, {"deep": b"x"}]}} | says | {"also": None}
    assert open_record(record(name.split()[0], pack(more))) == expected


@pytest.mark.parametrize("type", sorted(BODIES))
def test_a_newer_version_is_refused_by_name(type: str) -> None:  # noqa: A002 - the field's name
    least = next(says for name, says, _ in SAMPLES if name.split()[0] == type)
    reads = BODIES[type].VERSION
    newer = reads + 1
    for body in (
        {"v": newer} | least,
        {"v": 99, "renamed": 1},
        {"v": newer, "status": "a later word", "agent": 1},
    ):
        with pytest.raises(RecordTooNew) as caught:
            open_record(record(type, pack(body)))
        error = caught.value
        assert (error.run_id, error.seq, error.type, error.reads) == ("order-42", 7, type, reads)
        assert error.version == body["v"]


def test_an_unknown_type_is_refused_by_name() -> None:
    with pytest.raises(UnknownRecordType) as caught:
        open_record(record("signal.received.later", pack({})))
    assert (caught.value.run_id, caught.value.seq, caught.value.type) == (
        "order-42",
        7,
        "signal.received.later",
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",  # never used in MessagePack
        b"\x81",  # a map whose entry is missing
        pack({"status": "ok"})[:-1],
        pack({"status": "ok"}) + b"\x00",
        pack(["ok"]),
        pack(None),
        pack({"status": "fine"}),
        pack({"status": 1}),
        pack({}),
        pack({"status": "ok", "value": "text, not bytes"}),
        pack({"status": "ok", "usage": {"a": "b"}}),
        pack({"status": "ok", "v": "1"}),
        b"\x81\xa6status\xa2\xff\xff",  # text that is no UTF-8
        b"\x81\xa2\xff\xff\x01",
    ],
)
def test_a_malformed_body_is_refused_by_place(body: bytes) -> None:
    with pytest.raises(CorruptRecord) as caught:
        open_record(record("call.outcome", body))
    assert (caught.value.run_id, caught.value.seq) == ("order-42", 7)


def test_a_sealed_record_verifies_and_any_change_is_noticed() -> None:
    sealed = seal("order-42", RunClosed(), turn="start", key="refund#1")
    whole = record(sealed.type, sealed.body, checksum=sealed.checksum)
    verify(whole)
    # What the world fills in is not covered: it did not know it when it was sealed.
    verify(msgspec.structs.replace(whole, seq=8, time=2.0, epoch=9))
    for change in (
        {"run": "order-43"},
        {"type": "cancel.requested"},
        {"turn": "other"},
        {"turn": None},
        {"key": "refund#2"},
        {"key": None},
        {"key_id": "k1"},
        {"body": sealed.body + b"\x00"},
        {"body": b"\x81" + sealed.body[1:]},
        {"checksum": sealed.checksum ^ 1},
    ):
        with pytest.raises(CorruptRecord, match="its checksum does not match"):
            verify(msgspec.structs.replace(whole, **change))


def test_the_checksum_is_crc_32() -> None:
    # Of "order-42\0run.closed\0start\0refund#1\0None\x80", by gzip: the CRC in its trailer.
    assert seal("order-42", RunClosed(), turn="start", key="refund#1").checksum == 0x9D080C13


def test_large_values_get_an_address() -> None:
    small, large = b"x" * values.INLINE_BYTES, b"x" * (values.INLINE_BYTES + 1)
    assert codec.pack(small) == (small, None)
    value, blob = codec.pack(large)
    assert blob is not None
    assert value == BlobRef(blob.id, len(large))
    assert blob.data is large


# Hostile bytes (FAULTS 28) --------------------------------------------------------------------------

HUGE = [
    b"\xdf\xff\xff\xff\xff",  # a map of 4 billion entries
    b"\xdd\xff\xff\xff\xff",  # an array of 4 billion
    b"\xc6\xff\xff\xff\xff",  # 4 GiB of bytes
    b"\xdb\xff\xff\xff\xff",  # 4 GiB of text
    b"\xc9\xff\xff\xff\xff\x01",  # an extension of 4 GiB
]


def hostile_bodies() -> list[bytes]:
    fields = [name for body in BODIES.values() for name in body.__struct_fields__]
    inside = [b"\x81" + pack(name) + huge for name in sorted({*fields, "unknown"}) for huge in HUGE]
    deep = [
        b"\x81\xa5later" + b"\x91" * 100_000 + b"\x01",
        b"\x81\xa5later" + b"\x81\xa1a" * 100_000 + b"\x01",
        b"\x91" * 100_000,
        b"\x81\xa1v" + b"\x91" * 100_000,
        b"\x81\xa7outcome" * 100_000,
    ]
    return [*HUGE, *inside, *deep]


def test_hostile_bytes_raise_log_errors_and_take_no_memory() -> None:
    bodies = hostile_bodies()
    tracemalloc.start()
    try:
        for type_ in BODIES:
            for body in bodies:
                with pytest.raises(LogError):
                    open_record(record(type_, body))
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024 * 1024
    finally:
        tracemalloc.stop()


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(sorted(BODIES)), st.binary(max_size=64))
def test_random_bytes_are_read_or_refused(type_: str, body: bytes) -> None:
    attempt(type_, body)


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_damaged_records_are_read_or_refused(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(golden())))
    body = bytearray(golden()[name])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    attempt(name.split()[0], bytes(body[: data.draw(st.integers(0, len(body)))]))


def attempt(type_: str, body: bytes) -> None:
    try:
        found = open_record(record(type_, body))
    except LogError as error:
        assert (error.run_id, error.seq) == ("order-42", 7)  # noqa: PT017 - either is right, nothing else is
    else:
        assert isinstance(found, BODIES[type_])


if __name__ == "__main__":
    lines = [json.dumps({"name": name, "hex": pack(says).hex()}) for name, says, _ in SAMPLES[FIRST:]]
    FOURTH.write_text("\n".join(lines) + "\n")

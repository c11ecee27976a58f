"""An exported run written without our code: JSON by the standard library, MessagePack from its specification.

``python -m tests.bundle.by_hand`` from the root writes `tests/golden/bundle-v1.jsonl`; once shipped, it never changes.
"""

import json
import struct
from base64 import b64encode
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zlib import crc32

from tests.core.hand_msgpack import pack

GOLDEN = Path(__file__).parent.parent / "golden" / "bundle-v1.jsonl"
RUN, NAMESPACE = "order/42", "eu"
NONCE, BINARY = bytes(range(16)), b"\xff\x00\xfe"
LARGE = json.dumps({"text": "é" * 40_000}, ensure_ascii=False, separators=(",", ":")).encode()


def digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def json_of(value: Any) -> dict[str, Any]:
    return {"json": value}


def base64_of(data: bytes) -> dict[str, Any]:
    return {"base64": b64encode(data).decode()}


NAMES = {data: digest(data).hex() for data in (LARGE, BINARY)}
REF = {"blob": NAMES[LARGE], "size": len(LARGE)}
HELLO = b'"hello"'
# type, turn, key, epoch, key id, batch, what the stored map says, how it is shown (None: raw)
LINES: list[tuple[str, str | None, str | None, int, str | None, int, Any, Any]] = [
    (
        "run.created", None, None, 0, None, 1,
        {"agent": "support", "nonce": NONCE, "namespace": "eu", "metadata": {"team": "é", "n": "1"}},
        {"agent": "support", "nonce": base64_of(NONCE), "namespace": "eu", "metadata": {"team": "é", "n": "1"}},
    ),
    (
        "turn.submitted", "start", None, 0, None, 1,
        {"input": HELLO, "input_digest": digest(HELLO)},
        {"input": json_of("hello"), "input_digest": base64_of(digest(HELLO))},
    ),
    ("turn.started", "start", None, 1, None, 2, {"worker": "w", "attempt": 1}, {"worker": "w", "attempt": 1}),
    (
        "call.intent", "start", "look#1", 1, None, 3,
        {"kind": "tool", "name": "look", "input": b'{"a":[1,2.0,null],"b":-0.0}', "input_digest": NONCE,
         "policy": "safe", "attempt": 1},
        {"kind": "tool", "name": "look", "input": json_of({"a": [1, 2.0, None], "b": -0.0}),
         "input_digest": base64_of(NONCE), "policy": "safe", "attempt": 1},
    ),
    ("call.outcome", "start", "look#1", 1, None, 3, {"status": "ok", "value": REF}, {"status": "ok", "value": REF}),
    (
        # A map that looks like a shown value cannot be shown.
        "call.outcome", "start", "odd#1", 1, "key-1", 4,
        {"status": "ok", "value": b"[ 1 ]", "later": {"json": 1}}, None,
    ),
    (
        "turn.finished", "start", None, 1, None, 5,
        {"status": "succeeded", "output": b"18446744073709551615"},
        {"status": "succeeded", "output": json_of(2**64 - 1)},
    ),
]  # fmt: skip
BLOBS = sorted((NAMES[data], data) for data in (LARGE, BINARY))


def bodies() -> list[bytes]:
    """As they lie in a store."""
    return [pack(line[6]) for line in LINES]


def sums() -> list[int]:
    """The checksums of the records."""
    found = []
    for (kind, turn, key, _, key_id, _, _, _), body in zip(LINES, bodies(), strict=True):
        found.append(crc32(body, crc32(f"{RUN}\0{kind}\0{turn}\0{key}\0{key_id}".encode())))
    return found


def time_of(seq: int) -> float:
    return 1_700_000_000.5 + seq


def run_digest() -> bytes:
    """Of records and blobs."""
    found = blake2b(digest_size=32)
    for seq, (line, body, check) in enumerate(zip(LINES, bodies(), sums(), strict=True), 1):
        kind, turn, key, epoch, key_id, batch, _, _ = line
        time = b"\xcb" + struct.pack(">d", time_of(seq))
        parts = (RUN, seq, kind, turn, key, epoch, bytes([batch]) * 16, body, check, key_id)
        packed = [pack(part) for part in parts]
        found.update(b"\x9b" + packed[0] + packed[1] + time + b"".join(packed[2:]))
    for name, data in BLOBS:
        found.update(f"{name} {len(data)} ".encode() + data)
    return found.digest()


def sealed(line: dict[str, Any]) -> bytes:
    """A line with its CRC."""
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode()[:-1]
    return text + b',"crc":"%08x"}\n' % crc32(text)


def header(**changes: Any) -> dict[str, Any]:
    image = {
        "run": RUN, "agent": "support", "created": time_of(1), "min_reader": 1, "closed": None, "epoch": 1,
        "head": len(LINES), "turns": [{"turn": "start", "submitted": 2, "status": "succeeded", "finished": len(LINES)}],
        "keys": [{"key": "turn:start", "digest": b64encode(digest(HELLO)).decode(), "first": 1, "last": 2,
                  "time": time_of(2)}],
        "blobs": [name for name, _ in BLOBS], "status": "succeeded", "priority": 0, "due_at": None, "takeovers": 0,
        "held": False, "abandoned": False, "moved_to": None, "building": False,
    }  # fmt: skip
    return {
        "journal": "bundle",
        "format": 1,
        "namespace": NAMESPACE,
        "digest": run_digest().hex(),
        "image": image | changes,
    }


def record(seq: int) -> dict[str, Any]:
    kind, turn, key, epoch, key_id, batch, _, shown = LINES[seq - 1]
    line: dict[str, Any] = {
        "seq": seq,
        "time": time_of(seq),
        "type": kind,
        "turn": turn,
        "key": key,
        "epoch": epoch,
    }
    if shown is None:
        line["raw"] = b64encode(bodies()[seq - 1]).decode()
    else:
        line["body"] = shown
    if key_id is not None:
        line["key_id"] = key_id
    return line | {"batch": (bytes([batch]) * 16).hex(), "checksum": sums()[seq - 1]}


def blob(name: str, data: bytes) -> dict[str, Any]:
    shown = base64_of(data) if data == BINARY else json_of(json.loads(data))
    return {"blob": name, "size": len(data), "data": shown}


def lines() -> list[bytes]:
    """The whole file."""
    records = [sealed(record(seq)) for seq in range(1, len(LINES) + 1)]
    return [sealed(header()), *records, *(sealed(blob(name, data)) for name, data in BLOBS)]


if __name__ == "__main__":
    GOLDEN.write_bytes(b"".join(lines()))

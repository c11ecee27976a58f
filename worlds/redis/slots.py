"""Which node of a cluster serves which slot, as nodes say themselves."""

from binascii import crc_hqx
from functools import lru_cache
from typing import Any

SLOTS = 16384
Node = tuple[str, int]
"""Host and port."""


@lru_cache(maxsize=20_000)
def slot_of(key: bytes) -> int:
    """The slot of a key, or of a channel: by its hash tag, if it has one."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key, 0) % SLOTS


def read_slots(reply: Any, asked: Node) -> list[Node | None]:
    """The primary of each slot, from CLUSTER SLOTS. A node that does not know its own name goes by the one we used."""
    owners: list[Node | None] = [None] * SLOTS
    for first, last, primary, *_ in reply:
        node = _node(primary[0], primary[1], asked)
        owners[first : last + 1] = [node] * (last + 1 - first)
    return owners


def read_redirect(text: str, asked: Node) -> tuple[int, Node]:
    """Slot and node of `MOVED 3999 127.0.0.1:6381` or `ASK …`."""
    _, slot, place = text.split(" ", 2)
    host, _, port = place.rpartition(":")
    return int(slot), _node(host.strip("[]").encode(), int(port), asked)


def _node(host: bytes | None, port: int, asked: Node) -> Node:
    name = host.decode() if host else ""
    return (name if name not in ("", "?") else asked[0]), port

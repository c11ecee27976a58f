"""MessagePack, written from its specification: what the golden records are made with, so that our own encoder
is not its own judge."""

import struct
from typing import Any


def pack(value: Any) -> bytes:
    """`value` in the shortest form the specification has for it."""
    match value:
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int():
            return _integer(value)
        case str():
            return _text(value.encode())
        case bytes():
            return _sized(len(value), (b"\xc4", b"\xc5", b"\xc6"), (1, 2, 4)) + value
        case list():
            return _box(len(value), 0x90, (b"\xdc", b"\xdd")) + b"".join(map(pack, value))
        case dict():
            parts = (pack(key) + pack(item) for key, item in value.items())
            return _box(len(value), 0x80, (b"\xde", b"\xdf")) + b"".join(parts)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    raise TypeError(type(value))


def _integer(value: int) -> bytes:
    if 0 <= value < 128:
        return bytes([value])
    if -32 <= value < 0:
        return value.to_bytes(1, "big", signed=True)
    for size, unsigned, signed in ((1, 0xCC, 0xD0), (2, 0xCD, 0xD1), (4, 0xCE, 0xD2), (8, 0xCF, 0xD3)):
        if 0 <= value < 1 << 8 * size:
            return bytes([unsigned]) + value.to_bytes(size, "big")
        if -(1 << 8 * size - 1) <= value < 0:
            return bytes([signed]) + value.to_bytes(size, "big", signed=True)
    raise OverflowError(value)


def _text(data: bytes) -> bytes:
    if len(data) < 32:
        return bytes([0xA0 | len(data)]) + data
    return _sized(len(data), (b"\xd9", b"\xda", b"\xdb"), (1, 2, 4)) + data


def _box(count: int, small: int, tags: tuple[bytes, bytes]) -> bytes:
    return bytes([small | count]) if count < 16 else _sized(count, tags, (2, 4))


def _sized(length: int, tags: tuple[bytes, ...], sizes: tuple[int, ...]) -> bytes:
    for tag, size in zip(tags, sizes, strict=True):
        if length < 1 << 8 * size:
            return tag + length.to_bytes(size, "big")
    raise OverflowError(length)

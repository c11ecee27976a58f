"""Postgres's binary format, for the few types that the door's parameters and answers have.

By hand, since this is the path of every append: a general adapter looks at each value, this looks at each column.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache

_NULL = b"\xff\xff\xff\xff"
_INT4, _INT8, _FLOAT8, _BOOL, _BYTEA, _TEXT = 23, 20, 701, 16, 17, 25
_length = struct.Struct("!i").pack
_header = struct.Struct("!iiIii").pack
_double = struct.Struct("!d")
_long = struct.Struct("!q")


@lru_cache(maxsize=1024)
def _fixed(code: str, count: int) -> struct.Struct:
    return struct.Struct("!iiIii" + f"i{code}" * count)


def _array(oid: int, code: str, size: int, values: Sequence[object]) -> bytes:
    count = len(values)
    if not count:
        return struct.pack("!iiI", 0, 0, oid)
    items: list[object] = [size] * (2 * count)
    items[1::2] = values
    return _fixed(code, count).pack(1, 0, oid, count, 1, *items)


def long_array(values: Sequence[int]) -> bytes:
    """`bigint[]`, without nulls."""
    return _array(_INT8, "q", 8, values)


def int_array(values: Sequence[int]) -> bytes:
    """`integer[]`, without nulls."""
    return _array(_INT4, "i", 4, values)


def bool_array(values: Sequence[bool]) -> bytes:
    """`boolean[]`, without nulls."""
    return _array(_BOOL, "?", 1, values)


def _varied(oid: int, values: Sequence[bytes | None]) -> bytes:
    count = len(values)
    if not count:
        return struct.pack("!iiI", 0, 0, oid)
    nulls = values.count(None)
    if nulls == count:
        return _header(1, 1, oid, count, 1) + _NULL * count
    # Without a step of Python for each value, unless there are nulls among them.
    sizes: list[bytes]
    if nulls:
        sizes = [_NULL if value is None else _length(len(value)) for value in values]
        values = [value or b"" for value in values]
    else:
        sizes = list(map(_length, map(len, values)))  # type: ignore[arg-type]  # none of them is None
    items: list[bytes | None] = [None] * (2 * count)
    items[0::2], items[1::2] = sizes, values
    return _header(1, int(nulls > 0), oid, count, 1) + b"".join(items)  # type: ignore[arg-type]


def bytes_array(values: Sequence[bytes | None]) -> bytes:
    """`bytea[]`."""
    return _varied(_BYTEA, values)


def text_array(values: Sequence[str | None]) -> bytes:
    """`text[]`."""
    return _varied(_TEXT, encoded(values))


def encoded(values: Sequence[str | None]) -> Sequence[bytes | None]:
    """Each as UTF-8."""
    if None in values:
        return [None if value is None else value.encode() for value in values]
    return list(map(str.encode, values))  # type: ignore[arg-type]  # none of them is None


def optional_longs(values: Sequence[int | None]) -> bytes:
    """`bigint[]`, with nulls."""
    return _varied(_INT8, [None if value is None else _long.pack(value) for value in values])


def optional_doubles(values: Sequence[float | None]) -> bytes:
    """`double precision[]`, with nulls."""
    return _varied(_FLOAT8, [None if value is None else _double.pack(value) for value in values])


def double(value: float | None) -> bytes | None:
    """`double precision`."""
    return None if value is None else _double.pack(value)


long = _long.pack
"""`bigint`."""


def to_double(data: bytes) -> float:
    """From `double precision`."""
    found: float = _double.unpack(data)[0]
    return found


def to_int(data: bytes) -> int:
    """From `smallint`, `integer` or `bigint`."""
    return int.from_bytes(data, "big", signed=True)


def to_longs(data: bytes) -> tuple[int, ...]:
    """From a `bigint[]` without nulls."""
    count = (len(data) - 20) // 12
    return _items("q", count).unpack_from(data, 20)[1::2] if count > 0 else ()


def to_bools(data: bytes) -> tuple[bool, ...]:
    """From a `boolean[]` without nulls."""
    count = (len(data) - 20) // 5
    return _items("?", count).unpack_from(data, 20)[1::2] if count > 0 else ()


@lru_cache(maxsize=1024)
def _items(code: str, count: int) -> struct.Struct:
    return struct.Struct("!" + f"i{code}" * count)

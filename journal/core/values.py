"""Values: what may go into the log, and its one spelling in bytes.

Canonical JSON: UTF-8, no spaces, keys in code point order, non-ASCII unescaped, shortest round-trip floats
that keep ``.0`` and ``-0.0``, integers from -2**63 to 2**64 - 1. What JSON cannot say is refused with the path
to it. A tuple is accepted and comes back as a list: callers hand out what `keep` gives back, never the original,
so that the first run and a replay see the same thing. Rich types go through `typed.py`.

A value is plain when what comes back from its bytes equals it (a tuple equals its list). That is decided in C,
by writing and reading: three times as fast as looking at every part of it.
"""

import json
from collections.abc import Awaitable
from hashlib import blake2b
from math import isfinite
from typing import Any

import msgspec

from journal.core.errors import InvalidValue, ValueTooLarge

MAX_DEPTH = 200
MAX_VALUE_BYTES = 8 * 1024 * 1024
INLINE_BYTES = 64 * 1024

_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1
_LEAST_TOO_DEEP = 2 * MAX_DEPTH + 1
_encode = msgspec.json.Encoder(order="deterministic").encode
decode = msgspec.json.Decoder().decode
"""The value behind canonical bytes (as written by `encode`, so nothing is checked again)."""
_check_integers = msgspec.msgpack.Encoder().encode


def encode(value: object, *, what: str = "value", limit: int = MAX_VALUE_BYTES) -> bytes:
    """The canonical bytes of `value`; raises `InvalidValue` naming the path, or `ValueTooLarge`."""
    return keep(value, what=what, limit=limit)[0]


def keep(value: object, *, what: str = "value", limit: int = MAX_VALUE_BYTES) -> tuple[bytes, Any]:
    """The canonical bytes of `value`, and the value that a replay will see: hand out that one.

    Raises `InvalidValue` naming the path, or `ValueTooLarge`.
    """
    try:
        data = _encode(value)
        if len(data) > limit:
            raise ValueTooLarge(what=what, size=len(data), limit=limit)
        if type(value) is str:
            return data, value
        _check_integers(value)  # msgpack has our range of integers, and is quick to refuse others
        back = decode(data)
        # NaN became null, a date became text, …: whatever JSON cannot say does not come back equal.
        if back != value and back != _tuples_as_lists(value):
            raise _explain(value, what)
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError) as error:
        raise _explain(value, what, error) from None
    if len(data) >= _LEAST_TOO_DEEP and _is_too_deep(data, back):
        raise _explain(value, what)
    return data, back


def parse(text: str | bytes, *, what: str = "value") -> Any:
    """Read JSON that a person or a program wrote; duplicate keys, NaN and the like are refused by path."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            seen: set[str] = set()
            twice = next(k for k, _ in items if k in seen or seen.add(k))  # type: ignore[func-returns-value]  # add() is the "seen" half
            raise InvalidValue(what=what, path="", reason=f"the key {twice!r} stands twice in one object")
        return found

    def constant(name: str) -> Any:
        raise InvalidValue(what=what, path="", reason=f"{name} is not JSON")

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except RecursionError:
        raise InvalidValue(what=what, path="", reason=f"it is nested deeper than {MAX_DEPTH}") from None
    except ValueError as error:
        raise InvalidValue(what=what, path="", reason=f"it is not JSON: {error}") from None
    encode(value, what=what)
    return value


def digest(data: bytes) -> bytes:
    """16 bytes that stand for `data` (BLAKE2b): inputs, configurations and blobs are compared by it."""
    return blake2b(data, digest_size=16).digest()


def _tuples_as_lists(value: object) -> object:
    """A copy of `value` with lists in place of its tuples (of plain ones: a named tuple is a rich type)."""
    if type(value) is tuple or type(value) is list:
        return [_tuples_as_lists(item) for item in value]
    if isinstance(value, dict):
        return {key: _tuples_as_lists(item) for key, item in value.items()}
    return value


def _is_too_deep(data: bytes, back: object) -> bool:
    """Whether containers stand in each other more than `MAX_DEPTH` deep. Looks only where they could be."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    boxes: list[Any] = [back]
    for _ in range(MAX_DEPTH):
        boxes = [
            item
            for box in boxes
            for item in (box.values() if type(box) is dict else box)
            if type(item) is dict or type(item) is list
        ]
        if not boxes:
            return False
    return True


def _explain(value: object, what: str, cause: Exception | None = None) -> InvalidValue:
    """Find the first thing in `value` that JSON cannot say, and the path to it."""
    stack: list[tuple[str, object, int]] = [("", value, 0)]
    while stack:
        path, item, depth = stack.pop()
        if reason := _why_refused(item, depth):
            return InvalidValue(what=what, path=path, reason=reason)
        if isinstance(item, dict):
            for key in item:
                if reason := _why_key_refused(key):
                    return InvalidValue(what=what, path=path, reason=reason)
            stack.extend((f"{path}.{k}" if path else k, v, depth + 1) for k, v in reversed(item.items()))
        elif isinstance(item, list | tuple):
            indexed = list(enumerate(item))
            stack.extend((f"{path}[{i}]", v, depth + 1) for i, v in reversed(indexed))
    reason = str(cause) if cause else "it does not come back from JSON as it was"
    return InvalidValue(what=what, path="", reason=reason)


def _why_refused(item: object, depth: int) -> str | None:
    if isinstance(item, dict | list) or type(item) is tuple:
        return f"it is nested deeper than {MAX_DEPTH}" if depth >= MAX_DEPTH else None
    if isinstance(item, str) and _has_surrogate(item):
        return "it holds a lone surrogate"
    if type(item) is int and not _MIN_INT <= item <= _MAX_INT:
        return "the integer is outside -2**63 to 2**64 - 1; send it as text through a declared type"
    if isinstance(item, float) and not isfinite(item):
        return f"{item!r} is not JSON"
    try:
        if decode(_encode(item)) == item:
            return None
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass  # said below
    if isinstance(item, Awaitable):
        return f"{_article(item)} is no value yet: await it"
    return f"{_article(item)} is not JSON; declare its type (annotate it), or send plain values"


def _why_key_refused(key: object) -> str | None:
    if not isinstance(key, str):
        return f"the key {key!r} is {_article(key)}, and keys are text"
    return f"the key {key!r} holds a lone surrogate" if _has_surrogate(key) else None


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _article(item: object) -> str:
    name = type(item).__qualname__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"

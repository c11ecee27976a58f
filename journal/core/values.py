"""Values: what may go into the log, and its one spelling in bytes.

Canonical JSON: UTF-8, no spaces, keys in code point order, non-ASCII unescaped, shortest round-trip floats
that keep ``.0`` and ``-0.0``, integers from -2**63 to 2**64 - 1. What JSON cannot say is refused with the path
to it. A tuple is accepted and comes back as a list: callers hand out `decode(encode(value))`, never the original,
so that the first run and a replay see the same thing. Rich types go through `typed.py`.
"""

import json
from hashlib import blake2b
from math import isfinite
from typing import Any

import msgspec

from journal.core.errors import InvalidValue, ValueTooLarge

MAX_DEPTH = 200
MAX_VALUE_BYTES = 8 * 1024 * 1024
INLINE_BYTES = 64 * 1024

_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1
_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder().decode


def encode(value: object, *, what: str = "value", limit: int = MAX_VALUE_BYTES) -> bytes:
    """The canonical bytes of `value`; raises `InvalidValue` naming the path, or `ValueTooLarge`."""
    if not _is_plain(value, MAX_DEPTH):
        raise _explain(value, what)
    try:
        data = _encode(value)
    except (UnicodeEncodeError, OverflowError, RecursionError):
        raise _explain(value, what) from None
    if len(data) > limit:
        raise ValueTooLarge(what=what, size=len(data), limit=limit)
    return data


def decode(data: bytes) -> Any:
    """The value behind canonical bytes (as written by `encode`, so nothing is checked again)."""
    return _decode(data)


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


_ATOMS = (str, bool, type(None))


def _is_plain(value: object, depth: int) -> bool:
    """Whether `value` is made of JSON's own types, exactly. Quick: runs on every value."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if kind is int:
        return _MIN_INT <= value <= _MAX_INT  # type: ignore[operator]  # int, checked above
    if kind is float:
        return isfinite(value)  # type: ignore[arg-type]  # float, checked above
    if depth == 0:
        return False
    depth -= 1
    if kind is dict:
        for key, item in value.items():  # type: ignore[attr-defined]  # dict, checked above
            if type(key) is not str:
                return False
            if type(item) not in _ATOMS and not _is_plain(item, depth):
                return False
        return True
    if kind is list or kind is tuple:
        for item in value:  # type: ignore[attr-defined]  # list or tuple, checked above
            if type(item) not in _ATOMS and not _is_plain(item, depth):
                return False
        return True
    return False


def _explain(value: object, what: str) -> InvalidValue:
    """Find the first thing in `value` that JSON cannot say, and the path to it."""
    stack: list[tuple[str, object, int]] = [("", value, 0)]
    while stack:
        path, item, depth = stack.pop()
        if reason := _why_refused(item, depth):
            return InvalidValue(what=what, path=path, reason=reason)
        if isinstance(item, dict):
            for key in item:
                if type(key) is not str:
                    reason = f"the key {key!r} is {_article(key)}, and keys are text"
                    return InvalidValue(what=what, path=path, reason=reason)
                if _has_surrogate(key):
                    return InvalidValue(
                        what=what, path=path, reason=f"the key {key!r} holds a lone surrogate"
                    )
            stack.extend((f"{path}.{k}" if path else k, v, depth + 1) for k, v in reversed(item.items()))
        elif isinstance(item, list | tuple):
            indexed = list(enumerate(item))
            stack.extend((f"{path}[{i}]", v, depth + 1) for i, v in reversed(indexed))
    return InvalidValue(what=what, path="", reason=f"{type(value).__qualname__} cannot be written as JSON")


def _why_refused(item: object, depth: int) -> str | None:
    kind = type(item)
    if depth > MAX_DEPTH:
        return f"it is nested deeper than {MAX_DEPTH}"
    if kind is str:
        return "it holds a lone surrogate" if _has_surrogate(item) else None  # type: ignore[arg-type]  # str
    if kind is int and not _MIN_INT <= item <= _MAX_INT:  # type: ignore[operator]  # int
        return "the integer is outside -2**63 to 2**64 - 1; send it as text through a declared type"
    if kind is float and not isfinite(item):  # type: ignore[arg-type]  # float
        return f"{item!r} is not JSON"
    if kind in (str, bool, int, float, dict, list, tuple, type(None)):
        return None
    return f"{_article(item)} is not JSON; declare its type (annotate it), or send plain values"


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _article(item: object) -> str:
    name = type(item).__qualname__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"

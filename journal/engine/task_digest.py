"""What a task was started with: its coroutine's function and arguments, as far as they are plain values.

It tells tasks apart that begin with the very same call. A hint only, since arguments may change, or be made anew in
each attempt: tasks that it does not tell apart are taken in the order in which they begin. Next: `scope.py` names tasks
by it.
"""

import asyncio
import inspect
from collections.abc import Iterator
from types import CoroutineType
from typing import Any
from zlib import crc32

_FIXED, _RECORD, _CONTAINER = 2, 1, 0
"""What cannot change between two attempts; what seldom does; what tasks may have in common, to collect in."""
_WEIGHTS = 1, 100, 10_000
_MOST_ARGUMENTS = 16
_MOST_PARTS = 100
"""Values of an argument that are looked at: whoever starts a task with a long conversation is not to pay for it."""
_MOST_CHARACTERS = 1000
_SIZE = 3
_PLAIN = (str, int, float, bytes, type(None))


def task_digest(task: "asyncio.Task[Any] | None") -> bytes:
    """Three bytes for the function and for each argument: of which sort it is, and a checksum.

    Empty where there is nothing to know that the task's first call does not say.
    """
    coroutine = None if task is None else task.get_coro()
    if not isinstance(coroutine, CoroutineType) or _is_ours(coroutine):
        return b""
    found = bytearray()
    try:
        for sort, words in _arguments(coroutine):
            found.append(sort)
            found += crc32(words.encode(errors="replace")).to_bytes(4, "big")[2:]
    except Exception:  # noqa: BLE001 - a field may be a property, a repr may do anything: nothing is known of it then
        return b""
    return bytes(found[: _SIZE * _MOST_ARGUMENTS])


def likeness(one: bytes, other: bytes) -> int:
    """How much two digests have in common: 0 nothing."""
    if one[:_SIZE] != other[:_SIZE]:
        return 0
    places = range(0, min(len(one), len(other)), _SIZE)
    return sum(_WEIGHTS[one[at]] for at in places if one[at : at + _SIZE] == other[at : at + _SIZE])


def _is_ours(coroutine: "CoroutineType[Any, Any, Any]") -> bool:
    frame = coroutine.cr_frame
    return frame is None or str(frame.f_globals.get("__name__")).startswith("journal.")


def _arguments(coroutine: "CoroutineType[Any, Any, Any]") -> Iterator[tuple[int, str]]:
    """Of the function and each of its arguments the sort, and what it is in words; another coroutine brings its own."""
    yield _FIXED, coroutine.__qualname__
    frame = coroutine.cr_frame
    if frame is None:
        return
    code, given = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    for name in code.co_varnames[:count]:
        value = given.get(name)
        if isinstance(value, CoroutineType):
            yield from _arguments(value)
        else:
            words: list[str] = []
            yield _tell(value, words), "\0".join(words)


def _tell(value: Any, words: list[str]) -> int:
    """Say in `words` what the value is, and of which sort."""
    if len(words) >= _MOST_PARTS:
        return _FIXED
    if isinstance(value, _PLAIN):
        plain = value[:_MOST_CHARACTERS] if isinstance(value, str | bytes) else value
        words.append(f"{type(value).__name__} {plain!r}")
        return _FIXED
    words.append(type(value).__qualname__)
    if isinstance(value, tuple):
        return min((_tell(part, words) for part in value), default=_FIXED)
    if isinstance(value, list | dict):
        for part in value.items() if isinstance(value, dict) else value:
            _tell(part, words)
        return _CONTAINER
    sort = type(value)
    fields = (*getattr(sort, "__dataclass_fields__", ()), *getattr(sort, "__struct_fields__", ()))
    for field in fields:
        _tell(getattr(value, field, None), words)
    return _RECORD if fields else _FIXED

"""Where two JSON values differ, field by field. Pure."""

from collections.abc import Iterator
from typing import Any

import msgspec

MISSING = "(nothing)"
_LONGEST = 200
_MOST = 20


class Difference(msgspec.Struct, frozen=True):
    """One place at which the two differ; `recorded` and `asked` are JSON text, or `MISSING`."""

    path: str
    """Like ``input.items[3].price``."""
    recorded: str
    asked: str

    def __str__(self) -> str:
        return f"{self.path}: recorded {self.recorded}, now {self.asked}"


def differences(recorded: Any, asked: Any, path: str = "") -> list[Difference]:
    """The places where `asked` is not what was `recorded`; at most 20, long values cut to where they differ."""
    found: list[Difference] = []
    for difference in _walk(recorded, asked, path):
        found.append(difference)
        if len(found) == _MOST:
            break
    return found


def first_difference(recorded: Any, asked: Any, path: str = "") -> str:
    """Where the two first differ, in words. A list that only became longer, as a conversation does, is told as that."""
    if type(recorded) is dict and type(asked) is dict:
        for key in [*recorded, *(key for key in asked if key not in recorded)]:
            if key in recorded and key in asked and not _is_same(recorded[key], asked[key]):
                return first_difference(recorded[key], asked[key], f"{path}.{key}" if path else key)
    if type(recorded) is list and type(asked) is list:
        for place, (then, now) in enumerate(zip(recorded, asked, strict=False)):
            if not _is_same(then, now):
                return first_difference(then, now, f"{path}[{place}]")
        if len(recorded) != len(asked):
            return _length(recorded, asked, path or "it")
    return str(next(_walk(recorded, asked, path), "nowhere"))


def _length(recorded: list[Any], asked: list[Any], path: str) -> str:
    """One of the two begins with all of the other."""
    more = len(asked) - len(recorded)
    if more > 0:
        first = f"[{len(recorded)}] is {_text(asked[len(recorded)])}"
        return f"{path} goes on with {more:,} more behind the {len(recorded):,} recorded: {first}"
    first = f"[{len(asked)}] was {_text(recorded[len(asked)])}"
    return f"{path} ends after {len(asked):,}, where {-more:,} more were recorded: {first}"


def cut(one: str, other: str, longest: int = _LONGEST) -> tuple[str, str]:
    """Both as they are, if they are short; else what stands where they first differ, with ``…`` for the rest."""
    if len(one) <= longest and len(other) <= longest:
        return one, other
    start = max(0, _common(one, other) - longest // 4)
    return _part(one, start, longest), _part(other, start, longest)


def _part(text: str, start: int, longest: int) -> str:
    behind = "…" if start + longest < len(text) else ""
    return f"{'…' if start else ''}{text[start : start + longest]}{behind}"


def _common(one: str, other: str) -> int:
    """How many characters both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _walk(recorded: Any, asked: Any, path: str) -> Iterator[Difference]:
    if type(recorded) is dict and type(asked) is dict:
        for key in [*recorded, *(key for key in asked if key not in recorded)]:
            below = f"{path}.{key}" if path else key
            if key not in asked:
                yield Difference(below, _text(recorded[key]), MISSING)
            elif key not in recorded:
                yield Difference(below, MISSING, _text(asked[key]))
            else:
                yield from _walk(recorded[key], asked[key], below)
    elif type(recorded) is list and type(asked) is list:
        for place in range(max(len(recorded), len(asked))):
            below = f"{path}[{place}]"
            if place >= len(asked):
                yield Difference(below, _text(recorded[place]), MISSING)
            elif place >= len(recorded):
                yield Difference(below, MISSING, _text(asked[place]))
            else:
                yield from _walk(recorded[place], asked[place], below)
    elif not _is_same(recorded, asked):
        texts = _json(recorded), _json(asked)
        shown = (_with_length(part, whole) for part, whole in zip(cut(*texts), texts, strict=True))
        yield Difference(path or "value", *shown)


def _is_same(recorded: Any, asked: Any) -> bool:
    return msgspec.json.encode(recorded) == msgspec.json.encode(
        asked
    )  # 1 is not 1.0, nor 0.0 the same as -0.0


def _text(value: Any) -> str:
    text = _json(value)
    return text if len(text) <= _LONGEST else _with_length(f"{text[:_LONGEST]}…", text)


def _with_length(shown: str, text: str) -> str:
    return shown if shown == text else f"{shown} ({len(text):,} characters)"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()

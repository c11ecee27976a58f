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
    """The places where `asked` is not what was `recorded`; at most 20, long values cut."""
    found: list[Difference] = []
    for difference in _walk(recorded, asked, path):
        found.append(difference)
        if len(found) == _MOST:
            break
    return found


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
    elif msgspec.json.encode(recorded) != msgspec.json.encode(
        asked
    ):  # 1 is not 1.0, nor 0.0 the same as -0.0
        yield Difference(path or "value", _text(recorded), _text(asked))


def _text(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"

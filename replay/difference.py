"""What is new in a model call's input, against what the log holds already: the input of an earlier call, and outcomes.

Pure, on canonical bytes. A conversation mostly grows at its end, so the common beginning and end are found first; what
is left is looked up in what the earlier input has besides (a window that moved on) and in the outcomes since (a reply,
the output of a tool). Time is linear in the bytes: whole slices are compared, and searches are given up after a while.
Next: `inputs.py` puts such inputs together again.
"""

import re
from collections.abc import Sequence

import msgspec

LEAST_BYTES = 1024
"""Smaller inputs are not worth a difference."""
_ANCHOR = 48
"""Bytes that have to be the same before anything is taken for found."""
_LEAST_END = 16
_OCCURRENCES = 8
_MISSES, _MISSED_BYTES = 256, 16 * 1024 * 1024
_VALUE_STARTS = re.compile(rb'[:,\[](?=["\[{])')


class New(msgspec.Struct, frozen=True, gc=False):
    """An input as ranges to keep and the bytes between them.

    `keep` is flat, three numbers a range: how many bytes of `literal` come before it, where it starts in the source,
    and how long it is. The source is the earlier input with the outcomes behind it; the rest of `literal` comes last.
    """

    keep: tuple[int, ...]
    literal: bytes


def difference(new: bytes, base: bytes, outcomes: Sequence[bytes] = ()) -> New | None:
    """`new` against `base` and `outcomes`; None where that saves less than a quarter."""
    if len(new) < LEAST_BYTES:
        return None
    before = common_prefix(new, 0, base, 0)
    behind = _common_suffix(new, base, min(len(new), len(base)) - before)
    if behind < _LEAST_END:
        behind = 0
    ranges = [(0, 0, before)] if before >= _LEAST_END else []
    end = len(new) - behind
    at = before if ranges else 0
    if end - at >= _ANCHOR:
        ranges += _lookups(new, at, end, _Places(base, at, len(base) - behind, outcomes))
    if behind:
        ranges.append((end, len(base) - behind, behind))
    keep: list[int] = []
    literal: list[bytes] = []
    at = 0
    for place, start, length in ranges:
        literal.append(new[at:place])
        keep += (place - at, start, length)
        at = place + length
    literal.append(new[at:])
    found = New(tuple(keep), b"".join(literal))
    cost = len(found.literal) + 4 * len(keep) + 64
    return found if cost <= len(new) * 3 // 4 else None


class _Places:
    """What is searched: pieces of the source with a byte between them that no JSON has."""

    def __init__(self, base: bytes, first: int, end: int, outcomes: Sequence[bytes]) -> None:
        self.hay = b"\0".join((base[first:end], *outcomes))
        self._first = first
        self._rest = max(0, end - first)
        self._behind = len(base)
        self._starts: list[tuple[int, int]] = []
        at, start = self._rest + 1, len(base)
        for outcome in outcomes:
            self._starts.append((at, start))
            at, start = at + len(outcome) + 1, start + len(outcome)

    def in_source(self, at: int) -> int:
        """Where in the source the byte `at` of the hay lies."""
        if at < self._rest:
            return self._first + at
        hay, source = next(piece for piece in reversed(self._starts) if piece[0] <= at)
        return source + at - hay


def _lookups(new: bytes, at: int, end: int, places: _Places) -> list[tuple[int, int, int]]:
    """(place in `new`, start in the source, length) of what is found of ``new[at:end]``, in order."""
    found: list[tuple[int, int, int]] = []
    hay, misses = places.hay, 0
    if len(hay) < _ANCHOR:
        return found
    most = min(_MISSES, _MISSED_BYTES // len(hay) + 1)
    while end - at >= _ANCHOR and misses < most:
        start, length = _longest(new, at, end, hay)
        if length:
            found.append((at, places.in_source(start), length))
            at += length
        else:
            misses += 1
        following = _VALUE_STARTS.search(new, at, end)
        if following is None:
            break
        at = max(following.end(), at)
    return found


def _longest(new: bytes, at: int, end: int, hay: bytes) -> tuple[int, int]:
    """(start, length) in `hay` of the longest of the first few places that go on as ``new[at:end]`` does."""
    anchor = new[at : at + _ANCHOR]
    best = (0, 0)
    start = hay.find(anchor)
    for _ in range(_OCCURRENCES):
        if start < 0:
            break
        length = min(common_prefix(new, at, hay, start), end - at)
        if length > best[1]:
            best = (start, length)
        start = hay.find(anchor, start + max(1, length))
    return best


def common_prefix(one: bytes, at: int, other: bytes, start: int) -> int:
    """How many bytes of `one` from `at` on are those of `other` from `start` on."""
    most = min(len(one) - at, len(other) - start)
    same, step = 0, 64
    while same < most:
        step = min(step, most - same)
        if one[at + same : at + same + step] == other[start + same : start + same + step]:
            same, step = same + step, step * 2
            continue
        low, high = 0, step - 1
        while low < high:
            middle = (low + high + 1) // 2
            if one[at + same + low : at + same + middle] == other[start + same + low : start + same + middle]:
                low = middle
            else:
                high = middle - 1
        return same + low
    return same


def _common_suffix(one: bytes, other: bytes, most: int) -> int:
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if one[len(one) - middle : len(one) - low] == other[len(other) - middle : len(other) - low]:
            low = middle
        else:
            high = middle - 1
    return low

"""Inputs of model calls, whole: the log holds of most only what is new against the call before.

`Inputs` is a fold: feed it the records of a run in order. It remembers for each intent what it builds on *at that
point of the log*, so an input stays what it was when the call it builds on is tried again, set aside or copied.
Putting one together costs the bytes that were written for it and its own size, however long the chain. Pure: what lies
in blobs is named by `blobs_of`, and given by whoever can fetch it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from zlib import crc32

import msgspec

from journal.core import values
from journal.core.errors import CorruptRecord
from journal.core.records import BlobRef, Body, CallIntent, CallOutcome, Difference, Record, Value

NO_BLOBS: Mapping[str, bytes] = {}
_COUNTED = re.compile(r"(?:(.*)/)?[^/]*#[0-9]+(?:/|$)", re.DOTALL)
"""Up to the last part of a key that was made by counting."""


def home_of(key: str) -> str:
    """The scope that the call `key` is of: its own, or that of the model call which asked for it."""
    found = _COUNTED.match(key)
    return "" if found is None else found[1] or ""


class Input(msgspec.Struct):
    """The input of one intent, and what it builds on."""

    record: Record
    intent: CallIntent
    base: "Input | None" = None
    outcomes: tuple[Value, ...] = ()

    @property
    def size(self) -> int | None:
        """Bytes of the whole; None where none was kept."""
        if self.intent.difference is not None:
            return self.intent.difference.size
        value = self.intent.input
        return value.size if isinstance(value, BlobRef) else None if value is None else len(value)

    def corrupt(self, reason: str) -> CorruptRecord:
        """The error that names this record."""
        return CorruptRecord(run_id=self.record.run, seq=self.record.seq, reason=reason)


class Inputs:
    """Model calls of a run, or of a turn, by what they were asked."""

    def __init__(self) -> None:
        self._latest: dict[tuple[str | None, str], Input] = {}
        self._by_scope: dict[tuple[str | None, str], Input] = {}
        self._results: dict[str | None, dict[str, Value]] = {}
        """By turn, then by key."""
        self._by_seq: dict[int, Input] = {}

    def add(self, record: Record, body: Body) -> None:
        """Take in the next record, and what it says."""
        if isinstance(body, CallOutcome):
            if body.value is not None:
                self.results_of(record.turn)[record.key or ""] = body.value
            else:
                self.results_of(record.turn).pop(record.key or "", None)
        elif isinstance(body, CallIntent) and body.kind == "model":
            place = (record.turn, record.key or "")
            found = Input(record, body)
            if (said := body.difference) is not None:
                found.base = self._latest.get((record.turn, said.base))
                known = self.results_of(record.turn)
                results = [known.get(key) for key in said.outcomes]
                found.outcomes = tuple(value for value in results if value is not None)
                self._by_seq[record.seq] = found
            self._latest[place] = found
            self._by_scope[record.turn, home_of(place[1])] = found

    def results_of(self, turn: str | None) -> dict[str, Value]:
        """The results of the turn's calls by key, as last recorded. A fold that reads outcomes may write them here."""
        return self._results.setdefault(turn, {})

    def at(self, seq: int) -> Input | None:
        """The input of the intent `seq`, if it is a difference; else it stands in its record."""
        return self._by_seq.get(seq)

    def of(self, turn: str | None, key: str) -> Input | None:
        """The input of the call `key`, as last recorded."""
        return self._latest.get((turn, key))

    def latest(self, turn: str | None, scope: str) -> Input | None:
        """The input of the latest model call of `scope`."""
        return self._by_scope.get((turn, scope))


class Whole:
    """Puts inputs together; those that follow one another cost little more than what is new in each.

    `blobs` holds what `blobs_of` names.
    """

    def __init__(self, blobs: Mapping[str, bytes] = NO_BLOBS) -> None:
        self._blobs = blobs
        self._last: Input | None = None
        self._data = bytearray()

    def of(self, wanted: Input) -> bytes:
        """The input's canonical bytes, as the call was asked with them.

        Raises `CorruptRecord` where the log does not add up, `KeyError` for a blob that was not given.
        """
        parts = _chain(wanted, self._last)
        self._last = None
        for part in reversed(parts):
            if (said := part.intent.difference) is None:
                self._data = bytearray(self._bytes(part.intent.input or b""))
                continue
            results = [self._bytes(value) for value in part.outcomes]
            _build(part, said, self._data, results, self._bytes(part.intent.input or b""))
        said = wanted.intent.difference
        if said is not None and crc32(self._data) != said.crc:
            raise wanted.corrupt("its input does not come out as it was")
        self._last = wanted
        return bytes(self._data)

    def _bytes(self, value: Value) -> bytes:
        return self._blobs[value.blob] if isinstance(value, BlobRef) else value


def whole(wanted: Input, blobs: Mapping[str, bytes] = NO_BLOBS) -> bytes:
    """One input; see `Whole`."""
    return Whole(blobs).of(wanted)


def blobs_of(wanted: Input) -> Iterator[BlobRef]:
    """What has to be fetched before `whole` can be asked."""
    for part in _chain(wanted):
        yield from (value for value in (part.intent.input, *part.outcomes) if isinstance(value, BlobRef))


def _chain(wanted: Input, known: Input | None = None) -> list[Input]:
    """`wanted`, what it builds on, what that builds on, … down to one that stands by itself, or to before `known`."""
    found: list[Input] = []
    part = wanted
    while part is not known:
        found.append(part)
        if (said := part.intent.difference) is None:
            break
        if part.base is None:
            raise part.corrupt(f"it builds on the input of {said.base!r}, which is not in the log before it")
        if len(part.outcomes) != len(said.outcomes):
            raise part.corrupt("it builds on a result that is not in the log before it")
        part = part.base
    return found


def _build(part: Input, said: Difference, data: bytearray, outcomes: Sequence[bytes], literal: bytes) -> None:
    """Make `data`, the base's input, that of `part`. A beginning that is kept stays where it is."""
    keep = said.keep
    total = sum(keep[2::3]) + len(literal)
    if len(keep) % 3 or min(keep, default=0) < 0 or total != said.size or total > values.MAX_VALUE_BYTES:
        raise part.corrupt("its ranges do not add up")
    kept = keep[2] if keep[:2] == (0, 0) and keep[2] <= len(data) else 0
    pieces: list[bytes | bytearray] = []
    at = 0
    for new, start, length in zip(*(keep[3 if kept else 0 :][place::3] for place in range(3)), strict=True):
        pieces.append(literal[at : at + new])
        at += new
        pieces.append(_range(part, data, outcomes, start, length))
    if at > len(literal):
        raise part.corrupt("its ranges do not add up")
    pieces.append(literal[at:])
    data[kept:] = b"".join(pieces)


def _range(
    part: Input, data: bytearray, outcomes: Sequence[bytes], start: int, length: int
) -> bytes | bytearray:
    if start + length <= len(data):
        return data[start : start + length]
    start -= len(data)
    for piece in outcomes:
        if start >= 0 and start + length <= len(piece):
            return piece[start : start + length]
        start -= len(piece)
    raise part.corrupt("it keeps what its source does not have")

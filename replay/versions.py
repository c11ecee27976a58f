"""What documents and files share: values that held from a record on, and which of them a retry set aside. Pure."""

from bisect import bisect_left
from collections.abc import Collection
from typing import Protocol, TypeVar

from journal.core.codec import open_record
from journal.core.records import CallIntent, Record, TurnRetried, TurnStarted


class Version(Protocol):
    """A value that held from record `seq` on."""

    @property
    def seq(self) -> int:
        """Of the record."""
        ...


V = TypeVar("V", bound=Version)


class Begun:
    """When the calls that changed something had begun: feed it all records of a run in order."""

    def __init__(self) -> None:
        self._turn: str | None = None
        self._began: dict[str, int] = {}
        """Seq of the first intent of each call of the turn that is worked on, by key."""
        self._by_call: dict[int, int] = {}
        """Where a call of that turn changed something: seq of its outcome, and when it began."""

    def add(self, record: Record) -> None:
        """Take in the next record."""
        if record.type == CallIntent.TYPE:
            self._began.setdefault(record.key or "", record.seq)
        elif record.type == TurnStarted.TYPE and record.turn != self._turn:
            self._turn, self._began, self._by_call = record.turn, {}, {}

    def changed(self, outcome: Record) -> None:
        """The call with that outcome changed something."""
        self._by_call[outcome.seq] = self._began.get(outcome.key or "", outcome.seq)

    def set_aside(self, record: Record) -> set[int]:
        """Seqs of the records that count no more, by what that `turn.retried` says."""
        retried = open_record(record)
        assert isinstance(retried, TurnRetried)
        gone = set(retried.superseded)
        if retried.from_seq is not None:
            gone.update(seq for seq, began in self._by_call.items() if began >= retried.from_seq)
        return gone


def insert(versions: list[V], version: V) -> None:
    """Put it in its place: foreign ones may come late, and the order is that of the log all the same."""
    if not versions or versions[-1].seq < version.seq:
        versions.append(version)
        return
    place = bisect_left(versions, version.seq, key=_seq)
    if versions[place].seq != version.seq:
        versions.insert(place, version)


def without(versions: list[V], gone: Collection[int]) -> list[V]:
    """Those that still count."""
    return [version for version in versions if version.seq not in gone]


def _seq(version: Version) -> int:
    return version.seq

"""What documents and files share: values that held from a record on, and which of them a retry set aside. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from typing import Protocol, TypeVar

from journal.core.codec import open_record
from journal.core.records import Record, TurnRetried


class Version(Protocol):
    """A value that held from record `seq` on."""

    @property
    def seq(self) -> int:
        """Of the record."""
        ...


V = TypeVar("V", bound=Version)


def set_aside(record: Record) -> set[int]:
    """Seqs of the records that count no more, by what that `turn.retried` says: it names all of them."""
    retried = open_record(record)
    assert isinstance(retried, TurnRetried)
    return set(retried.superseded)


def insert(versions: list[V], version: V) -> None:
    """Put it in its place: foreign ones may come late, and the order is that of the log all the same."""
    if not versions or versions[-1].seq < version.seq:
        versions.append(version)
        return
    place = bisect_left(versions, version.seq, key=_seq)
    if versions[place].seq != version.seq:
        versions.insert(place, version)


def version_at(versions: list[V], seq: int) -> V | None:
    """The one that held behind record `seq`."""
    place = bisect_right(versions, seq, key=_seq)
    return versions[place - 1] if place else None


def without(versions: list[V], gone: Collection[int]) -> list[V]:
    """Those that still count."""
    return [version for version in versions if version.seq not in gone]


def _seq(version: Version) -> int:
    return version.seq

"""The checkpoints of a run: JSON that user code wrote on purpose, by name and sequence. A pure fold."""

import msgspec

from journal.core import values
from journal.core.codec import open_record
from journal.core.records import BlobRef, CheckpointDeleted, CheckpointWritten, Record, Value


class Checkpoint(msgspec.Struct, frozen=True):
    """One of them."""

    name: str
    sequence: int
    """Orders those of one name."""
    seq: int
    """Of the record that wrote it."""
    time: float
    """Wall clock of the store, seconds."""
    payload: Value

    @property
    def size(self) -> int:
        """Bytes of canonical JSON."""
        return self.payload.size if isinstance(self.payload, BlobRef) else len(self.payload)

    @property
    def digest(self) -> str:
        """Of those bytes, in hexadecimal."""
        return self.payload.blob if isinstance(self.payload, BlobRef) else values.digest(self.payload).hex()


class Checkpoints:
    """Feed it the records of a run in order."""

    def __init__(self) -> None:
        self._known: dict[str, dict[int, Checkpoint]] = {}
        self._ever: dict[str, dict[str, Checkpoint]] = {}
        """Also those that were replaced or deleted, by digest: a replay may read them."""
        self.highest: dict[str, int] = {}
        """Of the sequences ever given, by name."""

    def add(self, record: Record) -> None:
        """Take in the next record; whatever is no checkpoint changes nothing."""
        if record.type not in (CheckpointWritten.TYPE, CheckpointDeleted.TYPE):
            return
        match open_record(record):
            case CheckpointWritten(name=name, sequence=sequence, payload=payload):
                self.written(Checkpoint(name, sequence, record.seq, record.time, payload))
            case CheckpointDeleted(name=name, sequence=sequence):
                self.deleted(name, sequence)
            case _:
                pass

    def written(self, checkpoint: Checkpoint) -> None:
        """It is there from now on."""
        name, sequence = checkpoint.name, checkpoint.sequence
        self._known.setdefault(name, {})[sequence] = checkpoint
        self._ever.setdefault(name, {})[checkpoint.digest] = checkpoint
        self.highest[name] = max(sequence, self.highest.get(name, 0))

    def deleted(self, name: str, sequence: int) -> None:
        """It is gone from now on."""
        self._known.get(name, {}).pop(sequence, None)

    def next(self, name: str) -> int:
        """A sequence behind all that were ever written under that name, from 1."""
        return self.highest.get(name, 0) + 1

    def all(self, name: str | None = None) -> list[Checkpoint]:
        """Those that are there, by name and sequence."""
        names = sorted(self._known) if name is None else [name]
        return [known for each in names for _, known in sorted(self._known.get(each, {}).items())]

    def get(self, name: str, sequence: int | None = None) -> Checkpoint | None:
        """The one of that sequence, else the last of that name."""
        known = self._known.get(name)
        if not known:
            return None
        return known.get(max(known) if sequence is None else sequence)

    def with_digest(self, name: str, digest: str) -> Checkpoint | None:
        """One that had that payload once."""
        return self._ever.get(name, {}).get(digest)

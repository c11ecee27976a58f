"""A run as it was recorded, whole and in memory: what a replay offline goes by. Pure."""

from collections.abc import Iterator
from typing import Any

import msgspec

from journal.core.codec import open_record
from journal.core.errors import CorruptRecord
from journal.core.records import BlobRef, Record
from journal.replay.fold import RunFold
from journal.replay.history import TurnHistory
from journal.replay.snapshot import Folded
from journal.replay.state import RunState


class RecordedRun(msgspec.Struct, frozen=True):
    """The records of a run in order, and the bytes of the values that do not lie in them, by their id."""

    records: list[Record]
    blobs: dict[str, bytes] = {}

    def state(self) -> RunState:
        """Its folded state, inputs whole. Raises a `LogError` for what cannot be read."""
        run = RunFold()
        for record in self.records:
            run.add(record)
        run.fill(self.blobs)
        return run.state

    def history(self, turn: str) -> TurnHistory:
        """What the log says of one of its turns."""
        history = TurnHistory(turn)
        history.folded = folded = Folded()
        for record in self.records:
            folded.add(record)
        history.extend(self.records)
        return history

    async def read(self, run: str, *, after: int = 0, limit: int = 500) -> list[Record]:
        """A page of it; the same verb as a world's."""
        del run
        return self.records[after : after + limit]

    async def get_blob(self, run: str, blob: str) -> bytes:
        """A value's bytes; the same verb as a world's."""
        if blob not in self.blobs:
            raise CorruptRecord(run_id=run, seq=0, reason=f"blob {blob} is missing")
        return self.blobs[blob]


def blobs_of(record: Record) -> Iterator[str]:
    """The ids of the blobs that `record` refers to."""
    yield from _refs(open_record(record))


def _refs(part: Any) -> Iterator[str]:
    if isinstance(part, BlobRef):
        yield part.blob
    elif isinstance(part, msgspec.Struct):
        for name in part.__struct_fields__:
            yield from _refs(getattr(part, name))
    elif isinstance(part, dict | tuple):
        for item in part.values() if isinstance(part, dict) else part:
            yield from _refs(item)

"""A harness's thread folded from the log of its run: checkpoints, the values they refer to, and pending writes.

Pure. What a turn wrote counts only while its claim is the last that was seen of its run: a holder that lost the run
and does not know it yet writes in vain. Values stay packed; whoever reads them knows their serializer.
"""

import msgspec

from journal.core.codec import open_record
from journal.core.records import (
    Body,
    Packed,
    Record,
    ThreadCheckpoint,
    ThreadDropped,
    ThreadHeld,
    ThreadHolder,
    ThreadWrites,
)

Version = str | int | float
Place = tuple[str, str]
"""(namespace, checkpoint id)."""


class PendingWrite(msgspec.Struct, frozen=True, gc=False):
    """A task's write that is not part of a checkpoint yet."""

    task: str
    index: int
    path: str
    channel: str
    value: Packed


class ThreadFold:
    """The thread after the records so far."""

    def __init__(self) -> None:
        self.head = 0
        self.checkpoints: dict[Place, ThreadCheckpoint] = {}
        self._values: dict[tuple[str, str, Version], Packed] = {}
        self._writes: dict[Place, dict[tuple[str, int], PendingWrite]] = {}
        self._claims: dict[str, bytes] = {}
        self._begun: set[tuple[str, str, str]] = set()

    def add(self, record: Record) -> None:
        """Take in the next record of the run."""
        self.apply(open_record(record), record.seq)

    def apply(self, body: Body, seq: int) -> None:
        """`add` for a record that the caller wrote itself."""
        self.head = seq
        match body:
            case ThreadHeld(holder=holder):
                self._claims[holder.run] = holder.claim
            case ThreadCheckpoint() if self._counts(body.holder):
                self._keep(body)
            case ThreadWrites() if self._counts(body.holder):
                self._add_writes(body)
            case ThreadDropped(checkpoints=None):
                self.checkpoints.clear()
                self._values.clear()
                self._writes.clear()
            case ThreadDropped(checkpoints=gone) if gone:
                self._drop(gone)
            case _:
                pass

    def is_held_by(self, holder: ThreadHolder) -> bool:
        """Whether nobody has taken that turn's run over, as far as this thread was told."""
        return self._claims.get(holder.run, holder.claim) == holder.claim

    def has_begun(self, holder: ThreadHolder) -> bool:
        """Whether that invocation left anything here, under whichever claim."""
        return (holder.run, holder.turn, holder.scope) in self._begun

    def _counts(self, holder: ThreadHolder | None) -> bool:
        if holder is None:
            return True
        if not self.is_held_by(holder):
            return False
        self._begun.add((holder.run, holder.turn, holder.scope))
        return True

    def _keep(self, body: ThreadCheckpoint) -> None:
        self.checkpoints[body.namespace, body.id] = body
        for channel, value in body.channels.items():
            place = body.namespace, channel, body.versions[channel]
            if value is None:
                self._values.pop(place, None)
            else:
                self._values[place] = value

    def _add_writes(self, body: ThreadWrites) -> None:
        known = self._writes.setdefault((body.namespace, body.checkpoint), {})
        for write in body.writes:
            place = body.task, write.index
            if write.index < 0 or place not in known:  # a task that is run again repeats its writes
                known[place] = PendingWrite(body.task, write.index, body.path, write.channel, write.value)

    def _drop(self, gone: tuple[Place, ...]) -> None:
        for place in gone:
            self.checkpoints.pop(place, None)
            self._writes.pop(place, None)
        live = {
            (namespace, channel, version)
            for (namespace, _), kept in self.checkpoints.items()
            for channel, version in kept.versions.items()
        }
        self._values = {place: value for place, value in self._values.items() if place in live}

    # What is asked of it -------------------------------------------------------------------------------

    def latest(self, namespace: str) -> str | None:
        """Id of the newest checkpoint there: ids rise with time."""
        return max((id_ for ns, id_ in self.checkpoints if ns == namespace), default=None)

    def newest_first(self) -> list[Place]:
        """All checkpoints."""
        return sorted(self.checkpoints, key=lambda place: place[1], reverse=True)

    def values(self, checkpoint: ThreadCheckpoint) -> dict[str, Packed]:
        """The values at `checkpoint`, by channel; those without one are left out."""
        found: dict[str, Packed] = {}
        for channel, version in checkpoint.versions.items():
            if (value := self._values.get((checkpoint.namespace, channel, version))) is not None:
                found[channel] = value
        return found

    def writes(self, place: Place) -> list[PendingWrite]:
        """The writes on top of a checkpoint, in the order in which a graph at work would apply them."""
        return sorted(
            self._writes.get(place, {}).values(), key=lambda write: (write.path, write.task, write.index)
        )

"""Checkpoints: JSON that a handler writes on purpose, durable when `turn.checkpoint` returns.

Nothing is summarized or rewritten by itself. On replay what was written is not written again, and a read gives what it
gave then. Log lines carry sizes, never contents.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from journal.core import values
from journal.core.codec import Blob, pack, seal
from journal.core.errors import CheckpointNotFound, InvalidOptions
from journal.core.ids import check_id
from journal.core.records import BlobRef, CheckpointDeleted, CheckpointWritten
from journal.engine import outside
from journal.engine.cancelling import in_its_place
from journal.engine.run_reader import RunReader, reader_of
from journal.engine.snapshots import Reader, before_turn
from journal.replay.checkpoints import Checkpoint, Checkpoints
from journal.tools.awaiting import awaited

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt
    from journal.engine.journal import Journal


class CheckpointInfo(msgspec.Struct, frozen=True):
    """A checkpoint, without what it holds."""

    name: str
    sequence: int
    """Orders those of one name."""
    size: int
    """Bytes of canonical JSON."""


class TurnCheckpoints:
    """`turn.checkpoints`: those of the run, as the handler sees them."""

    def __init__(self, attempt: "Attempt") -> None:
        self._attempt = attempt

    async def write(self, name: str, payload: Any, *, sequence: int | None = None) -> int:
        """Write one, and return its sequence: the given one, which it replaces there, else the next of that name."""
        check_id(name, "name of checkpoint")
        if sequence is not None and not (type(sequence) is int and 0 <= sequence < 2**63):
            raise InvalidOptions(
                f"checkpoint {name!r}: a sequence is a number from 0 to 2**63 - 1, not {sequence!r}"
            )
        data = values.encode(payload, what=f"checkpoint {name!r}")
        attempt = self._attempt
        key = outside.scope_of(attempt, "turn.checkpoint").next_key(f"@checkpoint:{name}")
        if key in attempt.history.checkpoints:
            await attempt.order.released(key)
            return attempt.history.checkpoints[key][0]
        there = await self._known()
        chosen = there.next(name) if sequence is None else sequence
        value, blob = pack(data)
        # Before it is durable: others count on from here.
        there.written(Checkpoint(name, chosen, 0, 0.0, value))
        await self._record(key, CheckpointWritten(name=name, sequence=chosen, payload=value), blob)
        attempt.log.debug("checkpoint", name=name, sequence=chosen, size=len(data))
        return chosen

    @awaited("turn.checkpoints.list")
    async def list(self, name: str | None = None) -> list[CheckpointInfo]:
        """Those that are there, or those of that name, by name and sequence."""
        there = (await self._known()).all(name)
        listed = [[each.name, each.sequence, each.size] for each in there]
        seen = outside.seen(self._attempt, "turn.checkpoints.list", "@checkpoints", listed)
        return [CheckpointInfo(*each) for each in seen]

    @awaited("turn.checkpoints.read")
    async def read(self, name: str, *, sequence: int | None = None) -> Any:
        """The payload of that one, else of the last of that name. Raises `CheckpointNotFound`."""
        known = await self._known()
        there = known.get(name, sequence)
        what, key = "turn.checkpoints.read", f"@checkpoint.read:{name}"
        digest = outside.seen(self._attempt, what, key, None if there is None else there.digest)
        found = None if digest is None else known.with_digest(name, digest)
        if found is None:
            raise CheckpointNotFound(run_id=self._attempt.holding.run, name=name, sequence=sequence)
        data = await self._attempt.load(found.payload)
        assert data is not None
        return values.decode(data)

    @awaited("turn.checkpoints.delete")
    async def delete(self, name: str, sequence: int) -> None:
        """Let it go; nothing happens if it is gone."""
        attempt = self._attempt
        key = outside.scope_of(attempt, "turn.checkpoints.delete").next_key(f"@checkpoint.delete:{name}")
        if key in attempt.history.checkpoints:
            await attempt.order.released(key)
            return
        (await self._known()).deleted(name, sequence)
        await self._record(key, CheckpointDeleted(name=name, sequence=sequence), None)

    async def _record(self, key: str, body: CheckpointWritten | CheckpointDeleted, blob: Blob | None) -> None:
        """Append it, behind all that is recorded, and go on in its place."""
        attempt = self._attempt
        await attempt.order.drained()
        record = seal(attempt.holding.run, body, turn=attempt.turn_id, key=key)
        await in_its_place(attempt, attempt.holding.commit(record, blob))

    async def _known(self) -> Checkpoints:
        attempt = self._attempt
        if attempt.checkpoints is None:
            holding = attempt.holding
            reader = Reader(holding.world, holding.run, turn=attempt.turn_id)
            await reader.read(before_turn(holding.claimed.submitted))
            if attempt.checkpoints is None:
                attempt.checkpoints, attempt.reader = reader.folded.checkpoints, reader
                if reader.made is not None:
                    holding.carry(reader.made)
        return attempt.checkpoints


class RunCheckpoints:
    """`journal.checkpoints`: those of a run, read by the application."""

    def __init__(self, journal: "Journal") -> None:
        self._journal = journal

    async def list(self, run_id: str, name: str | None = None) -> list[CheckpointInfo]:
        """Those that are there, or those of that name, by name and sequence. Raises `RunNotFound`."""
        found = (await self._read(run_id)).folded.checkpoints
        return [CheckpointInfo(c.name, c.sequence, c.size) for c in found.all(name)]

    async def read(self, run_id: str, name: str, *, sequence: int | None = None) -> Any:
        """The payload of that one, else of the last of that name. Raises `RunNotFound`, `CheckpointNotFound`."""
        reader = await self._read(run_id)
        found = reader.folded.checkpoints.get(name, sequence)
        if found is None:
            raise CheckpointNotFound(run_id=run_id, name=name, sequence=sequence)
        payload = found.payload
        return values.decode(
            await reader.world.get_blob(run_id, payload.blob) if isinstance(payload, BlobRef) else payload
        )

    async def _read(self, run_id: str) -> RunReader:
        reader = await reader_of(self._journal, run_id)
        await reader.read_on()
        return reader

"""What stands in a replay offline for a claim, for resources and for watchers: nothing that could have an effect.

Whatever would append, act or probe goes through the holding first, and ends the replay there. Next: `offline.py`.
"""

import math
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

from journal.core.clock import Clock
from journal.core.codec import Blob
from journal.core.errors import ControlFlow
from journal.core.ports import Claim, Claimed, Delta, Progress, QueueChange, World
from journal.core.records import MIN_READER, NewRecord, Observed
from journal.engine.claim import Flusher, Holding, Late
from journal.engine.deltas import Deltas
from journal.replay.recorded import RecordedRun

if TYPE_CHECKING:
    from journal.engine.offline import OfflineAttempt

offline: ContextVar["OfflineAttempt | None"] = ContextVar("journal_offline", default=None)
"""The replay that the running code is part of."""


class LogEnds(ControlFlow):
    """A replay offline can go no further here: there is nothing recorded, and nothing may happen."""


class Refused(ControlFlow):
    """The handler reached for a store, which a replay offline has none of."""


def refuse_offline() -> None:
    """Raise `Refused` in a handler that is replayed offline."""
    if (attempt := offline.get()) is not None and not attempt.is_over:
        raise attempt.halt_with(
            Refused("the handler opens a journal outside of a call: nothing is opened offline")
        )


class NoDeps:
    """Stands for `turn.deps`: handlers hand parts of it to calls, which are not made here."""

    def __getattr__(self, name: str) -> "NoDeps":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: object, **__: object) -> Any:
        """Using a resource is an effect."""
        if (attempt := offline.get()) is not None:
            attempt.halt_with(
                Refused("the handler uses turn.deps outside of a call: give the replay its deps")
            )
            assert attempt.fatal is not None
            raise attempt.fatal
        raise Refused("turn.deps of a replay offline")


class ReadOnlyHolding(Holding):
    """Holds nothing: whatever would append or act ends the replay."""

    def __init__(self, run: str, log: RecordedRun, clock: Clock) -> None:
        claimed = Claimed(
            claim=Claim(run, 0, b""),
            agent="",
            turn=None,
            submitted=0,
            head=0,
            takeovers=0,
            taken_over=False,
            min_reader=MIN_READER,
        )
        # Of a world it has the one verb that reads blobs, and no other.
        super().__init__(cast("World", log), clock, claimed, Flusher(), trusted_until=math.inf)
        self.is_ending = True

    def check_trust(self) -> None:
        """Called just before every act, and before every probe."""
        raise LogEnds("nothing acts in a replay offline")

    def buffer(self, record: NewRecord, blob: Blob | None = None) -> None:
        """Refused, but for what the handler merely observes (a clock, a drift): that is forgotten."""
        if record.type == Observed.TYPE:
            return
        raise LogEnds("nothing is recorded in a replay offline")

    async def commit(
        self, record: NewRecord | None = None, blob: Blob | None = None, *, queue: QueueChange | None = None
    ) -> int:
        """Refused, always."""
        raise LogEnds("nothing is recorded in a replay offline")

    async def commit_late(self, late: Late, *, queue: Progress | None = None) -> int:
        """Refused, always."""
        raise LogEnds("nothing is recorded in a replay offline")


class NoDeltas(Deltas):
    """Output on its way to nobody."""

    def emit(self, delta: Delta) -> None:
        """Nobody watches."""

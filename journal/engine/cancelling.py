"""The cancellation of a turn: brought to its handler at a place in the log, where every replay brings it again.

It is asked for from outside, and may come at any moment; so a record says when the handler was given it, and it is
ordered like an outcome (`order.py`): behind what was handed out before, and before what it makes the handler do.
Whoever carries on a turn that died in its clean-up is cancelled there again, and goes on with the clean-up. Where
the log does not say that it was given, it is given at the end of the log, before anything acts. It comes once: what
the handler does over it is left alone. Next: `attempt.py`, which says what becomes of the turn.
"""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

import anyio

from journal.core.codec import seal
from journal.core.errors import ControlFlow
from journal.core.records import NewRecord, Observed
from journal.engine.claim import landing_of
from journal.replay.history import TURN_CANCELLED
from journal.replay.matcher import Asked

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt

PATIENCE_SECONDS = 10.0
"""How long the code may do nothing that the log knows of; after that it is cancelled wherever it is."""
_END_OF_LOG = Asked(key=TURN_CANCELLED, kind="step", name=TURN_CANCELLED, input_digest=b"", policy="safe")
"""Waits for its place like a call that is in no record."""


class Cancellation:
    """What becomes of it in one attempt. Belongs to its event loop."""

    def __init__(self, attempt: "Attempt") -> None:
        self._attempt = attempt
        self._task: asyncio.Task[None] | None = None
        self.is_recorded = TURN_CANCELLED in attempt.history.observed
        """Whether the log says that the handler was given it."""
        self.is_asked = attempt.history.cancel_requested is not None
        """Whether somebody wants it, as far as this attempt has heard."""
        self.is_next = False
        """Whether it is on its way to the handler: nothing begins to act before it is there."""
        self.is_out_of_place = False
        """Whether it was given before the end of the log, which no record says: what the code asks for may be new."""
        self.is_delivered = False

    @property
    def is_pending(self) -> bool:
        """Whether it is still to be given to the handler, and no record says where."""
        return self.is_asked and not self.is_recorded and not self.is_delivered

    @property
    def can_carry_on(self) -> bool:
        """Whether the handler may have something to clean up, and code that the log does not refuse."""
        history = self._attempt.history
        return history.blocked is None and bool(history.calls or history.observed or history.checkpoints)

    def begin(self) -> None:
        """The handler begins, in the running task."""
        if self.is_recorded or (self.is_asked and not self._attempt.is_offline):
            self._start()

    def ask(self) -> None:
        """Somebody asked for it, while the attempt is under way."""
        self.is_asked = True
        if self._attempt.has_begun and not self._attempt.is_over:
            self._start()

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(
                self._bring(), name="journal turn cancellation"
            )

    async def end(self) -> None:
        """The handler has ended: it is too late."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({self._task})

    async def _bring(self) -> None:
        attempt, order = self._attempt, self._attempt.order
        try:
            if self.is_recorded:
                await order.interrupted(TURN_CANCELLED)
            else:
                await self._come_to_the_end()
        except ControlFlow as error:
            attempt.end_with(error)
            return
        self.is_next = False
        self.is_delivered = True
        attempt.cancel()

    async def _come_to_the_end(self) -> None:
        """Wait for the end of the log, and note there that this is the place."""
        attempt, order = self._attempt, self._attempt.order
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await order.passed(_END_OF_LOG)
                break
            except TimeoutError:
                if order.advanced_at + PATIENCE_SECONDS <= loop.time():
                    self.is_out_of_place = True
                    return
        self.is_next = True
        await order.live(await attempt.holding.commit(_note(attempt, TURN_CANCELLED)))


async def note_cancelled(attempt: "Attempt", key: str) -> None:
    """Note that somebody was cancelled who waited for an outcome; what may rest on it acts once it is durable."""
    if attempt.holding.lost is None and not await attempt.is_stopping():
        attempt.holding.buffer(_note(attempt, key))
        attempt.has_noted = True


async def note_left(attempt: "Attempt", key: str) -> None:
    """`note_cancelled`, in its place: return once that is durable, and what lies before it has reached the code."""
    if attempt.holding.lost is None and not await attempt.is_stopping() and not attempt.is_offline:
        with anyio.CancelScope(shield=True):
            await in_its_place(attempt, attempt.holding.commit(_note(attempt, key)))


async def in_its_place(attempt: "Attempt", commit: Awaitable[int]) -> None:
    """Return once `commit` has landed, and it is the turn of that: also of a cancellation that came meanwhile."""
    try:
        landing = await commit
    except asyncio.CancelledError as error:
        landed = landing_of(error)
        if landed is not None and not attempt.is_leaving:
            with anyio.CancelScope(shield=True):
                await attempt.order.live(landed)
        raise
    if not attempt.order.is_clear():
        await attempt.order.live(landing)


def _note(attempt: "Attempt", key: str) -> NewRecord:
    return seal(attempt.holding.run, Observed(value=b"true"), turn=attempt.turn_id, key=key)

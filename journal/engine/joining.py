"""Calls under a key that is given, not counted: asked for again in the same attempt, a call joins the first.

It runs in the task of whoever asked first. Whoever else is cancelled leaves alone, and the log says so; else a replay,
which has the outcome sooner, would hand it out. If the first is cancelled, so is the call: one that may be repeated is
made anew by the next who waits or asks, as a call of its own in the log (``key@again1``); of a `never` call all hear
that it is unknown. Next: `calls.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from journal.core.errors import InvalidOptions
from journal.core.records import CallOutcome
from journal.engine.cancelling import note_left
from journal.replay.history import again_key, cancelled_key, joined_key

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt
    from journal.engine.calls import Call, Settled


class Named:
    """A call under a key, for those who ask for it again."""

    def __init__(self, call: "Call", tries: int) -> None:
        self.name = call.name
        self.input_digest = call.input_digest
        self.settled: asyncio.Future[Settled | None] = asyncio.get_running_loop().create_future()
        """None: it was cancelled, and may be made anew."""
        self.tries = tries
        """Which try in this attempt it is, from 1."""
        self.joined = 0
        """How many asked for it besides."""


async def join(
    attempt: "Attempt", call: "Call", perform: "Callable[[Attempt, Call], Awaitable[Settled]]"
) -> "Settled":
    """`perform` it, or wait for whoever does. Raises `InvalidOptions` where the key was given to another call."""
    tries = 0
    while (first := attempt.named.get(call.key)) is not None:
        if first.input_digest != call.input_digest or first.name != call.name:
            raise InvalidOptions(
                f"the key {call.key!r} was given to a call of {first.name!r} with another input in this turn: "
                "a key names one call; choose another"
            )
        if (settled := await _joined(attempt, call, first)) is not None:
            return settled
        if await _is_cancelled(attempt):
            raise asyncio.CancelledError
        if attempt.named[call.key] is first:
            tries = first.tries
            break
    named = attempt.named[call.key] = Named(call, tries + 1)
    if tries:
        call = msgspec.structs.replace(call, key=again_key(call.key, tries))
    try:
        settled = await perform(attempt, call)
    except asyncio.CancelledError:
        named.settled.set_result(_unknown(call) if call.policy == "never" else None)
        raise
    except BaseException as error:
        named.settled.set_exception(error)
        named.settled.exception()  # whether anybody joined or not, it is looked at
        raise
    named.settled.set_result(settled)
    return settled


async def _joined(attempt: "Attempt", call: "Call", first: Named) -> "Settled | None":
    """How `first` ends; None: it was cancelled."""
    first.joined += 1
    key = cancelled_key(joined_key(again_key(call.key, first.tries - 1), first.joined))
    if (known := attempt.history.observed_at.get(key)) is not None:
        await attempt.order.cancelled(key, known[1])
    try:
        return await asyncio.shield(first.settled)
    except asyncio.CancelledError:
        if attempt.history.unclaimed() is None:  # else what was recorded later rests on what was seen then
            await note_left(attempt, key)
        raise


async def _is_cancelled(attempt: "Attempt") -> bool:
    """Whether this attempt ends, or whoever asks is cancelled now."""
    task = asyncio.current_task(attempt.loop)
    assert task is not None, "calls are made in tasks"
    heard = task.cancelling()
    return await attempt.is_stopping() or task.cancelling() > heard


def _unknown(call: "Call") -> "Settled":
    from journal.engine.calls import Settled

    return Settled(call, CallOutcome(status="unknown"), None, False)

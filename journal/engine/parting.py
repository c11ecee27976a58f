"""Where the input that the code asks a call with parts from the recorded one: read whole, and told in words."""

from typing import TYPE_CHECKING

from journal.core import values
from journal.core.errors import Diverged, LogError, LogUnreadable, WorldUnavailable
from journal.replay.fields import first_difference
from journal.replay.inputs import blobs_of, whole

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt


async def where_inputs_part(attempt: "Attempt", error: Diverged) -> str | None:
    """At which place, in words; None: it is not for its input that the call diverges, or that was not kept."""
    if error.given is None or error.call not in attempt.history.calls:
        return None
    try:
        recorded = await recorded_input(attempt, error.call)
    except (LogError, LogUnreadable, WorldUnavailable):
        return None  # the turn is blocked all the same
    if recorded is None or recorded == error.given:
        return None
    return first_difference(values.decode(recorded), values.decode(error.given))


async def recorded_input(attempt: "Attempt", key: str) -> bytes | None:
    """The input of a recorded call, whole. Raises `LogUnreadable`, and what reading raises."""
    call, found = attempt.history.calls[key], attempt.history.difference_of(key)
    if found is not None:
        return whole(found, {ref.blob: await attempt.load(ref) or b"" for ref in blobs_of(found)})
    return None if call.intent is None else await attempt.recorded(call.intent.input, call.intent_seqs[-1])

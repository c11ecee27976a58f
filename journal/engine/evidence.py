"""A result that came after the claim was lost: kept in the log from outside the claim, for whoever holds the run next.

Best effort, it decides nothing here: the next holder of a `never` call takes it for the outcome, others for reading.
"""

import asyncio
from typing import TYPE_CHECKING

from journal.core import values
from journal.core.codec import Blob, seal
from journal.core.errors import WorldUnavailable
from journal.core.ids import new_batch_id
from journal.core.ports import Batch, Keyed, Unknown
from journal.core.records import CallEvidence, CallOutcome

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt

_OFFER_SECONDS = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


async def leave_evidence(attempt: "Attempt", key: str, outcome: CallOutcome, blobs: tuple[Blob, ...]) -> None:
    """Append the outcome of call `key` as evidence, though this task is being cancelled meanwhile."""
    claim, run = attempt.holding.claim, attempt.holding.run
    body = CallEvidence(outcome=outcome, epoch=claim.epoch, nonce=attempt.nonce)
    record = seal(run, body, turn=attempt.turn_id, key=key)
    author = Keyed(f"evidence:{claim.epoch}:{claim.token.hex()}:{key}", values.digest(record.body))
    batch = Batch(run, new_batch_id(), author, (record,), blobs=blobs)
    # In a task of its own: losing the claim cancels the handler's, and may do so while we wait for the store.
    offering = asyncio.get_running_loop().create_task(_offer(attempt, batch, key))
    while not offering.done():
        try:
            await asyncio.shield(offering)
        except asyncio.CancelledError:
            continue  # whoever called us stops the handler anyway


async def _offer(attempt: "Attempt", batch: Batch, key: str) -> None:
    until, pause = attempt.clock.boottime() + _OFFER_SECONDS, _FIRST_PAUSE
    while True:
        try:
            answer: object = await attempt.holding.world.append(batch)
        except WorldUnavailable as error:
            answer = error
        except Exception as error:  # noqa: BLE001 - the claim is lost already; this is a courtesy
            attempt.log.warning("evidence not kept", call=key, error=type(error).__qualname__)
            return
        if not isinstance(answer, Unknown | WorldUnavailable):
            return
        if attempt.holding.is_ending or attempt.clock.boottime() > until:
            attempt.log.warning("evidence not kept", call=key, error=type(answer).__qualname__)
            return
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)

"""A result that came after the claim was lost: kept in the log from outside the claim, for whoever holds the run next.

Best effort, it decides nothing here: the next holder of a `never` call takes it for the outcome, others for reading.
"""

import asyncio
from typing import TYPE_CHECKING

from journal.core import values
from journal.core.codec import Blob, seal
from journal.core.ids import new_batch_id
from journal.core.ports import Batch, Keyed, Unknown
from journal.core.records import CallEvidence, CallOutcome

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt

_TRIES = 5
_PAUSE_SECONDS = 0.05


async def leave_evidence(attempt: "Attempt", key: str, outcome: CallOutcome, blob: Blob | None) -> None:
    """Append the outcome of call `key` as evidence, though this task is being cancelled meanwhile."""
    claim, run = attempt.holding.claim, attempt.holding.run
    body = CallEvidence(outcome=outcome, epoch=claim.epoch, nonce=attempt.nonce)
    record = seal(run, body, turn=attempt.turn_id, key=key)
    author = Keyed(f"evidence:{claim.epoch}:{claim.token.hex()}:{key}", values.digest(record.body))
    batch = Batch(run, new_batch_id(), author, (record,), blobs=(blob,) if blob else ())
    # In a task of its own: losing the claim cancels the handler's, and may do so while we wait for the store.
    offering = asyncio.get_running_loop().create_task(_offer(attempt, batch, key))
    while not offering.done():
        try:
            await asyncio.shield(offering)
        except asyncio.CancelledError:
            continue  # whoever called us stops the handler anyway


async def _offer(attempt: "Attempt", batch: Batch, key: str) -> None:
    for _ in range(_TRIES):
        try:
            answer = await attempt.holding.world.append(batch)
        except Exception as error:  # noqa: BLE001 - the claim is lost already; this is a courtesy
            attempt.log.warning("evidence not kept", call=key, error=type(error).__qualname__)
            return
        if not isinstance(answer, Unknown):
            return
        await asyncio.sleep(_PAUSE_SECONDS)

"""From a claim to an attempt: read the turn's history, and see whether there is anything to do with it here."""

import asyncio
from typing import TYPE_CHECKING

from journal.core.codec import seal
from journal.core.errors import CorruptRecord, LogError, RecordTooNew, UnknownRecordType, WorkspaceError
from journal.core.ports import Block, Finish, Release
from journal.core.records import Record, TurnBlocked
from journal.engine.attempt import Attempt
from journal.engine.claim import Holding
from journal.engine.snapshots import PAGE, Reader, before_turn
from journal.replay.history import TurnHistory

if TYPE_CHECKING:
    from journal.engine.runtime import Runtime

CRASH_LOOP_CAP = 16
"""Takeovers without progress after which a turn is taken for poisoned."""
_CANNOT_READ_SECONDS = 30.0
"""How long a run that this worker cannot work on is left to others."""


async def open_attempt(
    runtime: "Runtime", holding: Holding, written: tuple[Record, ...] = ()
) -> Attempt | None:
    """Read the claimed turn's history. None: there is nothing to do here, and the claim went back.

    `written`: what this process has just appended, which need not be read if it is all there is.
    """
    claimed = holding.claimed
    if claimed.turn is None:
        await holding.commit(queue=Release())
        return None
    agent = runtime.agents.get(claimed.agent)
    history = TurnHistory(claimed.turn)
    reader: Reader | None = None
    if agent is not None and (agent.docs or agent.has_files):
        reader = Reader(holding.world, holding.run, turn=claimed.turn)
    try:
        await _read(holding, history, reader, written)
    except (RecordTooNew, UnknownRecordType) as error:
        runtime.log.warning("turn left to a newer worker", run=holding.run, reason=str(error))
        await holding.commit(queue=Release(delay_seconds=_CANNOT_READ_SECONDS))
        return None
    except LogError as error:
        body = TurnBlocked(reason="log_error", detail=str(error), version=runtime.version)
        await holding.commit(seal(holding.run, body, turn=claimed.turn), queue=Block())
        runtime.turn_ended(holding.run, claimed.turn)
        return None
    if history.finished is not None:
        # The log has its end already: nothing runs again, whatever the queue believes.
        await holding.commit(queue=Finish(claimed.turn, history.finished.status))
        runtime.turn_ended(holding.run, claimed.turn)
        return None
    if agent is None:
        await holding.commit(queue=Release(delay_seconds=_CANNOT_READ_SECONDS))
        return None
    attempt = Attempt(runtime, holding, history, agent, reader)
    if claimed.takeovers > CRASH_LOOP_CAP:
        detail = f"{claimed.takeovers} holders in a row died or fell silent without recording an outcome"
        await attempt.block("crash_loop", detail)
        return None
    try:
        await attempt.files.open()
    except WorkspaceError as error:
        if not error.is_retriable:
            await attempt.block("workspace", f"{error}; then journal retry {holding.run}")
            return None
        runtime.log.warning("turn left to others", run=holding.run, reason=error.reason)
        await holding.commit(queue=Release(delay_seconds=_CANNOT_READ_SECONDS))
        return None
    return attempt


async def _read(
    holding: Holding, history: TurnHistory, reader: Reader | None, written: tuple[Record, ...]
) -> None:
    is_all = bool(written) and (written[0].seq, written[-1].seq) == (1, holding.claimed.head)
    world, after = holding.world, holding.claimed.submitted - 1
    if reader is not None:
        after = before_turn(holding.claimed.submitted)
    elif after == 1:
        after = 0  # the first turn: what created the run stands just before it
    if after > 0:
        history.extend(await world.read(holding.run, after=0, limit=1))
    if is_all and reader is None:
        history.extend(written)
    elif reader is not None:
        await reader.read(after, history.extend)
        history.folded = reader.folded
    else:
        while True:
            page = await world.read(holding.run, after=after, limit=PAGE)
            history.extend(page)
            if len(page) < PAGE:
                break
            after = page[-1].seq
            await asyncio.sleep(0)
    if history.last_seq < holding.claimed.head or history.submitted is None:
        # What a damaged index hides is not there for a reader, and must not be taken for the end of the log.
        missing = holding.claimed.submitted if history.submitted is None else history.last_seq + 1
        raise CorruptRecord(run_id=holding.run, seq=missing, reason="it is missing")
    holding.last = history.last_seq
    holding.prev_batch = history.last_batch

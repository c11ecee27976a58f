"""From a claim to an attempt: read the turn's history, and see whether there is anything to do with it here."""

import asyncio
from typing import TYPE_CHECKING

from journal.core.codec import seal
from journal.core.errors import CorruptRecord, LogError, RecordTooNew, UnknownRecordType, WorkspaceError
from journal.core.ports import Block, Finish, Release
from journal.core.records import TurnBlocked
from journal.engine.attempt import Attempt
from journal.engine.claim import Holding
from journal.replay.documents import Documents
from journal.replay.history import TurnHistory
from journal.replay.workspace import Workspace

if TYPE_CHECKING:
    from journal.engine.runtime import Runtime

CRASH_LOOP_CAP = 16
"""Takeovers without progress after which a turn is taken for poisoned."""
_PAGE = 500
_CANNOT_READ_SECONDS = 30.0
"""How long a run that this worker cannot work on is left to others."""


async def open_attempt(runtime: "Runtime", holding: Holding) -> Attempt | None:
    """Read the claimed turn's history. None: there is nothing to do here, and the claim went back."""
    claimed = holding.claimed
    if claimed.turn is None:
        await holding.commit(queue=Release())
        return None
    agent = runtime.agents.get(claimed.agent)
    documents = Documents() if agent is not None and agent.docs else None
    workspace = Workspace() if agent is not None and agent.has_files else None
    history = TurnHistory(claimed.turn, documents, workspace)
    try:
        await _read(runtime, holding, history)
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
    attempt = Attempt(runtime, holding, history, agent)
    if claimed.takeovers > CRASH_LOOP_CAP:
        detail = (
            f"{claimed.takeovers} holders in a row died or fell silent without recording an outcome; "
            f"find out why (journal show {holding.run}), then journal retry {holding.run}"
        )
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


async def _read(runtime: "Runtime", holding: Holding, history: TurnHistory) -> None:
    world = holding.world
    after = holding.claimed.submitted - 1
    if after == 1 or history.documents is not None or history.workspace is not None:
        after = 0  # the first turn: what created the run stands just before it
    elif after > 0:
        history.extend(await world.read(holding.run, after=0, limit=1))
    while True:
        page = await world.read(holding.run, after=after, limit=_PAGE)
        history.extend(page)
        if len(page) < _PAGE:
            break
        after = page[-1].seq
        await asyncio.sleep(0)
    if history.last_seq < holding.claimed.head or history.submitted is None:
        # What a damaged index hides is not there for a reader, and must not be taken for the end of the log.
        missing = holding.claimed.submitted if history.submitted is None else history.last_seq + 1
        raise CorruptRecord(run_id=holding.run, seq=missing, reason="it is missing")
    holding.last = history.last_seq
    holding.prev_batch = history.last_batch

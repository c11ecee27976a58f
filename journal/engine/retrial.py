"""What a retry sets aside: read from the log, decided here, written as one `turn.retried`."""

from journal.core.errors import DidNotHappen, NotRetriable, RunBusy, TurnNotFound
from journal.core.ports import RunInfo, World
from journal.core.records import TurnRetried
from journal.replay.history import TurnHistory

_PAGE = 500


async def plan_retry(world: World, info: RunInfo, turn: str) -> tuple[TurnRetried, int]:
    """(the record, the head it was decided at) for retrying `turn`; raises `NotRetriable`."""
    found = await world.turn(info.run, turn)
    if found is None:
        raise TurnNotFound(run_id=info.run, turn_id=turn)
    if info.turn not in (None, turn):
        raise RunBusy(run_id=info.run)  # a later turn is under way; the older one would cut in
    history = TurnHistory(turn)
    after = found.submitted - 1
    while page := await world.read(info.run, after=after, limit=_PAGE):
        for record in page:
            history.add(record)
        after = page[-1].seq
    # A copy that was held back is blocked, and its log does not say so: it is its origin's.
    is_blocked = history.blocked is not None or (info.status == "blocked" and info.turn == turn)
    if history.finished is None and not is_blocked:
        raise NotRetriable(run_id=info.run, turn_id=turn, status="not finished")
    if history.finished is not None and history.finished.status != "failed":
        raise NotRetriable(run_id=info.run, turn_id=turn, status=history.finished.status)
    return TurnRetried(superseded=superseded(history)), after


def superseded(history: TurnHistory) -> tuple[int, ...]:
    """Seqs of the error outcome that escaped the handler, and of its siblings left without an outcome.

    A `never` call that was started is not set aside: its outcome stays, so that it is not started again.
    """
    finished = history.finished
    seqs: list[int] = []
    if finished is not None and finished.cause is not None:
        call = history.calls.get(finished.cause)
        if call is not None and call.intent is not None and call.outcome is not None:
            error = call.outcome.error
            harmless = error is not None and error.type.rpartition(".")[2] == DidNotHappen.__name__
            may_repeat = call.intent.policy == "safe" or harmless
            if may_repeat and call.outcome.status in ("error", "cancelled", "value_lost"):
                seqs += [*call.intent_seqs, call.outcome_seq]
    after = (
        history.calls[finished.cause].outcome_seq if finished and finished.cause in history.calls else None
    )
    for call in history.calls.values():
        if call.intent is None or call.intent.policy != "safe":
            continue
        if call.outcome is None:
            seqs += call.intent_seqs
        elif call.outcome.status == "cancelled" and after is not None and call.outcome_seq > after:
            seqs += [*call.intent_seqs, call.outcome_seq]  # a sibling that was cancelled over it
    return tuple(sorted(seqs))

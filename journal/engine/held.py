"""A copy that is held back: blocked, though its log does not say so, since the log is its origin's."""

from journal.core.ports import RunInfo
from journal.core.records import TurnBlocked, TurnRetried, TurnStarted, TurnSubmitted
from journal.engine.digest import Source

_PAGE = 50
_TELLING = {kind.TYPE for kind in (TurnBlocked, TurnRetried, TurnStarted, TurnSubmitted)}


def advice(run_id: str) -> str:
    """What is the matter with such a run, and what to do."""
    return (
        "it was copied from another store (journal copy): it goes on there, or here once the same command is given "
        f"with --freeze; journal retry {run_id} only if it shall go on here too"
    )


async def is_held_back(source: Source, info: RunInfo) -> bool:
    """Whether nothing in the log says why the run is blocked. Raises what reading raises."""
    if info.status != "blocked" or info.turn is None or info.building or info.moved_to is not None:
        return False
    upto = info.head
    while upto > 0:
        after = max(0, upto - _PAGE)
        for record in reversed(await source.read(info.run, after=after, limit=upto - after)):
            if record.turn == info.turn and record.type in _TELLING:
                return record.type != TurnBlocked.TYPE
        upto = after
    return False

"""Would this code strand a run? Every unfinished turn of a journal's agents, replayed offline against the present code.

What is looked at is the turn that a worker would carry on. Nothing acts, and nothing is written.
"""

import asyncio
from collections.abc import AsyncIterator

import msgspec

from journal.core.errors import JournalError
from journal.core.ports import RunInfo, RunQuery, RunStatus, World
from journal.engine.journal import Journal
from journal.engine.offline import STALL_SECONDS, replay
from journal.engine.reading import read_run
from journal.replay.verdict import Replay

_PAGE = 200
_AT_ONCE = 16
"""Replays that wait for code that waits do so together."""
_UNFINISHED: tuple[RunStatus, ...] = ("pending", "running", "parked", "blocked")


class InFlight(msgspec.Struct, frozen=True, kw_only=True):
    """One unfinished turn."""

    run: str
    turn: str
    agent: str
    status: RunStatus
    replay: Replay | None = None
    """None: its log cannot be read."""
    error: str | None = None

    @property
    def is_undecided(self) -> bool:
        """Whether the code waits for something else than its calls, so that it cannot be told."""
        return self.replay is not None and self.replay.verdict == "stalled"

    @property
    def is_stranded(self) -> bool:
        """Whether a worker with this code could not carry it on: its log cannot be read, or the code parts from it."""
        return not self.is_undecided and (self.replay is None or self.replay.has_parted)


async def in_flight(
    journal: Journal, world: World, *, stall_seconds: float = STALL_SECONDS
) -> AsyncIterator[InFlight]:
    """Each unfinished turn of the journal's agents, as it is found. Raises what listing raises."""
    seen: set[str] = set()
    for status in _UNFINISHED:
        before: int | None = None
        while page := await world.runs(RunQuery(status=status, before=before, limit=_PAGE)):
            chosen = [info for info in page if info.run not in seen and _is_looked_at(journal, info)]
            seen.update(info.run for info in chosen)
            for start in range(0, len(chosen), _AT_ONCE):
                some = chosen[start : start + _AT_ONCE]
                for found in await asyncio.gather(
                    *(_look(journal, world, info, stall_seconds) for info in some)
                ):
                    yield found
            before = page[-1].position


def _is_looked_at(journal: Journal, info: RunInfo) -> bool:
    is_here = not info.closed and not info.building and info.moved_to is None
    return is_here and info.turn is not None and info.agent in journal.agents


async def _look(journal: Journal, world: World, info: RunInfo, stall_seconds: float) -> InFlight:
    assert info.turn is not None
    agent = journal.agents[info.agent]
    found = InFlight(
        run=info.run,
        turn=info.turn,
        agent=info.agent,
        status=info.status,
    )
    try:
        log = await read_run(world, info.run)
        replayed = await replay(agent, log, turn=info.turn, stall_seconds=stall_seconds)
    except JournalError as error:
        return msgspec.structs.replace(found, error=str(error))
    return msgspec.structs.replace(found, replay=replayed)

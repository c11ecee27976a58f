"""`journal check --in-flight`: what it prints."""

import msgspec

from journal.cli.opening import check_exists
from journal.cli.output import emit, remark, say, table
from journal.cli.replay import as_json
from journal.cli.settings import Settings
from journal.engine.in_flight import InFlight, in_flight
from journal.engine.journal import Journal
from journal.replay.timeline import Mark, printable

_HEADER = ("RUN", "TURN", "AGENT", "CALLS", "WITH THIS CODE")


async def look(journal: Journal) -> tuple[list[InFlight], dict[str, int]]:
    """The unfinished turns of the journal's agents; and how many runs of agents that are not registered are open."""
    if not callable(journal.url):
        await check_exists(journal.url)
    async with journal.open_world() as world:
        found = [one async for one in in_flight(journal, world)]
        others = {
            stats.agent: stats.due + stats.later + stats.held + stats.parked + stats.blocked
            for stats in await world.stats()
            if stats.agent not in journal.agents
        }
    return found, {agent: count for agent, count in others.items() if count}


def tell(settings: Settings, found: list[InFlight], others: dict[str, int]) -> None:
    """Print them; those that would be stranded with what parts them from the log."""
    if settings.as_json:
        for one in found:
            emit(_as_json(one))
        return
    if found:
        marks: list[Mark] = [
            "bad" if one.is_stranded else "interrupted" if one.is_undecided else "good" for one in found
        ]
        table(_HEADER, [_row(one) for one in found], marks)
    for one in found:
        if one.is_stranded and one.replay is not None and one.replay.differences:
            say(f"{one.run}, turn {one.turn}:", "bad")
            for difference in one.replay.differences:
                say(f"  {printable(str(difference))}", "bad")
    stranded = sum(one.is_stranded for one in found)
    say(
        f"{len(found):,} unfinished, {stranded:,} of them stranded by this code",
        "bad" if stranded else "good",
    )
    if undecided := sum(one.is_undecided for one in found):
        remark(f"{undecided:,} could not be told: the code waits for something that is no call")
    for agent, count in others.items():
        remark(
            f"{count:,} unfinished of agent {agent!r}, which is not registered here: nothing is said of them"
        )


def _as_json(one: InFlight) -> dict[str, object]:
    told: dict[str, object] = msgspec.to_builtins(msgspec.structs.replace(one, replay=None))
    told |= {"stranded": one.is_stranded, "undecided": one.is_undecided}
    told["replay"] = None if one.replay is None else as_json(one.replay)
    return told


def _row(one: InFlight) -> tuple[str, str, str, str, str]:
    if one.replay is None:
        return one.run, one.turn, one.agent, "-", one.error or ""
    words = str(one.replay)
    if one.replay.drifted:
        words += f"; {len(one.replay.drifted)} drifted"
    return one.run, one.turn, one.agent, str(len(one.replay.calls)), words

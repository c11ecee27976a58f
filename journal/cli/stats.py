"""`journal stats`."""

import time

import click

from journal.cli.opening import run
from journal.cli.output import ago, emit, remark, table
from journal.cli.settings import Settings, common_options, settings_of
from journal.core.ports import AgentStats
from journal.engine.journal import Journal
from journal.replay.timeline import Mark

_HEADER = ("AGENT", "DUE", "SINCE", "LATER", "HELD", "PARKED", "BLOCKED", "IDLE")


@click.command
@common_options
@settings_of
def command(settings: Settings) -> None:
    """Count open runs by agent: what is due and since when, what is held, parked, blocked or idle.

    Due work that is minutes old means too few workers (`journal workers`); blocked runs wait for someone
    (`journal runs --status blocked`).
    """

    async def read(journal: Journal) -> tuple[str, list[AgentStats]]:
        return (await journal.runtime()).world.url, await journal.stats()

    url, found = run(settings, read, only_looks=True)
    if settings.as_json:
        for stats in found:
            emit(stats)
        return
    if not found:
        remark(f"no open runs in {url}")
        return
    now = time.time()
    rows = [(s.agent, str(s.due), ago(s.oldest_due, now), *_rest(s)) for s in found]
    table(_HEADER, rows, [_mark(s) for s in found])


def _rest(stats: AgentStats) -> tuple[str, ...]:
    return tuple(map(str, (stats.later, stats.held, stats.parked, stats.blocked, stats.idle)))


def _mark(stats: AgentStats) -> Mark:
    return "bad" if stats.blocked else "plain"

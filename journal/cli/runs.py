"""`journal runs`."""

from typing import Any, get_args

import click

from journal.cli.opening import run
from journal.cli.output import emit, moment, remark, table
from journal.cli.settings import Settings, common_options, settings_of
from journal.core.ports import RunInfo, RunQuery, RunStatus
from journal.engine.journal import Journal
from journal.replay.timeline import Mark

_MARKS: dict[RunStatus, Mark] = {"succeeded": "good", "failed": "bad", "blocked": "bad", "running": "carried"}
_HEADER = ("RUN", "AGENT", "STATUS", "TURNS", "RECORDS", "CREATED")


@click.command
@click.option("--status", type=click.Choice(get_args(RunStatus)), help="Only runs that stand there.")
@click.option("--agent", metavar="NAME", help="Only runs of this agent.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at most."
)
@click.option(
    "--before", type=int, metavar="POSITION", help="The next page: the position that the last one ended with."
)
@common_options
@settings_of
def command(
    settings: Settings, status: RunStatus | None, agent: str | None, limit: int, before: int | None
) -> None:
    """List runs, newest first.

    With --json one object a line; its `position` is what --before takes.
    """

    async def read(journal: Journal) -> tuple[str, list[RunInfo]]:
        query = RunQuery(status=status, agent=agent, before=before, limit=limit)
        return (await journal.runtime()).world.url, await journal.runs(query)

    url, found = run(settings, read)
    if settings.as_json:
        for info in found:
            emit(info_of(info))
        return
    rows = [(i.run, i.agent, _standing(i), str(i.turns), str(i.head), moment(i.created)) for i in found]
    if rows:
        table(_HEADER, rows, [_MARKS.get(i.status, "plain") for i in found])
    else:
        remark(f"no runs in {url}")
    if len(found) == limit:
        remark(f"there may be more: journal runs --before {found[-1].position}")


def info_of(info: RunInfo) -> dict[str, Any]:
    """A run as ``--json`` shows it."""
    return {
        "run": info.run,
        "agent": info.agent,
        "namespace": info.namespace,
        "status": info.status,
        "closed": info.closed,
        "head": info.head,
        "created": info.created,
        "turn": info.turn,
        "turns": info.turns,
        "takeovers": info.takeovers,
        "due_at": info.due_at,
        "position": info.position,
        "moved_to": info.moved_to,
        "building": info.building,
    }


def _standing(info: RunInfo) -> str:
    if info.moved_to is not None:
        return f"{info.status}, moved to {info.moved_to}"
    if info.building:
        return f"{info.status}, being copied here"
    return f"{info.status}, closed" if info.closed else info.status

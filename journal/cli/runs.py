"""`journal runs`."""

from typing import Any, get_args

import click

from journal.cli.numbers import number
from journal.cli.opening import run
from journal.cli.output import emit, moment, remark, table
from journal.cli.settings import Settings, common_options, settings_of
from journal.core.errors import LogError, RunGone, RunNotFound
from journal.core.ports import RunInfo, RunQuery, RunStatus, World
from journal.engine.held import is_held_back
from journal.engine.journal import Journal
from journal.replay.timeline import Mark

_MARKS: dict[RunStatus, Mark] = {"succeeded": "good", "failed": "bad", "blocked": "bad", "running": "carried"}
_HEADER = ("RUN", "AGENT", "STATUS", "TURNS", "RECORDS", "CREATED")


@click.command
@click.option("--status", type=click.Choice(get_args(RunStatus)), help="Only runs that stand there.")
@click.option("--agent", metavar="NAME", help="Only runs of this agent.")
@click.option(
    "--limit",
    type=number(int, "how many", least=1, most=10_000, such_as=50),
    default=50,
    show_default=True,
    help="How many at most.",
)
@click.option(
    "--before",
    type=number(int, "the position that a page ended with", such_as=181),
    metavar="POSITION",
    help="The next page: the position that the last one ended with.",
)
@common_options
@settings_of
def command(
    settings: Settings, status: RunStatus | None, agent: str | None, limit: int, before: int | None
) -> None:
    """List runs, newest first.

    With --json one object a line; its `position` is what --before takes.
    """

    async def read(journal: Journal) -> tuple[str, list[RunInfo], set[str]]:
        query = RunQuery(status=status, agent=agent, before=before, limit=limit)
        world, found = (await journal.runtime()).world, await journal.runs(query)
        return world.url, found, {info.run for info in found if await _is_held_back(world, info)}

    url, found, held_back = run(settings, read, only_looks=True)
    if settings.as_json:
        for info in found:
            emit(info_of(info, held_back=info.run in held_back))
        return
    rows = [
        (i.run, i.agent, _standing(i, i.run in held_back), str(i.turns), str(i.head), moment(i.created))
        for i in found
    ]
    if rows:
        table(_HEADER, rows, [_MARKS.get(i.status, "plain") for i in found])
    else:
        is_narrow = status is not None or agent is not None or before is not None
        remark(f"no {'such runs' if is_narrow else 'runs'} in {url}")
    if held_back:
        remark("held back: copied from another store, where they go on (journal show RUN says what to do)")
    if len(found) == limit:
        remark(f"there may be more: journal runs --before {found[-1].position}")


async def _is_held_back(world: World, info: RunInfo) -> bool:
    """Not where damage hides it: a list is of all runs."""
    try:
        return await is_held_back(world, info)
    except (LogError, RunNotFound, RunGone):
        return False


def info_of(info: RunInfo, *, held_back: bool) -> dict[str, Any]:
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
        "held_back": held_back,
    }


def _standing(info: RunInfo, held_back: bool) -> str:
    if info.moved_to is not None:
        return f"{info.status}, moved to {info.moved_to}"
    if info.building:
        return f"{info.status}, being copied here"
    if held_back:
        return f"{info.status}, held back"
    return f"{info.status}, closed" if info.closed else info.status

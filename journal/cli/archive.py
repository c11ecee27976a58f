"""`journal archive --older AGE --to URL`."""

import re

import click

from journal.cli import exits
from journal.cli.carrying import Tally, carry_all
from journal.cli.opening import run
from journal.cli.output import emit, remark
from journal.cli.settings import Settings, common_options, settings_of
from journal.core.clock import SystemClock
from journal.engine.journal import Journal
from journal.engine.moving import Mover
from journal.worlds import open_world

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _read_age(ctx: click.Context, param: click.Parameter, text: str) -> float:
    """Seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no age: write 90s, 30m, 12h or 7d", ctx, param)
    return float(found[1]) * _UNITS[found[2]]


@click.command
@click.option(
    "--older",
    "older_seconds",
    callback=_read_age,
    required=True,
    metavar="AGE",
    help="Runs whose last record is older than that: 90s, 30m, 12h, 7d.",
)
@click.option("--to", "target", required=True, metavar="URL", help="The store that keeps them from now on.")
@common_options
@settings_of
def command(settings: Settings, older_seconds: float, target: str) -> int:
    """Move runs that are done to another store, and keep only their address.

    Done is a run without an unfinished turn. It is copied, read back, moved, and then swept here; whoever asks for it
    is told where it is. Runs that `journal copy --freeze` has moved to that store are swept too. For cron: nothing to
    do is no failure, and what was interrupted is finished by the next one.
    """

    async def archive(journal: Journal) -> int:
        world = (await journal.runtime()).world
        tally = Tally(settings)
        async with open_world(target, namespace=world.namespace) as there:
            mover = Mover(
                world,
                there,
                clock=SystemClock(),
                freeze=True,
                older_seconds=older_seconds,
                on_progress=tally.on_records,
            )
            await mover.check()
            runs = [name async for name in mover.archive()]
            with tally.shown(len(runs)):
                moved = await carry_all(mover, runs, tally)
            swept = await mover.sweep(moved)
            if settings.as_json:
                emit({"archived": swept, "to": there.url})
            remark(f"{world.url} → {there.url}: {tally.summary()}; {swept} swept")
        return exits.FAILED if tally.counts["failed"] else exits.OK

    return run(settings, archive)

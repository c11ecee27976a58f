"""`journal copy SRC DST`."""

import asyncio
from contextlib import AsyncExitStack

import click

from journal.cli.carrying import Tally, carry_all
from journal.cli.logs import configure_logs
from journal.cli.numbers import seconds
from journal.cli.opening import check_exists
from journal.cli.output import remark
from journal.cli.settings import Settings, common_options, settings_of
from journal.core.clock import SystemClock
from journal.core.errors import RunGone, RunNotFound
from journal.core.ids import check_id
from journal.core.ports import World
from journal.engine.moving import Mover, all_runs
from journal.worlds import open_to_read, open_world, redact_url, resolve_url, world_exists


@click.command
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@click.option("--run", "runs", multiple=True, metavar="RUN", help="Only this one; may be given again.")
@click.option(
    "--freeze",
    is_flag=True,
    help="Move: the run takes nothing more in SRC, and goes on in DST where it was. Without it SRC is left alone, and "
    "what is unfinished is held back in DST: it goes on in SRC, or in DST once it is moved.",
)
@click.option(
    "--wait",
    "wait_seconds",
    type=seconds,
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="With --freeze: how long whoever works on a run is waited for, before it is skipped.",
)
@common_options
@settings_of
def command(
    settings: Settings, source: str, target: str, runs: tuple[str, ...], freeze: bool, wait_seconds: float
) -> int:
    """Copy runs from the store SRC to the store DST, oldest first, or move them there for good.

    Everything of a run is copied but the pieces of output of calls under way, and read back before it counts. If it
    is interrupted, the same command goes on from there; what is there already, and is the same, is left alone. Exit
    code 1 if a run was skipped or could not be copied.
    """
    configure_logs("debug" if settings.debug else "warning")
    return asyncio.run(_copy(settings, source, target, runs, freeze, wait_seconds))


async def _copy(
    settings: Settings, source: str, target: str, runs: tuple[str, ...], freeze: bool, wait_seconds: float
) -> int:
    namespace = check_id(settings.namespace or "default", "namespace")
    tally = Tally(settings)
    await check_exists(source)
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(
            (open_world if freeze else open_to_read)(source, namespace=namespace)
        )
        asked = list(dict.fromkeys(runs)) or [info.run for info in await all_runs(here)]
        if not await world_exists(target) and not await _has_any(here, asked):
            for run in asked:
                tally.fail(run, RunNotFound(run_id=run, world=here.url))
            remark(
                f"{here.url} → {redact_url(resolve_url(target))}: {tally.summary()}; nothing was made there"
            )
            return tally.exit_code
        there = await stack.enter_async_context(open_world(target, namespace=namespace))
        mover = Mover(
            here,
            there,
            clock=SystemClock(),
            freeze=freeze,
            wait_seconds=wait_seconds,
            on_progress=tally.on_records,
        )
        await mover.check()
        with tally.shown(len(asked)):
            await carry_all(mover, asked, tally)
        remark(f"{here.url} → {there.url}: {tally.summary()}")
    return tally.exit_code


async def _has_any(world: World, runs: list[str]) -> bool:
    """Whether one of them is there, or was."""
    for run in runs:
        try:
            if await world.run(run) is not None:
                return True
        except RunGone:
            return True  # it may have been moved to the target
    return False

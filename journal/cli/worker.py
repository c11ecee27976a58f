"""`journal worker module:attribute`: a worker under signals, with a health endpoint.

The first SIGTERM or SIGINT stops claiming and lets turns end within the grace; the second stops at once, and what
was going on is left to whoever takes it over.
"""

import asyncio
import signal
from contextlib import AsyncExitStack

import click

from journal.cli.exits import INTERRUPTED, OK
from journal.cli.health import serve_health
from journal.cli.logs import configure_logs
from journal.cli.numbers import number, seconds
from journal.cli.opening import needed_journal
from journal.cli.output import remark
from journal.cli.settings import Settings, common_options, settings_of
from journal.cli.signals import Signals, end_within
from journal.engine.journal import Journal
from journal.engine.worker import Worker

_LINGER_SECONDS, _BRIEF_SECONDS = 5.0, 0.5


@click.command
@click.argument("spec", metavar="[MODULE:ATTR]", required=False)
@click.option(
    "--concurrency",
    type=number(int, "how many turns at once", least=1, most=10_000, such_as=10),
    default=10,
    show_default=True,
    help="Turns at once.",
)
@click.option("--agents", metavar="A,B", help="Work for these agents only. Default: all of the journal's.")
@click.option("--until-idle", is_flag=True, help="Stop once nothing is due and nothing is running here.")
@click.option(
    "--grace",
    type=seconds,
    default=25.0,
    show_default=True,
    metavar="SECONDS",
    help="How long turns may still take after a signal.",
)
@click.option(
    "--health-port",
    type=number(int, "a port, 0 for any", least=0, most=65_535, such_as=8081),
    metavar="PORT",
    help="Answer GET /health on 127.0.0.1; 0 lets the system choose, and the log says which.",
)
@common_options
@settings_of
def command(
    settings: Settings,
    spec: str | None,
    concurrency: int,
    agents: str | None,
    until_idle: bool,
    grace: float,
    health_port: int | None,
) -> int:
    """Work on runs: claim, carry on, take over what others left.

    SIGTERM or Ctrl-C: no more claims, then turns have --grace to end; those left are given back to other workers.
    A second signal stops at once.
    """
    settings.app = spec or settings.app
    configure_logs("debug" if settings.debug else "info")
    journal = needed_journal(settings)
    chosen = None if agents is None else [name.strip() for name in agents.split(",") if name.strip()]
    worker = journal.worker(concurrency=concurrency, agents=chosen, grace_seconds=grace)
    with asyncio.Runner() as runner:
        code = runner.run(_work(journal, worker, until_idle=until_idle, health_port=health_port))
        if settings.is_process:
            end_within(_LINGER_SECONDS if code == OK else _BRIEF_SECONDS, code)
    return code


def in_words(count: int, seconds: float | None) -> str:
    """What others hold, and when it is worth looking again."""
    runs, lease = ("1 run is", "its lease") if count == 1 else (f"{count} runs are", "the first lease")
    when = "" if seconds is None else f"; {lease} ends in {seconds:.0f} s unless it is renewed"
    return f"{runs} held elsewhere{when}: run this again then, or without --until-idle"


async def _work(journal: Journal, worker: Worker, *, until_idle: bool, health_port: int | None) -> int:
    signals = Signals(worker)
    try:
        async with AsyncExitStack() as stack:
            stack.enter_context(signals.handled())
            await stack.enter_async_context(journal)
            if health_port is not None:
                world = (await journal.runtime()).world
                await stack.enter_async_context(serve_health(worker, world.url, health_port))
            await worker.run(until_idle=until_idle)
            if worker.held:
                remark(in_words(worker.held, worker.held_seconds))
    except asyncio.CancelledError:
        if not signals.is_second:
            raise
        return INTERRUPTED
    return INTERRUPTED if signals.first == signal.SIGINT else OK

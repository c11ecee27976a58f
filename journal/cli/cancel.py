"""`journal cancel RUN`."""

import click

from journal.cli.opening import run
from journal.cli.output import emit, remark, say
from journal.cli.settings import Settings, common_options, settings_of
from journal.engine.journal import Journal


@click.command
@click.argument("run_id", metavar="RUN")
@click.option("--turn", metavar="ID", help="Which turn. Default: the unfinished one.")
@click.option("--reason", metavar="TEXT", help="Noted in the log.")
@common_options
@settings_of
def command(settings: Settings, run_id: str, turn: str | None, reason: str | None) -> None:
    """Ask for a run's turn to be cancelled.

    A worker that holds it hears of it within a second; otherwise the next one that claims the run does.
    """

    async def ask(journal: Journal) -> str | None:
        asked = turn or (await journal.get(run_id)).turn
        if asked is None:
            return None
        await journal.cancel(run_id, turn_id=asked, reason=reason)
        return asked

    asked = run(settings, ask)
    if settings.as_json:
        emit({"run": run_id, "turn": asked, "asked": asked is not None})
    elif asked is None:
        remark(f"run {run_id} has no unfinished turn: there is nothing to cancel")
    else:
        say(run_id)
        remark(f"asked for turn {asked} to be cancelled; journal show {run_id}")

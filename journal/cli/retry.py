"""`journal retry RUN`."""

from typing import Any

import click

from journal.cli.opening import run
from journal.cli.output import emit, remark, say
from journal.cli.settings import Settings, common_options, settings_of
from journal.cli.waiting import say_output, wait_for
from journal.engine.handle import Handle
from journal.engine.journal import Journal


@click.command
@click.argument("run_id", metavar="RUN")
@click.option("--turn", metavar="ID", help="Which turn. Default: the unfinished one, else the last.")
@click.option("--wait", "is_waiting", is_flag=True, help="Wait for the turn to end, and print its output.")
@common_options
@settings_of
def command(settings: Settings, run_id: str, turn: str | None, is_waiting: bool) -> None:
    """Send a failed or blocked turn on; a worker carries it out.

    The error that escaped the handler is set aside and its call made again; recorded results are kept, and so is a
    `never` call that may have happened.
    """

    async def send_on(journal: Journal) -> tuple[Handle[Any], Any]:
        handle = await journal.retry(run_id, turn_id=turn)
        return handle, await wait_for(journal, handle) if is_waiting else None

    handle, output = run(settings, send_on)
    if is_waiting:
        say_output(settings, handle, output)
    elif settings.as_json:
        emit({"run": handle.run_id, "turn": handle.turn_id})
    else:
        say(handle.run_id)
        remark(f"turn {handle.turn_id} is due again; journal show {handle.run_id}")

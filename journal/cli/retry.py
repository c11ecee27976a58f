"""`journal retry RUN`."""

from collections.abc import Sequence
from typing import Any

import click

from journal.cli.fitting import check_settled, parse_value, say_unchecked
from journal.cli.numbers import call_number
from journal.cli.opening import run
from journal.cli.output import emit, remark, say
from journal.cli.settings import Settings, common_options, settings_of
from journal.cli.waiting import say_output, wait_for
from journal.core.errors import InvalidOptions
from journal.engine.handle import Handle
from journal.engine.journal import Journal
from journal.tools.probe import NotRun

DID_NOT_RUN = "did-not-run"


@click.command
@click.argument("run_id", metavar="RUN")
@click.option("--turn", metavar="ID", help="Which turn. Default: the unfinished one, else the last.")
@click.option(
    "--from",
    "from_call",
    type=call_number,
    metavar="N",
    help="Set call N (as `journal show` numbers them) and all that began after it aside. A `never` call among them "
    "that was started must be settled as did-not-run.",
)
@click.option(
    "--settle",
    "settled",
    multiple=True,
    metavar=f"N=JSON|N={DID_NOT_RUN}",
    help="Say what call N, whose outcome is unknown, gave; or that it did not run, and shall. May be given again.",
)
@click.option(
    "--accept-divergence",
    is_flag=True,
    help="Take the outcome that was recorded, although the code asks for something else in its place.",
)
@click.option("--wait", "is_waiting", is_flag=True, help="Wait for the turn to end, and print its output.")
@common_options
@settings_of
def command(
    settings: Settings,
    run_id: str,
    turn: str | None,
    from_call: int | None,
    settled: tuple[str, ...],
    accept_divergence: bool,
    is_waiting: bool,
) -> None:
    """Send a failed or blocked turn on; a worker carries it out.

    The error that escaped the handler is set aside and its call made again; recorded results are kept, and so is a
    `never` call that may have happened.
    """
    settle = parse_settled(settled)

    async def send_on(journal: Journal) -> tuple[Handle[Any], Any]:
        unchecked = await check_settled(settings, journal, run_id, settle)
        handle = await journal.retry(
            run_id, turn_id=turn, from_call=from_call, settle=settle, accept_divergence=accept_divergence
        )
        say_unchecked(unchecked)
        return handle, await wait_for(journal, handle) if is_waiting else None

    handle, output = run(settings, send_on)
    if is_waiting:
        say_output(settings, handle, output)
    elif settings.as_json:
        emit({"run": handle.run_id, "turn": handle.turn_id})
    else:
        say(handle.run_id)
        remark(f"turn {handle.turn_id} is due again; journal show {handle.run_id}")


def parse_settled(given: Sequence[str]) -> dict[int, Any]:
    """What `--settle` says, by number of the call."""
    settle: dict[int, Any] = {}
    for text in given:
        number, found, said = text.partition("=")
        if not found or not number.strip().isdecimal():
            raise InvalidOptions(
                f"--settle {text}: write N=JSON, as in 7='{{\"id\": 1}}', or N={DID_NOT_RUN}; N is the call's number"
            )
        if int(number) in settle:
            raise InvalidOptions(f"--settle names call {int(number)} twice: say one thing of it")
        is_not_run = said.strip() == DID_NOT_RUN
        settle[int(number)] = NotRun() if is_not_run else parse_value(said, what=f"--settle {number}")
    return settle

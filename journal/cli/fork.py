"""`journal fork RUN`."""

from typing import Any

import click
import msgspec

from journal.cli.fitting import fit_input, parse_value
from journal.cli.numbers import call_number
from journal.cli.opening import run
from journal.cli.output import emit, remark, say
from journal.cli.reading import check_file, is_file, no_file
from journal.cli.settings import Settings, common_options, settings_of
from journal.cli.waiting import say_output, wait_for
from journal.engine.bundles import open_bundle
from journal.engine.fork import Forked, check_fork, fork_bundle, fork_run
from journal.engine.handle import Handle
from journal.engine.journal import Journal
from journal.replay.bundle import Bundle


@click.command
@click.argument("run_id", metavar="RUN")
@click.option(
    "--at",
    type=call_number,
    required=True,
    metavar="N",
    help="The first call to make anew, as `journal show` numbers them; one more than the last pins them all.",
)
@click.option("--as", "new_id", metavar="NEW_ID", help="The fork's id. Default: RUN@N.")
@click.option("--input", "given", metavar="JSON", help="Begin the turn of that call anew, with this input.")
@click.option("--wait", "is_waiting", is_flag=True, help="Wait for the turn to end, and print its output.")
@common_options
@settings_of
def command(
    settings: Settings, run_id: str, at: int, new_id: str | None, given: str | None, is_waiting: bool
) -> None:
    """Begin a new run as RUN began, up to a call; a worker carries it on from there.

    What is recorded before call N is taken over and not run again; a call that is in doubt in RUN is unknown in the
    fork. From call N on the fork acts for real, in its own name. If it is interrupted, the same command finishes it.
    RUN may be an exported file: the fork is made in the store that --world names.
    """
    is_of_file = is_file(run_id)
    value = msgspec.UNSET if given is None else parse_value(given, what="--input")

    def fit(journal: Journal, agent: str) -> Any:
        return value if given is None else fit_input(journal, agent, value, what="--input")

    async def check(journal: Journal, bundle: Bundle) -> None:
        await check_fork(journal, bundle, at=at, new_id=new_id, input=fit(journal, bundle.image.agent))

    async def fork(journal: Journal) -> tuple[Forked, Handle[Any], Any]:
        if is_of_file:
            with open_bundle(run_id) as bundle:
                fitting = fit(journal, bundle.image.agent)
                forked = await fork_bundle(journal, bundle, at=at, new_id=new_id, input=fitting)
        else:
            fitting = fit(journal, (await journal.get(run_id)).agent)
            forked = await fork_run(journal, run_id, at=at, new_id=new_id, input=fitting)
        handle = await journal.handle(forked.run, forked.turn)
        return forked, handle, await wait_for(journal, handle) if is_waiting else None

    if is_of_file:
        check_file(settings, run_id, check)
    forked, handle, output = run(settings, fork, makes_store=is_of_file, besides=no_file(run_id))
    if is_waiting:
        say_output(settings, handle, output)
    elif settings.as_json:
        emit(forked)
    else:
        say(forked.run)
        _tell(forked, run_id)


def _tell(forked: Forked, origin: str) -> None:
    if not forked.is_new:
        remark(f"the fork was there already; --as ID makes another; journal show {forked.run}")
        return
    calls = "1 call" if forked.pinned == 1 else f"{forked.pinned:,} calls"
    remark(f"turn {forked.turn} is due with {calls} on record; journal show {forked.run}")
    if forked.unknown:
        numbers = ", ".join(map(str, forked.unknown))
        remark(f"in doubt in {origin}, and so unknown here and not run again: call {numbers}")
    if forked.repeats:
        remark(f"started in {origin}, and started anew here if it is asked for: {', '.join(forked.repeats)}")

"""`journal submit AGENT INPUT`."""

import sys
from typing import Any

import click

from journal.cli.fitting import fit_input
from journal.cli.numbers import number, seconds
from journal.cli.opening import app_of, run
from journal.cli.output import emit, remark, say
from journal.cli.settings import Settings, common_options, settings_of
from journal.cli.waiting import say_output, wait_for
from journal.core import values
from journal.core.errors import UnknownAgent
from journal.core.ids import check_id
from journal.core.ports import RunQuery
from journal.engine.handle import Handle
from journal.engine.journal import Journal
from journal.worlds import world_exists


@click.command
@click.argument("agent")
@click.argument("given", metavar="INPUT")
@click.option("--input-json", is_flag=True, help="INPUT is JSON; without this it is text.")
@click.option("--run", "run_id", metavar="ID", help="Start this run, or attach to it. Default: a new run.")
@click.option("--key", metavar="KEY", help="A further turn of the run, named so that it is submitted once.")
@click.option("--delay", type=seconds, metavar="SECONDS", help="Due only after that long.")
@click.option(
    "--priority",
    type=number(int, "how urgent it is, 0 as usual", such_as=5),
    default=0,
    help="Higher goes first.",
)
@click.option("--wait", "is_waiting", is_flag=True, help="Wait for the turn to end, and print its output.")
@click.option("--unchecked", is_flag=True, help="Submit to an agent that is not known here.")
@common_options
@settings_of
def command(
    settings: Settings,
    agent: str,
    given: str,
    input_json: bool,
    run_id: str | None,
    key: str | None,
    delay: float | None,
    priority: int,
    is_waiting: bool,
    unchecked: bool,
) -> None:
    """Give an agent an input to work on; a worker carries it out.

    INPUT is text, or JSON with --input-json; - reads it from stdin. Prints the run's id, or with --wait the output.
    The same run, key and input are submitted once, however often this is called.
    """
    text = sys.stdin.read() if given == "-" else given
    value = values.parse(text, what="INPUT") if input_json else text

    hint = "" if input_json else "; it was taken as text, give --input-json if it is JSON"

    async def check(journal: Journal) -> None:
        for name, what in ((agent, "agent name"), (run_id, "run id"), (key, "key")):
            if name is not None:
                check_id(name, what)
        fit_input(journal, agent, value, what="INPUT", hint=hint)
        if agent in journal.agents or unchecked:
            return
        if app_of(settings) is not None or not (callable(journal.url) or await world_exists(journal.url)):
            raise _unknown(settings, journal, agent)

    async def submit(journal: Journal) -> tuple[Handle[Any], Any]:
        if not (agent in journal.agents or unchecked or await journal.runs(RunQuery(agent=agent, limit=1))):
            raise _unknown(settings, journal, agent)
        fitting = fit_input(journal, agent, value, what="INPUT", hint=hint)
        handle = await journal.submit(agent, fitting, run_id=run_id, key=key, priority=priority, delay=delay)
        return handle, await wait_for(journal, handle) if is_waiting else None

    handle, output = run(settings, submit, makes_store=True, check=check)
    if is_waiting:
        say_output(settings, handle, output)
    elif settings.as_json:
        emit({"run": handle.run_id, "turn": handle.turn_id, "agent": agent})
    else:
        say(handle.run_id)
        remark(f"submitted turn {handle.turn_id} to agent {agent}; journal show {handle.run_id}")


def _unknown(settings: Settings, journal: Journal, agent: str) -> UnknownAgent:
    """A misspelt agent would wait for ever for a worker that knows it."""
    if app_of(settings) is not None:
        return UnknownAgent(agent=agent, known=sorted(journal.agents))
    advice = (
        "no application was named, and it has had no run in this store: check its name, "
        "give --app module:attribute, or --unchecked"
    )
    return UnknownAgent(agent=agent, known=[], advice=advice)

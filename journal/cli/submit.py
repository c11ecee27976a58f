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
from journal.core.ports import RunQuery
from journal.engine.handle import Handle
from journal.engine.journal import Journal


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

    async def submit(journal: Journal) -> tuple[Handle[Any], Any]:
        if agent not in journal.agents and not unchecked:
            await _check_agent(settings, journal, agent)
        hint = "" if input_json else "; it was taken as text, give --input-json if it is JSON"
        fitting = fit_input(journal, agent, value, what="INPUT", hint=hint)
        handle = await journal.submit(agent, fitting, run_id=run_id, key=key, priority=priority, delay=delay)
        return handle, await wait_for(journal, handle) if is_waiting else None

    handle, output = run(settings, submit, makes_store=True)
    if is_waiting:
        say_output(settings, handle, output)
    elif settings.as_json:
        emit({"run": handle.run_id, "turn": handle.turn_id, "agent": agent})
    else:
        say(handle.run_id)
        remark(f"submitted turn {handle.turn_id} to agent {agent}; journal show {handle.run_id}")


async def _check_agent(settings: Settings, journal: Journal, agent: str) -> None:
    """A misspelt agent would wait for ever for a worker that knows it."""
    if app_of(settings) is None:
        if await journal.runs(RunQuery(agent=agent, limit=1)):
            return  # it has had runs here
        advice = (
            "no application was named, and it has had no run in this store: check its name, "
            "give --app module:attribute, or --unchecked"
        )
        raise UnknownAgent(agent=agent, known=[], advice=advice)
    raise UnknownAgent(agent=agent, known=sorted(journal.agents))

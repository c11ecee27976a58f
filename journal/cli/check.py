"""`journal check module:attribute`."""

import asyncio

import click
import msgspec

from journal.cli.exits import BLOCKED, OK
from journal.cli.in_flight import look, tell
from journal.cli.inventory import Found, modules_of, tools_of, unmatched
from journal.cli.logs import configure_logs
from journal.cli.opening import app_of, needed_journal, open_journal
from journal.cli.output import emit, remark, say, table
from journal.cli.settings import Settings, common_options, settings_of
from journal.core.errors import WorldError
from journal.engine.capabilities import missing
from journal.engine.journal import Journal
from journal.replay.timeline import Mark
from journal.worlds import redact_url, resolve_url

_HEADER = ("TOOL", "IN DOUBT", "FROM", "MODULE")


class Report(msgspec.Struct, kw_only=True):
    """What was found."""

    world: str
    namespace: str
    capabilities: list[str]
    notes: list[str]
    """What the store does not offer, why, and what would provide it."""
    requires: list[str]
    agents: list[dict[str, str]]
    tools: list[Found]
    remarks: list[str]


@click.command
@click.argument("spec", metavar="[MODULE:ATTR]", required=False)
@click.option(
    "--in-flight",
    "is_in_flight",
    is_flag=True,
    help="Replay every unfinished turn against this code instead: 3 if one would be stranded.",
)
@common_options
@settings_of
def command(settings: Settings, spec: str | None, is_in_flight: bool) -> int:
    """Print agents, tools and their replay policies, and what the store offers; runs nothing.

    The policy says what becomes of a call that was interrupted by a crash: safe runs again, never does not. It comes
    from, in this order: the agent's map, the journal's map, a marker on the tool, its metadata, and else is never.

    With --in-flight the handlers run again, as after a crash, but offline: recorded calls are answered from the log,
    nothing acts and nothing is written.
    """
    settings.app = spec or settings.app
    configure_logs("debug" if settings.debug else "warning")
    if is_in_flight:
        found, others = asyncio.run(look(needed_journal(settings)))
        tell(settings, found, others)
        return BLOCKED if any(one.is_stranded for one in found) else OK
    journal = open_journal(settings)
    report = _look(settings, journal)
    try:
        asyncio.run(_open(journal, report))
    except WorldError:
        _tell(settings, report)  # what needs no store is still worth knowing
        raise
    _tell(settings, report)
    return OK


def _look(settings: Settings, journal: Journal) -> Report:
    spec = app_of(settings)
    tools = tools_of(journal, modules_of(journal, spec.partition(":")[0] if spec else None))
    remarks = [f"{text} matches no tool found here" for text in unmatched(journal, tools)]
    if spec is None:
        remarks.append(
            "no application was named, so only the store was looked at: journal check module:attribute"
        )
    elif not journal.agents:
        remarks.append("no agent is registered: is the module that defines it imported?")
    if spec is not None:
        remarks.append(
            "a function given to turn.tool without a marker is never; tools of MCP servers are not listed"
        )
    return Report(
        world=redact_url(resolve_url(journal.url if isinstance(journal.url, str) else None))
        if not callable(journal.url)
        else "a store that the application opens",
        namespace=journal.namespace,
        capabilities=[],
        notes=[],
        requires=sorted(journal.requires),
        agents=[
            {"name": agent.name, "module": agent.handler.__module__}
            for _, agent in sorted(journal.agents.items())
        ],
        tools=tools,
        remarks=remarks,
    )


async def _open(journal: Journal, report: Report) -> None:
    async with journal.open_world() as world:
        report.world, report.capabilities = world.url, sorted(world.capabilities)
        report.notes = list(getattr(world, "notes", ()))  # a world of somebody else's need not have any
        absent = missing(journal.requires, world, journal.agents)
    report.remarks += [
        f"the journal requires {name}, and will not open: {why}" for name, why in absent.items()
    ]


def _tell(settings: Settings, report: Report) -> None:
    if settings.as_json:
        emit(report)
        return
    say(f"world         {report.world}")
    say(f"namespace     {report.namespace}")
    say(f"capabilities  {', '.join(report.capabilities) or '-'}")
    for note in report.notes:
        say(f"              {note}")
    say(f"agents        {', '.join(a['name'] for a in report.agents) or '-'}")
    if report.tools:
        say("")
        marks: list[Mark] = ["good" if tool.policy == "safe" else "interrupted" for tool in report.tools]
        table(_HEADER, [_row(tool) for tool in report.tools], marks)
    for text in report.remarks:
        remark(text)


def _row(tool: Found) -> tuple[str, str, str, str]:
    words: str = tool.policy
    if tool.has_probe:
        words += ", probed"
    if tool.dedupes:
        words += ", deduped by its service"
    name = tool.name if tool.agent is None else f"{tool.name} (agent {tool.agent})"
    return name, words, tool.source, tool.where

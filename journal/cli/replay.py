"""`journal replay RUN`."""

import asyncio
import sys
from typing import Any

import click
import msgspec

from journal.cli.debugging import FAR_SECONDS, Debugger
from journal.cli.exits import BLOCKED, OK
from journal.cli.logs import configure_logs
from journal.cli.numbers import call_number
from journal.cli.opening import AppNotFound, needed_journal
from journal.cli.output import emit, remark, say
from journal.cli.reading import Found, with_found
from journal.cli.settings import Settings, common_options, settings_of
from journal.core.errors import InvalidOptions, TurnNotFound, UnknownAgent
from journal.engine.offline import STALL_SECONDS, replay
from journal.engine.reading import read_run
from journal.replay.recorded import RecordedRun
from journal.replay.state import RunState, TurnState
from journal.replay.timeline import Mark, printable
from journal.replay.verdict import Ended, Replay, ReplayedCall


@click.command
@click.argument("run_id", metavar="RUN")
@click.option("--turn", metavar="ID", help="Which turn. Default: the last.")
@click.option(
    "--until",
    type=call_number,
    metavar="N",
    help="Stop when the code asks for call N, before it is served.",
)
@click.option(
    "--pdb-at",
    type=call_number,
    metavar="N",
    help="Open the debugger in the handler when it asks for call N, before it is served.",
)
@click.option(
    "--pdb",
    "is_debugged",
    is_flag=True,
    help="Open the debugger where the code parts from the log: in the frame that asks for another call, at the error "
    "that was not recorded, or where the handler waits for what is not.",
)
@common_options
@settings_of
def command(
    settings: Settings,
    run_id: str,
    turn: str | None,
    until: int | None,
    pdb_at: int | None,
    is_debugged: bool,
) -> int:
    """Run the code again against a run's log: nothing acts, nothing is written.

    RUN may be an exported file. Recorded calls are answered from the log; code between calls does run. Calls are
    numbered as `journal show` numbers them. The exit code is 3 if the code asks for something else than was recorded,
    or ends in another way.
    """
    configure_logs("debug" if settings.debug else "warning")
    journal = needed_journal(settings)
    log = with_found(settings, run_id, _recorded)
    state = log.state()
    agent = journal.agents.get(state.agent)
    if agent is None:
        raise UnknownAgent(agent=state.agent, known=sorted(journal.agents))
    chosen = _turn(state, turn)
    for number in (until, pdb_at):
        _check_number(state, chosen, number)
    debugger = Debugger(agent.handler) if is_debugged or pdb_at is not None else None
    has_opened = False

    def watch(call: ReplayedCall) -> bool:
        if not settings.as_json:
            say(_line(call), _mark(call))
        if debugger is not None and call.number == pdb_at:
            debugger.stop()
        return call.number != until and (debugger is None or not debugger.quitting)

    def parted(words: str, error: BaseException | None) -> None:
        nonlocal has_opened
        if debugger is None or debugger.quitting:
            return
        has_opened = True
        say(printable(words), "bad")
        if error is None:
            debugger.stop()
        else:
            debugger.stop_at_error(error)

    found = asyncio.run(
        replay(
            agent,
            log,
            turn=chosen.id,
            watch=watch,
            parted=parted if is_debugged else None,
            stall_seconds=STALL_SECONDS if pdb_at is None else FAR_SECONDS,
        )
    )
    sys.settrace(None)
    if debugger is not None and debugger.quitting and not has_opened:
        found.verdict, found.differences, found.replayed = "stopped", [], None
        found.detail = "stopped in the debugger"
    if found.verdict == "missing":
        raise AppNotFound(found.detail)
    if settings.as_json:
        emit(as_json(found))
    else:
        _tell(found, chosen)
    if is_debugged and found.has_parted and not has_opened:
        at = (
            f": --pdb-at {found.calls[-1].number} stops at the last call that it asked for"
            if found.calls
            else ""
        )
        remark(f"the handler had ended before that could be told, and the debugger finds no frame of it{at}")
    return BLOCKED if found.has_parted else OK


async def _recorded(found: Found) -> RecordedRun:
    """The run, read whole: nothing is open while its code runs."""
    return await read_run(found.source, found.info.run)


def _turn(state: RunState, turn: str | None) -> TurnState:
    if turn is None and state.turns:
        return state.turns[-1]
    for known in state.turns:
        if known.id == turn:
            return known
    raise TurnNotFound(run_id=state.run, turn_id=turn or "start")


def _check_number(state: RunState, turn: TurnState, number: int | None) -> None:
    numbers = [call.number for call in state.calls if call.turn == turn.id and call.superseded_by is None]
    if number is not None and number not in numbers:
        have = f"{numbers[0]} to {numbers[-1]}" if numbers else "none"
        raise InvalidOptions(
            f"call {number} is none that turn {turn.id!r} goes by (it has {have}): journal show {state.run}"
        )


def _line(call: ReplayedCall) -> str:
    name = call.key if call.name in call.key else f"{call.name} {call.key}"
    status = "no outcome" if call.status is None else f"{call.status}, record {call.seq}"
    drift = ", its configuration has changed since" if call.has_drifted else ""
    return printable(f"{call.number:>4}  {call.kind:<5}  {name}: {status}{drift}")


def _mark(call: ReplayedCall) -> Mark:
    if call.has_drifted:
        return "interrupted"
    return "plain" if call.status is None else "good" if call.status == "ok" else "bad"


def _tell(found: Replay, turn: TurnState) -> None:
    say(f"recorded  {turn.status if found.recorded is None else in_words(found.recorded)}")
    if found.replayed is not None:
        say(f"replayed  {in_words(found.replayed)}")
    if found.raised is not None:
        say(printable(f"raised    {found.raised}"))
    say(printable(str(found)), "bad" if found.has_parted else "good")
    for difference in found.differences:
        say(f"  {printable(str(difference))}", "bad")
    if found.drifted:
        numbers = ", ".join(str(call.number) for call in found.drifted)
        remark(
            f"drift: the configuration of call {numbers} (prompt, tools, settings) is not what was recorded"
        )


def in_words(end: Ended) -> str:
    """How it ended, in short."""
    if end.error is not None:
        return f"{end.status} with {end.error.type}"
    return end.status if end.output is None else f"{end.status}, output of {len(bytes(end.output)):,} B"


def as_json(found: Replay) -> dict[str, Any]:
    """What ``--json`` says of it: outputs by their size, differences in full."""
    told: dict[str, Any] = msgspec.to_builtins(
        msgspec.structs.replace(found, recorded=None, replayed=None), str_keys=True
    )
    for name in ("recorded", "replayed"):
        end: Ended | None = getattr(found, name)
        told[name] = None if end is None else {"status": end.status, "in_words": in_words(end)}
    return told | {"parted": found.has_parted, "in_words": str(found)}

"""Waiting for a turn to end, for `submit --wait` and `retry --wait`."""

from typing import Any

from journal.cli.output import emit, remark, say, waiting
from journal.cli.settings import Settings
from journal.core.errors import WorldError
from journal.core.typed import PLAIN
from journal.engine.handle import Handle
from journal.engine.journal import Journal
from journal.engine.offering import submitted


async def wait_for(journal: Journal, handle: Handle[Any]) -> Any:
    """The turn's output, as plain JSON. Raises `TurnFailed`, `TurnBlocked`, `TurnCancelled`."""
    try:
        status = await handle.status()
    except WorldError as error:
        raise submitted(error, handle.run_id, handle.turn_id) from error
    if status == "pending":
        remark(f"run {handle.run_id} waits for a worker (journal worker); Ctrl-C stops waiting, not the run")
    plain = Handle(journal, handle.run_id, handle.turn_id, PLAIN)
    with waiting(f"waiting for run {handle.run_id}"):
        return await plain.result()


def say_output(settings: Settings, handle: Handle[Any], output: Any) -> None:
    """Text as it is, other values as JSON."""
    if settings.as_json:
        emit({"run": handle.run_id, "turn": handle.turn_id, "status": "succeeded", "output": output})
    elif isinstance(output, str):
        say(output)
    else:
        emit(output)

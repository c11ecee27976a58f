"""Golden logs: a recorded run that today's code must still go by.

``journal export RUN -o tests/golden/refund.jsonl`` once, and ``assert_replays(agent, "tests/golden/refund.jsonl")``
from then on. Nothing acts, no store is opened, and no model is asked. Next: `journal/engine/offline.py`.
"""

import asyncio
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from journal.core.records import Record
from journal.engine.agent import Agent, Handler
from journal.engine.journal import Journal
from journal.engine.offline import STALL_SECONDS, replay
from journal.engine.reading import read_file
from journal.replay.recorded import RecordedRun
from journal.replay.verdict import Replay

Log = str | os.PathLike[str] | RecordedRun | Iterable[Record]


def assert_replays(
    handler: Agent[Any, Any] | Handler[Any, Any],
    log: Log,
    *,
    turn: str | None = None,
    deps: Any = None,
    stall_seconds: float = STALL_SECONDS,
) -> Replay:
    """Assert that `handler` asks for what `log` holds, and ends as recorded where the turn has ended.

    `handler` is an agent, or what becomes one; `log` an exported run's file, or its records; `turn` its last one, if
    none is named; `deps` what the handler finds as ``turn.deps``. Runs a loop of its own, so it serves sync and async
    tests alike. Returns what was found; raises `AssertionError` with the difference, field by field.
    """

    async def main() -> Replay:
        recorded = await _recorded(log)
        agent = handler
        if not isinstance(agent, Agent):
            agent = Journal("memory:").agent(agent, name=recorded.state().agent)
        return await replay(agent, recorded, turn=turn, deps=deps, stall_seconds=stall_seconds)

    found = _blocking(main)
    if found.has_parted:
        lines = [
            f"turn {found.turn!r} of run {found.run!r} does not replay: {found}",
            *map(str, found.differences),
        ]
        if found.raised is not None:
            lines.append(f"the handler raised {found.raised}")
        raise AssertionError("\n  ".join(lines))
    return found


def _blocking(main: Any) -> Replay:
    def run() -> Replay:
        found: Replay = asyncio.run(main())
        return found

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()


async def _recorded(log: Log) -> RecordedRun:
    if isinstance(log, RecordedRun):
        return log
    if isinstance(log, str | os.PathLike):
        return await read_file(log)
    return RecordedRun(list(log))

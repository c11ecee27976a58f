"""Lives that work on turns of `edits.py`: in this process, or processes (`edits_app.py`), killed with SIGKILL."""

import os
import signal
import subprocess
from typing import Any

import msgspec

from journal import DirectoryWorkspace
from journal.testing.life import LEASE_SECONDS, LaterClock, _on_thread, copy_agent, mortal
from journal.testing.mortal import Watch
from journal.worlds.opening import Opener
from tests.crash.anywhere import Anywhere
from tests.crash.edits import Plan, edits, note
from tests.forks import ROOT, nursery

LIFE = "EDITS_LIFE"
SECONDS = 60.0
Kills = list[tuple[int, int]]


class Spec(msgspec.Struct, frozen=True):
    """Which life of which run."""

    url: str
    run: str
    plans: list[Plan]
    """A turn each."""
    kill: tuple[int, int] | None
    """See `Anywhere`; no points: a process dies when it comes to such an operation on files."""
    later: float
    """How far ahead its clock is."""
    root: str | None = None
    """Of the directories that the files are in; None: they are in the log."""

    @property
    def watch(self) -> Watch:
        return Anywhere(*self.kill) if self.kill is not None and self.kill[0] else Watch()


def agent_of(spec: Spec, watch: Watch, clock: LaterClock, opener: Opener) -> Any:
    """The agent, as this life has it."""
    agent = copy_agent(edits, clock=clock)
    agent.journal.url = mortal(opener, spec.url, agent.journal, watch, clock)
    if spec.root is not None:
        agent.workspace = DirectoryWorkspace(spec.root)
    return agent


async def live(agent: Any, spec: Spec, watch: Watch) -> bool:
    """Work on all turns, as a process does that is started, or started again."""
    runtime = await agent.journal.runtime()
    runtime.on_act = watch.on_act
    watch.bury = runtime.abandon
    try:
        for number, plan in enumerate(spec.plans):
            output = await agent.run(plan, run_id=spec.run, key=f"t{number}", timeout=SECONDS)
            note(turn=f"t{number}", output=output)
    finally:
        await agent.journal.aclose()
    return True


def here(spec: Spec, opener: Opener) -> bool:
    """A life in this process; whether it came to its end."""
    watch, clock = spec.watch, LaterClock(spec.later)
    agent = agent_of(spec, watch, clock, opener)
    found: Any = _on_thread(lambda: live(agent, spec, watch), watch)  # type: ignore[arg-type,return-value]
    return found is not None


def process(spec: Spec) -> bool:
    """A life that is a process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), LIFE: msgspec.json.encode(spec).decode()}
    warm = (__name__, "journal.worlds.sqlite.world", "journal.worlds.postgres", "journal.worlds.redis")
    started = nursery(*warm).start("tests.crash.edits_app", [], environment)
    try:
        code = started.wait(2 * SECONDS)
    except subprocess.TimeoutExpired:
        started.kill()
        raise
    assert code in (0, -signal.SIGKILL), f"it ended with {code}"
    return code == 0


def play(spec: Spec, kills: Kills, opener: Opener | None) -> float:
    """Work on the turns; each of `kills` ends one life, if it lives so long. How late the next one would be."""
    waiting = list(kills)
    while True:
        spec = msgspec.structs.replace(spec, kill=waiting.pop(0) if waiting else None)
        if process(spec) if opener is None else here(spec, opener):
            return spec.later
        spec = msgspec.structs.replace(spec, later=spec.later + LEASE_SECONDS + 1)

"""Lives that are processes, killed with SIGKILL: for agents that can be imported by name, on any store.

What a life tells, it tells by files, which outlive it: a line for each act and each point, written before it goes on.
`python -m journal.testing.process` is one life.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from journal.core import values
from journal.core.errors import InvalidOptions
from journal.core.records import Record
from journal.engine.agent import Agent
from journal.testing.effects import VARIABLE, Effects
from journal.testing.judge import Story
from journal.testing.life import LEASE_SECONDS, LaterClock, copy_agent, live, mortal, read_all
from journal.testing.mortal import Act, Watch
from journal.testing.points import Point
from journal.worlds import open_world

_START_SECONDS = 60.0
"""What a process may take beside the life itself: to import the application, above all."""


class Processes:
    """Plays runs of one agent on one input, each life a process."""

    def __init__(
        self,
        agent: str,
        given: Any,
        world: str | None,
        before_each: Callable[[], object],
        seconds: float,
    ) -> None:
        load(agent)  # an agent that cannot be imported is told here, and not once a process
        self._agent = agent
        self._given = values.encode(given, what="the input").decode()
        self._world = world
        self._before_each = before_each
        self._seconds = seconds
        self.points: list[Point] = []

    def play(self, point: Point | None) -> tuple[Story, bool]:
        """A run that is killed at `point`, if it comes there, and carried on; and whether it was."""
        self._before_each()
        with TemporaryDirectory(prefix="journal-crash-") as folder:
            return self._play(point, Path(folder))

    def _play(self, point: Point | None, folder: Path) -> tuple[Story, bool]:
        url = self._world or f"sqlite:{folder / 'journal.db'}"
        effects = Effects(folder / "effects")
        spec = {
            "agent": self._agent,
            "input": self._given,
            "url": url,
            "run": f"crash-{uuid4().hex[:12]}",
            "at": None if point is None else [point.moment, point.call],
            "seconds": self._seconds,
            "later": 0.0,
        }
        namespace = load(self._agent).journal.namespace
        acts: list[list[Act]] = []
        found: list[Record] = []
        while True:
            notes = folder / f"life-{len(acts)}"
            is_killed = self._live({**spec, "notes": str(notes)}, effects)
            told = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
            acts.append([Act(*note["act"]) for note in told if "act" in note])
            log = read_store(url, namespace, str(spec["run"]))
            if not is_killed:
                break
            found = log
            spec = {**spec, "at": None, "later": LEASE_SECONDS + 1}
        passed = [Point(*note["point"]) for note in told if "point" in note]
        self.points = self.points or passed
        return Story(log, acts, effects.all(), found), len(acts) > 1

    def _live(self, spec: dict[str, Any], effects: Effects) -> bool:
        """Run one life to its end; whether it was killed."""
        environment = {**os.environ, VARIABLE: str(effects.path), "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "journal.testing.process", json.dumps(spec)]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=self._seconds + _START_SECONDS
        )
        if done.returncode == -signal.SIGKILL:
            return True
        if done.returncode != 0:
            raise RuntimeError(f"a life of {self._agent} ended with {done.returncode}:\n{done.stderr}")
        return False


def load(name: str) -> Agent[Any, Any]:
    """The agent that ``module:attribute`` names."""
    module, _, attribute = name.partition(":")
    found: Any = import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Agent):
        raise InvalidOptions(f"{name!r} is no agent: name one as module:attribute")
    return found


def read_store(url: str, namespace: str, run: str) -> list[Record]:
    """The run's log, whether an event loop is running here or not."""
    found: list[Record] = []

    async def read() -> None:
        async with open_world(url, namespace=namespace) as world:
            found.extend(await read_all(world, run))

    thread = threading.Thread(target=lambda: asyncio.run(read()))
    thread.start()
    thread.join()
    return found


def main(spec: dict[str, Any]) -> None:
    """One life, as `spec` says."""

    def note(**what: object) -> None:
        with open(spec["notes"], "a") as file:
            file.write(json.dumps(what) + "\n")

    def tell_act(act: Act) -> None:
        note(act=[act.call, act.number])

    agent = load(spec["agent"])
    watch = Watch(at=None if spec["at"] is None else Point(*spec["at"]), on_act=tell_act)
    watch.kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
    clock = LaterClock(spec["later"])
    mortal_agent = copy_agent(agent, clock=clock)
    mortal_agent.journal.url = mortal(open_world, spec["url"], mortal_agent.journal, watch, clock)
    given = agent.input_codec.decode(spec["input"].encode())
    asyncio.run(live(mortal_agent, given, spec["run"], watch, spec["seconds"]))
    for point in watch.passed:
        note(point=[point.moment, point.call])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

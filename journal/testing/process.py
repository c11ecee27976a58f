"""Lives that are processes, killed with SIGKILL: for agents that can be imported by name, on any store.

What a life tells, it tells by files, which outlive it: a line for each act and each point, written before it goes on.
The application is imported once, by the process that is `python -m journal.testing.process`; each life is a fork
of it, with everything as it is after the import.
"""

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
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

_WANTED = ("structlog", "journal.worlds.sqlite")
"""What each life would import for itself, if its mother had not."""
_START_SECONDS = 60.0
"""What a process may take beside the turn itself."""


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
        self._namespace = load(agent).journal.namespace
        self._agent = agent
        self._given = values.encode(given, what="the input").decode()
        self._world = world
        self._before_each = before_each
        self._seconds = seconds
        self.points: list[Point] = []
        self._mother = _Mother(agent)

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
        acts: list[list[Act]] = []
        found: list[Record] = []
        while True:
            notes = folder / f"life-{len(acts)}"
            is_killed = self._live({**spec, "notes": str(notes)}, effects)
            told = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
            acts.append([Act(*note["act"]) for note in told if "act" in note])
            log = read_store(url, self._namespace, str(spec["run"]))
            if not is_killed:
                break
            found = log
            spec = {**spec, "at": None, "later": LEASE_SECONDS + 1}
        passed = [Point(*note["point"]) for note in told if "point" in note]
        self.points = self.points or passed
        return Story(log, acts, effects.all(), found), len(acts) > 1

    def _live(self, spec: dict[str, Any], effects: Effects) -> bool:
        """Run one life to its end; whether it was killed."""
        spec = {**spec, "effects": str(effects.path)}
        ended = self._mother.live(spec)
        if ended not in (0, -signal.SIGKILL):
            raise RuntimeError(f"a life of {self._agent} ended with {ended}:\n{self._mother.complaints()}")
        return ended != 0

    def close(self) -> None:
        """End the process that the lives come from."""
        self._mother.close()


class _Mother:
    """A process that imports the application once, and forks a child for each life."""

    def __init__(self, agent: str) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._stderr = TemporaryFile("w+")  # noqa: SIM115 - closed by `close`
        self._process = subprocess.Popen(
            [sys.executable, "-m", "journal.testing.process", agent],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )

    def live(self, spec: dict[str, Any]) -> int:
        """How a life ended: its exit code, or the negative of the signal that ended it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(spec) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        return int(answer) if answer else self._process.wait() or 1

    def complaints(self) -> str:
        """What it wrote to its standard error."""
        self._stderr.seek(0)
        return self._stderr.read()

    def close(self) -> None:
        """It ends when nobody asks for a life any more."""
        self._process.communicate()
        self._stderr.close()


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


def be(spec: dict[str, Any]) -> None:
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


def serve() -> None:
    """Fork a life for each line of the standard input, and write how it ended."""
    for line in sys.stdin:
        spec = json.loads(line)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.dup2(2, 1)  # what the application prints is no answer of ours
                signal.alarm(int(spec["seconds"] + _START_SECONDS))
                os.environ[VARIABLE] = spec["effects"]
                be(spec)
                code = 0
            except BaseException:  # noqa: BLE001 - nothing of this child may go on as its mother
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    for name in _WANTED:
        import_module(name)
    load(sys.argv[1])
    gc.freeze()  # a collection in a life would look at, and copy, all that was imported
    serve()

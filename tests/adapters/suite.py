"""What every in-process adapter promises, played in real processes that are killed and carried on by others.

An adapter gives a driver, a module that plays one scene with the real harness and a model made of `Scene.reply`, and a
class of tests that says how the harness calls things::

    class TestThisHarness(AdapterSuite):
        driver = "tests.adapters.drivers.this_harness"
        preload = ("this_harness", "journal.adapters.this_harness")

The driver is run as ``python -m DRIVER FOLDER SCENE AT`` and ends in ``Scene.of_arguments().play(work)``. Effects are
lines of FOLDER/effects, one write each, so that they outlive the process that had them; the one called AT is its last.
"""

import asyncio
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from journal import Journal, Turn, TurnFailed
from journal.core.codec import open_record
from journal.core.records import CallIntent, CallOutcome, Policy

ROOT = Path(__file__).parents[2]
RUN_ID = "order-42"
PROMPT = "Order 42 arrived broken"
UNKNOWN = "refund was started before an interruption and may have completed. It was not repeated."


# In the process that is killed ---------------------------------------------------------------------


@dataclass(frozen=True)
class Ask:
    """The model asks for a tool: `lookup` (safe), `refund` (never) or `picky` (safe); each takes one `order`."""

    tool: str
    call_id: str
    order: str


@dataclass(frozen=True)
class Reply:
    """What the model says: it asks for tools, or it says something, in `parts` where it is streamed."""

    asks: tuple[Ask, ...] = ()
    parts: tuple[str, ...] = ()
    status: int = 200
    """From 400 on it is no reply but an error of the provider's."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Of that error."""
    is_torn: bool = False
    """The connection is lost once the first part was shown."""

    @property
    def text(self) -> str:
        return "".join(self.parts)


class Scene:
    """One attempt. Its name is one of

    - ``tools``: `lookup`, then `refund`, then the model says what it was told;
    - ``stream``: the same, streamed (`part` for each piece of text, `ended` after each reply);
    - ``parallel``: `lookup` and `refund` in one reply; the one that AT names ends after the other was recorded;
    - ``retry``: `picky` tells the model to try again in the harness's own way (order 0), and the model does (order 42);
    - ``pause``: the harness stops the run for an answer from outside (approval, interrupt, deferred call) when `picky`
      is asked for; the handler gives it (`answered`), `picky` acts, the model says what it was told;
    - ``history``: as ``tools``, with the harness's session or history, whose items are part of what `work` gives;
    - ``outage``, ``unsteady``: as ``tools`` and ``stream``, and the model fails when it is asked for the first time;
    - ``limited``: the model refuses for a minute; ``torn``: streamed, and it breaks off after its first part.
    """

    def __init__(self, folder: Path, name: str, at: str) -> None:
        self.folder, self.name, self.at = folder, name, at
        self.journal = Journal(f"sqlite:{folder / 'journal.db'}")

    @property
    def is_streamed(self) -> bool:
        """Whether replies are to be streamed."""
        return self.name in ("stream", "unsteady", "torn")

    @classmethod
    def of_arguments(cls) -> "Scene":
        return cls(Path(sys.argv[1]), sys.argv[2], sys.argv[3])

    def effect(self, name: str) -> None:
        """Something that counts; the process ends here if it is what AT names."""
        fd = os.open(self.folder / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(fd, f"{name}\n".encode())
        os.close(fd)
        if name == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def reply(self, told: Sequence[str]) -> Reply:
        """What the model answers to the results of tools that it was told so far; an effect ``model N``."""
        if self.name == "parallel":
            self.effect(f"model {len(told) // 2}")
            if not told:
                return Reply((Ask("lookup", "c1", "42"), Ask("refund", "c2", "42")))
        else:
            self.effect(f"model {len(told)}")
            if (failure := self._failure()) is not None:
                return failure
            plans = {
                "retry": [Ask("picky", "c1", "0"), Ask("picky", "c2", "42")],
                "pause": [Ask("picky", "c1", "42")],
            }
            plan = plans.get(self.name, [Ask("lookup", "c1", "42"), Ask("refund", "c2", "42")])
            if len(told) < len(plan):
                return Reply((plan[len(told)],))
        text = " | ".join(told)
        return Reply(parts=(text[:5], text[5:]))

    def _failure(self) -> Reply | None:
        match self.name:
            case "outage" | "unsteady" if (self.folder / "effects").read_text() == "model 0\n":
                return Reply(status=503, headers={"retry-after-ms": "1"})
            case "limited":
                return Reply(status=429, headers={"retry-after": "60", "x-ratelimit-remaining-requests": "0"})
            case "torn":
                return Reply(parts=("half ", "a reply"), is_torn=True)
        return None

    async def lookup(self, order: str) -> str:
        """The body of the safe tool."""
        if self.at == "lookup" and self.name == "parallel":
            await self.recorded("refund")
        self.effect("lookup")
        return f"order {order}"

    async def refund(self, order: str) -> str:
        """The body of the `never` tool."""
        if self.at == "refund" and self.name == "parallel":
            await self.recorded("lookup")
        self.effect("refund")
        return f"refunded {order}"

    async def picky(self, order: str) -> str | None:
        """The body of the tool with control flow; None: now do what the harness has for "try again"."""
        self.effect(f"picky {order}")
        return None if order == "0" else f"picked {order}"

    async def recorded(self, tool: str) -> None:
        """Wait until the log has the outcome of a call of `tool`."""
        async with asyncio.timeout(60):
            while True:
                names: dict[str | None, str] = {}
                for record in await self.journal.read(RUN_ID):
                    body = open_record(record)
                    if isinstance(body, CallIntent):
                        names[record.key] = body.name
                    elif isinstance(body, CallOutcome) and names.get(record.key) == tool:
                        return
                await asyncio.sleep(0.01)

    def play(
        self, work: Callable[[Turn, str], Awaitable[Any]], *, tools: Mapping[str, Policy] | None = None
    ) -> None:
        """Do `work` in a turn, and print as JSON what it gave: ``{"said": text, "items": [kind, ...]}``.

        Of a turn that fails, ``{"failed": what}``.
        `tools` are policies for a harness whose tools bear no marks of their own.
        """
        agent = self.journal.agent(name="work", tools=tools)(work)

        async def main() -> None:
            async with self.journal:
                try:
                    given = await agent.run(PROMPT, run_id=RUN_ID)
                except TurnFailed as error:
                    given = {"failed": error.type}
                print(json.dumps(given))

        asyncio.run(main())


# In the process that judges ------------------------------------------------------------------------


class Nursery:
    """A process that has imported what is slow to import, and forks for each attempt."""

    def __init__(self, preload: Sequence[str]) -> None:
        command = [sys.executable, "-m", "tests.adapters.suite", *preload]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, *arguments: str) -> int:
        """Run a driver with `arguments` in a child of its own; its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the nursery is gone"
        return int(answer)

    def close(self) -> None:
        self._process.communicate(timeout=60)


def nursery() -> None:
    """What the process of `Nursery` does."""
    for name in ("structlog", "journal.worlds.sqlite", *sys.argv[1:]):
        importlib.import_module(name)
    gc.freeze()  # a collection in a child would look at, and copy, all that was imported
    for line in sys.stdin:
        driver, folder, scene, at = json.loads(line)
        if (child := os.fork()) == 0:
            for fd, name in ((1, "stdout"), (2, "stderr")):
                os.dup2(os.open(Path(folder, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), fd)
            signal.alarm(120)
            sys.argv = [driver, folder, scene, at]
            runpy.run_module(driver, run_name="__main__", alter_sys=True)
            sys.exit()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


class Attempts:
    """The processes that work on one run, one after the other."""

    def __init__(self, nursery: Nursery, driver: str, folder: Path, scene: str) -> None:
        self.nursery, self.driver, self.folder, self.scene = nursery, driver, folder, scene

    def _start(self, at: str) -> tuple[int, str, str]:
        """Exit code, output, and what went wrong."""
        code = self.nursery.run(self.driver, str(self.folder), self.scene, at)
        return code, (self.folder / "stdout").read_text(), (self.folder / "stderr").read_text()

    def killed(self, at: str) -> None:
        """An attempt that ends in the effect `at`."""
        code, output, errors = self._start(at)
        assert code == -signal.SIGKILL, output + errors

    def finished(self) -> Any:
        """An attempt that is left alone; what it gave."""
        code, output, errors = self._start("nowhere")
        assert code == 0, output + errors
        return json.loads(output)

    @property
    def effects(self) -> Counter[str]:
        return Counter((self.folder / "effects").read_text().splitlines())

    def statuses(self) -> dict[str, list[str]]:
        """How the calls of each name ended, in the order in which they did."""
        found: dict[str, list[str]] = {}
        for intent, outcome in self._ended():
            found.setdefault(intent.name, []).append(outcome.status)
        return found

    def models(self) -> list[CallOutcome]:
        """How the model calls ended."""
        return [outcome for intent, outcome in self._ended() if intent.kind == "model"]

    def _ended(self) -> list[tuple[CallIntent, CallOutcome]]:
        async def read() -> list[tuple[CallIntent, CallOutcome]]:
            intents: dict[str | None, CallIntent] = {}
            found = []
            async with Journal(f"sqlite:{self.folder / 'journal.db'}") as journal:
                for record in await journal.read(RUN_ID):
                    body = open_record(record)
                    if isinstance(body, CallIntent):
                        intents[record.key] = body
                    elif isinstance(body, CallOutcome):
                        found.append((intents[record.key], body))
            return found

        return asyncio.run(read())


class AdapterSuite:
    """The tests. What a class may say of its harness stands first."""

    driver: ClassVar[str]
    """Name of the module that plays the scenes."""
    preload: ClassVar[tuple[str, ...]] = ()
    """Modules of the harness that are slow to import: imported once, before the processes fork."""
    streams: ClassVar[bool] = True
    """Whether the harness streams replies."""
    shows_again: ClassVar[bool] = False
    """Whether a recorded reply shows its parts once more on a replay."""
    retries: ClassVar[bool] = True
    """Whether a tool can ask the model to try again by the harness's control flow."""
    pauses: ClassVar[bool] = True
    """Whether the harness can stop for an answer from outside."""
    finish: ClassVar[str | None] = "stop"
    """Why the last reply ended, as far as the harness hands it on."""
    history: ClassVar[tuple[str, ...]] = ()
    """Kinds of the items that the harness's own history has after ``history``; empty: it keeps none."""
    history_points: ClassVar[tuple[str, ...]] = ("model 0", "model 1", "refund")
    """Where to kill it; effects of the history's store may come beside these."""

    def __init_subclass__(cls) -> None:
        """Leave out the tests of what the harness does not have: None is not collected."""
        absent = [
            *(("test_a_stream",) if not cls.streams else ()),
            *(("test_asking_the_model",) if not cls.retries else ()),
            *(("test_a_pause",) if not cls.pauses else ()),
            *(("test_history",) if not cls.history else ()),
        ]
        for name in dir(AdapterSuite):
            if name.startswith(tuple(absent)):
                setattr(cls, name, None)

    @pytest.fixture(scope="class")
    @classmethod
    def nursery(cls) -> Iterator[Nursery]:
        nursery = Nursery(cls.preload)
        yield nursery
        nursery.close()

    @pytest.fixture
    def attempts(self, nursery: Nursery, tmp_path: Path) -> Callable[[str], Attempts]:
        return lambda scene: Attempts(nursery, self.driver, tmp_path, scene)

    @pytest.mark.parametrize("at", ["lookup", "model 1", "refund", "model 2", "nowhere"])
    def test_finished_once(self, attempts: Callable[[str], Attempts], at: str) -> None:
        """What has an outcome is not done again; what is in doubt follows its policy; a third process does nothing."""
        run = attempts("tools")
        if at != "nowhere":
            run.killed(at)
        given = run.finished()
        once = {"model 0": 1, "model 1": 1, "model 2": 1, "lookup": 1, "refund": 1}
        assert run.effects == {**once, **({} if at in ("refund", "nowhere") else {at: 2})}
        if at != "refund":
            assert given["said"] == "order 42 | refunded 42"
        assert run.finished() == given
        assert sum(run.effects.values()) == 5 + (at not in ("refund", "nowhere"))

    def test_never_once_and_unknown_told(self, attempts: Callable[[str], Attempts]) -> None:
        run = attempts("tools")
        run.killed("refund")
        said = run.finished()["said"]
        assert run.effects["refund"] == 1
        first, second = said.split(" | ")
        assert first == "order 42"
        assert second.startswith(UNKNOWN)
        assert run.statuses()["refund"] == ["unknown"]

    def test_killed_again_and_again(self, attempts: Callable[[str], Attempts]) -> None:
        run = attempts("tools")
        for at in ("model 0", "lookup", "model 1", "refund", "model 2"):
            run.killed(at)
        assert UNKNOWN in run.finished()["said"]
        assert run.effects == {"model 0": 2, "lookup": 2, "model 1": 2, "refund": 1, "model 2": 2}

    @pytest.mark.parametrize("at", ["lookup", "refund"])
    def test_parallel_tools_are_settled_one_by_one(
        self, attempts: Callable[[str], Attempts], at: str
    ) -> None:
        """One is recorded, one in doubt when the process goes."""
        run = attempts("parallel")
        run.killed(at)
        first, second = run.finished()["said"].split(" | ")
        assert first == "order 42"
        assert second == "refunded 42" if at == "lookup" else second.startswith(UNKNOWN)
        assert run.effects == {"model 0": 1, "model 1": 1, "refund": 1, "lookup": 2 if at == "lookup" else 1}

    @pytest.mark.parametrize("at", ["part", "ended 0", "ended 2"])
    def test_a_stream_counts_once_its_end_was_seen(
        self, attempts: Callable[[str], Attempts], at: str
    ) -> None:
        """Half a reply is none; one whose end was seen is never asked for again."""
        run = attempts("stream")
        run.killed(at)
        before = run.effects["part"]
        assert before == {"part": 1, "ended 0": 0, "ended 2": 2}[at]
        assert run.finished()["said"] == "order 42 | refunded 42"
        effects = run.effects
        assert [effects[f"model {n}"] for n in range(3)] == [1, 1, 2 if at == "part" else 1]
        assert (effects["lookup"], effects["refund"]) == (1, 1)
        assert effects["part"] - before == (2 if at != "ended 2" or self.shows_again else 0)

    @pytest.mark.parametrize("at", ["lookup", "nowhere"])
    def test_a_model_is_asked_again_after_an_outage(
        self, attempts: Callable[[str], Attempts], at: str
    ) -> None:
        """Within one call, whose outcome says how often; nobody else repeats it, and nobody repeats it on a replay."""
        run = attempts("outage")
        if at != "nowhere":
            run.killed(at)
        given = run.finished()
        assert given["said"] == "order 42 | refunded 42"
        assert run.finished() == given
        once = {"model 0": 2, "model 1": 1, "model 2": 1, "lookup": 1, "refund": 1}
        assert run.effects == {**once, **({} if at == "nowhere" else {at: 2})}
        assert [outcome.tries for outcome in run.models()] == [2, 1, 1]

    def test_a_provider_that_wants_to_be_left_alone_for_long_is(
        self, attempts: Callable[[str], Attempts]
    ) -> None:
        run = attempts("limited")
        given = run.finished()
        assert given["failed"]
        assert run.finished() == given
        assert run.effects == {"model 0": 1}
        (outcome,) = run.models()
        assert (outcome.status, outcome.tries, outcome.finish) == ("error", 1, "error")
        assert outcome.rate_limits == {"requests_remaining": 0, "retry_after_seconds": 60}

    def test_outcomes_say_why_a_reply_ended(self, attempts: Callable[[str], Attempts]) -> None:
        run = attempts("tools")
        run.finished()
        assert [outcome.finish for outcome in run.models()] == ["tool_calls", "tool_calls", self.finish]

    def test_a_stream_that_did_not_begin_is_asked_for_again(
        self, attempts: Callable[[str], Attempts]
    ) -> None:
        run = attempts("unsteady")
        assert run.finished()["said"] == "order 42 | refunded 42"
        effects = run.effects
        assert [effects[f"model {n}"] for n in range(3)] == [2, 1, 1]
        assert [outcome.tries for outcome in run.models()] == [2, 1, 1]

    def test_a_stream_that_showed_something_is_not(self, attempts: Callable[[str], Attempts]) -> None:
        run = attempts("torn")
        assert run.finished()["failed"]
        assert run.effects == {"model 0": 1, "part": 1}
        (outcome,) = run.models()
        assert (outcome.status, outcome.tries) == ("error", 1)

    @pytest.mark.parametrize("at", ["picky 0", "model 1", "picky 42", "nowhere"])
    def test_asking_the_model_to_try_again_is_no_failure(
        self, attempts: Callable[[str], Attempts], at: str
    ) -> None:
        run = attempts("retry")
        if at != "nowhere":
            run.killed(at)
        assert run.finished()["said"].endswith("picked 42")
        once = {"model 0": 1, "picky 0": 1, "model 1": 1, "picky 42": 1, "model 2": 1}
        assert run.effects == {**once, **({} if at == "nowhere" else {at: 2})}
        assert run.statuses()["picky"] == ["ok", "ok"]

    @pytest.mark.parametrize("at", ["answered", "picky 42", "model 1", "nowhere"])
    def test_a_pause_is_no_failure(self, attempts: Callable[[str], Attempts], at: str) -> None:
        run = attempts("pause")
        if at != "nowhere":
            run.killed(at)
        assert run.finished()["said"] == "picked 42"
        effects = run.effects
        del effects["answered"]
        once = {"model 0": 1, "picky 42": 1, "model 1": 1}
        assert effects == {**once, **({at: 2} if at in once else {})}
        assert run.statuses()["picky"] == ["ok"]

    @pytest.mark.parametrize("number", range(4))
    def test_history_has_nothing_twice(self, attempts: Callable[[str], Attempts], number: int) -> None:
        run = attempts("history")
        if (at := (*self.history_points, "nowhere")[number]) != "nowhere":
            run.killed(at)
        given = run.finished()
        assert given["items"] == list(self.history)
        assert (run.effects["lookup"], run.effects["refund"]) == (1, 1)
        assert run.finished() == given


if __name__ == "__main__":
    nursery()

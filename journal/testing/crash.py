"""`crash_everywhere`: kill a turn at every point where that can make a difference, carry it on, and compare.

One run without a kill finds the points: the turn's start, the intent, the act and the outcome of every call, the
turn's end. Then, for each, a new run is killed there and started again, as its user would. Next: `mortal.py` (where a
life ends), `life.py` and `process.py` (how), `judge.py` (what must hold).
"""

from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec

from journal.core.errors import InvalidOptions
from journal.core.records import Record
from journal.engine.agent import Agent
from journal.testing.effects import Effect, Effects
from journal.testing.judge import Story, judge, raced, read_log
from journal.testing.life import LaterClock, Life, live_here
from journal.testing.mortal import Act, Watch
from journal.testing.points import Point
from journal.testing.process import Processes
from journal.worlds.memory import forget, open_memory

_names = count(1)
LIFE_SECONDS = 30.0


class Crash(msgspec.Struct, frozen=True, kw_only=True):
    """One kill, and what became of the run."""

    point: Point
    problems: tuple[str, ...]
    """What went wrong, in words."""
    log: tuple[Record, ...]
    unknown: tuple[str, ...]
    """Keys of the calls whose outcome the kill left unknown."""
    effects: tuple[Effect, ...]
    raced: tuple[str, ...] = ()
    """Keys of the races and timeouts that went another way than without a kill: what follows is not compared."""
    is_reached: bool
    """Whether this run came past the point at all; where it did not, nothing was killed."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Every kill, in the order in which an uninterrupted run passes the points."""

    crashes: tuple[Crash, ...]

    @property
    def wrong(self) -> tuple[Crash, ...]:
        """Those after which something was not as it must be."""
        return tuple(crash for crash in self.crashes if crash.problems)

    def __str__(self) -> str:
        lines = [f"{len(self.wrong)} of {len(self.crashes)} kills went wrong"]
        for crash in self.wrong:
            lines.append(f"killed {crash.point}:")
            lines += [f"  {problem}" for problem in crash.problems]
        return "\n".join(lines)


class CrashFailed(AssertionError):
    """Some kills went wrong; `report` has them all."""

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__(str(report))


def crash_everywhere(
    agent: Agent[Any, Any] | str,
    input: Any,  # noqa: A002 - the field's name everywhere
    *,
    world: str | None = None,
    effects: Effects | None = None,
    check: Callable[[Crash], object] | None = None,
    before_each: Callable[[], object] | None = None,
    seconds: float = LIFE_SECONDS,
) -> Report:
    """Kill a turn of `agent` at every point, carry each on, and compare it with a turn that nothing interrupted.

    An agent is killed in this process, in memory, by an event loop that never turns again: that is quick, closures and
    all, and final (`life.py` says what a loop cannot stop: threads and open connections). Named as ``"module:agent"``,
    it is killed as a process, with SIGKILL, on SQLite or the store of `world`: the application is
    imported once, and each life is a fork of that process.

    What must hold: the turn ends; its result and its log are the same, unless a `never` call became unknown, or a
    race or a timeout whose sides end together went the other way, which lets the handler go another way; no recorded
    call acts again; no `never` call starts twice; what `effects` counts (in processes: any `Effects()` of the
    application) happens in `never` calls at most as often as without a kill, in safe ones at least as often, and
    outside of calls no more often. Raises `CrashFailed` with every point at which something went wrong.

    `check` is given each crash, and says what it thinks by raising `AssertionError`. `before_each` puts the
    outside world back before each run. `seconds` is how long one life may take.

    It blocks while each life runs on a thread of its own; async code awaits ``asyncio.to_thread(crash_everywhere, …)``.
    """
    before_each = before_each or (lambda: None)
    stage: Processes | _Here
    if isinstance(agent, str):
        stage = Processes(agent, input, world, before_each, seconds)
    elif world is not None:
        raise InvalidOptions(
            'world= takes real processes: name the agent, as in crash_everywhere("module:agent", …)'
        )
    else:
        stage = _Here(agent, input, effects, before_each, seconds)
    try:
        plain = [stage.play(None)[0] for _ in range(2)]
        report = Report(crashes=tuple(_crash(stage, point, plain, check) for point in stage.points))
    finally:
        stage.close()
    if report.wrong:
        raise CrashFailed(report)
    return report


def _crash(
    stage: "Processes | _Here", point: Point, plain: list[Story], check: Callable[[Crash], object] | None
) -> Crash:
    story, is_reached = stage.play(point)
    crash = Crash(
        point=point,
        problems=tuple(judge(story, plain)),
        log=tuple(story.log),
        unknown=tuple(read_log(story.log).unknown),
        effects=tuple(story.effects),
        raced=tuple(raced(story, plain)),
        is_reached=is_reached,
    )
    if check is not None:
        try:
            check(crash)
        except AssertionError as error:
            problems = (*crash.problems, f"check: {error or 'failed'}")
            return msgspec.structs.replace(crash, problems=problems)
    return crash


class _Here:
    """Plays runs of one agent on one input, in this process."""

    def __init__(
        self,
        agent: Agent[Any, Any],
        given: Any,
        effects: Effects | None,
        before_each: Callable[[], object],
        seconds: float,
    ) -> None:
        self._agent = agent
        self._given = given
        self._effects = effects
        self._before_each = before_each
        self._seconds = seconds
        self.points: list[Point] = []
        """Those that the first run passed."""

    def play(self, point: Point | None) -> tuple[Story, bool]:
        """A run that is killed at `point`, if it comes there, and carried on; and whether it was."""
        self._before_each()
        if self._effects is not None:
            self._effects.clear()
        name = f"crash-{next(_names)}"
        clock = LaterClock()
        acts: list[list[Act]] = []
        try:
            while True:
                watch = Watch(at=point)
                life: Life = live_here(
                    self._agent,
                    self._given,
                    open_memory,
                    f"memory:{name}",
                    watch,
                    clock,
                    seconds=self._seconds,
                )
                acts.append(watch.acts)
                if not life.is_killed:
                    break
                point = None
        finally:
            forget(name)
        self.points = self.points or watch.passed
        effects = [] if self._effects is None else self._effects.all()
        return Story(life.log, acts, effects, life.found), len(acts) > 1

    def close(self) -> None:
        """Nothing is left open."""

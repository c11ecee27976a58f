"""Any handler with something to clean up, cancelled from outside at any moment, killed then, and carried on.

Hypothesis makes handlers of calls within `finally`, `except`, gather, task groups and shields. Whoever carries on from
where the handler had been cancelled comes to the same trace, told by a last step, as without a kill. Wherever else it
dies, what was entered is cleaned up, nothing recorded acts again, and the log replays offline as it stands.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from journal import Journal, Turn, tool
from journal.core import values
from journal.core.codec import open_record
from journal.core.records import CallIntent, CallOutcome, CancelRequested, Observed, Record
from journal.engine.offline import replay
from journal.replay.history import TURN_CANCELLED
from journal.replay.recorded import RecordedRun
from journal.testing.effects import Effects
from journal.testing.judge import Calls, Story, read_log, repeated
from journal.testing.life import RUN, LaterClock, live_here
from journal.testing.mortal import Act, Watch
from journal.testing.points import Point
from tests.crash.anywhere import Anywhere, memory, normal
from tests.crash.test_property import SECONDS


class Leaf(msgspec.Struct, frozen=True):
    """One call, which gives way to others `yields` times before and after its effect; or a pause of the code's own."""

    kind: Literal["step", "model", "never", "pause"]
    yields: int


class Node(msgspec.Struct, frozen=True):
    """Several programs: one after the other, at once, or one that cleans up after another."""

    kind: Literal["sequence", "gather", "group", "shield", "finally", "except", "swallow"]
    parts: tuple["Program", ...]


Program = Leaf | Node
leaves = st.builds(Leaf, kind=st.sampled_from(["step", "model", "never", "pause"]), yields=st.integers(0, 3))


def nodes(parts: st.SearchStrategy[Program]) -> st.SearchStrategy[Program]:
    """Trees one level higher."""
    several = st.lists(parts, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Node, kind=st.sampled_from(["sequence", "gather", "group"]), parts=several),
        st.builds(
            Node, kind=st.sampled_from(["finally", "except", "swallow"]), parts=st.tuples(parts, parts)
        ),
        st.builds(Node, kind=st.just("shield"), parts=st.tuples(parts)),
    )


programs = st.recursive(leaves, nodes, max_leaves=7)
moments = st.tuples(st.integers(1, 16), st.integers(0, 8))


class Stand:
    """Where a program runs."""

    def __init__(self) -> None:
        self.effects = Effects()
        self.journal: Journal | None = None

    async def handle(self, turn: Turn, program: Program) -> None:
        """The handler: the last that it does is to tell what became of every part."""
        self.journal = turn._attempt.runtime.journal
        trace: list[str] = []
        try:
            await self.run(turn, program, "p", trace)
        finally:

            async def tell(trace: list[str]) -> None:
                pass

            await turn.step(tell, sorted(trace))

    async def run(self, turn: Turn, program: Program, place: str, trace: list[str]) -> None:
        """Run it, and note how it ended. `place` names its calls."""
        try:
            await self._run(turn, program, place, trace)
        except asyncio.CancelledError:
            trace.append(f"{place} cancelled")
            raise
        trace.append(place)

    async def _run(self, turn: Turn, program: Program, place: str, trace: list[str]) -> None:
        if isinstance(program, Leaf):
            await self._call(turn, program, place)
            return
        parts = [partial(self.run, turn, part, f"{place}.{n}", trace) for n, part in enumerate(program.parts)]
        match program.kind:
            case "sequence":
                for part in parts:
                    await part()
            case "gather":
                await asyncio.gather(*(part() for part in parts))
            case "group":
                async with asyncio.TaskGroup() as group:
                    for part in parts:
                        group.create_task(part())
            case "shield":
                inner = asyncio.create_task(parts[0]())
                try:
                    await asyncio.shield(inner)
                finally:
                    await inner
            case "finally":
                try:
                    await parts[0]()
                finally:
                    await parts[1]()
            case "except":
                try:
                    await parts[0]()
                except asyncio.CancelledError:
                    await parts[1]()
                    raise
            case "swallow":
                try:
                    await parts[0]()
                except asyncio.CancelledError:
                    await parts[1]()

    async def _call(self, turn: Turn, leaf: Leaf, place: str) -> None:
        async def act(name: str) -> str:
            await _give_way(leaf.yields)
            self.effects.add(name)
            await _give_way(leaf.yields)
            return name

        act.__name__ = leaf.kind
        match leaf.kind:
            case "step":
                await turn.step(act, place)
            case "model":
                await turn.model(act, place)
            case "never":
                await turn.tool(tool(act, replay="never"), place)
            case "pause":
                await _give_way(leaf.yields)


async def _give_way(times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


class Cancelling(Anywhere):
    """Has the turn cancelled some passes of the loop after so many points, and dies like `Anywhere`, or not."""

    def __init__(self, stand: Stand, moment: tuple[int, int], kill: tuple[int, int] | None) -> None:
        super().__init__(*(kill or (0, 0)))
        self._stand = stand
        self._until, self._passes_until = moment
        self._cancelling: asyncio.Task[None] | None = None

    def reach(self, points: list[Point]) -> bool:
        for _ in points:
            self._until -= 1
            if self._until == 0:
                self._wait(self._passes_until)
        return super().reach(points)

    def _wait(self, passes: int) -> None:
        loop = asyncio.get_running_loop()
        if passes or self._stand.journal is None:
            loop.call_soon(self._wait, max(passes - 1, 0))
        else:
            self._cancelling = loop.create_task(self._stand.journal.cancel(RUN))


def play(
    program: Program, url: str, opener: Any, moment: tuple[int, int], kills: Sequence[tuple[int, int]]
) -> tuple[Story, Any]:
    """Run it to its end; with the agent."""
    journal, stand = Journal(), Stand()

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        await stand.handle(turn, program)

    clock, acts, waiting = LaterClock(), list[list[Act]](), list(kills)
    while True:
        stand.journal = None
        watch: Watch = Cancelling(stand, moment, waiting.pop(0) if waiting else None)
        life = live_here(work, None, opener, url, watch, clock, seconds=SECONDS)
        acts.append(watch.acts)
        if not life.is_killed:
            return Story(life.log, acts, stand.effects.all(), life.found), work


def comparable(program: Program, log: Sequence[Record], plain: Sequence[Record]) -> bool:
    """Whether it was cancelled in its first life, just where it is without a kill; and nothing else is chance.

    What was in doubt acts again, beside others perhaps in another order: then nothing is compared.
    """
    before = [_up_to_cancelled(one) for one in (log, plain)]
    if not before[0] or before[0] != before[1]:
        return False
    bodies = [open_record(record) for record in log]
    is_again = any(isinstance(body, CallIntent) and body.number > 1 for body in bodies)
    is_unknown = any(isinstance(body, CallOutcome) and body.status == "unknown" for body in bodies)
    return not (is_parallel(program) and (is_again or is_unknown))


def _up_to_cancelled(log: Sequence[Record]) -> list[tuple[str, str | None]]:
    records = [(record.type, record.key) for record in log if record.type != CancelRequested.TYPE]
    place = (Observed.TYPE, TURN_CANCELLED)
    return records[: records.index(place) + 1] if place in records else []


def is_parallel(program: Program) -> bool:
    """Whether calls may be under way side by side."""
    if isinstance(program, Leaf):
        return False
    return program.kind in ("gather", "group", "shield") or any(map(is_parallel, program.parts))


def told(log: Sequence[Record]) -> Any:
    """What the last step was given, if it was not itself cancelled before it began."""
    intents = [intent for key, intent in read_log(log).intents.items() if key.startswith("tell")]
    return [values.decode(intent.input) for intent in intents if isinstance(intent.input, bytes)]


def check_plainly(calls: Calls) -> None:
    assert not calls.problems
    assert calls.finished is not None
    assert calls.finished.status in ("cancelled", "succeeded")


async def verdict_of(agent: Any, log: list[Record]) -> str:
    return str(await replay(agent, RecordedRun(log, {})))


@normal(80)
@given(programs, moments, st.lists(moments, min_size=1, max_size=2))
def test_cancelled_and_killed(
    program: Program, moment: tuple[int, int], kills: list[tuple[int, int]]
) -> None:
    with memory() as (opener, url):
        plain, _ = play(program, url, opener, moment, [])
    with memory() as (opener, url):
        story, agent = play(program, url, opener, moment, kills)
    calls, model = read_log(story.log), read_log(plain.log)
    check_plainly(model)
    check_plainly(calls)
    assert not repeated(story, calls, read_log(story.found))
    assert asyncio.run(verdict_of(agent, list(story.log))).startswith("ended as recorded")
    if comparable(program, story.log, plain.log):
        assert told(story.log) == told(plain.log)
        assert calls.finished == model.finished
        assert set(calls.intents) == set(model.intents)

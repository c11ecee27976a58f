"""Handlers made by Hypothesis: small trees of calls, in sequence and in parallel, that fail and are tried again.

A program is data, so that a failing one is printed and shrunk; `Stand` runs it as a handler.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from hypothesis import strategies as st

from journal import NotRun, Ran, Retry, Turn, step, tool
from journal.testing.effects import Effects

ORDERED = True
"""Whether replay hands out outcomes in the order of the log. Without it, what comes first among parallel calls is not
repeated: races, failures among parallel calls, and tasks that start after others have ended are left out then."""

LeafKind = Literal["step", "flaky", "model", "safe", "never", "probed"]


class Leaf(msgspec.Struct, frozen=True):
    """One call, which gives way to others `yields` times before and after its effect."""

    kind: LeafKind
    yields: int
    fails: bool


class Node(msgspec.Struct, frozen=True):
    """Several programs: one after the other, or at once."""

    kind: Literal[
        "sequence", "gather", "group", "task", "caught", "race", "as_completed", "paused", "on_thread"
    ]
    parts: tuple["Program", ...]


Program = Leaf | Node

leaves = st.builds(
    Leaf,
    kind=st.sampled_from(["step", "flaky", "model", "safe", "never", "probed"]),
    yields=st.integers(0, 2),
    fails=st.sampled_from([False, False, False, True]),
)


def nodes(parts: st.SearchStrategy[Program]) -> st.SearchStrategy[Program]:
    """Trees one level higher."""
    several = st.lists(parts, min_size=1, max_size=3).map(tuple)
    kinds = ["sequence", "gather", "group"] + (["race", "as_completed"] if ORDERED else [])
    return st.one_of(
        st.builds(Node, kind=st.sampled_from(kinds), parts=several),
        st.builds(
            Node, kind=st.sampled_from(["task", "caught", "paused", "on_thread"]), parts=st.tuples(parts)
        ),
    )


programs = st.recursive(leaves, nodes, max_leaves=8)


def is_racing(program: Program, *, apart: bool = False) -> bool:
    """Whether it depends on what ends first: by a race, or by a failure that reaches tasks beside it."""
    if isinstance(program, Leaf):
        return ORDERED and apart and program.fails and program.kind in ("step", "flaky", "model")
    at_once = program.kind in ("gather", "group")
    return program.kind in ("race", "as_completed") or any(
        is_racing(part, apart=apart or at_once) for part in program.parts
    )


def is_pausing(program: Program) -> bool:
    """Whether it pauses besides its calls."""
    if isinstance(program, Leaf):
        return False
    return program.kind in ("paused", "on_thread") or any(is_pausing(part) for part in program.parts)


class Stand:
    """Where a program runs: its effects, and which calls it asked for."""

    def __init__(self, effects: Effects, *, pauses: bool) -> None:
        self.effects = effects
        self.pauses = pauses
        """Whether it pauses at all: not where it rests on what ends first, which is chance within a millisecond."""
        self.lives = 0
        self.asked: dict[str, LeafKind] = {}
        self._tries: Counter[tuple[int, str]] = Counter()

    async def run(self, turn: Turn, program: Program, place: str = "p") -> Any:
        """What `program` comes to: a value that tells of every call. `place` names its calls' effects."""
        if isinstance(program, Leaf):
            return await self._call(turn, program, place)
        parts = [(part, f"{place}.{number}") for number, part in enumerate(program.parts)]
        match program.kind:
            case "sequence":
                return [await self.run(turn, part, name) for part, name in parts]
            case "caught":
                return await self._caught(turn, *parts[0])
            case "paused" | "on_thread" if not self.pauses:
                return await self.run(turn, *parts[0])
            case "paused":
                await asyncio.sleep(0.002)
                said = await self.run(turn, *parts[0])
                await asyncio.sleep(0.001)
                return said
            case "on_thread":
                await asyncio.to_thread(time.sleep, 0.001)
                said = await self.run(turn, *parts[0])
                await asyncio.to_thread(time.sleep, 0.002)
                return said
            case "task":
                return await asyncio.create_task(self._apart(turn, *parts[0]))
            case "gather":
                return await asyncio.gather(*(self._apart(turn, part, name) for part, name in parts))
            case "group":
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._apart(turn, part, name)) for part, name in parts]
                return [task.result() for task in tasks]
            case "race":
                return await self._race(turn, parts, place)
            case "as_completed":
                return await self._as_completed(turn, parts, place)

    async def _caught(self, turn: Turn, part: Program, name: str) -> Any:
        try:
            return await self.run(turn, part, name)
        except (ValueError, ExceptionGroup):
            return await self._call(turn, Leaf("step", 0, False), f"{name}.after")

    async def _apart(self, turn: Turn, part: Program, name: str) -> Any:
        """In a task of its own."""
        if self.pauses or not ORDERED:
            await self._call(turn, Leaf("step", 0, False), f"{name}.first")  # opens its scope, in a set order
        if ORDERED:
            return await self.run(turn, part, name)
        return await self._caught(turn, part, name)

    async def _race(self, turn: Turn, parts: Sequence[tuple[Program, str]], place: str) -> Any:
        """The first to end decides what is asked for next; the others are cancelled."""
        tasks = [asyncio.create_task(self._apart(turn, part, name), name=name) for part, name in parts]
        done, late = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        winners = sorted(task.get_name() for task in done)
        return await self._call(turn, Leaf("step", 0, False), f"{place}.won by {winners}")

    async def _as_completed(self, turn: Turn, parts: Sequence[tuple[Program, str]], place: str) -> Any:
        """Each that ends is followed by a call that names it."""

        async def named(part: Program, name: str) -> str:
            await self._caught(turn, part, name)
            return name

        said = []
        # It starts them in the order of a set, which is another one in every life.
        for ended in asyncio.as_completed([named(part, name) for part, name in parts]):
            name = await ended
            said.append(await self._call(turn, Leaf("step", 0, False), f"{place}.then {name}"))
        return said

    async def _call(self, turn: Turn, leaf: Leaf, place: str) -> Any:
        self.asked[place] = leaf.kind

        async def act(name: str) -> str:
            return await self._act(leaf, name)

        act.__name__ = leaf.kind
        match leaf.kind:
            case "step":
                return await turn.step(act, place)
            case "flaky":
                return await turn.step(self._flaky(act), place)
            case "model":
                return await turn.model(act, place)
            case "safe":
                result = await turn.tool(tool(act, replay="safe"), place)
            case "never":
                result = await turn.tool(tool(act, replay="never"), place)
            case "probed":
                result = await turn.tool(tool(act, replay="never", probe=self._probe(place)), place)
        return [place, result.status]

    async def _act(self, leaf: Leaf, name: str) -> str:
        for _ in range(leaf.yields):
            await asyncio.sleep(0)
        self.effects.add(name)
        for _ in range(leaf.yields):
            await asyncio.sleep(0)
        if leaf.fails and leaf.kind != "probed":  # what a probe finds to have run has a value
            raise ValueError(name)
        return name

    def _flaky(self, act: Any) -> Any:
        """Fails once in every life, and is tried again."""

        @step(name="flaky", retry=Retry(tries=2, min_delay=0.0, max_delay=0.0))
        async def flaky(name: str) -> Any:
            self._tries[self.lives, name] += 1
            if self._tries[self.lives, name] == 1:
                raise ConnectionError
            return await act(name)

        return flaky

    def _probe(self, place: str) -> Any:
        async def probe(given: Any, io: Any) -> Ran | NotRun:
            return Ran(place) if self.effects.count(place) else NotRun(final=True)

        return probe

"""Several who copy, move or archive one run: one of them does it, the others are told, nothing is lost or doubled."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any, Self

import pytest
from msgspec.structs import replace

from journal.core.codec import Blob
from journal.core.errors import RunGone
from journal.core.ports import Gone, World
from journal.engine import bringing, moving
from journal.engine.digest import digest
from journal.engine.moving import Moving
from journal.worlds import open_world
from journal.worlds.contract.building import worked_on
from journal.worlds.contract.harness import begin, claim_all, committed, hold, signal
from tests.moving.conftest import Stores
from tests.moving.test_mover import KINDS, both, mover

ROOT = Path(__file__).parent.parent.parent

pytestmark = pytest.mark.anyio


class Turns:
    """Lets one of several go on by a step at a time, in an order that is drawn."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._waiting: list[asyncio.Future[None]] = []
        self._alive = 0

    async def carry(self, carriers: list[Callable[[], Awaitable[Moving]]]) -> list[Moving]:
        """Run them all, interleaved."""
        self._alive = len(carriers)
        return await asyncio.gather(*(self._one(carrier) for carrier in carriers))

    async def _one(self, carrier: Callable[[], Awaitable[Moving]]) -> Moving:
        try:
            return await carrier()
        finally:
            self._alive -= 1
            self._draw()

    async def wait(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._draw()
        await turn

    def _draw(self) -> None:
        if self._waiting and len(self._waiting) == self._alive:
            self._waiting.pop(self._random.randrange(len(self._waiting))).set_result(None)


class Stepped:
    """A world in which each step waits for its turn."""

    STEPS = frozenset({"append", "build", "image", "run", "settle", "sweep"})

    def __init__(self, world: World, turns: Turns) -> None:
        self._world = world
        self._turns = turns

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._world, name)
        if name not in self.STEPS:
            return found

        async def step(*args: Any, **kwargs: Any) -> Any:
            await self._turns.wait()
            return await found(*args, **kwargs)

        return step


@pytest.mark.parametrize("was_copied", [False, True], ids=["new", "copied before"])
@pytest.mark.parametrize(
    "modes", [("move", "move"), ("move", "copy"), ("copy", "copy"), ("move", "copy", "move")], ids="-".join
)
async def test_whatever_the_order_of_their_steps(
    modes: tuple[str, ...], was_copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (bringing, moving):
        monkeypatch.setattr(module, "POLL_SECONDS", 0.001)
    for seed in range(25):
        async with open_world("memory:") as source, open_world("memory:") as target:
            await worked_on(source)
            if was_copied:
                await mover(source, target).carry("r")
                committed(await source.append(signal("r", "more")))
            before = await source.image("r")
            turns = Turns(seed)
            here: Any = Stepped(source, turns)
            there: Any = Stepped(target, turns)
            carriers = [mover(here, there, freeze=mode == "move") for mode in modes]
            found = await turns.carry([lambda c=c: c.carry("r") for c in carriers])  # type: ignore[misc]
            results = [one.result for one in found]
            assert results.count("moved") == ("move" in modes), (seed, results)
            is_moved = "move" in modes
            after = await target.image("r")
            assert (after.head, after.turns, after.keys, after.blobs, after.building) == (
                before.head, before.turns, before.keys, before.blobs, False,
            ), seed  # fmt: skip
            assert await digest(target, before) == await digest(source, before)
            assert (await source.append(signal("r", "late")) == Gone(target.url)) is is_moved
            claimed = [len(await claim_all(world)) for world in (source, target)]
            assert claimed == ([0, 1] if is_moved else [1, 0]), (seed, results)


@pytest.mark.parametrize("was_copied", [False, True], ids=["new", "copied before"])
async def test_archivers_whatever_the_order_of_their_steps(
    was_copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (bringing, moving):
        monkeypatch.setattr(module, "POLL_SECONDS", 0.001)
    for seed in range(25):
        async with open_world("memory:") as source, open_world("memory:") as target:
            await begin(source, "r")
            await (await hold(source, "r")).finish()
            if was_copied:
                await mover(source, target).carry("r")
            before, records = await source.image("r"), await source.read("r")
            turns = Turns(seed)
            here: Any = Stepped(source, turns)
            there: Any = Stepped(target, turns)

            async def archive(here: Any = here, there: Any = there) -> Moving:
                archiver = mover(here, there, freeze=True, older_seconds=0)
                found = await archiver.carry("r")
                await archiver.sweep(["r"])
                return found

            found = await turns.carry([archive, archive])
            assert sorted(one.result for one in found) == ["moved", "present"], seed
            assert await target.image("r") == before, seed
            assert await target.read("r") == records
            with pytest.raises(RunGone):
                await source.read("r")


async def test_another_who_is_in_the_middle_of_the_same_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is as long as its source, and still the other promises more than there is when this one settles it."""
    monkeypatch.setattr(moving, "POLL_SECONDS", 0.001)
    async with open_world("memory:") as source, open_world("memory:") as target:
        await worked_on(source)
        image = await source.image("r")
        promised = replace(image, head=bringing.NEVER)
        for blob in image.blobs:
            await target.build(promised, (), [Blob(blob, await source.get_blob("r", blob))])
        await target.build(promised, await source.read("r"), ())
        plain, others = target.settle, [promised, promised]

        async def settle(run: str, **how: bool) -> None:
            if others:
                await target.build(others.pop(), (), ())
            await plain(run, **how)

        monkeypatch.setattr(target, "settle", settle)
        assert (await mover(source, target).carry("r")).result == "copied"
        assert others == []


# Processes ----------------------------------------------------------------------------------------------


class Racer:
    """A process at one pair of stores."""

    def __init__(self, source: str, target: str, mode: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "tests.moving.racer", source, target, mode],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def say(self, run: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(f"{run}\n")
        self.popen.stdin.flush()

    def line(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.popen.communicate()
        assert self.popen.returncode == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_processes_that_copy_and_move_one_run(stores: Stores, kind: str) -> None:
    here, there = await stores(kind), await stores(kind)
    modes = ("move", "copy", "move")
    async with both(here, there) as (source, target), AsyncExitStack() as stack:
        racers = await _started(stack, [(here, there, mode) for mode in modes])
        for run in map(str, range(8)):
            await worked_on(source, run)
            before = await source.image(run)
            told = await _race(racers, run)
            # Whoever lets it go on says so: a copier too, who comes upon a run that was moved and not yet sent on.
            assert told.count("moved") == 1, told
            assert set(told) <= {"moved", "present", "copied"}
            assert "copied" not in told[::2], told
            after = await target.image(run)
            assert replace(after, due_at=None) == replace(before, due_at=None), "turns, keys, blobs and all"
            assert await digest(target, before) == await digest(source, before)
            assert await source.append(signal(run, "late")) == Gone(target.url)
            (claimed,) = await claim_all(target, run=run)
            assert (claimed.turn, claimed.head) == ("t2", before.head)


@pytest.mark.parametrize("kind", KINDS)
async def test_processes_that_archive_one_run(stores: Stores, kind: str) -> None:
    here, there = await stores(kind), await stores(kind)
    async with both(here, there) as (source, target), AsyncExitStack() as stack:
        racers = await _started(stack, [(here, there, "archive")] * 2)
        for run in map(str, range(8)):
            await begin(source, run)
            await (await hold(source, run)).finish()
            before, records = await source.image(run), await source.read(run)
            told = await _race(racers, run)
            assert ("moved" in told, set(told) <= {"moved", "present"}) == (True, True), told
            assert await target.image(run) == before
            assert await target.read(run) == records
            with pytest.raises(RunGone):
                await source.read(run)


@pytest.mark.parametrize("kind", KINDS)
async def test_processes_that_move_one_run_to_two_places(stores: Stores, kind: str) -> None:
    here, one, other = await stores(kind), await stores(kind), await stores(kind)
    async with open_world(here) as source, both(one, other) as targets, AsyncExitStack() as stack:
        racers = await _started(stack, [(here, one, "move"), (here, other, "move")])
        for run in map(str, range(5)):
            await worked_on(source, run)
            before = await source.image(run)
            told = await _race(racers, run)
            winner = told.index("moved")
            loser = targets[1 - winner]
            assert told[1 - winner].startswith(f"RunGone: run '{run}' was moved to {targets[winner].url}: ")
            assert await targets[winner].image(run) == before
            assert len(await claim_all(targets[winner], run=run)) == 1
            assert await claim_all(loser, run=run) == []
            left = await loser.run(run)
            assert left is None or left.building, "it takes nothing there"


async def _started(stack: AsyncExitStack, places: list[tuple[str, str, str]]) -> list[Racer]:
    racers = [stack.enter_context(Racer(*place)) for place in places]
    assert [await asyncio.to_thread(racer.line) for racer in racers] == ["ready"] * len(racers)
    return racers


async def _race(racers: list[Racer], run: str) -> list[str]:
    for racer in racers:
        racer.say(run)
    return [await asyncio.to_thread(racer.line) for racer in racers]

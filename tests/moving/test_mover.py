"""Runs are copied and moved between stores: whole, once, and whatever comes in between."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from itertools import count, product
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from journal.core.clock import SystemClock
from journal.core.codec import Blob
from journal.core.errors import (
    CorruptRecord,
    InvalidOptions,
    MissingCapability,
    RunBuilding,
    RunDiffers,
    RunGone,
    RunNotFound,
    RunTooNew,
)
from journal.core.ids import new_batch_id
from journal.core.ports import (
    Answer,
    Batch,
    Building,
    Claimed,
    Duplicate,
    Gone,
    Keyed,
    Move,
    RunImage,
    Unknown,
    World,
)
from journal.core.records import Record
from journal.engine.bringing import PIECE_BYTES
from journal.engine.digest import PIECE_ROWS, digest
from journal.engine.moving import Mover, Moving, all_runs
from journal.worlds import open_world
from journal.worlds.contract.building import worked_on
from journal.worlds.contract.harness import (
    Holder,
    begin,
    claim_all,
    close,
    committed,
    hold,
    info_of,
    retry,
    signal,
    submit,
)
from tests.moving.conftest import Stores

pytestmark = pytest.mark.anyio

KINDS = ("sqlite", "postgres", "redis")
OTHERS = [
    ("sqlite", "cluster"),
    ("cluster", "sqlite"),
    ("cluster", "cluster"),
    ("pooled", "sqlite"),
    ("sqlite", "pooled"),
]
PAIRS = [*product(KINDS, KINDS), *OTHERS]


@asynccontextmanager
async def both(source: str, target: str) -> AsyncIterator[tuple[World, World]]:
    async with open_world(source) as here, open_world(target) as there:
        yield here, there


def mover(source: World, target: World, **options: Any) -> Mover:
    return Mover(source, target, clock=SystemClock(), **options)


async def fill(world: World) -> list[str]:
    """Runs as they come, oldest first."""
    await worked_on(world, "odd")
    await begin(world, "done")
    await (await hold(world, "done")).finish()
    await begin(world, "closed", agent="a\u00e9")
    committed(await world.append(close("closed")))
    await begin(world, "long")
    holder = await hold(world, "long")
    for _ in range(3):
        committed(await holder.offer(holder.batch(*[holder.outcome() for _ in range(PIECE_ROWS // 2 + 7)])))
    big = (Blob("big", b"\x00big" * (PIECE_BYTES // 4 + 1)), Blob("more", b"m" * 100_000))
    committed(await holder.offer(holder.batch(holder.outcome(), blobs=big)))
    await holder.finish("failed")
    await begin(world, "later")
    await (await hold(world, "later")).release(5000.0)
    await begin(world, "blocked")
    await (await hold(world, "blocked")).block()
    return ["odd", "done", "closed", "long", "later", "blocked"]


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("of", KINDS)
async def test_a_copy_is_the_same_on_every_store(stores: Stores, of: str, to: str) -> None:
    async with both(await stores(of), await stores(to)) as (source, target):
        runs = await fill(source)
        before = [await source.image(run) for run in runs]
        copying = mover(source, target)
        await copying.check()
        results = [await copying.carry(run) for run in runs]
        assert [(m.run, m.result, m.held_back) for m in results] == [
            ("odd", "copied", True),
            ("done", "copied", False),
            ("closed", "copied", False),
            ("long", "copied", False),
            ("later", "copied", True),
            ("blocked", "copied", True),
        ]
        assert [await source.image(run) for run in runs] == before, "the source is left alone"
        assert [info.run for info in await all_runs(target)] == runs, "oldest first"
        for image in before:
            records = await source.read(image.run, limit=10_000)
            assert await target.read(image.run, limit=10_000) == records
            for blob in image.blobs:
                assert await target.get_blob(image.run, blob) == await source.get_blob(image.run, blob)
            is_held_back = image.is_unfinished and image.closed is None
            status = "blocked" if is_held_back else image.status
            expected = replace(image, status=status, due_at=None)
            assert await target.image(image.run) == expected
        assert await claim_all(target) == [], "nothing is done twice"
        assert [(await copying.carry(run)).result for run in runs] == ["present"] * 6
        again = await target.append(submit("odd", "t1"))
        assert isinstance(again, Duplicate), "the same key is the same turn"
        committed(await target.append(retry("odd", "t2")))
        assert (await hold(target, "odd")).claimed.turn == "t2"
        assert (await hold(source, "odd")).claimed.turn == "t2"


@pytest.mark.parametrize(("of", "to"), PAIRS)
async def test_a_moved_run_goes_on_where_it_was(stores: Stores, of: str, to: str) -> None:
    async with both(await stores(of), await stores(to)) as (source, target):
        runs = await fill(source)
        before = {run: await source.image(run) for run in runs}
        moving = mover(source, target, freeze=True)
        await moving.check()
        results = [await moving.carry(run) for run in runs]
        assert {m.result for m in results} == {"moved"}
        assert not any(m.held_back for m in results)
        for run in runs:
            assert await target.image(run) == before[run]
            assert await digest(target, before[run]) == await digest(source, before[run])
            assert await source.append(submit(run, "new")) == Gone(target.url)
        assert await claim_all(source) == []
        assert [c.claim.run for c in await claim_all(target)] == ["odd"], "as due as it was"
        assert isinstance(await target.append(submit("odd", "t1")), Duplicate)
        again = [await moving.carry(run) for run in runs]
        assert {(m.result, m.is_away) for m in again} == {("present", True)}
        assert await moving.sweep(runs) == 6
        for run in runs:
            with pytest.raises(RunGone, match="moved to") as gone:
                await source.read(run)
            assert gone.value.to == target.url
            with pytest.raises(RunGone):
                await moving.carry(run)
        assert await target.image("long") == before["long"]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_archived_run_comes_back_and_goes_again(stores: Stores, kind: str) -> None:
    async with both(await stores(kind), await stores("sqlite")) as (hot, cold):
        await worked_on(hot)
        for n in range(2):
            there = mover(hot, cold, freeze=True)
            assert (await there.carry("r")).result == "moved"
            assert await there.sweep(["r"]) == 1
            assert await hot.append(signal("r", f"late {n}")) == Gone(cold.url)
            assert (await mover(cold, hot, freeze=True).carry("r")).result == "moved"
            assert await cold.append(signal("r", f"late {n}")) == Gone(hot.url)
            committed(await hot.append(signal("r", f"back {n}")))
        assert [record.seq for record in await hot.read("r")] == list(range(1, 14))
        assert (await hold(hot, "r")).claimed.turn == "t2"


@pytest.mark.parametrize("freeze", [True, False], ids=["move", "copy"])
@pytest.mark.parametrize("kind", KINDS)
async def test_several_at_one_run_carry_it_once(stores: Stores, kind: str, freeze: bool) -> None:
    async with both(await stores("sqlite"), await stores(kind)) as (source, target):
        for n in range(10):
            run = f"r{n}"
            await worked_on(source, run)
            results: list[Moving] = []

            async def carry(run: str = run, results: list[Moving] = results) -> None:
                results.append(await mover(source, target, freeze=freeze).carry(run))

            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(carry)
            assert {m.result for m in results} <= {"moved" if freeze else "copied", "present"}
            assert not freeze or not any(m.held_back for m in results)
            assert await target.read(run) == await source.read(run)
            assert bool(await claim_all(target, run=run)) is freeze


# Interruptions -----------------------------------------------------------------------------------------


class Died(Exception):
    """What stands for the end of the process."""


class Dying:
    """A world that is let do so many writing steps; then the process is dead, before or after the step."""

    def __init__(self, world: World, steps: "Steps") -> None:
        self._world = world
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    async def append(self, batch: Batch) -> Answer:
        async def offer() -> Answer:
            return await self._world.append(batch)

        answer: Answer = await self._steps.take(offer)
        return answer

    async def build(self, image: RunImage, records: Sequence[Record], blobs: Sequence[Blob]) -> int:
        head: int = await self._steps.take(lambda: self._world.build(image, records, blobs))
        return head

    async def settle(self, run: str, *, is_live: bool) -> None:
        await self._steps.take(lambda: self._world.settle(run, is_live=is_live))


class Steps:
    def __init__(self, allowed: int, *, is_last_taken: bool) -> None:
        self.left = allowed
        self._is_last_taken = is_last_taken

    async def take(self, step: Callable[[], Awaitable[Any]]) -> Any:
        self.left -= 1
        if self.left < 0:
            if self._is_last_taken:
                await step()
            raise Died
        return await step()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("freeze", [True, False], ids=["move", "copy"])
@pytest.mark.parametrize("is_last_taken", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("is_there", [True, False], ids=["a copy", "nothing"])
async def test_a_crash_at_any_step_is_finished_by_the_same_command(
    stores: Stores, freeze: bool, is_last_taken: bool, kind: str, is_there: bool
) -> None:
    async with both(await stores(kind), await stores(kind)) as (source, target):
        for allowed in count():
            run = f"r{allowed}"
            await worked_on(source, run)
            if is_there:
                await mover(source, target).carry(run)
                committed(await source.append(signal(run, "more")))
            before = await source.image(run)
            steps = Steps(allowed, is_last_taken=is_last_taken)
            dying: Any = [Dying(source, steps), Dying(target, steps)]
            try:
                await mover(*dying, freeze=freeze).carry(run)
            except Died:
                pass
            else:
                break
            in_source = await claim_all(source, run=run)
            in_target = await claim_all(target, run=run)
            assert not (in_source and in_target), "it is never alive in two places"
            for claimed, world in ((in_source, source), (in_target, target)):
                for found in claimed:  # whoever had it lets go of it
                    assert found.turn == "t2"
                    await _release(world, found)
            result = await mover(source, target, freeze=freeze).carry(run)
            assert result.result in ("moved" if freeze else "copied", "present")
            assert result.is_away is freeze
            image = await target.image(run)
            assert (image.head, image.turns, image.keys, image.blobs) == (
                before.head, before.turns, before.keys, before.blobs,
            )  # fmt: skip
            assert await digest(target, before) == await digest(source, before)
            places = [len(await claim_all(world, run=run)) for world in (source, target)]
            assert places == ([0, 1] if freeze else [1, 0])
        assert allowed >= (3 if is_there else 4), "building took several steps"


async def _release(world: World, claimed: Claimed) -> None:
    await Holder(world, claimed).release()


class Interfering:
    """A source in which something happens just before the move."""

    def __init__(self, world: World, act: Callable[[], Awaitable[Any]]) -> None:
        self._world = world
        self._act: Callable[[], Awaitable[Any]] | None = act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    async def append(self, batch: Batch) -> Answer:
        if isinstance(batch.queue, Move) and self._act is not None:
            act, self._act = self._act, None
            await act()
        return await self._world.append(batch)


async def test_what_comes_in_between_is_copied_too(stores: Stores) -> None:
    async with both(await stores("sqlite"), await stores("sqlite")) as (source, target):
        await worked_on(source)
        between: Any = Interfering(source, lambda: source.append(signal("r", "late")))
        assert (await mover(between, target, freeze=True).carry("r")).records == 12
        assert await target.read("r") == await source.read("r")
        assert isinstance(await target.append(signal("r", "late")), Duplicate)


async def test_a_lost_answer_of_the_move_is_asked_for_again(stores: Stores) -> None:
    async with both(await stores("sqlite"), await stores("sqlite")) as (source, target):
        await worked_on(source)

        class Losing(Interfering):
            async def append(self, batch: Batch) -> Answer:
                answer = await self._world.append(batch)
                if self._act is not None:
                    self._act = None
                    return Unknown("the connection was cut")
                return answer

        losing: Any = Losing(source, lambda: anyio.sleep(0))
        assert (await mover(losing, target, freeze=True).carry("r")).result == "moved"
        assert (await hold(target, "r")).claimed.turn == "t2"


async def test_a_run_that_is_worked_on_is_waited_for_or_skipped(stores: Stores) -> None:
    async with both(await stores("sqlite"), await stores("sqlite")) as (source, target):
        await begin(source, "r")
        holder = await hold(source, "r")
        skipped = await mover(source, target, freeze=True).carry("r")
        assert (skipped.result, skipped.records) == ("skipped", 2)
        assert await target.run("r") is None
        await holder.record()
        results: list[Moving] = []

        async def move() -> None:
            results.append(await mover(source, target, freeze=True, wait_seconds=30).carry("r"))

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(move)
                await anyio.sleep(0)
                await holder.finish()
        assert [(m.result, m.records) for m in results] == [("moved", 4)]
        assert (await info_of(target)).status == "succeeded"


async def test_a_holder_that_was_overlooked_is_refused_before_it_acts(stores: Stores) -> None:
    """It claims just before the move: what it would do first is to append, and that is refused."""
    async with both(await stores("sqlite"), await stores("postgres")) as (source, target):
        await begin(source, "r")
        held: list[Any] = []

        async def claim() -> None:
            held.append(await hold(source, "r"))

        between: Any = Interfering(source, claim)
        assert (await mover(between, target, freeze=True).carry("r")).result == "moved"
        assert await held[0].offer(held[0].batch(held[0].started())) == Gone(target.url)
        assert (await hold(target, "r")).claimed.turn == "t1"


@pytest.mark.parametrize(("of", "to"), [("sqlite", "redis"), ("redis", "postgres"), ("postgres", "sqlite")])
async def test_whoever_goes_on_after_a_dead_holder_takes_over(stores: Stores, of: str, to: str) -> None:
    async with both(await stores(of), await stores(to)) as (source, target):
        await begin(source, "r")
        await (await hold(source, "r", lease_seconds=0.5)).start()
        found = await mover(source, target, freeze=True, wait_seconds=30).carry("r")
        assert (found.result, found.held_back) == ("moved", False)
        holder = await hold(target, "r")
        assert (holder.claimed.taken_over, holder.claimed.takeovers, holder.claimed.claim.epoch) == (
            True,
            1,
            2,
        )
        await holder.finish()
        assert (await info_of(target)).status == "succeeded"


# A copy that is there already ----------------------------------------------------------------------------


@pytest.mark.parametrize("freeze", [True, False], ids=["move", "copy"])
@pytest.mark.parametrize("kind", [*KINDS, "cluster"])
async def test_what_went_on_since_it_was_copied_is_brought_along(
    stores: Stores, kind: str, freeze: bool
) -> None:
    async with both(await stores(kind), await stores(kind)) as (source, target):
        runs = await fill(source)
        for run in runs:
            await mover(source, target).carry(run)
        await _go_on(source, runs)
        before = {run: await source.image(run) for run in runs}
        results = [await mover(source, target, freeze=freeze).carry(run) for run in runs]
        expected = {"moved"} if freeze else {"copied", "present"}
        assert {m.result for m in results} == expected
        for run, image in before.items():
            is_held_back = not freeze and image.is_unfinished and image.closed is None
            status, due_at = ("blocked", None) if is_held_back else (image.status, image.due_at)
            assert await target.image(run) == replace(image, status=status, due_at=due_at if freeze else None)
            assert await digest(target, image) == await digest(source, image)
        claimed = {(c.claim.run, c.turn) for c in await claim_all(target)}
        assert claimed == ({("odd", "t2"), ("done", "t2")} if freeze else set())


async def _go_on(source: World, runs: Sequence[str]) -> None:
    for run in runs[:2]:
        if run == "done":
            await begin(source, run, "t2")
        holder = await hold(source, run)
        last = (await source.read(run, after=holder.claimed.head - 1))[0].batch
        blobs = (Blob("later", b"later"),)
        committed(await holder.offer(holder.batch(holder.outcome(), prev=last, blobs=blobs)))
        await holder.release()


@pytest.mark.parametrize("kind", [*KINDS, "cluster"])
async def test_a_copy_that_nobody_touched_may_be_moved_later(stores: Stores, kind: str) -> None:
    async with both(await stores("sqlite"), await stores(kind)) as (source, target):
        await worked_on(source)
        before = await source.image("r")
        assert (await mover(source, target).carry("r")).held_back
        assert await claim_all(target) == []
        found = await mover(source, target, freeze=True).carry("r")
        assert (found.result, found.held_back) == ("moved", False)
        assert await source.append(signal("r")) == Gone(target.url)
        assert await target.image("r") == before
        assert (await hold(target, "r")).claimed.turn == "t2"


@pytest.mark.parametrize("freeze", [True, False], ids=["move", "copy"])
@pytest.mark.parametrize("kind", KINDS)
async def test_several_at_one_copy_bring_it_along_once(stores: Stores, kind: str, freeze: bool) -> None:
    async with both(await stores("sqlite"), await stores(kind)) as (source, target):
        for n in range(5):
            run = f"r{n}"
            await worked_on(source, run)
            await mover(source, target).carry(run)
            committed(await source.append(signal(run, "more")))
            results: list[Moving] = []

            async def carry(run: str = run, results: list[Moving] = results) -> None:
                results.append(await mover(source, target, freeze=freeze).carry(run))

            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(carry)
            assert {m.result for m in results} <= {"moved" if freeze else "copied", "present"}
            assert await target.read(run) == await source.read(run)
            assert bool(await claim_all(target, run=run)) is freeze


async def test_a_copy_that_went_on_by_itself_is_refused(stores: Stores) -> None:
    async with both(await stores("sqlite"), await stores("postgres")) as (source, target):
        for run in ("both", "there", "same"):
            await worked_on(source, run)
            await mover(source, target).carry(run)
        committed(await source.append(signal("both", "more")))
        committed(await target.append(retry("both", "t2")))
        committed(await target.append(retry("there", "t2")))
        await _move_by_hand(source, target, "same")
        before = [await target.image(run) for run in ("both", "there")]
        for freeze in (True, False):
            carrying = mover(source, target, freeze=freeze)
            with pytest.raises(RunDiffers, match=r"up to seq 12\).*If both went on, keep one"):
                await carrying.carry("both")
            with pytest.raises(RunDiffers, match="it ends at seq 12, and at 11"):
                await carrying.carry("there")
        assert [await target.image(run) for run in ("both", "there")] == before
        committed(await source.append(signal("same", "more")))
        with pytest.raises(RunDiffers, match="sent on there"):
            await mover(source, target).carry("same")
        assert (await hold(source, "both")).claimed.turn == "t2", "it is alive where it was"


async def _move_by_hand(source: World, target: World, run: str) -> None:
    """Let the copy go on without a record that says so."""
    image = await source.image(run)
    await target.build(image, await source.read(run), ())
    await target.settle(run, is_live=True)


# Refusals ----------------------------------------------------------------------------------------------


async def test_a_store_is_not_copied_onto_itself(stores: Stores, tmp_path: Path) -> None:
    url = await stores("sqlite")
    (tmp_path / "elsewhere").symlink_to(tmp_path)
    other = url.replace(str(tmp_path), str(tmp_path / "elsewhere"))
    for names in ((url, url), (url, other)):
        async with both(*names) as (source, target):
            with pytest.raises(InvalidOptions, match="one and the same store"):
                await mover(source, target).check()
            assert await source.workers() == []
    async with both(url, await stores("sqlite")) as (source, target):
        await mover(source, target).check()
        assert await target.workers() == []


async def test_nothing_is_moved_where_it_would_not_last(stores: Stores) -> None:
    async with both(await stores("sqlite"), "memory:") as (source, target):
        await mover(source, target).check()
        with pytest.raises(MissingCapability, match=r"log\.persistent"):
            await mover(source, target, freeze=True).check()


async def test_what_cannot_be_copied_says_why(stores: Stores) -> None:
    async with both(await stores("sqlite"), await stores("postgres")) as (source, target):
        copying, moving = mover(source, target), mover(source, target, freeze=True)
        with pytest.raises(RunNotFound):
            await copying.carry("absent")
        await begin(source, "new", min_reader=99)
        with pytest.raises(RunTooNew, match="format 99"):
            await copying.carry("new")
        await begin(source, "r")
        await begin(target, "r")
        for carrying in (copying, moving):
            with pytest.raises(RunDiffers, match="in its records or blobs"):
                await carrying.carry("r")
        committed(await target.append(signal("r")))
        with pytest.raises(RunDiffers, match="it ends at seq 3, and at 2"):
            await moving.carry("r")
        assert (await hold(source, "r")).claimed.turn == "t1", "it is alive where it was"
        await begin(source, "away")
        batch = Batch("away", new_batch_id(), Keyed("k", b""), at_head=2, queue=Move("x:elsewhere"))
        committed(await source.append(batch))
        with pytest.raises(RunGone, match="x:elsewhere"):
            await moving.carry("away")
        image = await source.image("r")
        await target.build(replace(image, run="half"), (), ())
        with pytest.raises(RunBuilding):
            await mover(target, source).carry("half")
        assert await target.append(signal("half")) == Building()


async def test_damage_on_the_way_is_noticed(stores: Stores) -> None:
    """A target that keeps something else than it was given: the run stays where it was."""
    async with both(await stores("sqlite"), await stores("sqlite")) as (source, target):
        await worked_on(source)

        class Mangling:
            def __getattr__(self, name: str) -> Any:
                return getattr(target, name)

            async def build(self, image: RunImage, records: Sequence[Record], blobs: Sequence[Blob]) -> int:
                mangled = [replace(r, time=r.time + 1e-6) if r.seq == 5 else r for r in records]
                return await target.build(image, mangled, blobs)

        mangling: Any = Mangling()
        with pytest.raises(RunDiffers, match="in its records or blobs"):
            await mover(source, mangling, freeze=True).carry("r")
        assert (await info_of(target)).building
        assert await source.append(signal("r", "on")) != Gone(target.url)


# Archiving ---------------------------------------------------------------------------------------------


async def _done(world: World, run: str) -> None:
    await begin(world, run)
    await (await hold(world, run)).finish()


@pytest.mark.parametrize("is_there", [False, True], ids=["new", "copied before"])
@pytest.mark.parametrize("when", ["found", "copied"])
@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_taken_up_again_is_not_archived(
    stores: Stores, kind: str, when: str, is_there: bool
) -> None:
    async with both(await stores(kind), await stores("sqlite")) as (hot, cold):
        await _done(hot, "r")
        if is_there:
            assert (await mover(hot, cold).carry("r")).result == "copied"

        async def take_up() -> None:
            committed(await hot.append(submit("r", "t2")))

        source: Any = Interfering(hot, take_up) if when == "copied" else hot
        archiving = mover(source, cold, freeze=True, older_seconds=0)
        assert [run async for run in archiving.archive()] == ["r"]
        if when == "found":
            await take_up()
        assert (await archiving.carry("r")).result == "skipped"
        assert (await info_of(hot)).moved_to is None
        assert await claim_all(cold) == []
        await (await hold(hot, "r")).finish()
        later = mover(hot, cold, freeze=True, older_seconds=0)
        assert (await later.carry("r")).result == "moved", "another night"


async def test_a_run_that_is_young_again_is_not_archived(stores: Stores) -> None:
    async with both(await stores("sqlite"), await stores("sqlite")) as (hot, cold):
        await _done(hot, "r")
        archiving = mover(hot, cold, freeze=True, older_seconds=3600)
        assert [run async for run in archiving.archive()] == []
        assert (await archiving.carry("r")).result == "skipped"
        assert await cold.run("r") is None


@pytest.mark.parametrize("kind", KINDS)
async def test_two_archivers_get_in_nobodys_way(stores: Stores, kind: str) -> None:
    async with both(await stores(kind), await stores("sqlite")) as (hot, cold):
        for run in ("a", "b", "c"):
            await _done(hot, run)
        one, other = (mover(hot, cold, freeze=True, older_seconds=0) for _ in range(2))
        found: list[str] = []
        async for run in one.archive():
            found.append(run)
            if len(found) == 1:  # and now the other overtakes it
                for each in ("a", "c"):
                    assert (await other.carry(each)).result == "moved"
                assert await other.sweep(["a", "c"]) == 2
        assert found == ["a", "b"]
        results = [await one.carry(run) for run in ("a", "b", "c")]
        assert [(m.result, m.records) for m in results] == [("present", 3), ("moved", 3), ("present", 3)]


async def test_a_damaged_run_does_not_keep_the_others(stores: Stores) -> None:
    url = await stores("sqlite")
    async with both(url, await stores("sqlite")) as (hot, cold):
        for run in ("a", "b", "c"):
            await _done(hot, run)
        with closing(sqlite3.connect(url.removeprefix("sqlite:"), isolation_level=None)) as file:
            for (name,) in file.execute("select name from sqlite_schema where type = 'trigger'").fetchall():
                file.execute(f"drop trigger {name}")
            file.execute(
                "update records set body = x'00' where seq = 3 and rid = (select rid from runs where run = 'b')"
            )
        archiving = mover(hot, cold, freeze=True, older_seconds=0)
        assert [run async for run in archiving.archive()] == ["a", "b", "c"]
        assert (await archiving.carry("a")).result == "moved"
        with pytest.raises(CorruptRecord):
            await archiving.carry("b")
        assert (await archiving.carry("c")).result == "moved"

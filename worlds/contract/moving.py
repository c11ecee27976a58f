"""Runs that live elsewhere from now on, and what is left of them here. Quotes are from `core/ports.py`."""

from journal.core.errors import RunGone, RunNotBuilding
from journal.core.ports import (
    Duplicate,
    Gone,
    HeadMoved,
    NoRun,
    RunQuery,
    SweepPolicy,
)
from journal.worlds.contract.building import ELSEWHERE, built, move, worked_on
from journal.worlds.contract.harness import (
    ContractCases,
    ContractHarness,
    begin,
    claim_all,
    close,
    committed,
    follow_all,
    hold,
    info_of,
    refusal,
    seqs,
    signal,
    submit,
    watching,
)


class MovingCases(ContractCases):
    """Moving away, being swept, and coming back."""

    # Moving away

    async def test_a_moved_run_takes_nothing_more(self, harness: ContractHarness) -> None:
        """The run lives at `to` from now on: its queue entry is removed, and with it any claim."""
        async with harness.open() as world, harness.open() as other:
            await worked_on(world)
            await other.append(signal("r", "known to others"))
            holder = await hold(world, "r")
            batch = move("r", 12)
            answer = committed(await world.append(batch))
            assert (answer.first, answer.last) == (13, 12), "it is no record"
            gone = Gone(ELSEWHERE)
            for w in (world, other):
                for late in (
                    submit("r", "t1"), submit("r", "t9"), signal("r"), close("r"), batch, move("r", 12, to="x:"),
                    holder.batch(holder.outcome()),
                ):  # fmt: skip
                    assert await w.append(late) == gone
            assert not await world.publish(holder.claim, [])
            renewer = world.open_renewer()
            assert renewer.renew([holder.claim], 30) == set()
            renewer.close()
            await harness.advance(31)
            assert await claim_all(world) == []
            assert await claim_all(world, run="r") == []
            assert await world.stats() == []
            assert await seqs(world, "r") == list(range(1, 13))

    async def test_a_moved_run_says_where_it_is(self, harness: ContractHarness) -> None:
        """The world that it was moved to; it is closed here, and may be read until it is swept."""
        async with harness.open() as world:
            await worked_on(world)
            before = await world.read("r")
            committed(await world.append(move("r", 11)))
            info = await info_of(world)
            assert (info.moved_to, info.closed, info.due_at) == (ELSEWHERE, True, None)
            assert await world.runs(RunQuery()) == [info]
            image = await world.image("r")
            assert (image.moved_to, image.held, image.due_at) == (ELSEWHERE, False, None)
            assert await world.read("r") == before
            assert await world.get_blob("r", "b1") == b"\x00a blob"
            turn = await world.turn("r", "t2")
            assert turn is not None

    async def test_a_run_is_moved_only_at_the_head_that_was_copied(self, harness: ContractHarness) -> None:
        """Offered with `at_head` = the head that was copied: what makes it safe."""
        async with harness.open() as world:
            assert await world.append(move("r", 0)) == NoRun()
            await begin(world, "r")
            holder = await hold(world, "r")
            await holder.start()
            assert await world.append(move("r", 2)) == HeadMoved(3)
            assert (await info_of(world)).moved_to is None
            await holder.finish()
            committed(await world.append(move("r", 4)))

    async def test_a_closed_run_may_be_moved(self, harness: ContractHarness) -> None:
        """Like `Close` here, on a closed run too."""
        async with harness.open() as world:
            await begin(world, "r")
            closed = committed(await world.append(close("r")))
            await harness.advance(100)
            committed(await world.append(move("r", 3)))
            image = await world.image("r")
            assert (image.closed, image.moved_to) == (closed.time, ELSEWHERE)
            assert await world.append(signal("r")) == Gone(ELSEWHERE)

    async def test_a_follower_is_told_that_the_run_has_moved(self, harness: ContractHarness) -> None:
        """Raises `RunGone` behind the last record of one that was moved away."""
        async with harness.open() as world, harness.open() as other:
            await worked_on(world)
            async with watching(other, "r") as watcher:
                await watcher.until_count(11)
                committed(await world.append(move("r", 11)))
                await watcher.until_end()
            assert isinstance(watcher.error, RunGone)
            assert watcher.error.to == ELSEWHERE
            assert (await refusal(RunGone, follow_all(world, "r"))).to == ELSEWHERE

    # Sweeping what was moved

    async def test_a_moved_run_is_swept_by_name(self, harness: ContractHarness) -> None:
        """Only these runs, and of them only those that were moved away, however lately."""
        async with harness.open() as world:
            for run in ("r1", "r2", "closed", "open"):
                await begin(world, run)
            committed(await world.append(close("closed")))
            for run in ("r1", "r2"):
                committed(await world.append(move(run, 2)))
            await harness.advance(1000)
            named = ("r1", "closed", "open", "absent")
            assert await world.sweep(SweepPolicy(closed_older_than_seconds=1e9, moved=named)) == 1
            assert [info.run for info in await world.runs(RunQuery())] == ["open", "closed", "r2"]
            assert await world.sweep(SweepPolicy(closed_older_than_seconds=0, moved=())) == 0
            assert await world.sweep(SweepPolicy(closed_older_than_seconds=0, moved=named)) == 0
            assert await world.sweep(SweepPolicy(closed_older_than_seconds=1001)) == 0
            assert await world.sweep(SweepPolicy(closed_older_than_seconds=999)) == 2, "closed, and moved"

    async def test_the_tombstone_of_a_moved_run_keeps_its_address(self, harness: ContractHarness) -> None:
        """How long the id of a swept run stays taken; that of one that was moved away does for ever."""
        async with harness.open() as world:
            await worked_on(world)
            committed(await world.append(move("r", 11)))
            policy = SweepPolicy(closed_older_than_seconds=0, moved=("r",), tombstone_seconds=100)
            assert await world.sweep(policy) == 1
            await harness.advance(1e9)
            assert await world.sweep(policy) == 0
        async with harness.open() as world:
            for batch in (submit("r"), submit("r", "t9"), signal("r"), move("r", 11)):
                assert await world.append(batch) == Gone(ELSEWHERE)
            assert await world.runs(RunQuery()) == []
            for attempt in (
                world.read("r"), world.run("r"), world.turn("r", "t1"), world.get_blob("r", "b1"),
                world.image("r"), follow_all(world, "r"), world.settle("r", is_live=True),
            ):  # fmt: skip
                error = await refusal(RunGone, attempt)
                assert (error.run_id, error.to) == ("r", ELSEWHERE)

    async def test_a_run_that_was_moved_away_may_come_back(self, harness: ContractHarness) -> None:
        """A tombstone with an address gives way: the run comes back."""
        async with harness.open(namespace="one") as source, harness.open(namespace="two") as target:
            await worked_on(source)
            await built(source, target)
            await target.settle("r", is_live=True)
            committed(await source.append(move("r", 11)))
            await refusal(RunNotBuilding, source.build(await target.image("r"), (), ()))
            assert await source.sweep(SweepPolicy(closed_older_than_seconds=0, moved=("r",))) == 1
            committed(await target.append(signal("r", "there")))
            await built(target, source)
            await source.settle("r", is_live=True)
            assert await source.read("r") == await target.read("r")
            assert await source.image("r") == await target.image("r")
            assert isinstance(await source.append(submit("r", "t1")), Duplicate)
            holder = await hold(source, "r")
            await holder.finish()
            await harness.advance(1e6)
            await source.sweep(SweepPolicy(closed_older_than_seconds=0))
            assert (await info_of(source)).head == 13, "it is no tombstone's business any more"

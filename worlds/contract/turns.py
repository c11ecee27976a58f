"""How a turn is left, and what it makes of the queue entry. Quotes are from `core/ports.py`."""

from journal.core.ports import Block, Drain, Progress
from journal.core.records import TurnStatus
from journal.worlds.contract.harness import (
    ContractCases,
    ContractHarness,
    begin,
    claim_all,
    close,
    committed,
    hold,
    info_of,
    next_due,
    retry,
    signal,
    submit,
)


class LeavingCases(ContractCases):
    """finish, block, retry, release, takeover, drain, progress, close."""

    async def test_finish_without_more_to_do_is_idle(self, harness: ContractHarness) -> None:
        """The turn ended: the claim is released; else idle."""
        async with harness.open() as world:
            statuses: tuple[TurnStatus, ...] = ("succeeded", "failed", "cancelled")
            for status in statuses:
                await begin(world, status)
                await (await hold(world, status)).finish(status)
                info, turn = await info_of(world, status), await world.turn(status, "t1")
                assert (info.status, info.turn, info.due_at, info.closed) == (status, None, None, False)
                assert turn is not None
                assert (turn.turn, turn.submitted, turn.status, turn.finished) == ("t1", 2, status, 3)
            assert await claim_all(world) == []
            assert await next_due(world) is None

    async def test_finish_with_a_turn_pending_is_ready(self, harness: ContractHarness) -> None:
        """Ready if another turn is pending."""
        async with harness.open() as world:
            await begin(world, "r")
            await begin(world, "r", "t2")
            await (await hold(world, "r")).finish("failed")
            info = await info_of(world)
            assert (info.status, info.turn, info.turns) == ("pending", "t2", 2)
            second = await hold(world, "r")
            await second.finish("cancelled")
            assert (await info_of(world)).status == "cancelled", "else of its last"

    async def test_block_stops_the_run(self, harness: ContractHarness) -> None:
        """The turn is stopped until someone acts: the claim is released, not due. Later turns wait."""
        async with harness.open() as world:
            await begin(world, "r")
            await (await hold(world, "r")).block()
            info = await info_of(world)
            assert (info.status, info.turn, info.due_at) == ("blocked", "t1", None)
            await begin(world, "r", "t2")
            await harness.advance(24 * 3600)
            assert await claim_all(world) == []
            assert ((await info_of(world)).status, (await info_of(world)).turn) == ("blocked", "t1")

    async def test_retry_of_a_blocked_turn(self, harness: ContractHarness) -> None:
        """The failed or blocked turn is unfinished again: due now, takeovers = 0."""
        async with harness.open() as world:
            await begin(world, "r")
            await hold(world, "r", lease_seconds=30)
            await harness.advance(31)
            holder = await hold(world, "r")
            assert holder.claimed.takeovers == 1
            await holder.block()
            committed(await world.append(retry("r")))
            info = await info_of(world)
            assert (info.status, info.turn, info.takeovers) == ("pending", "t1", 0)
            assert ((await hold(world, "r")).claimed.takeovers) == 0

    async def test_retry_of_a_failed_turn(self, harness: ContractHarness) -> None:
        """The failed or blocked turn is unfinished again: due now, takeovers = 0."""
        async with harness.open() as world:
            await begin(world, "r")
            await (await hold(world, "r")).finish("failed")
            committed(await world.append(retry("r")))
            turn = await world.turn("r", "t1")
            assert turn is not None
            assert (turn.submitted, turn.status, turn.finished) == (2, None, None)
            holder = await hold(world, "r")
            assert (holder.claimed.turn, holder.claimed.submitted) == ("t1", 2)
            await holder.finish("succeeded")
            again = await world.turn("r", "t1")
            assert again is not None
            assert (again.status, again.finished) == ("succeeded", 5)

    async def test_a_retried_turn_goes_before_later_ones(self, harness: ContractHarness) -> None:
        """The turn to work on is the oldest unfinished one."""
        async with harness.open() as world:
            await begin(world, "r")
            await (await hold(world, "r")).finish("failed")
            await begin(world, "r", "t2")
            committed(await world.append(retry("r")))
            assert (await info_of(world)).turn == "t1"
            first = await hold(world, "r")
            assert (first.claimed.turn, first.claimed.submitted) == ("t1", 2)
            await first.finish()
            assert (await hold(world, "r")).claimed.turn == "t2"

    async def test_release_gives_the_run_back(self, harness: ContractHarness) -> None:
        """The holder gives the run back unfinished: due now, takeovers unchanged."""
        async with harness.open() as world:
            await begin(world, "r")
            await hold(world, "r", lease_seconds=30)
            await harness.advance(31)
            holder = await hold(world, "r")
            await holder.release()
            info = await info_of(world)
            assert (info.status, info.takeovers, info.turn) == ("pending", 1, "t1")
            again = await hold(world, "r")
            assert (again.claimed.takeovers, again.claimed.taken_over) == (1, False)

    async def test_release_with_a_delay(self, harness: ContractHarness) -> None:
        """Due only after this long."""
        async with harness.open() as world:
            await begin(world, "r")
            await (await hold(world, "r")).release(10.0)
            assert await claim_all(world) == []
            await harness.advance(9)
            assert await claim_all(world) == []
            await harness.advance(2)
            assert (await hold(world, "r")).claimed.taken_over is False

    async def test_a_lease_that_ran_out_is_taken_over(self, harness: ContractHarness) -> None:
        """Claimed by a holder whose lease has run out: a takeover, takeovers + 1."""
        async with harness.open() as first, harness.open() as second:
            await begin(first, "r")
            await hold(first, "r", lease_seconds=30)
            await harness.advance(29)
            assert await claim_all(second) == []
            for count in (1, 2, 3):
                await harness.advance(31)
                holder = await hold(second, "r", lease_seconds=30)
                assert (holder.claimed.taken_over, holder.claimed.takeovers) == (True, count)
                assert holder.claim.epoch == count + 1
            assert (await info_of(first)).takeovers == 3

    async def test_progress_is_no_crash_loop(self, harness: ContractHarness) -> None:
        """The holder recorded an outcome: the run is no crash loop, takeovers = 0."""
        async with harness.open() as world:
            await begin(world, "r")
            for _ in range(3):
                holder = await hold(world, "r", lease_seconds=30)
                await harness.advance(31)
            holder = await hold(world, "r", lease_seconds=30)
            assert holder.claimed.takeovers == 3
            await holder.change(Progress(), holder.outcome())
            assert (await info_of(world)).takeovers == 0
            await holder.record()
            await harness.advance(31)
            assert (await hold(world, "r")).claimed.takeovers == 1

    async def test_park_and_finish_are_progress(self, harness: ContractHarness) -> None:
        """Seventeen approvals, seventeen deploys: no crash loop."""
        async with harness.open() as world:
            await begin(world, "r")
            await begin(world, "r", "t2")
            await hold(world, "r", lease_seconds=30)
            await harness.advance(31)
            holder = await hold(world, "r", lease_seconds=30)
            assert holder.claimed.takeovers == 1
            await holder.park((await holder.start()).time)
            holder = await hold(world, "r", lease_seconds=30)
            assert holder.claimed.takeovers == 0
            await harness.advance(31)
            holder = await hold(world, "r", lease_seconds=30)
            assert holder.claimed.takeovers == 1
            await holder.finish()
            assert (await hold(world, "r")).claimed.takeovers == 0

    async def test_a_draining_holder_is_not_counted(self, harness: ContractHarness) -> None:
        """The holder is shutting down with a call under way: whoever takes over does not count it as a crash."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r", lease_seconds=30)
            await holder.change(Drain())
            assert await claim_all(world) == [], "a draining worker does not take its own turn back"
            await harness.advance(31)
            successor = await hold(world, "r", lease_seconds=30)
            assert (successor.claimed.taken_over, successor.claimed.takeovers) == (True, 0)
            await harness.advance(31)
            assert (await hold(world, "r")).claimed.takeovers == 1, "the successor was not draining"

    async def test_close_removes_the_entry(self, harness: ContractHarness) -> None:
        """The run takes nothing more: its queue entry is removed, and with it any claim."""
        async with harness.open() as world:
            await begin(world, "held")
            holder = await hold(world, "held", lease_seconds=30)
            await begin(world, "ready")
            await begin(world, "ended")
            await (await hold(world, "ended")).finish()
            for run in ("held", "ready", "ended"):
                committed(await world.append(close(run)))
                info = await info_of(world, run)
                assert (info.closed, info.due_at) == (True, None)
            assert (await info_of(world, "ended")).status == "succeeded"
            await harness.advance(3600)
            assert await claim_all(world) == []
            assert world.open_renewer().renew([holder.claim], 30) == set()

    async def test_a_blocked_run_is_found_by_its_status(self, harness: ContractHarness) -> None:
        """Stopped until someone acts; a dead letter is a run blocked by a crash loop: takeovers stay to be seen."""
        async with harness.open() as world:
            await begin(world, "r")
            await hold(world, "r", lease_seconds=30)
            await harness.advance(31)
            holder = await hold(world, "r")
            await holder.change(Block(), holder.outcome("blocked"))
            info = await info_of(world)
            assert (info.status, info.takeovers) == ("blocked", 1)

    async def test_a_turn_is_submitted_to_a_woken_run(self, harness: ContractHarness) -> None:
        """A turn submitted while the run is held, without an active turn, is not lost."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            committed(await world.append(signal("r")))
            await holder.finish()
            woken = await hold(world, "r")
            assert woken.claimed.turn is None
            committed(await world.append(submit("r", "t2")))
            assert ((await info_of(world)).status, (await info_of(world)).turn) == ("pending", "t2")
            await woken.release()
            assert (await hold(world, "r")).claimed.turn == "t2"

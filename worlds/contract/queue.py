"""The queue entry: each row of the design's table, seen from outside. Quotes are from `core/ports.py`."""

from journal.core.ports import HeadMoved, Park
from journal.worlds.contract.harness import (
    ContractCases,
    ContractHarness,
    begin,
    claim_all,
    committed,
    hold,
    info_of,
    signal,
)


class WakingCases(ContractCases):
    """submit, claim, start, park, signal."""

    async def test_submit_makes_the_run_ready(self, harness: ContractHarness) -> None:
        """A turn was submitted: ready now, if no turn is active."""
        async with harness.open() as world:
            await begin(world, "r")
            info = await info_of(world)
            assert (info.status, info.turn, info.turns, info.takeovers) == ("pending", "t1", 1, 0)
            (claimed,) = await claim_all(world)
            assert (claimed.turn, claimed.submitted, claimed.head, claimed.agent) == ("t1", 2, 2, "agent")
            assert (claimed.takeovers, claimed.taken_over, claimed.min_reader) == (0, False, 1)

    async def test_submit_may_be_due_later(self, harness: ContractHarness) -> None:
        """Ready at `due_at`, by the wall clock."""
        async with harness.open() as world:
            now = (await begin(world, "other")).time
            await claim_all(world)
            await begin(world, "r", due_at=now + 60)
            assert await claim_all(world, run="r") == []
            assert (await info_of(world)).due_at == now + 60
            await harness.advance(61)
            assert [c.claim.run for c in await claim_all(world, run="r")] == ["r"]

    async def test_submit_waits_behind_an_active_turn(self, harness: ContractHarness) -> None:
        """Else it waits its turn. The turn to work on is the oldest unfinished one."""
        async with harness.open() as world:
            await begin(world, "r")
            await begin(world, "r", "t2", priority=9)
            holder = await hold(world, "r")
            assert (holder.claimed.turn, holder.claimed.submitted) == ("t1", 2)
            await begin(world, "r", "t3")
            assert await claim_all(world) == [], "it is held"
            await holder.finish()
            second = await hold(world, "r")
            assert (second.claimed.turn, second.claimed.submitted) == ("t2", 3)
            await second.finish()
            third = await hold(world, "r")
            assert (third.claimed.turn, third.claimed.submitted) == ("t3", 4)

    async def test_submit_does_not_wake_a_parked_turn(self, harness: ContractHarness) -> None:
        """Ready, if no turn is active; else it waits its turn."""
        async with harness.open() as world:
            await begin(world, "r")
            await (await hold(world, "r")).park()
            await begin(world, "r", "t2")
            assert await claim_all(world) == []
            assert (await info_of(world)).status == "parked"

    async def test_submit_after_the_last_turn_ended(self, harness: ContractHarness) -> None:
        """Ready, if no turn is active."""
        async with harness.open() as world:
            await begin(world, "r")
            await (await hold(world, "r")).finish()
            assert await claim_all(world) == []
            await begin(world, "r", "t2")
            assert (await hold(world, "r")).claimed.turn == "t2"

    async def test_claim_bumps_the_epoch_and_draws_a_new_token(self, harness: ContractHarness) -> None:
        """A claim bumps the epoch, draws a new token and clears `woken`."""
        async with harness.open() as world:
            await begin(world, "r")
            first = await hold(world, "r")
            assert first.claim.epoch == 1
            assert (await info_of(world)).status == "running"
            await first.release()
            second = await hold(world, "r")
            assert (second.claim.epoch, (await info_of(world)).epoch) == (2, 2)
            assert len(first.claim.token) >= 16
            assert first.claim.token != second.claim.token

    async def test_claim_clears_woken(self, harness: ContractHarness) -> None:
        """A claim bumps the epoch, draws a new token and clears `woken`."""
        async with harness.open() as world:
            await begin(world, "r")
            zombie = await hold(world, "r", lease_seconds=30)
            committed(await world.append(signal("r")))
            await harness.advance(31)
            holder = await hold(world, "r")
            assert zombie.claim.epoch < holder.claim.epoch
            await holder.finish()
            assert await claim_all(world) == [], "the successor read the signal; it wakes nobody else"

    async def test_start_changes_nothing_of_the_entry(self, harness: ContractHarness) -> None:
        """start: turn.started, no queue change."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            before = await info_of(world)
            await holder.start()
            after = await info_of(world)
            assert (after.status, after.epoch, after.due_at, after.takeovers) == (
                before.status,
                before.epoch,
                before.due_at,
                before.takeovers,
            )

    async def test_park_waits_for_its_deadline(self, harness: ContractHarness) -> None:
        """The holder waits for something: the claim is released, due at the deadline."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            now = (await holder.start()).time
            await holder.park(now + 100)
            info = await info_of(world)
            assert (info.status, info.due_at, info.turn) == ("parked", now + 100, "t1")
            assert await claim_all(world) == []
            await harness.advance(99)
            assert await claim_all(world) == []
            await harness.advance(2)
            (claimed,) = await claim_all(world)
            assert (claimed.turn, claimed.taken_over, claimed.takeovers) == ("t1", False, 0)

    async def test_park_without_a_deadline_waits_for_ever(self, harness: ContractHarness) -> None:
        """None: only when woken."""
        async with harness.open() as world:
            await begin(world, "r")
            await (await hold(world, "r")).park()
            await harness.advance(10 * 365 * 24 * 3600)
            assert await claim_all(world) == []
            assert (await info_of(world)).due_at is None
            committed(await world.append(signal("r")))
            assert (await hold(world, "r")).claimed.turn == "t1"

    async def test_a_signal_between_the_last_read_and_the_park(self, harness: ContractHarness) -> None:
        """Park: `at_head`: if a signal slipped in, read and decide again. The turn is not parked for ever."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            head = (await holder.start()).last
            committed(await world.append(signal("r")))
            parking = holder.batch(holder.outcome("suspended"), queue=Park(), at_head=head)
            assert await holder.offer(parking) == HeadMoved(head + 1)
            assert (await info_of(world)).status == "running"
            await holder.change(Park(), holder.outcome("suspended"), at_head=head + 1)
            assert await claim_all(world) == [], "it has seen the signal and parked all the same"

    async def test_signal_wakes_a_parked_run(self, harness: ContractHarness) -> None:
        """Something came from outside. Parked: due now."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            now = (await holder.start()).time
            await holder.park(now + 1000)
            committed(await world.append(signal("r")))
            assert (await hold(world, "r")).claimed.turn == "t1"

    async def test_signal_marks_a_claimed_run(self, harness: ContractHarness) -> None:
        """Claimed: marked woken. Finish: ready if another turn is pending or the entry was woken."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            committed(await world.append(signal("r")))
            assert await claim_all(world) == []
            await holder.finish()
            woken = await hold(world, "r")
            assert (woken.claimed.turn, woken.claimed.taken_over) == (None, False), "woken without work"
            await woken.release()
            assert await claim_all(world) == [], "no unfinished turn: idle"
            assert (await info_of(world)).status == "succeeded"

    async def test_signal_leaves_idle_and_blocked_runs_alone(self, harness: ContractHarness) -> None:
        """Blocked or idle: unchanged."""
        async with harness.open() as world:
            await begin(world, "idle")
            await (await hold(world, "idle")).finish()
            await begin(world, "blocked")
            await (await hold(world, "blocked")).block()
            for run, status in (("idle", "succeeded"), ("blocked", "blocked")):
                committed(await world.append(signal(run)))
                info = await info_of(world, run)
                assert (info.status, info.due_at) == (status, None)
            assert await claim_all(world) == []

    async def test_signal_never_makes_a_run_due_later(self, harness: ContractHarness) -> None:
        """Parked: due now. Never later than it was: highest priority first, then the longest due."""
        async with harness.open() as world:
            await begin(world, "first")
            await harness.advance(5)
            await begin(world, "second")
            await harness.advance(5)
            committed(await world.append(signal("first")))
            assert [c.claim.run for c in await claim_all(world)] == ["first", "second"]

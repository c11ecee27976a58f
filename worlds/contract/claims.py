"""Claiming, leases, renewing, waiting for work. Quotes are from `core/ports.py`."""

from contextlib import AsyncExitStack

import anyio
from anyio import to_thread

from journal.core.ids import new_token
from journal.core.ports import Claim, Claimed, World
from journal.worlds.contract.harness import (
    PATIENCE_SECONDS,
    ContractCases,
    ContractHarness,
    begin,
    claim_all,
    hold,
    next_due,
    signal,
)


class ClaimCases(ContractCases):
    """`Queue`: who gets what, and for how long."""

    async def test_of_twenty_claimers_exactly_one_gets_the_run(self, harness: ContractHarness) -> None:
        """The right to append for a run: one holder."""
        async with AsyncExitStack() as stack:
            worlds = [await stack.enter_async_context(harness.open()) for _ in range(4)]
            await begin(worlds[0], "r")
            got: list[Claimed] = []

            async def race(world: World) -> None:
                got.extend(await claim_all(world))

            async with anyio.create_task_group() as group:
                for n in range(20):
                    group.start_soon(race, worlds[n % 4])
            assert [(c.claim.run, c.claim.epoch) for c in got] == [("r", 1)]

    async def test_each_run_is_given_once(self, harness: ContractHarness) -> None:
        """Claim up to `limit` entries that are due."""
        async with AsyncExitStack() as stack:
            worlds = [await stack.enter_async_context(harness.open()) for _ in range(4)]
            for n in range(30):
                await begin(worlds[0], f"r{n:02}")
            got: list[Claimed] = []

            async def work(world: World) -> None:
                while claimed := await claim_all(world, limit=3):
                    got.extend(claimed)

            async with anyio.create_task_group() as group:
                for n in range(8):
                    group.start_soon(work, worlds[n % 4])
            assert sorted(c.claim.run for c in got) == [f"r{n:02}" for n in range(30)]

    async def test_claim_takes_no_more_than_its_limit(self, harness: ContractHarness) -> None:
        """Claim up to `limit` entries that are due."""
        async with harness.open() as world:
            for n in range(5):
                await begin(world, f"r{n}")
            assert [len(await claim_all(world, limit=2)) for _ in range(4)] == [2, 2, 1, 0]

    async def test_claim_goes_by_priority_then_by_due_time(self, harness: ContractHarness) -> None:
        """Highest priority first, then the longest due."""
        async with harness.open() as world:
            for run, priority in (("low", -5), ("early", 0), ("late", 0), ("urgent", 7)):
                await begin(world, run, priority=priority)
                await harness.advance(1)
            assert [c.claim.run for c in await claim_all(world)] == ["urgent", "early", "late", "low"]

    async def test_due_time_counts_not_the_time_of_submitting(self, harness: ContractHarness) -> None:
        """Then the longest due."""
        async with harness.open() as world:
            now = (await begin(world, "other", agent="other")).time
            await begin(world, "submitted-first", due_at=now + 50)
            await begin(world, "due-first", due_at=now + 20)
            await harness.advance(100)
            claimed = await claim_all(world, agents={"agent"})
            assert [c.claim.run for c in claimed] == ["due-first", "submitted-first"]

    async def test_claim_keeps_to_its_agents(self, harness: ContractHarness) -> None:
        """Entries of other agents (`agents` not None) are never given."""
        async with harness.open() as world:
            for agent in ("a", "b", "c"):
                await begin(world, f"run-{agent}", agent=agent)
            assert await claim_all(world, agents=set()) == []
            assert await claim_all(world, agents={"d", "A"}) == []
            claimed = await claim_all(world, agents={"a", "c"})
            assert sorted((c.claim.run, c.agent) for c in claimed) == [("run-a", "a"), ("run-c", "c")]
            assert [c.agent for c in await claim_all(world, agents=None)] == ["b"]

    async def test_claim_keeps_to_what_its_worker_reads(self, harness: ContractHarness) -> None:
        """Entries that need a newer reader than `reads` are never given. Nothing is dead-lettered."""
        async with harness.open() as world:
            await begin(world, "old", min_reader=1)
            await begin(world, "new", min_reader=3)
            assert [(c.claim.run, c.min_reader) for c in await claim_all(world, reads=2)] == [("old", 1)]
            assert await claim_all(world, reads=2, run="new") == []
            assert [(c.claim.run, c.min_reader) for c in await claim_all(world, reads=3)] == [("new", 3)]
            await harness.advance(31)
            assert [c.claim.run for c in await claim_all(world, reads=2)] == ["old"], "by takeover neither"

    async def test_claim_may_ask_for_one_run(self, harness: ContractHarness) -> None:
        """`run` narrows it to one run."""
        async with harness.open() as world:
            for n in range(3):
                await begin(world, f"r{n}")
            assert [c.claim.run for c in await claim_all(world, run="r1")] == ["r1"]
            assert await claim_all(world, run="r1") == []
            assert await claim_all(world, run="absent") == []
            assert len(await claim_all(world)) == 2

    async def test_next_due_seconds(self, harness: ContractHarness) -> None:
        """From now until the next entry of these agents falls due or its lease runs out; None: nothing in sight."""
        async with harness.open() as world:
            assert await next_due(world) is None
            now = (await begin(world, "held")).time
            claims = await world.claim(worker="w", limit=9, lease_seconds=30.0, agents=None, reads=1)
            assert len(claims.claimed) == 1
            _is_about(claims.next_due_seconds, 30)
            await begin(world, "later", agent="other", due_at=now + 20)
            _is_about(await next_due(world), 20)
            _is_about(await next_due(world, agents={"agent"}), 30)
            assert await next_due(world, agents={"nobody"}) is None
            await harness.advance(15)
            _is_about(await next_due(world), 5)
            _is_about(await next_due(world, agents={"agent"}), 15)

    async def test_next_due_seconds_when_more_is_due(self, harness: ContractHarness) -> None:
        """From now until the next entry falls due: another one is due already."""
        async with harness.open() as world:
            for n in range(2):
                await begin(world, f"r{n}")
            claims = await world.claim(worker="w", limit=1, lease_seconds=30.0, agents=None, reads=1)
            assert len(claims.claimed) == 1
            assert claims.next_due_seconds is not None
            assert claims.next_due_seconds <= 0.001

    async def test_renewing_extends_the_lease(self, harness: ContractHarness) -> None:
        """Extend those that still hold, and return them. A healthy turn is left alone by a booting worker."""
        async with harness.open() as world, harness.open() as other:
            await begin(world, "r")
            holder = await hold(world, "r", lease_seconds=30)
            renewer = world.open_renewer()
            try:
                for _ in range(5):
                    await harness.advance(20)
                    renewed = await to_thread.run_sync(renewer.renew, [holder.claim], 30.0)
                    assert renewed == {holder.claim}
                    assert await claim_all(other) == []
                await harness.advance(31)
                assert len(await claim_all(other)) == 1
            finally:
                renewer.close()

    async def test_renewing_does_not_need_the_event_loop(self, harness: ContractHarness) -> None:
        """Blocking, with a connection of its own: a busy event loop loses nothing."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            renewer = world.open_renewer()
            assert renewer.renew([holder.claim], 30.0) == {holder.claim}
            renewer.close()

    async def test_a_lost_claim_is_not_renewed(self, harness: ContractHarness) -> None:
        """Extend those that still hold, and return them."""
        async with harness.open() as world:
            for run in ("lost", "released", "healthy"):
                await begin(world, run)
            lost = await hold(world, "lost", lease_seconds=30)
            released = await hold(world, "released", lease_seconds=3000)
            healthy = await hold(world, "healthy", lease_seconds=3000)
            await released.release()
            await harness.advance(31)
            successor = await hold(world, "lost")
            wrong = Claim("healthy", 1, new_token())
            absent = Claim("absent", 1, new_token())
            claims = [lost.claim, released.claim, healthy.claim, wrong, absent]
            renewer = world.open_renewer()
            assert renewer.renew(claims, 30.0) == {healthy.claim}
            assert renewer.renew([], 30.0) == set()
            assert renewer.renew([successor.claim], 30.0) == {successor.claim}
            renewer.close()

    async def test_a_claim_holds_until_somebody_takes_over(self, harness: ContractHarness) -> None:
        """Compared for equality: a lease that ran out while nobody wanted the run can be renewed."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r", lease_seconds=30)
            await harness.advance(1000)
            renewer = world.open_renewer()
            assert renewer.renew([holder.claim], 30.0) == {holder.claim}
            renewer.close()
            assert await claim_all(world) == []

    async def test_stepping_the_wall_clock_loses_no_lease(self, harness: ContractHarness) -> None:
        """Clock of one worker an hour off, both ways; clock stepped back while running."""
        if not harness.can_step_wall:
            self.skip("the clock of this store cannot be stepped")
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r", lease_seconds=30)
            for step in (3600, -7200, 3600):
                await harness.step_wall(step)
                assert await claim_all(world) == [], f"stepping by {step} s lost a healthy lease"
                await holder.record()
            await harness.step_wall(-3600)
            await harness.advance(31)
            assert len(await claim_all(world)) == 1, "stepping back does not keep a dead holder alive"

    async def test_wait_for_work_is_woken(self, harness: ContractHarness) -> None:
        """Return when an entry may have become claimable."""
        async with harness.open() as world, harness.open() as other:
            for n, author in enumerate((world, other)):
                assert await claim_all(world) == []
                with anyio.fail_after(PATIENCE_SECONDS):
                    async with anyio.create_task_group() as group:
                        group.start_soon(begin, author, f"r{n}")
                        while not await claim_all(world):
                            await world.wait_for_work(PATIENCE_SECONDS * 2)

    async def test_wait_for_work_hears_of_each_way_to_become_due(self, harness: ContractHarness) -> None:
        """Return when an entry may have become claimable: a signal, a release, a retry."""
        async with harness.open() as world:
            await begin(world, "parked")
            await (await hold(world, "parked")).park()
            await begin(world, "released")
            holder = await hold(world, "released")
            assert await claim_all(world) == []

            async def wake() -> None:
                await world.append(signal("parked"))

            for action, run in ((wake, "parked"), (holder.release, "released")):
                with anyio.fail_after(PATIENCE_SECONDS):
                    async with anyio.create_task_group() as group:
                        group.start_soon(action)
                        while not await claim_all(world, run=run):
                            await world.wait_for_work(PATIENCE_SECONDS * 2)

    async def test_wait_for_work_ends_with_its_timeout(self, harness: ContractHarness) -> None:
        """Or after the timeout."""
        async with harness.open() as world:
            assert await claim_all(world) == []
            with anyio.fail_after(PATIENCE_SECONDS):
                await world.wait_for_work(0.01)
                await world.wait_for_work(0)


def _is_about(found: float | None, expected: float) -> None:
    assert found is not None, f"expected about {expected} s, found None"
    assert expected - 2 <= found <= expected + 0.5, f"expected about {expected} s, found {found}"

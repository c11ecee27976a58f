"""Reading, listing, blobs, namespaces, sweeping, closing. Quotes are from `core/ports.py`."""

from contextlib import AsyncExitStack

from journal.core.codec import Blob
from journal.core.errors import CorruptRecord, RunGone, RunNotFound
from journal.core.ids import new_batch_id
from journal.core.ports import Batch, Committed, Gone, Held, NoRun, RunQuery, StaleClaim, SweepPolicy, World
from journal.worlds.contract.harness import (
    ContractCases,
    ContractHarness,
    begin,
    claim_all,
    close,
    committed,
    hold,
    refusal,
    seqs,
    signal,
    submit,
)

SWEEP = SweepPolicy(closed_older_than_seconds=100, tombstone_seconds=1000)


async def _closed(world: World, run: str) -> None:
    await begin(world, run)
    committed(await world.append(close(run)))


class StoreCases(ContractCases):
    """What a world shows of what it keeps."""

    async def test_reads_are_paged(self, harness: ContractHarness) -> None:
        """Up to `limit` records with seq > `after`, in order; fewer only at the end of the log."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            committed(await holder.offer(holder.batch(*(holder.outcome(f"step#{n}") for n in range(18)))))
            pages = [
                [r.seq for r in await world.read("r", after=after, limit=7)] for after in (0, 7, 14, 20, 99)
            ]
            assert pages == [
                [1, 2, 3, 4, 5, 6, 7],
                [8, 9, 10, 11, 12, 13, 14],
                [15, 16, 17, 18, 19, 20],
                [],
                [],
            ]
            assert [r.seq for r in await world.read("r")] == list(range(1, 21))

    async def test_reading_what_is_not_there(self, harness: ContractHarness) -> None:
        """Raises `RunNotFound`. The run, or None. One turn of the run, or None."""
        async with harness.open() as world:
            error = await refusal(RunNotFound, world.read("absent"))
            assert (error.run_id, error.world) == ("absent", world.url)
            assert await world.run("absent") is None
            assert await world.turn("absent", "t1") is None
            await begin(world, "r")
            assert await world.turn("r", "t2") is None

    async def test_runs_are_listed_newest_first(self, harness: ContractHarness) -> None:
        """A page of runs, newest first."""
        async with harness.open() as world:
            assert await world.runs(RunQuery()) == []
            for n in range(5):
                await begin(world, f"r{n}")
            page = await world.runs(RunQuery())
            assert [info.run for info in page] == ["r4", "r3", "r2", "r1", "r0"]
            assert page == [await world.run(info.run) for info in page], "the same as one by one"

    async def test_pages_of_runs_are_stable(self, harness: ContractHarness) -> None:
        """`position` of the last run of the page before; runs inserted meanwhile do not shift the pages."""
        async with harness.open() as world, harness.open() as other:
            for n in range(7):
                await begin(world, f"r{n}")
            found: list[str] = []
            before: int | None = None
            for number, count in enumerate((3, 3, 1, 0)):
                page = await world.runs(RunQuery(before=before, limit=3))
                assert len(page) == count
                found += [info.run for info in page]
                before = page[-1].position if page else before
                await begin(other, f"inserted-{number}")
                committed(await world.append(signal("r1", f"s{number}")))
            assert found == ["r6", "r5", "r4", "r3", "r2", "r1", "r0"]

    async def test_runs_are_found_by_agent_and_status(self, harness: ContractHarness) -> None:
        """Which runs to list."""
        async with harness.open() as world:
            for run, agent in (
                ("pending", "a"),
                ("running", "a"),
                ("parked", "b"),
                ("blocked", "b"),
                ("ended", "a"),
            ):
                await begin(world, run, agent=agent)
            await hold(world, "running")
            await (await hold(world, "parked")).park()
            await (await hold(world, "blocked")).block()
            await (await hold(world, "ended")).finish("failed")

            async def listed(query: RunQuery) -> list[str]:
                return [info.run for info in await world.runs(query)]

            assert await listed(RunQuery(agent="a")) == ["ended", "running", "pending"]
            assert await listed(RunQuery(agent="b", limit=1)) == ["blocked"]
            assert await listed(RunQuery(agent="none")) == []
            assert await listed(RunQuery(status="pending")) == ["pending"]
            assert await listed(RunQuery(status="running")) == ["running"]
            assert await listed(RunQuery(status="parked")) == ["parked"]
            assert await listed(RunQuery(status="blocked", agent="b")) == ["blocked"]
            assert await listed(RunQuery(status="blocked", agent="a")) == []
            assert await listed(RunQuery(status="failed")) == ["ended"]
            assert await listed(RunQuery(status="succeeded")) == []

    async def test_a_run_tells_when_it_was_created(self, harness: ContractHarness) -> None:
        """Wall clock, seconds."""
        async with harness.open() as world:
            created = (await begin(world, "r")).time
            await harness.advance(50)
            committed(await world.append(signal("r")))
            info = await world.run("r")
            assert info is not None
            assert (info.created, info.namespace, info.head) == (created, world.namespace, 3)

    # Blobs

    async def test_blobs_belong_to_their_run(self, harness: ContractHarness) -> None:
        """A blob of that run. Raises `CorruptRecord` (seq 0) if it is missing or damaged."""
        async with harness.open() as world:
            data = {"a": b"\x00a" * 100_000, "b": b""}
            for run in ("a", "b"):
                await begin(world, run)
                holder = await hold(world, run)
                batch = holder.batch(
                    holder.outcome(), blobs=(Blob("same-id", data[run]), Blob(f"only-{run}", b"x"))
                )
                committed(await holder.offer(batch))
            for run in ("a", "b"):
                assert await world.get_blob(run, "same-id") == data[run]
                assert await world.get_blob(run, f"only-{run}") == b"x"
            error = await refusal(CorruptRecord, world.get_blob("a", "only-b"))
            assert (error.run_id, error.seq) == ("a", 0)

    # Namespaces

    async def test_namespaces_are_apart(self, harness: ContractHarness) -> None:
        """A world is bound to one namespace; the same run id in another namespace is another run."""
        async with harness.open(namespace="one") as one, harness.open(namespace="two") as two:
            assert one.namespace != two.namespace
            await begin(one, "r", agent="first")
            assert await two.run("r") is None
            assert await two.append(signal("r")) == NoRun()
            assert await claim_all(two) == []
            holder = await hold(one, "r")
            committed(await holder.offer(holder.batch(holder.outcome(), blobs=(Blob("b", b"one"),))))
            answer = await two.append(submit("r", agent="second", digest=b"other"))
            assert isinstance(answer, Committed), f"the same key in another namespace: {answer}"
            assert (answer.first, answer.last) == (1, 2)
            assert (await seqs(one, "r"), await seqs(two, "r")) == ([1, 2, 3], [1, 2])
            infos = [(await world.runs(RunQuery()))[0] for world in (one, two)]
            assert [(i.agent, i.namespace, i.head) for i in infos] == [
                ("first", one.namespace, 3),
                ("second", two.namespace, 2),
            ]
            assert [len(await world.runs(RunQuery())) for world in (one, two)] == [1, 1]
            await refusal(CorruptRecord, two.get_blob("r", "b"))

    async def test_a_claim_is_worth_nothing_in_another_namespace(self, harness: ContractHarness) -> None:
        """A world is bound to one namespace."""
        async with harness.open(namespace="one") as one, harness.open(namespace="two") as two:
            await begin(one, "r")
            await begin(two, "r")
            holder = await hold(one, "r")
            assert await two.append(holder.batch(holder.outcome())) == StaleClaim(1, 0)
            renewer = two.open_renewer()
            assert renewer.renew([holder.claim], 30) == set()
            renewer.close()
            assert not await two.publish(holder.claim, [])
            await _closed(one, "closed")
            await harness.advance(1000)
            assert await two.sweep(SWEEP) == 0
            assert await one.sweep(SWEEP) == 1

    # Sweeping

    async def test_only_closed_runs_are_swept_whole(self, harness: ContractHarness) -> None:
        """Remove what `policy` allows. Whole closed runs only, blobs and deltas too."""
        async with harness.open() as world:
            await _closed(world, "old")
            await begin(world, "open")
            await (await hold(world, "open")).finish()
            await harness.advance(101)
            await _closed(world, "young")
            assert await world.sweep(SWEEP) == 1
            assert [info.run for info in await world.runs(RunQuery())] == ["young", "open"]
            assert await seqs(world, "young") == [1, 2, 3]
            assert await world.sweep(SWEEP) == 0

    async def test_a_sweep_takes_no_more_than_its_limit(self, harness: ContractHarness) -> None:
        """Runs at most in one call."""
        async with harness.open() as world:
            for n in range(5):
                await _closed(world, f"r{n}")
            await harness.advance(101)
            policy = SweepPolicy(closed_older_than_seconds=100, limit=2)
            assert [await world.sweep(policy) for _ in range(4)] == [2, 2, 1, 0]

    async def test_a_swept_run_is_gone(self, harness: ContractHarness) -> None:
        """The run was swept; its tombstone holds the id."""
        async with harness.open() as world:
            submitted = submit("r")
            committed(await world.append(submitted))
            holder = await hold(world, "r")
            committed(await holder.offer(holder.batch(holder.outcome(), blobs=(Blob("b", b"data"),))))
            committed(await world.append(close("r")))
            await harness.advance(101)
            assert await world.sweep(SWEEP) == 1
            for batch in (submitted, submit("r"), signal("r"), holder.batch(holder.outcome())):
                assert await world.append(batch) == Gone()
            assert await world.runs(RunQuery()) == []
            for attempt in (world.read("r"), world.run("r"), world.get_blob("r", "b")):
                assert (await refusal(RunGone, attempt)).run_id == "r"

    async def test_a_zombie_from_before_the_sweep(self, harness: ContractHarness) -> None:
        """A run swept and recreated under the same id, and a zombie from before. Epochs repeat, tokens do not."""
        async with harness.open() as world:
            await begin(world, "r")
            zombie = await hold(world, "r")
            old = zombie.batch(zombie.outcome())
            committed(await zombie.offer(old))
            committed(await world.append(close("r")))
            await harness.advance(101)
            assert await world.sweep(SWEEP) == 1
            await harness.advance(1001)
            await world.sweep(SWEEP)
            answer = await begin(world, "r")
            assert (answer.first, answer.last) == (1, 2), "how long the id of a swept run stays taken"
            holder = await hold(world, "r")
            assert holder.claim.epoch == zombie.claim.epoch == 1
            assert await world.append(old) == StaleClaim(1, 1)
            assert await zombie.offer(zombie.batch(zombie.outcome())) == StaleClaim(1, 1)
            assert not await world.publish(zombie.claim, [])
            renewer = world.open_renewer()
            assert renewer.renew([zombie.claim, holder.claim], 30) == {holder.claim}
            renewer.close()
            assert await seqs(world, "r") == [1, 2]
            await holder.record()

    # Opening and closing

    async def test_what_it_says_of_itself(self, harness: ContractHarness) -> None:
        """What it truly offers: `log.persistent`."""
        async with harness.open() as world:
            assert ":" in world.url
            assert ("log.persistent" in world.capabilities) == harness.is_persistent

    async def test_closing_a_world_releases_no_claim(self, harness: ContractHarness) -> None:
        """Finish what is under way, then let everything go. Claims are not released by it."""
        async with AsyncExitStack() as stack:
            other = await stack.enter_async_context(harness.open())
            async with harness.open() as world:
                await begin(world, "r")
                holder = await hold(world, "r")
                pending = world.append(holder.batch(holder.outcome()))
            assert isinstance(await pending, Committed), "what was under way is finished"
            info = await other.run("r")
            assert info is not None
            assert (info.status, info.epoch, info.head) == ("running", 1, 3)
            batch = Batch("r", new_batch_id(), Held(holder.claim, None), (holder.outcome(),))
            assert isinstance(await other.append(batch), Committed), "the claim holds still"

    async def test_what_is_acknowledged_outlives_the_world(self, harness: ContractHarness) -> None:
        """`log.persistent`: all of it is durable."""
        if not harness.is_persistent:
            self.skip("this world does not claim log.persistent")
        batch = submit("r")
        async with harness.open() as world:
            original = committed(await world.append(batch))
            holder = await hold(world, "r")
            committed(await holder.offer(holder.batch(holder.outcome(), blobs=(Blob("b", b"data"),))))
            records, info, turn = await world.read("r"), await world.run("r"), await world.turn("r", "t1")
        async with harness.open() as world:
            assert await world.read("r") == records
            assert (await world.run("r"), await world.turn("r", "t1")) == (info, turn)
            assert await world.get_blob("r", "b") == b"data"
            again = await world.append(batch)
            assert getattr(again, "original", None) == original
            await harness.advance(31)
            assert (await hold(world, "r")).claim.epoch == 2

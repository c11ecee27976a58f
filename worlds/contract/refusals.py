"""What the door refuses: claims, the batch before, the head, closed runs. Quotes are from `core/ports.py`."""

from contextlib import AsyncExitStack

from journal.core.ids import new_batch_id, new_token
from journal.core.ports import (
    Batch,
    Claim,
    Closed,
    Committed,
    Drain,
    HeadMoved,
    Held,
    LogRegressed,
    NoRun,
    Progress,
    StaleClaim,
)
from journal.worlds.contract.harness import (
    ContractCases,
    ContractHarness,
    at_once,
    begin,
    close,
    committed,
    creation,
    hold,
    raw,
    retry,
    seqs,
    signal,
    submit,
)


class RefusalCases(ContractCases):
    """Each refusal, and in which order they are decided."""

    # The claim

    async def test_a_claim_is_compared_in_both_parts(self, harness: ContractHarness) -> None:
        """Compared for equality: epochs repeat after a restore, tokens do not."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            token = holder.claim.token
            for claim in (
                Claim("r", 1, new_token()),
                Claim("r", 2, token),
                Claim("r", 0, token),
                Claim("r", 7, new_token()),
            ):
                batch = Batch("r", new_batch_id(), Held(claim, None), (holder.outcome(),))
                assert await world.append(batch) == StaleClaim(claim.epoch, 1)
            await holder.record()

    async def test_nobody_holds_a_run_that_was_never_claimed(self, harness: ContractHarness) -> None:
        """The author does not hold the run."""
        async with harness.open() as world:
            await begin(world, "r")
            batch = Batch("r", new_batch_id(), Held(Claim("r", 0, b""), None), (raw("r", b""),))
            assert await world.append(batch) == StaleClaim(0, 0)

    async def test_the_claim_is_gone_after_a_takeover(self, harness: ContractHarness) -> None:
        """The author does not hold the run. Fatal to the holder."""
        async with harness.open() as world:
            await begin(world, "r")
            zombie = await hold(world, "r", lease_seconds=30)
            await harness.advance(31)
            await zombie.record()  # its lease is over, but nobody took over: equality decides
            holder = await hold(world, "r")
            assert await zombie.offer(zombie.batch(zombie.outcome())) == StaleClaim(1, 2)
            await holder.record()
            await harness.advance(3600)
            assert await zombie.offer(zombie.batch(zombie.outcome())) == StaleClaim(1, 2), "an hour later too"

    async def test_the_claim_is_gone_after_each_way_to_give_it_back(self, harness: ContractHarness) -> None:
        """Park, Finish, Block, Release: the claim is released."""
        async with harness.open() as world:
            for run in ("park", "finish", "block", "release"):
                await begin(world, run)
                holder = await hold(world, run)
                await getattr(holder, run)()
                answer = await holder.offer(holder.batch(holder.outcome()))
                assert answer == StaleClaim(1, 1), f"after {run} the door answered {answer}"

    async def test_the_claim_is_gone_after_close(self, harness: ContractHarness) -> None:
        """Close: its queue entry is removed, and with it any claim."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            committed(await world.append(close("r")))
            answer = await holder.offer(holder.batch(holder.outcome()))
            assert isinstance(answer, StaleClaim | Closed), f"the door answered {answer}"
            assert await seqs(world, "r") == [1, 2, 3]

    # The batch before

    async def test_a_batch_does_not_land_without_the_one_before(self, harness: ContractHarness) -> None:
        """`prev_batch` is not in the log. Batch n unanswered, n + 1 sent: n + 1 does not land without n."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            await holder.start()
            n = holder.batch(holder.outcome("n"))
            after = holder.batch(holder.outcome("n+1"), prev=n.id)
            assert await world.append(after) == LogRegressed(3)
            assert await seqs(world, "r") == [1, 2, 3]
            committed(await world.append(n))
            committed(await world.append(after))
            assert [r.key for r in await world.read("r", after=3)] == ["n", "n+1"]

    async def test_the_batch_before_may_be_any_in_the_log(self, harness: ContractHarness) -> None:
        """Id of this holder's last answered batch, before that of the last record it read. None: not checked."""
        async with harness.open() as world:
            submitted = submit("r")
            committed(await world.append(submitted))
            holder = await hold(world, "r")
            assert holder.batch().author == Held(holder.claim, None)
            committed(await holder.offer(holder.batch(holder.started())))
            committed(await world.append(signal("r")))
            committed(await holder.offer(holder.batch(holder.outcome("1"), prev=submitted.id)))
            committed(await holder.offer(holder.batch(holder.outcome("2"))))

    async def test_the_batch_before_may_be_one_without_records(self, harness: ContractHarness) -> None:
        """The queue entry keeps the id of the last batch that changed it without a record."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            for queue in (Progress(), Drain()):
                batch = holder.batch(queue=queue)
                committed(await holder.offer(batch))
                committed(await world.append(holder.batch(holder.outcome(), prev=batch.id)))

    async def test_the_batch_before_must_be_of_this_run(self, harness: ContractHarness) -> None:
        """`prev_batch` is not in the log."""
        async with harness.open() as world:
            other = submit("other")
            committed(await world.append(other))
            await begin(world, "r")
            holder = await hold(world, "r")
            assert await world.append(holder.batch(holder.outcome(), prev=other.id)) == LogRegressed(2)

    async def test_the_claim_is_checked_before_the_batch_before(self, harness: ContractHarness) -> None:
        """In this order: claim (equality, both parts) → `prev_batch` in the log? → `at_head`."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            everything_wrong = holder.batch(holder.outcome(), prev=b"?" * 16, at_head=99)
            assert await world.append(everything_wrong) == LogRegressed(2)
            await holder.release()
            assert await world.append(everything_wrong) == StaleClaim(1, 1)

    # The head

    async def test_at_head_is_exact(self, harness: ContractHarness) -> None:
        """The batch is refused unless this is the last seq of the run, exactly."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            for head in (0, 1, 3, 4):
                assert await world.append(holder.batch(holder.outcome(), at_head=head)) == HeadMoved(2)
                assert await world.append(signal("r", f"s{head}", at_head=head)) == HeadMoved(2)
            committed(await holder.offer(holder.batch(holder.outcome(), at_head=2)))
            committed(await world.append(signal("r", at_head=3)))

    async def test_of_two_authors_at_one_head_one_is_taken(self, harness: ContractHarness) -> None:
        """`at_head` is not the head: read, and decide again."""
        async with AsyncExitStack() as stack:
            worlds = [await stack.enter_async_context(harness.open()) for _ in range(3)]
            await begin(worlds[0], "r")
            offers = [worlds[n % 3].append(signal("r", f"s{n}", at_head=2)) for n in range(12)]
            answers = await at_once(*offers)
            assert sum(isinstance(answer, Committed) for answer in answers) == 1
            assert sum(answer == HeadMoved(3) for answer in answers) == 11

    # No run to write to

    async def test_no_run(self, harness: ContractHarness) -> None:
        """No such run, and the batch does not create it."""
        async with harness.open() as world:
            assert await world.append(signal("r")) == NoRun()
            author = Held(Claim("r", 1, new_token()), None)
            assert await world.append(Batch("r", new_batch_id(), author, (raw("r", b""),))) == NoRun()
            creating = Batch("r", new_batch_id(), author, create=creation("r"))
            assert await world.append(creating) == NoRun(), "nobody holds a run that is not there"
            assert await world.run("r") is None

    async def test_closed(self, harness: ContractHarness) -> None:
        """The run is closed."""
        async with harness.open() as world:
            await begin(world, "r")
            committed(await world.append(close("r")))
            for batch in (signal("r"), submit("r", "t2"), retry("r")):
                assert await world.append(batch) == Closed()
            assert await seqs(world, "r") == [1, 2, 3]

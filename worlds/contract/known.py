"""What was offered before: the check that comes first. Quotes are from `core/ports.py`."""

from msgspec.structs import replace

from journal.core.ids import new_batch_id
from journal.core.ports import (
    Committed,
    Drain,
    Duplicate,
    Finish,
    KeyConflict,
)
from journal.worlds.contract.harness import (
    ContractCases,
    ContractHarness,
    begin,
    close,
    committed,
    hold,
    raw,
    seqs,
    signal,
    submit,
)


class KnownCases(ContractCases):
    """A retry after a lost answer finds its own records, never a false conflict."""

    async def test_the_same_batch_is_recognized(self, harness: ContractHarness) -> None:
        """The same batch offered again is recognized by its id; nothing was written now."""
        async with harness.open() as world:
            batch = submit("r")
            original = committed(await world.append(batch))
            assert await world.append(batch) == Duplicate(original, True)
            holder = await hold(world, "r")
            again = holder.batch(holder.outcome(), holder.outcome("step#2"))
            landed = committed(await world.append(again))
            assert await world.append(again) == Duplicate(landed, True)
            assert await seqs(world, "r") == [1, 2, 3, 4]

    async def test_the_same_batch_without_records_is_recognized(self, harness: ContractHarness) -> None:
        """The queue entry keeps the id of the last batch that changed it without a record."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            batch = holder.batch(queue=Drain())
            committed(await world.append(batch))
            again = await world.append(batch)
            assert isinstance(again, Duplicate), f"offered again, the door answered {again}"
            assert (again.original.first, again.original.last, again.claim_valid) == (3, 2, True)

    async def test_the_same_key_with_the_same_digest_is_recognized(self, harness: ContractHarness) -> None:
        """This key, with the same digest, is in the log already; nothing was written now. True for `Keyed`."""
        async with harness.open() as world:
            original = committed(await world.append(submit("r")))
            assert await world.append(submit("r")) == Duplicate(original, True), (
                "another batch id, the same key"
            )
            assert await seqs(world, "r") == [1, 2]
            info = await world.run("r")
            assert info is not None
            assert info.turns == 1

    async def test_the_same_key_with_another_digest_is_a_conflict(self, harness: ContractHarness) -> None:
        """The key was used with another digest."""
        async with harness.open() as world:
            original = committed(await world.append(submit("r", digest=b"one")))
            assert await world.append(submit("r", digest=b"two")) == KeyConflict(original)
            assert await seqs(world, "r") == [1, 2]

    async def test_keys_belong_to_their_run(self, harness: ContractHarness) -> None:
        """The key makes the batch idempotent within the run."""
        async with harness.open() as world:
            await begin(world, "a")
            assert isinstance(await world.append(submit("b", digest=b"other")), Committed)

    async def test_a_duplicate_says_whether_the_claim_still_holds(self, harness: ContractHarness) -> None:
        """Whether the author's claim holds now. Nobody acts without a claim that holds."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            batch = holder.batch(holder.outcome())
            original = committed(await holder.offer(batch))
            assert await world.append(batch) == Duplicate(original, True)
            await holder.release()
            assert await world.append(batch) == Duplicate(original, False)
            other = await hold(world, "r")
            assert await world.append(batch) == Duplicate(original, False)
            await other.finish()
            assert await world.append(batch) == Duplicate(original, False)

    async def test_a_lost_answer_and_a_takeover(self, harness: ContractHarness) -> None:
        """The ack of a `never` intent is lost, another worker takes over, the first offers it again: it is told
        its claim is gone and does not act."""
        async with harness.open() as first, harness.open() as second:
            await begin(first, "r")
            holder = await hold(first, "r", lease_seconds=30)
            intent = holder.batch(raw("r", b"", kind="call.intent", turn="t1", key="refund"))
            original = committed(await first.append(intent))  # the answer that the holder never saw
            await harness.advance(31)
            successor = await hold(second, "r")
            assert successor.claimed.head == 3, "the successor reads the intent: in doubt"
            assert await first.append(intent) == Duplicate(original, False)

    async def test_a_known_batch_is_found_before_the_head_is_checked(self, harness: ContractHarness) -> None:
        """In this order: batch id or key known? → claim → `prev_batch` → `at_head`."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            batch = holder.batch(holder.outcome(), at_head=2)
            original = committed(await holder.offer(batch))
            await world.append(signal("r"))
            assert await world.append(batch) == Duplicate(original, True), "its own record moved the head"
            outside = signal("r", "at-head", at_head=4)
            landed = committed(await world.append(outside))
            assert await world.append(outside) == Duplicate(landed, True)
            same_key = replace(outside, id=new_batch_id())
            assert await world.append(same_key) == Duplicate(landed, True)

    async def test_a_known_batch_is_found_before_the_claim_is_checked(self, harness: ContractHarness) -> None:
        """In this order: batch id or key known? → claim → `prev_batch` → `at_head`."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            batch = holder.batch(holder.outcome(), raw("r", b""), queue=Finish("t1", "succeeded"))
            original = committed(await world.append(batch))
            assert await world.append(batch) == Duplicate(original, False), (
                "its own finish released the claim"
            )

    async def test_a_known_batch_is_found_before_closed(self, harness: ContractHarness) -> None:
        """This batch (or key, with the same digest) is in the log already."""
        async with harness.open() as world:
            submitted, closing = submit("r"), close("r")
            first = committed(await world.append(submitted))
            last = committed(await world.append(closing))
            assert await world.append(closing) == Duplicate(last, True)
            assert await world.append(submitted) == Duplicate(first, True)
            assert await world.append(submit("r", digest=b"other")) == KeyConflict(first)

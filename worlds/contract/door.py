"""The door: in what order it decides, and what each of its answers means. Quotes are from `core/ports.py`."""

from contextlib import AsyncExitStack

import anyio

from journal.core.codec import Blob
from journal.core.errors import CorruptRecord
from journal.core.ids import new_batch_id, new_token
from journal.core.ports import (
    Batch,
    Claim,
    Committed,
    Drain,
    Duplicate,
    Finish,
    HeadMoved,
    Held,
    KeyConflict,
    Keyed,
    LogRegressed,
    NoRun,
    Progress,
    StaleClaim,
    World,
)
from journal.core.records import NewRecord
from journal.worlds.contract.harness import (
    PATIENCE_SECONDS,
    ContractCases,
    ContractHarness,
    at_once,
    begin,
    claim_all,
    committed,
    creation,
    hold,
    raw,
    refusal,
    seqs,
    signal,
    submit,
)


class DoorCases(ContractCases):
    """`Log.append`: what is taken, and how."""

    async def test_seqs_are_dense_from_one(self, harness: ContractHarness) -> None:
        """The store alone allocates seqs, dense from 1. `first` to `last` are the seqs of the batch's records, a
        created run's first one included."""
        async with harness.open() as world:
            first = committed(await world.append(submit("r")))
            assert (first.first, first.last) == (1, 2), "run.created is 1, turn.submitted is 2"
            second = committed(await world.append(signal("r")))
            assert (second.first, second.last) == (3, 3)
            holder = await hold(world, "r")
            third = committed(await holder.offer(holder.batch(holder.started(), holder.outcome())))
            assert (third.first, third.last) == (4, 5)
            assert await seqs(world, "r") == [1, 2, 3, 4, 5]

    async def test_a_record_is_read_as_it_was_written(self, harness: ContractHarness) -> None:
        """The envelope holds run, seq, time, type, turn, call key, epoch, batch id, body, checksum, key id."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            new = raw("r", b"\x00body", kind="call.intent", turn="t1", key="schritt ü\n#1", key_id="key-7")
            batch = holder.batch(new)
            answer = committed(await holder.offer(batch))
            (record,) = await world.read("r", after=2)
            assert (record.run, record.seq, record.type) == ("r", 3, "call.intent")
            assert (record.turn, record.key, record.key_id) == ("t1", "schritt ü\n#1", "key-7")
            assert (record.epoch, record.batch) == (1, batch.id)
            assert (record.body, record.checksum) == (b"\x00body", new.checksum)
            assert record.time == answer.time
            created = (await world.read("r", limit=1))[0]
            assert (created.type, created.epoch) == ("run.created", 0), "epoch 0: written outside a claim"

    async def test_records_of_a_batch_are_read_in_its_order(self, harness: ContractHarness) -> None:
        """The records of a batch lie one behind the other, in its order and at one time, however few they are."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            head = (await holder.start()).last
            for count in (2, 1, 2, 3, 1, 20):
                new = [
                    raw(
                        "r",
                        b"%d" % n,
                        kind=f"test.{n}",
                        turn="t1" if n % 3 else None,
                        key=f"call#{n}" if n % 2 else None,
                        key_id="key-7" if count == 3 else None,
                    )
                    for n in range(count)
                ]
                batch = holder.batch(*new, queue=Progress() if count == 2 else None)
                answer = committed(await holder.offer(batch))
                assert (answer.first, answer.last) == (head + 1, head + count)
                found = await world.read("r", after=head)
                head += count
                assert [record.seq for record in found] == list(range(answer.first, answer.last + 1))
                assert {(r.time, r.epoch, r.batch) for r in found} == {(answer.time, 1, batch.id)}
                assert [NewRecord(r.type, r.turn, r.key, r.body, r.checksum, r.key_id) for r in found] == new

    async def test_bodies_are_kept_exactly(self, harness: ContractHarness) -> None:
        """Values are opaque bytes: empty, NUL, every byte, 8 MiB."""
        bodies = [b"", b"\x00", bytes(range(256)), b"\xff\xfe" * 3, b"\x00\x01" * (4 * 1024 * 1024)]
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            for body in bodies:
                committed(await holder.offer(holder.batch(raw("r", body))))
            for seq, body in enumerate(bodies, 3):
                (record,) = await world.read("r", after=seq - 1, limit=1)
                assert record.body == body, f"a body of {len(body)} bytes came back changed"

    async def test_a_refused_batch_leaves_no_trace(self, harness: ContractHarness) -> None:
        """Everything of the batch becomes durable together: records, blobs, queue change, claim change. A batch
        that is refused leaves no trace."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            before = await world.run("r")
            batch = holder.batch(
                holder.outcome(), queue=Finish("t1", "succeeded"), at_head=1, blobs=(Blob("b1", b"data"),)
            )
            assert await world.append(batch) == HeadMoved(2)
            assert await world.run("r") == before
            assert await seqs(world, "r") == [1, 2]
            turn = await world.turn("r", "t1")
            assert turn is not None
            assert turn.status is None
            await refusal(CorruptRecord, world.get_blob("r", "b1"))
            await holder.record()

    async def test_a_taken_batch_is_there_as_a_whole(self, harness: ContractHarness) -> None:
        """Everything of the batch becomes durable together: records, blobs, queue change, claim change."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            finished = raw("r", b"", kind="turn.finished", turn="t1")
            batch = holder.batch(
                holder.outcome(), finished, queue=Finish("t1", "failed"), blobs=(Blob("b1", b"\x00data"),)
            )
            assert (await holder.offer(batch), await seqs(world, "r")) == (
                Committed(3, 4, (await world.read("r"))[-1].time),
                [1, 2, 3, 4],
            )
            assert await world.get_blob("r", "b1") == b"\x00data"
            info, turn = await world.run("r"), await world.turn("r", "t1")
            assert info is not None
            assert (info.status, info.head, info.turn) == ("failed", 4, None)
            assert turn is not None
            assert (turn.submitted, turn.status, turn.finished) == (2, "failed", 4)
            assert await holder.offer(holder.batch(holder.outcome())) == StaleClaim(1, 1)

    async def test_a_batch_without_records_answers_the_head(self, harness: ContractHarness) -> None:
        """A batch without records answers the head as `last` and head + 1 as `first`."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            answer = await holder.change(Drain())
            assert (answer.first, answer.last) == (3, 2)
            assert await seqs(world, "r") == [1, 2]

    async def test_create_is_ignored_if_the_run_exists(self, harness: ContractHarness) -> None:
        """Create the run if it is absent: `record` becomes its first one. Ignored if the run exists."""
        async with harness.open() as world:
            await begin(world, "r", agent="first")
            answer = committed(await world.append(submit("r", "t2", agent="second")))
            assert (answer.first, answer.last) == (3, 3)
            info = await world.run("r")
            assert info is not None
            assert (info.agent, info.turns, info.turn) == ("first", 2, "t1")
            assert [r.type for r in await world.read("r")] == [
                "run.created",
                "turn.submitted",
                "turn.submitted",
            ]

    async def test_a_run_may_be_created_without_a_turn(self, harness: ContractHarness) -> None:
        """Create the run if it is absent: `record` becomes its first one."""
        async with harness.open() as world:
            batch = Batch("r", new_batch_id(), Keyed("create", b"d"), create=creation("r"))
            answer = committed(await world.append(batch))
            assert (answer.first, answer.last) == (1, 1)
            info = await world.run("r")
            assert info is not None
            assert (info.turn, info.turns, info.head, info.due_at) == (None, 0, 1, None)
            assert await claim_all(world) == []

    # Many at once

    async def test_one_submit_of_twenty_is_taken(self, harness: ContractHarness) -> None:
        """Idempotent submit raced from 20 tasks: one turn."""
        async with AsyncExitStack() as stack:
            worlds = [await stack.enter_async_context(harness.open()) for _ in range(4)]
            answers = await at_once(*(worlds[n % 4].append(submit("r")) for n in range(20)))
            (original,) = [answer for answer in answers if isinstance(answer, Committed)]
            assert sum(answer == Duplicate(original, True) for answer in answers) == 19
            assert await seqs(worlds[0], "r") == [1, 2]

    async def test_batches_of_a_run_are_decided_in_order(self, harness: ContractHarness) -> None:
        """Batches of one run that are offered one after the other are decided in that order."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            batches = []
            for n in range(30):
                batch = holder.batch(holder.outcome(f"step#{n}"))
                holder.prev = batch.id  # each names the one before it, which is not answered yet
                batches.append(batch)
            answers = await at_once(*(world.append(batch) for batch in batches))
            assert [committed(answer).first for answer in answers] == list(range(3, 33))
            assert [r.key for r in await world.read("r", after=2)] == [f"step#{n}" for n in range(30)]

    async def test_a_bad_batch_does_not_fail_its_neighbours(self, harness: ContractHarness) -> None:
        """A batch that is refused leaves no trace and never fails a neighbour."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r")
            stale = Batch("r", new_batch_id(), Held(Claim("r", 1, new_token()), None), (raw("r", b""),))
            offers = [
                (submit("a"), Committed),
                (signal("absent"), NoRun),
                (submit("b"), Committed),
                (stale, StaleClaim),
                (holder.batch(holder.outcome()), Committed),
                (holder.batch(holder.outcome(), prev=b"?" * 16), LogRegressed),
                (submit("a", digest=b"other"), KeyConflict),
                (signal("b", at_head=77), HeadMoved),
                (holder.batch(holder.outcome()), Committed),
                (signal("b"), Committed),
            ]
            answers = await at_once(*(world.append(batch) for batch, _ in offers))
            assert [type(answer) for answer in answers] == [expected for _, expected in offers]
            assert [await seqs(world, run) for run in ("a", "b", "r")] == [[1, 2], [1, 2, 3], [1, 2, 3, 4]]

    async def test_fifty_runs_at_once(self, harness: ContractHarness) -> None:
        """One dense sequence a run, whatever else goes on."""
        async with harness.open() as first, harness.open() as second:
            runs = [f"r{n:02}" for n in range(50)]

            async def work(world: World, run: str) -> None:
                await begin(world, run)
                holder = await hold(world, run)
                await holder.start()
                for n in range(8):
                    await holder.record(f"step#{n}")
                await holder.finish()

            with anyio.fail_after(PATIENCE_SECONDS * 3):
                async with anyio.create_task_group() as group:
                    for n, run in enumerate(runs):
                        group.start_soon(work, (first, second)[n % 2], run)
            for run in runs:
                records = await first.read(run)
                assert [r.seq for r in records] == list(range(1, 13))
                assert [r.key for r in records[3:11]] == [f"step#{n}" for n in range(8)]

    async def test_cancelling_the_awaiter_withdraws_nothing(self, harness: ContractHarness) -> None:
        """Starts at once, awaited or not. Cancelling the awaiter does not withdraw the batch."""
        async with harness.open() as world:
            batch = submit("r")
            with anyio.CancelScope() as scope:
                scope.cancel()
                await world.append(batch)
            assert isinstance(await world.append(batch), Duplicate)
            dropped = signal("r")
            _ = world.append(dropped)
            assert isinstance(await world.append(dropped), Duplicate)
            assert await seqs(world, "r") == [1, 2, 3]

    async def test_an_answer_is_known_to_every_world_of_the_store(self, harness: ContractHarness) -> None:
        """The same batch offered again is recognized, by whichever process."""
        async with harness.open() as first, harness.open() as second:
            batch = submit("r")
            original = committed(await first.append(batch))
            assert await second.append(batch) == Duplicate(original, True)
            assert await seqs(second, "r") == [1, 2]

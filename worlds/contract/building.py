"""Runs that are copied from world to world: images, building, settling. Quotes are from `core/ports.py`."""

from msgspec.structs import replace

from journal.core.codec import Blob
from journal.core.errors import InvalidValue, RunGone, RunNotBuilding, RunNotFound
from journal.core.ids import new_batch_id
from journal.core.ports import (
    Batch,
    Building,
    Closed,
    Duplicate,
    KeyConflict,
    Keyed,
    Move,
    RunQuery,
    SweepPolicy,
    TurnInfo,
    World,
)
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
    raw,
    refusal,
    retry,
    seqs,
    signal,
    submit,
    watching,
)

ELSEWHERE = "sqlite:/elsewhere/journal.db"
ODD = (b"", b"\x00", bytes(range(256)), "für ℵ".encode(), b"\xff\xfe" * 3000)


def move(run: str, head: int, *, to: str = ELSEWHERE) -> Batch:
    """The run lives at `to` from now on."""
    return Batch(run, new_batch_id(), Keyed(f"move:{to}", b"digest"), at_head=head, queue=Move(to))


async def worked_on(world: World, run: str = "r") -> None:
    """A run with a turn that has ended, one that has not, odd bytes, blobs, and keys."""
    await begin(world, run, "t1")
    holder = await hold(world, run)
    await holder.start()
    odd = [raw(run, body, turn="t1", key=f"k\u00e9y#{n}", key_id="k1") for n, body in enumerate(ODD)]
    committed(await holder.offer(holder.batch(*odd, blobs=(Blob("b1", b"\x00a blob"), Blob("b2", b"")))))
    await holder.finish()
    await begin(world, run, "t2", priority=3)
    committed(await world.append(signal(run, "hello")))


async def built(source: World, target: World, run: str = "r", *, size: int = 3) -> None:
    """A copy in pieces that is whole, and not settled."""
    image = await source.image(run)
    blobs = [Blob(blob, await source.get_blob(run, blob)) for blob in image.blobs]
    head = await target.build(image, (), blobs)
    while head < image.head:
        head = await target.build(image, await source.read(run, after=head, limit=size), ())


async def built_on(source: World, target: World, run: str = "r", *, size: int = 3) -> int:
    """The same for a copy that was settled: its last record is shown again. Returns its head."""
    image, head = await source.image(run), (await info_of(target, run)).head
    await target.build(image, await source.read(run, after=head - 1, limit=size), ())
    await built(source, target, run, size=size)
    return (await info_of(target, run)).head


class BuildingCases(ContractCases):
    """Images, building and settling."""

    # The image

    async def test_an_image_says_everything(self, harness: ContractHarness) -> None:
        """Everything about a run besides its records and the bytes of its blobs."""
        async with harness.open() as world:
            await worked_on(world)
            image = await world.image("r")
            info = await info_of(world)
            assert (image.run, image.agent, image.created) == ("r", "agent", info.created)
            assert (image.min_reader, image.closed, image.epoch, image.head) == (1, None, 1, info.head)
            assert image.turns == (TurnInfo("t1", 2, "succeeded", 9), TurnInfo("t2", 10, None, None))
            assert [(k.key, k.digest, k.first, k.last) for k in image.keys] == [
                ("hello", b"digest", 11, 11),
                ("submit:t1", b"digest", 1, 2),
                ("submit:t2", b"digest", 10, 10),
            ]
            times = {r.seq: r.time for r in await world.read("r")}
            assert [k.time for k in image.keys] == [times[11], times[1], times[10]]
            assert image.blobs == ("b1", "b2")
            assert (image.status, image.priority, image.due_at) == ("pending", 3, info.due_at)
            assert (image.takeovers, image.held, image.moved_to, image.building) == (0, False, None, False)
            assert image.is_unfinished

    async def test_an_image_says_whether_somebody_holds_the_run(self, harness: ContractHarness) -> None:
        """Whether somebody holds it, with a lease that has not run out."""
        async with harness.open() as world:
            await begin(world, "r")
            holder = await hold(world, "r", lease_seconds=30)
            image = await world.image("r")
            assert (image.held, image.status, image.epoch) == (True, "pending", 1)
            await harness.advance(31)
            assert not (await world.image("r")).held
            holder = await hold(world, "r")
            assert (await world.image("r")).takeovers == 1
            await holder.release()
            assert not (await world.image("r")).held

    async def test_there_is_no_image_of_what_is_not_there(self, harness: ContractHarness) -> None:
        """Raises `RunNotFound`, `RunGone` like a read."""
        async with harness.open() as world:
            assert (await refusal(RunNotFound, world.image("absent"))).run_id == "absent"
            await begin(world, "r")
            committed(await world.append(close("r")))
            await harness.advance(1)
            assert await world.sweep(SweepPolicy(closed_older_than_seconds=0)) == 1
            assert (await refusal(RunGone, world.image("r"))).to is None

    # Building

    async def test_a_copy_is_the_same_run(self, harness: ContractHarness) -> None:
        """Records are taken as they are, every field of them. A run like any other, as its last image says."""
        async with harness.open(namespace="one") as source, harness.open(namespace="two") as target:
            await worked_on(source)
            await harness.advance(50)
            await built(source, target)
            await target.settle("r", is_live=True)
            assert await target.read("r") == await source.read("r")
            assert await target.image("r") == await source.image("r")
            info = replace(await info_of(source), namespace=target.namespace, position=0)
            assert replace(await info_of(target), position=0) == info
            for turn in ("t1", "t2", "t3"):
                assert await target.turn("r", turn) == await source.turn("r", turn)
            assert (await target.get_blob("r", "b1"), await target.get_blob("r", "b2")) == (
                b"\x00a blob",
                b"",
            )
            assert await target.runs(RunQuery()) == [await info_of(target)]
            assert [
                (s.agent, s.due) for s in await target.stats()
            ] == [("agent", 1)]  # fmt: skip

    async def test_a_copy_goes_on_where_the_run_was(self, harness: ContractHarness) -> None:
        """From now on it is a run like any other."""
        async with harness.open(namespace="one") as source, harness.open(namespace="two") as target:
            await worked_on(source)
            await built(source, target)
            await target.settle("r", is_live=True)
            again = await target.append(submit("r", "t2"))
            assert isinstance(again, Duplicate), f"a key that was copied: {again}"
            assert (again.original.first, again.original.last) == (10, 10)
            conflict = await target.append(submit("r", "t1", digest=b"other"))
            assert isinstance(conflict, KeyConflict)
            holder = await hold(target, "r")
            claimed = holder.claimed
            assert (claimed.claim.epoch, claimed.turn, claimed.submitted) == (2, "t2", 10)
            assert (claimed.head, claimed.takeovers, claimed.taken_over) == (11, 0, False)
            last = (await target.read("r", after=10))[0].batch
            committed(await holder.offer(holder.batch(holder.outcome(), prev=last)))
            await holder.finish()
            assert await seqs(target, "r") == list(range(1, 14))
            assert (await info_of(target)).status == "succeeded"
            assert (await info_of(source)).head == 11, "the source is another run"

    async def test_a_copy_may_be_built_again_from_anywhere(self, harness: ContractHarness) -> None:
        """Those up to the head are there already and are skipped, so that any call may be made again."""
        async with harness.open(namespace="one") as source, harness.open(namespace="two") as target:
            await worked_on(source)
            image, records = await source.image("r"), await source.read("r")
            blob = Blob("b1", b"\x00a blob")
            assert await target.build(image, records[:4], [blob]) == 4
            assert await target.build(image, records[:4], [blob]) == 4
            assert await target.build(image, records[2:6], [blob]) == 6
            assert await target.build(image, records[:2], []) == 6
            assert await target.build(image, [], [Blob("b2", b"")]) == 6
            assert await target.build(image, records, []) == 11
            await target.settle("r", is_live=True)
            assert await target.read("r") == records
            assert await target.image("r") == image

    async def test_a_copy_has_no_gap(self, harness: ContractHarness) -> None:
        """Must go on densely behind the head. All of it or nothing. `InvalidValue` for a gap."""
        async with harness.open(namespace="one") as source, harness.open(namespace="two") as target:
            await worked_on(source)
            image, records = await source.image("r"), await source.read("r")
            await refusal(InvalidValue, target.build(image, records[1:3], []))
            assert await target.run("r") is None, "nothing was written"
            await target.build(image, records[:3], [])
            await refusal(InvalidValue, target.build(image, records[4:], []))
            await refusal(InvalidValue, target.build(image, [*records[3:5], *records[6:]], []))
            await refusal(InvalidValue, target.build(image, [replace(records[3], run="other")], []))
            assert await seqs(target, "r") == [1, 2, 3]

    async def test_a_later_image_replaces_the_one_before(self, harness: ContractHarness) -> None:
        """Everything else is replaced by what `image` says."""
        async with harness.open(namespace="one") as source, harness.open(namespace="two") as target:
            await worked_on(source)
            await built(source, target)
            holder = await hold(source, "r")
            await holder.finish("failed")
            await harness.advance(5)
            await begin(source, "r", "t3", due_at=None)
            await (await hold(source, "r")).release(500.0)
            await built(source, target)
            await target.settle("r", is_live=True)
            assert await target.image("r") == await source.image("r")
            assert await target.read("r") == await source.read("r")
            assert await claim_all(target) == [], "due later, there as here"
            await harness.advance(501)
            assert (await hold(target, "r")).claimed.turn == "t3"

    async def test_a_run_that_is_being_built_takes_nothing(self, harness: ContractHarness) -> None:
        """It may be read, and takes nothing through the door; nobody can claim it, and no sweep takes it."""
        async with harness.open(namespace="one") as source, harness.open(namespace="two") as target:
            await worked_on(source)
            holder = await hold(source, "r")
            await built(source, target)
            assert await target.read("r") == await source.read("r")
            for batch in (
                submit("r", "t1"), submit("r", "t9"), signal("r"), close("r"), holder.batch(holder.outcome()),
                move("r", 11),
            ):  # fmt: skip
                assert await target.append(batch) == Building()
            assert await claim_all(target) == []
            assert await claim_all(target, run="r") == []
            info = await info_of(target)
            assert (info.building, info.head, info.due_at) == (True, 11, None)
            assert [i.building for i in await target.runs(RunQuery())] == [True]
            assert (await target.image("r")).building
            assert await target.stats() == []
            await harness.advance(10_000)
            assert await target.sweep(SweepPolicy(closed_older_than_seconds=0)) == 0
            await target.settle("r", is_live=True)
            assert not (await info_of(target)).building

    async def test_a_run_that_is_there_is_not_built(self, harness: ContractHarness) -> None:
        """Raises `RunNotBuilding` for a run that is there and is not building, `RunGone` where a tombstone is."""
        async with harness.open(namespace="one") as source, harness.open(namespace="two") as target:
            await worked_on(source)
            image, records = await source.image("r"), await source.read("r")
            await begin(target, "r")
            error = await refusal(RunNotBuilding, target.build(image, records, []))
            assert (error.run_id, error.world) == ("r", target.url)
            assert await seqs(target, "r") == [1, 2]
            committed(await target.append(close("r")))
            await harness.advance(1)
            assert await target.sweep(SweepPolicy(closed_older_than_seconds=0, tombstone_seconds=100)) == 1
            assert (await refusal(RunGone, target.build(image, records, []))).run_id == "r"
            await harness.advance(101)
            assert await target.build(image, records, []) == 11, "the time of the tombstone is over"

    # Going on with a copy

    async def test_a_copy_that_nobody_touched_is_built_on(self, harness: ContractHarness) -> None:
        """A settled copy that nobody has touched, if `records` hold the one at its head: it is building again."""
        async with harness.open(namespace="one") as source, harness.open(namespace="two") as target:
            await worked_on(source)
            for n in range(3):
                image = await source.image("r")
                await built(source, target) if not n else await built_on(source, target)
                assert (await info_of(target)).building
                assert await target.append(signal("r", "early")) == Building()
                assert await target.stats() == []
                await target.settle("r", is_live=False)
                assert await target.image("r") == replace(image, status="blocked", due_at=None)
                assert [(s.agent, s.blocked) for s in await target.stats()] == [("agent", 1)]
                assert await claim_all(target) == []
                holder = await hold(source, "r")  # it goes on there
                last = (await source.read("r", after=image.head - 1))[0].batch
                blob = Blob(f"more{n}", b"more")
                committed(await holder.offer(holder.batch(holder.outcome(), prev=last, blobs=(blob,))))
                await holder.release()
            assert await built_on(source, target) == 14
            await target.settle("r", is_live=True)
            assert await target.read("r") == await source.read("r")
            assert await target.image("r") == await source.image("r")
            assert await target.runs(RunQuery()) == [await info_of(target)]
            assert await target.runs(RunQuery(status="blocked")) == []
            assert await target.runs(RunQuery(status="pending", agent="agent")) == [await info_of(target)]
            claimed = (await hold(target, "r")).claimed
            assert (claimed.claim.epoch, claimed.turn, claimed.head) == (5, "t2", 14)

    async def test_a_copy_that_is_whole_is_made_to_go_on(self, harness: ContractHarness) -> None:
        """If `records` hold the one at its head, the same: it is building again."""
        async with harness.open(namespace="one") as source, harness.open(namespace="two") as target:
            await worked_on(source)
            await built(source, target)
            await target.settle("r", is_live=False)
            assert await built_on(source, target) == 11
            await target.settle("r", is_live=True)
            assert await target.image("r") == await source.image("r")
            assert (await hold(target, "r")).claimed.turn == "t2"

    async def test_a_copy_without_an_unfinished_turn_is_built_on(self, harness: ContractHarness) -> None:
        """A settled copy that nobody has touched."""
        async with harness.open(namespace="one") as source, harness.open(namespace="two") as target:
            await begin(source, "r")
            await (await hold(source, "r")).finish()
            await built(source, target)
            await target.settle("r", is_live=False)
            await begin(source, "r", "t2")
            assert await built_on(source, target) == 4
            await target.settle("r", is_live=True)
            assert await target.image("r") == await source.image("r")
            assert (await hold(target, "r")).claimed.turn == "t2"

    async def test_a_copy_that_was_touched_is_left_alone(self, harness: ContractHarness) -> None:
        """What is closed or moved, is claimed or due, or is not blocked. Or its last record is another."""
        async with harness.open(namespace="one") as source, harness.open(namespace="two") as target:
            runs = ("grown", "sent on", "claimed", "closed", "moved", "unshown", "lower", "live", "parked")
            for run in runs:
                await begin(source, run)
                holder = await hold(source, run)
                await holder.start()
                if run == "parked":
                    await holder.park()
                else:
                    await holder.release()
                await built(source, target, run)
                await target.settle(run, is_live=run in ("live", "parked", "claimed"))
            committed(await target.append(signal("grown")))
            committed(await target.append(retry("sent on", "t1")))
            await hold(target, "claimed")
            committed(await target.append(close("closed")))
            committed(await target.append(move("moved", 3)))
            for run in runs:
                committed(await source.append(signal(run, "more")))
                before = await target.image(run)
                image, records = await source.image(run), await source.read(run)
                if run == "unshown":
                    records = records[3:]
                if run == "lower":
                    image = replace(image, epoch=0)
                for shown in (records, records[-1:], ()):
                    await refusal(RunNotBuilding, target.build(image, shown, ()))
                assert await target.image(run) == before

    # Settling

    async def test_only_what_is_built_is_settled(self, harness: ContractHarness) -> None:
        """Raises `RunNotBuilding`, `RunNotFound`, and `InvalidValue` if records up to the image's head are missing."""
        async with harness.open(namespace="one") as source, harness.open(namespace="two") as target:
            await worked_on(source)
            for is_live in (True, False):
                await refusal(RunNotBuilding, source.settle("r", is_live=is_live))
                await refusal(RunNotFound, target.settle("r", is_live=is_live))
            assert (await hold(source, "r")).claimed.turn == "t2", "it was left alone"
            image, records = await source.image("r"), await source.read("r")
            await target.build(image, records[:-1], [])
            await refusal(InvalidValue, target.settle("r", is_live=True))
            assert (await info_of(target)).building
            await target.build(image, records[-1:], [])
            await target.settle("r", is_live=True)
            await refusal(RunNotBuilding, target.settle("r", is_live=False))
            await refusal(RunNotBuilding, target.build(image, records, []))
            await hold(target, "r")

    async def test_a_copy_that_is_not_live_is_held_back(self, harness: ContractHarness) -> None:
        """If it has an unfinished turn it is blocked, and nobody works on it before a `Retry`; and it is not due."""
        async with harness.open(namespace="one") as source, harness.open(namespace="two") as target:
            await worked_on(source)
            await built(source, target)
            await target.settle("r", is_live=False)
            info = await info_of(target)
            assert (info.status, info.turn, info.due_at, info.building) == ("blocked", "t2", None, False)
            committed(await target.append(signal("r")))
            await begin(target, "r", "t3")
            assert await claim_all(target) == []
            committed(await target.append(retry("r", "t2")))
            assert (await hold(target, "r")).claimed.turn == "t2"

    async def test_a_copy_without_an_unfinished_turn_is_simply_there(self, harness: ContractHarness) -> None:
        """Not `is_live`: if it has an unfinished turn it is blocked."""
        async with harness.open(namespace="one") as source, harness.open(namespace="two") as target:
            await begin(source, "r")
            await (await hold(source, "r")).finish("failed")
            await built(source, target)
            await target.settle("r", is_live=False)
            assert (await info_of(target)).status == "failed"
            assert await claim_all(target) == []
            await begin(target, "r", "t2")
            assert (await hold(target, "r")).claimed.turn == "t2"

    async def test_a_closed_run_is_copied_closed(self, harness: ContractHarness) -> None:
        """When it was closed."""
        async with harness.open(namespace="one") as source, harness.open(namespace="two") as target:
            await worked_on(source)
            committed(await source.append(close("r")))
            await built(source, target)
            await harness.advance(100)
            assert await target.sweep(SweepPolicy(closed_older_than_seconds=0)) == 0, "not while it is built"
            await target.settle("r", is_live=False)
            assert await target.image("r") == await source.image("r")
            assert (await info_of(target)).closed
            assert await target.append(signal("r", "late")) == Closed()
            assert await claim_all(target) == []
            assert len(await follow_all(target, "r")) == 12
            assert await target.sweep(SweepPolicy(closed_older_than_seconds=101)) == 0
            assert await target.sweep(SweepPolicy(closed_older_than_seconds=99)) == 1

    async def test_whoever_waits_for_a_run_sees_it_arrive(self, harness: ContractHarness) -> None:
        """It waits for a run that does not exist yet."""
        async with harness.open(namespace="one") as source, harness.open(namespace="two") as target:
            await worked_on(source)
            async with watching(target, "r") as watcher:
                await built(source, target)
                await watcher.until_count(11)
                await target.settle("r", is_live=True)
                committed(await target.append(signal("r", "more")))
                await watcher.until_count(12)
                assert [item.seq for item in watcher.items] == list(range(1, 13))

    async def test_the_run_of_a_dead_holder_is_taken_over(self, harness: ContractHarness) -> None:
        """Somebody held it and let the lease run out, or died: whoever is given it next takes over."""
        async with harness.open(namespace="one") as source, harness.open(namespace="two") as target:
            await begin(source, "r")
            await (await hold(source, "r", lease_seconds=30)).start()
            assert not (await source.image("r")).abandoned
            await harness.advance(31)
            image = await source.image("r")
            assert (image.held, image.abandoned, image.takeovers) == (False, True, 0)
            await built(source, target)
            assert not (await target.image("r")).abandoned
            assert await claim_all(target) == []
            await target.settle("r", is_live=True)
            assert await target.image("r") == image
            (claimed,) = await claim_all(target)
            assert (claimed.claim.epoch, claimed.turn) == (2, "t1")
            assert (claimed.taken_over, claimed.takeovers) == (True, 1)

    async def test_a_copy_held_back_of_a_dead_holder_is_no_takeover(self, harness: ContractHarness) -> None:
        """If it has an unfinished turn it is blocked, and nobody works on it before a `Retry`."""
        async with harness.open(namespace="one") as source, harness.open(namespace="two") as target:
            await begin(source, "r")
            await (await hold(source, "r", lease_seconds=30)).start()
            await harness.advance(31)
            await built(source, target)
            await target.settle("r", is_live=False)
            assert not (await target.image("r")).abandoned
            assert await claim_all(target) == []
            await built_on(source, target)
            await target.settle("r", is_live=True)
            assert (await hold(target, "r")).claimed.taken_over

    async def test_what_is_being_built_outlives_the_world(self, harness: ContractHarness) -> None:
        """All of it becomes durable."""
        if not harness.is_persistent:
            self.skip("this world does not claim log.persistent")
        async with harness.open(namespace="one") as source:
            await worked_on(source)
            image, records = await source.image("r"), await source.read("r")
            async with harness.open(namespace="two") as target:
                await target.build(image, records[:5], [Blob("b1", b"\x00a blob"), Blob("b2", b"")])
            async with harness.open(namespace="two") as target:
                assert await target.append(signal("r")) == Building()
                assert await target.build(image, records[4:], []) == 11
            async with harness.open(namespace="two") as target:
                await target.settle("r", is_live=True)
                assert await target.read("r") == records
                assert await target.image("r") == image
                await hold(target, "r")

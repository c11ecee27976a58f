"""Worlds that break one promise each, to see that the contract suite notices.

All are the memory world with one method bent, as an author of a world might get it wrong.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from journal.core.clock import ManualClock
from journal.core.codec import Blob
from journal.core.errors import RunNotBuilding
from journal.core.ports import (
    START,
    Answer,
    Batch,
    Claim,
    Claims,
    Delta,
    Duplicate,
    HeadMoved,
    Held,
    Item,
    KeyConflict,
    Keyed,
    Move,
    RunImage,
    StaleClaim,
    SweepPolicy,
    World,
)
from journal.core.records import Record
from journal.worlds.memory import MemoryRenewer, MemoryWorld
from journal.worlds.memory_store import Run, Store


class Bent(MemoryWorld):
    """What the broken worlds share: a way to look at the run under a batch."""

    def found(self, run: str) -> Run | None:
        return self._store.runs.get((self.namespace, run))

    def answered(self, answer: Answer) -> asyncio.Future[Answer]:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        future.set_result(answer)
        return future


class HeadBeforeIdempotency(Bent):
    """Checks the head first: a retry after a lost answer is told that the head moved."""

    def append(self, batch: Batch) -> asyncio.Future[Answer]:
        run = self.found(batch.run)
        if run is not None and batch.at_head is not None and batch.at_head != run.head:
            return self.answered(HeadMoved(run.head))
        return super().append(batch)


class ClaimBeforeIdempotency(Bent):
    """Checks the claim first: a holder whose own finish released the claim is told that it is stale."""

    def append(self, batch: Batch) -> asyncio.Future[Answer]:
        run, author = self.found(batch.run), batch.author
        if run is not None and isinstance(author, Held) and not run.holds(author.claim):
            return self.answered(StaleClaim(author.claim.epoch, run.entry.epoch))
        return super().append(batch)


class SeqGap(Bent):
    """Numbers records by a global counter, as it were: a run's seqs have holes."""

    async def read(self, run: str, *, after: int = 0, limit: int = 500) -> list[Record]:
        records = await super().read(run, after=after, limit=limit)
        return [record if record.seq < 3 else replace(record, seq=record.seq + 1) for record in records]


class IgnoresToken(Bent):
    """Compares epochs only."""

    def append(self, batch: Batch) -> asyncio.Future[Answer]:
        run, author = self.found(batch.run), batch.author
        if run is not None and isinstance(author, Held) and run.entry.token is not None:
            claim = replace(author.claim, token=run.entry.token)
            batch = replace(batch, author=replace(author, claim=claim))
        return super().append(batch)


class IgnoresPrevious(Bent):
    """Lets batch n + 1 land without n."""

    def append(self, batch: Batch) -> asyncio.Future[Answer]:
        if isinstance(batch.author, Held):
            batch = replace(batch, author=replace(batch.author, prev_batch=None))
        return super().append(batch)


class QueueApart(Bent):
    """Changes the queue in a transaction of its own: it stands even when the records are refused."""

    def append(self, batch: Batch) -> asyncio.Future[Answer]:
        run = self.found(batch.run)
        if run is not None and batch.at_head not in (None, run.head) and batch.queue is not None:
            super().append(replace(batch, id=b"queue" + batch.id, records=(), at_head=None))
        return super().append(batch)


class LyingDuplicate(Bent):
    """Tells every author of a duplicate that its claim holds."""

    def append(self, batch: Batch) -> asyncio.Future[Answer]:
        answer = self._store.append((self.namespace, batch.run), batch, self._clock.time())
        if isinstance(answer, Duplicate):
            answer = Duplicate(answer.original, True)
        return self.answered(answer)


class KeyWithoutDigest(Bent):
    """Takes the same key with another input for the same submit."""

    def append(self, batch: Batch) -> asyncio.Future[Answer]:
        answer = self._store.append((self.namespace, batch.run), batch, self._clock.time())
        if isinstance(answer, KeyConflict) and isinstance(batch.author, Keyed):
            answer = Duplicate(answer.original, True)
        return self.answered(answer)


class Withdraws(Bent):
    """Offers the batch only once it is awaited, and forgets it when the awaiter is cancelled."""

    def append(self, batch: Batch) -> Any:
        async def offer() -> Answer:
            await asyncio.sleep(0)
            return await MemoryWorld.append(self, batch)

        return asyncio.ensure_future(offer())


class FollowDropping(Bent):
    """Reads first and subscribes after, as it were: now and then a record falls between."""

    async def follow(self, run: str, *, offset: str = START) -> AsyncIterator[Item]:
        async for item in super().follow(run, offset=offset):
            if item.seq != 4:
                yield item


class FollowDoubling(Bent):
    """Includes the item at the offset again."""

    async def follow(self, run: str, *, offset: str = START) -> AsyncIterator[Item]:
        seq, _, sub = offset.partition("_")
        if seq.isdecimal() and int(seq) > 0 and len(seq) == 16:
            offset = f"{int(seq) - 1:016d}_{sub}"
        async for item in super().follow(run, offset=offset):
            yield item


class UnfencedDeltas(Bent):
    """Stores deltas of whoever offers them."""

    async def publish(self, claim: Claim, deltas: Sequence[Delta]) -> bool:
        run = self.found(claim.run)
        if run is not None and run.entry.token is not None:
            claim = Claim(claim.run, run.entry.epoch, run.entry.token)
        return await super().publish(claim, deltas)


class WallClockLeases(Bent):
    """Measures leases by the wall clock."""

    def __init__(self, store: Store, *, url: str, namespace: str, clock: ManualClock) -> None:
        super().__init__(store, url=url, namespace=namespace, clock=clock)
        self._clock = _WallOnly(clock)


class _WallOnly:
    def __init__(self, clock: ManualClock) -> None:
        self.time = clock.time
        self.boottime = clock.time
        self.boot_id = clock.boot_id


class RenewsTheLost(Bent):
    """Says that every claim was renewed."""

    def open_renewer(self) -> MemoryRenewer:
        class Renewer(MemoryRenewer):
            def renew(self, claims: Sequence[Claim], lease_seconds: float) -> set[Claim]:
                super().renew(claims, lease_seconds)
                return set(claims)

        return Renewer(self._store, self.namespace, self._clock)


class CountsDraining(Bent):
    """Counts a takeover from a draining holder as a crash."""

    def append(self, batch: Batch) -> asyncio.Future[Answer]:
        future = super().append(batch)
        run = self.found(batch.run)
        if run is not None and run.entry.draining:
            run.entry = replace(run.entry, draining=False)
        return future


class IgnoresReader(Bent):
    """Gives a run to a worker that cannot read it."""

    async def claim(
        self,
        *,
        worker: str,
        limit: int,
        lease_seconds: float,
        agents: Collection[str] | None,
        reads: int,
        run: str | None = None,
    ) -> Claims:
        return await super().claim(
            worker=worker, limit=limit, lease_seconds=lease_seconds, agents=agents, reads=99, run=run
        )


class OneNamespace(Bent):
    """Keeps all tenants in one place."""

    def __init__(self, store: Store, *, url: str, namespace: str, clock: ManualClock) -> None:
        super().__init__(store, url=url, namespace="all", clock=clock)


class BuildsWithGaps(Bent):
    """Takes what it is given, and numbers the records anew where some are missing."""

    async def build(self, image: RunImage, records: Sequence[Record], blobs: Sequence[Blob]) -> int:
        run = self.found(image.run)
        head = run.head if run else 0
        if records and records[0].seq > head:
            records = [replace(r, run=image.run, seq=seq) for seq, r in enumerate(records, head + 1)]
        return await super().build(image, records, blobs)


class BuildsOver(Bent):
    """Takes any run of that id for one that is being built."""

    async def build(self, image: RunImage, records: Sequence[Record], blobs: Sequence[Blob]) -> int:
        run = self.found(image.run)
        if run is not None:
            run.building = image
        return await super().build(image, records, blobs)


class BuildsOnAnything(Bent):
    """Takes a run that went on by itself for a copy that nobody has touched."""

    async def build(self, image: RunImage, records: Sequence[Record], blobs: Sequence[Blob]) -> int:
        run = self.found(image.run)
        if run is not None and any(record in run.records for record in records):
            run.building = image
        return await super().build(image, records, blobs)


class NeverBuildsOn(Bent):
    """Leaves every copy as it was settled."""

    async def build(self, image: RunImage, records: Sequence[Record], blobs: Sequence[Blob]) -> int:
        run = self.found(image.run)
        if run is not None and run.building is None:
            raise RunNotBuilding(run_id=image.run, world=self.url)
        return await super().build(image, records, blobs)


class SettlesAnything(Bent):
    """Settles runs that nobody has built."""

    async def settle(self, run: str, *, is_live: bool) -> None:
        found = self.found(run)
        if found is not None and found.building is None:
            found.building = await self.image(run)
        await super().settle(run, is_live=is_live)


class SettlesHalf(Bent):
    """Settles what has not come to its head."""

    async def settle(self, run: str, *, is_live: bool) -> None:
        found = self.found(run)
        if found is not None and found.building is not None:
            found.building = replace(found.building, head=found.head)
        await super().settle(run, is_live=is_live)


class AlwaysLive(Bent):
    """Lets every copy go on at once: what its origin does is done twice."""

    async def settle(self, run: str, *, is_live: bool) -> None:
        await super().settle(run, is_live=True)


class ForgetsTheDead(Bent):
    """Takes what a dead holder left for what was given back."""

    async def build(self, image: RunImage, records: Sequence[Record], blobs: Sequence[Blob]) -> int:
        return await super().build(replace(image, abandoned=False), records, blobs)


class OpenWhileBuilding(Bent):
    """Lets appends into a run that is being built."""

    def append(self, batch: Batch) -> asyncio.Future[Answer]:
        run = self.found(batch.run)
        if run is not None:
            run.building = None
        return super().append(batch)


class TakesAfterMove(Bent):
    """Lets appends into a run that lives elsewhere now."""

    def append(self, batch: Batch) -> asyncio.Future[Answer]:
        run = self.found(batch.run)
        if run is not None and run.moved_to is not None:
            run.moved_to, run.is_closed = None, False
        return super().append(batch)


class MovesUnseen(Bent):
    """Moves a run away whatever has been appended since it was copied."""

    def append(self, batch: Batch) -> asyncio.Future[Answer]:
        if isinstance(batch.queue, Move):
            batch = replace(batch, at_head=None)
        return super().append(batch)


class ForgetsAddress(Bent):
    """Keeps a tombstone of a moved run no longer than any other."""

    async def sweep(self, policy: SweepPolicy) -> int:
        for run in self._store.runs.values():
            run.moved_to = None
        return await super().sweep(replace(policy, moved=None))


BROKEN: dict[type[Bent], str] = {
    HeadBeforeIdempotency: "test_a_known_batch_is_found_before_the_head_is_checked",
    ClaimBeforeIdempotency: "test_a_known_batch_is_found_before_the_claim_is_checked",
    SeqGap: "test_seqs_are_dense_from_one",
    IgnoresToken: "test_a_claim_is_compared_in_both_parts",
    IgnoresPrevious: "test_a_batch_does_not_land_without_the_one_before",
    QueueApart: "test_a_refused_batch_leaves_no_trace",
    LyingDuplicate: "test_a_lost_answer_and_a_takeover",
    KeyWithoutDigest: "test_the_same_key_with_another_digest_is_a_conflict",
    Withdraws: "test_cancelling_the_awaiter_withdraws_nothing",
    FollowDropping: "test_a_long_history_is_read_through",
    FollowDoubling: "test_from_every_offset_no_gap_and_no_double",
    UnfencedDeltas: "test_publishing_is_fenced",
    WallClockLeases: "test_stepping_the_wall_clock_loses_no_lease",
    RenewsTheLost: "test_a_lost_claim_is_not_renewed",
    CountsDraining: "test_a_draining_holder_is_not_counted",
    IgnoresReader: "test_claim_keeps_to_what_its_worker_reads",
    OneNamespace: "test_namespaces_are_apart",
    BuildsWithGaps: "test_a_copy_has_no_gap",
    BuildsOver: "test_a_run_that_is_there_is_not_built",
    BuildsOnAnything: "test_a_copy_that_was_touched_is_left_alone",
    NeverBuildsOn: "test_a_copy_that_nobody_touched_is_built_on",
    SettlesAnything: "test_only_what_is_built_is_settled",
    SettlesHalf: "test_only_what_is_built_is_settled",
    AlwaysLive: "test_a_copy_that_is_not_live_is_held_back",
    ForgetsTheDead: "test_the_run_of_a_dead_holder_is_taken_over",
    OpenWhileBuilding: "test_a_run_that_is_being_built_takes_nothing",
    TakesAfterMove: "test_a_moved_run_takes_nothing_more",
    MovesUnseen: "test_a_run_is_moved_only_at_the_head_that_was_copied",
    ForgetsAddress: "test_the_tombstone_of_a_moved_run_keeps_its_address",
}
"""Each broken world, and a case that must name what is broken."""


class BrokenHarness:
    """A harness over a store of one broken world."""

    is_persistent = False
    can_step_wall = True

    def __init__(self, kind: type[Bent]) -> None:
        self.kind = kind
        self.store = Store()
        self.clock = ManualClock()

    @asynccontextmanager
    async def open(self, *, namespace: str = "default") -> AsyncIterator[World]:
        world = self.kind(self.store, url="memory:broken", namespace=namespace, clock=self.clock)
        try:
            yield world
        finally:
            await world.aclose()

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def step_wall(self, seconds: float) -> None:
        self.clock.step_wall(seconds)

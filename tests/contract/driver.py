"""Offers the same to several worlds and to the model, and compares what they answer and what they show."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import event, note

from journal.core.clock import ManualClock
from journal.core.errors import RunGone
from journal.core.ports import (
    Answer,
    Batch,
    Block,
    Claim,
    Claimed,
    Close,
    Committed,
    Create,
    Delta,
    Drain,
    Duplicate,
    Finish,
    Held,
    KeyConflict,
    Keyed,
    Move,
    Park,
    Progress,
    QueueChange,
    Release,
    Retry,
    RunQuery,
    Submit,
    SweepPolicy,
    Wake,
    World,
)
from journal.core.records import TurnStatus
from journal.worlds.contract.harness import follow_all, place, raw, refusal
from tests.contract.model import SWEEP_AFTER, TOMBSTONE, Model, ModelRun, Offer

POLICY = SweepPolicy(
    closed_older_than_seconds=SWEEP_AFTER, tombstone_seconds=TOMBSTONE, deltas_older_than_seconds=1e12
)


@dataclass
class Driver:
    """Offers the same to all, and compares."""

    worlds: list[World]
    clock: ManualClock
    model: Model = field(default_factory=Model)
    claims: list[list[Claim]] = field(default_factory=list)
    """Claim number → the claim in each world."""
    turns: list[str | None] = field(default_factory=list)
    last: dict[int, bytes] = field(default_factory=dict)
    offers: list[tuple[Offer, Callable[[int], Batch]]] = field(default_factory=list)
    count: int = 0

    async def do(self, operation: tuple[object, ...]) -> None:
        self.count += 1
        self._pass(1.0)  # no two entries are ever due at the same instant, so the order is never a toss-up
        if any(until <= self.model.wall for until, _ in self.model.tombstones.values()):
            await self.sweep()
        await getattr(self, str(operation[0]))(*operation[1:])

    def _pass(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.model.wall += seconds
        self.model.boot += seconds

    def _later(self, delay: float | None) -> float | None:
        return None if delay is None else self.model.wall + delay + self.count / 1000

    def _head(self, name: str, offset: int | None) -> int | None:
        found = self.model.runs.get(name)
        return None if offset is None or found is None else found.head + offset

    @staticmethod
    def _back(number: int, among: Sequence[object]) -> int:
        return len(among) - 1 - number % len(among)

    # Offers

    async def _offer(
        self, offer: Offer, change: QueueChange | None, claims: list[Claim] | None = None
    ) -> None:
        records = tuple(
            raw(offer.run, b"%d" % n, kind=kind, turn=turn) for n, (kind, turn) in enumerate(offer.records)
        )
        create = None
        if offer.create is not None:
            create = Create(offer.create[0], raw(offer.run, b"", kind="run.created"), offer.create[1])

        def batch(world: int) -> Batch:
            author = Keyed(offer.key, offer.digest) if offer.key is not None else None
            return Batch(
                offer.run,
                offer.batch,
                author or Held((claims or [])[world], offer.prev),
                records,
                create=create,
                at_head=offer.at_head,
                queue=change,
            )

        self.offers.append((offer, batch))
        await self._compare(offer, batch)

    async def _compare(self, offer: Offer, batch: Callable[[int], Batch]) -> None:
        expected = self.model.offer(offer)
        event(str(expected[0]))
        note(f"{offer} → {expected}")
        for n, world in enumerate(self.worlds):
            answer = plain(await world.append(batch(n)))
            if expected[:2] == ("Duplicate", None):  # a batch without records: where it landed is not kept
                answer = ("Duplicate", None, answer[-1])
            assert answer == expected, f"{world.url} answers {answer}, the model {expected}"
        if expected[0] in ("Committed", "Duplicate") and offer.holder is not None:
            self.last[offer.holder] = offer.batch
        await self._check_run(offer.run)

    def _batch_id(self) -> bytes:
        return self.count.to_bytes(16, "big")

    async def submit(
        self, name: str, turn: str, digest: bytes, priority: int, delay: float | None,
        offset: int | None, agent: str, min_reader: int,
    ) -> None:  # fmt: skip
        due = self._later(delay)
        offer = Offer(
            name, self._batch_id(), (("turn.submitted", turn),), key=f"submit:{turn}", digest=digest,
            at_head=self._head(name, offset), create=(agent, min_reader), event=("submit", turn, priority, due),
        )  # fmt: skip
        await self._offer(offer, Submit(turn, priority, due))

    async def signal(self, name: str, number: int, digest: bytes, offset: int | None) -> None:
        offer = Offer(
            name, self._batch_id(), (("signal.received", None),), key=f"signal:{number}", digest=digest,
            at_head=self._head(name, offset), event=("wake",),
        )  # fmt: skip
        await self._offer(offer, Wake())

    async def retry(self, name: str, number: int) -> None:
        found = self.model.runs.get(name)
        # What may be retried is decided above the door; while somebody holds the run, nothing is.
        stuck = [t for t in found.turns if t.state in ("failed", "blocked")] if found else []
        if found is None or found.holder is not None or not stuck:
            return
        turn = stuck[number % len(stuck)].name
        offer = Offer(
            name,
            self._batch_id(),
            (("turn.retried", turn),),
            key=f"retry:{self.count}",
            event=("retry", turn),
        )
        await self._offer(offer, Retry(turn))

    async def move(self, name: str, offset: int) -> None:
        head = self._head(name, offset)
        offer = Offer(name, self._batch_id(), (), key="move", at_head=head, event=("move", "x:there"))
        await self._offer(offer, Move("x:there"))

    async def close(self, name: str) -> None:
        offer = Offer(name, self._batch_id(), (("run.closed", None),), key="close", event=("close",))
        await self._offer(offer, Close())

    async def hold(
        self, number: int, kind: str, count: int, delay: float | None, offset: int | None, prev: str
    ) -> None:
        if not self.claims:
            return
        number = self._back(number, self.claims)
        name, turn = self.claims[number][0].run, self.turns[number]
        if turn is None and kind not in ("outcome", "progress", "drain"):
            kind = "release"
        wait = (delay or 0.0) + self.count / 1000
        due = self._later(delay)
        name_of = turn or ""
        events: dict[str, tuple[tuple[object, ...] | None, QueueChange | None]] = {
            "outcome": (None, None),
            "progress": (("progress",), Progress()),
            "drain": (("drain",), Drain()),
            "park": (("park", due), Park(due)),
            "block": (("block",), Block()),
            "release": (("release", wait), Release(wait)),
            "succeeded": (("finish", name_of, "succeeded"), Finish(name_of, "succeeded")),
            "failed": (("finish", name_of, "failed"), Finish(name_of, "failed")),
            "cancelled": (("finish", name_of, "cancelled"), Finish(name_of, "cancelled")),
        }
        mine, change = events[kind]
        records = [("call.outcome", turn)] * max(count, 1 if kind == "outcome" else 0)
        statuses: tuple[TurnStatus, ...] = ("succeeded", "failed", "cancelled")
        if kind in statuses:
            records.append(("turn.finished", turn))
        found = self.model.runs.get(name)
        before = {
            "last": self.last.get(number),
            "none": None,
            "first": next(iter(found.batches), None) if found else None,
            "unknown": b"?" * 16,
        }[prev]
        offer = Offer(
            name, self._batch_id(), tuple(records), holder=number, epoch=self.claims[number][0].epoch, prev=before,
            at_head=self._head(name, offset), event=mine,
        )  # fmt: skip
        await self._offer(offer, change, self.claims[number])

    async def again(self, number: int) -> None:
        if not self.offers:
            return
        offer, batch = self.offers[self._back(number, self.offers)]
        found = self.model.runs.get(offer.run)
        # Of batches without a record only the last one is kept; of a turn that moved on meanwhile, offers that
        # were refused would not be made again by any engine.
        if found is None or not (offer.batch in found.batches or offer.batch == found.bare):
            return
        await self._compare(offer, batch)

    # Claims

    async def claim(
        self, limit: int, agents: set[str] | None, reads: int, name: str | None, lease: float
    ) -> None:
        wanted = None if agents is None else frozenset(agents)
        claimed, due = self.model.claim(limit=limit, lease=lease, agents=wanted, reads=reads, run=name)
        note(f"claim → {claimed}, next due in {due}")
        got: list[tuple[Claimed, ...]] = []
        for world in self.worlds:
            claims = await world.claim(
                worker="w", limit=limit, lease_seconds=lease, agents=agents, reads=reads, run=name
            )
            found = [
                (c.claim.run, c.claim.epoch, c.turn, c.submitted, c.head, c.takeovers, c.taken_over)
                for c in claims.claimed
            ]
            assert found == claimed, f"{world.url} gives {found}, the model {claimed}"
            assert claims.next_due_seconds == (None if due is None else pytest.approx(due, abs=1e-3)), (
                world.url
            )
            got.append(claims.claimed)
        for n in range(len(claimed)):
            self.claims.append([each[n].claim for each in got])
            self.turns.append(got[0][n].turn)
            await self._check_run(got[0][n].claim.run)

    async def renew(self, numbers: list[int], lease: float) -> None:
        wanted = sorted({self._back(number, self.claims) for number in numbers}) if self.claims else []
        expected = self.model.renew(wanted, lease)
        for n, world in enumerate(self.worlds):
            renewer = world.open_renewer()
            renewed = renewer.renew([self.claims[number][n] for number in wanted], lease)
            renewer.close()
            assert renewed == {self.claims[number][n] for number in expected}, world.url

    async def publish(self, number: int, count: int) -> None:
        if not self.claims:
            return
        number = self._back(number, self.claims)
        expected = self.model.publish(number, count)
        for n, world in enumerate(self.worlds):
            deltas = [Delta(call="c", number=1, data=b"%d" % piece) for piece in range(count)]
            assert await world.publish(self.claims[number][n], deltas) == expected, world.url

    # Time

    async def advance(self, seconds: float) -> None:
        self._pass(seconds)

    async def step(self, seconds: float) -> None:
        seconds += self.count / 100
        self.clock.step_wall(seconds)
        self.model.wall += seconds

    async def sweep(self) -> None:
        expected = self.model.sweep()
        for world in self.worlds:
            assert await world.sweep(POLICY) == expected, world.url

    # What is seen

    async def _check_run(self, name: str) -> None:
        found = self.model.runs.get(name)
        if name in self.model.tombstones:
            return
        for world in self.worlds:
            info = await world.run(name)
            if found is None:
                assert info is None, world.url
                continue
            assert info is not None, world.url
            unfinished = found.open_turns()
            assert (info.agent, info.head, info.epoch, info.turns, info.created) == (
                found.agent,
                found.head,
                found.epoch,
                len(found.turns),
                found.created,
            ), world.url
            assert info.turn == (unfinished[0].name if unfinished else None), world.url
            assert info.closed == (found.closed_at is not None), world.url
            assert info.moved_to == found.moved, world.url
            if found.closed_at is None:
                assert (info.status, info.takeovers) == (found.status(), found.takeovers), world.url
                if found.holder is None:
                    assert info.due_at == found.due, world.url

    async def check_all(self) -> None:
        for name, found in self.model.runs.items():
            if found.closed_at is None:
                await self._offer(
                    Offer(
                        name,
                        b"closing:" + name.encode(),
                        (("run.closed", None),),
                        key="end",
                        event=("close",),
                    ),
                    Close(),
                )
            await self._check_log(name, found)
        expected = list(self.model.runs)
        for world in self.worlds:
            listed = [info.run for info in await world.runs(RunQuery())]
            assert listed == sorted(expected, key=lambda n: -expected.index(n)), world.url

    async def _check_log(self, name: str, found: ModelRun) -> None:
        offsets = sorted([(seq, 0) for seq in range(1, found.head + 1)] + found.deltas)
        for world in self.worlds:
            records = await world.read(name, limit=1000)
            assert [r.seq for r in records] == list(range(1, found.head + 1)), world.url
            assert [(r.type, r.turn, r.epoch, r.batch, r.time) for r in records] == found.log, world.url
            if found.moved is None:
                assert [place(item) for item in await follow_all(world, name)] == offsets, world.url
            else:
                assert (await refusal(RunGone, follow_all(world, name))).to == found.moved, world.url
            for turn in found.turns:
                info = await world.turn(name, turn.name)
                assert info is not None, world.url
                assert (info.submitted, info.finished) == (turn.submitted, turn.finished), world.url
                assert info.status == (turn.state if turn.is_over else None), world.url


def plain(answer: Answer) -> tuple[object, ...]:
    def where(original: Committed) -> tuple[int, int, float]:
        return original.first, original.last, original.time

    match answer:
        case Committed():
            return ("Committed", *where(answer))
        case Duplicate(original=original, claim_valid=claim_valid):
            return ("Duplicate", where(original), claim_valid)
        case KeyConflict(original=original):
            return ("KeyConflict", where(original))
        case _:
            fields = [getattr(answer, name) for name in answer.__struct_fields__]
            return (type(answer).__name__, *fields)

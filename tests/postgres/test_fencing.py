"""A claim never slips in between an append's check and its commit."""

import time

import anyio
import pytest

from journal.core.ids import new_batch_id
from journal.core.ports import Batch, Claimed, Committed, Held, StaleClaim, World
from journal.core.records import Record
from journal.worlds.contract.harness import begin, claim_all, raw
from journal.worlds.postgres import PostgresWorld, open_postgres

pytestmark = pytest.mark.anyio

SECONDS = 3.0
RUNS = [f"r{number}" for number in range(4)]


async def _append_until_stale(world: World, claimed: Claimed, written: list[tuple[str, int, int]]) -> None:
    claim = claimed.claim
    prev: bytes | None = None
    for _ in range(200):
        batch = Batch(
            claim.run, new_batch_id(), Held(claim, prev), (raw(claim.run, b"x", turn="t1", key="k"),)
        )
        answer = await world.append(batch)
        if isinstance(answer, StaleClaim):
            assert answer.current > claim.epoch
            return
        assert isinstance(answer, Committed), answer
        written.append((claim.run, answer.first, claim.epoch))
        prev = batch.id


async def test_no_record_of_an_old_epoch_lies_behind_a_claim(url: str) -> None:
    """Holders append while others claim their runs away, as fast as both can, from five worlds."""
    given: list[Claimed] = []
    written: list[tuple[str, int, int]] = []
    end = time.monotonic() + SECONDS

    async def work(world: World) -> None:
        while time.monotonic() < end:
            claimed = await claim_all(world, limit=2, lease_seconds=0.0)
            given.extend(claimed)
            async with anyio.create_task_group() as group:
                for one in claimed:
                    group.start_soon(_append_until_stale, world, one, written)

    async def take(world: World) -> None:
        while time.monotonic() < end + 0.5:
            given.extend(await claim_all(world, limit=1, lease_seconds=0.0))

    worlds: list[PostgresWorld] = []
    async with (
        open_postgres(url) as first,
        open_postgres(url) as second,
        open_postgres(url) as third,
        open_postgres(url) as fourth,
        open_postgres(url) as fifth,
    ):
        worlds = [first, second, third, fourth, fifth]
        for run in RUNS:
            await begin(first, run)
        async with anyio.create_task_group() as group:
            for world in worlds:
                group.start_soon(work, world)
                group.start_soon(work, world)
            group.start_soon(take, fifth)
        for run in RUNS:
            records: list[Record] = []
            while page := await first.read(run, after=len(records)):
                records += page
            epochs = [record.epoch for record in records]
            assert epochs == sorted(epochs), "a record of an old claim lies behind one of a newer"
            mine = [claimed for claimed in given if claimed.claim.run == run]
            assert sorted(c.claim.epoch for c in mine) == list(range(1, len(mine) + 1)), "each epoch once"
            for claimed in mine:
                behind = records[claimed.head :]
                assert all(record.epoch >= claimed.claim.epoch for record in behind), (
                    "what lies behind the head that a claim was told is its own, or of a later claim"
                )
            told = sorted((seq, epoch) for name, seq, epoch in written if name == run)
            assert told == [(record.seq, record.epoch) for record in records if record.epoch]
    assert len(given) > 50
    assert len(written) > 50

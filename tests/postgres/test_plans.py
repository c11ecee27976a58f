"""A million records, and as many runs waiting: every statement is a few index lookups, by the plans the server took."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from journal.core.codec import Blob, checksum
from journal.core.ports import Delta, Progress, RunQuery, SweepPolicy, WorkerInfo, World
from journal.testing import servers
from journal.worlds.contract.harness import (
    Holder,
    begin,
    claim_all,
    close,
    committed,
    follow_all,
    hold,
    retry,
    signal,
)
from journal.worlds.postgres import open_postgres
from tests.postgres.plans import EXPLAINED, read_plans

pytestmark = pytest.mark.anyio

LONG = 20_000
"""Records of one long run."""
PASSED_OVER = 200
"""Rows that a statement may come by in vain: a status is looked up, and an agent within it is not."""
BLOCKS = 1000
"""Of the largest statement: twelve runs are begun by one."""
SURPRISE = 10_000
"""Rows of a kind that the statistics do not know of."""
BODY = b"a body of a record, of some length: " * 5
BIG = {"runs", "queue", "records", "turns", "keys", "deltas", "blobs"}


@pytest.fixture
def server(postgres_programs: Path) -> Iterator[servers.Server]:
    """Its log is ours to read; what it holds need not outlive it."""
    settings = ["fsync=off", "autovacuum=off", "max_wal_size=8GB", "shared_buffers=512MB"]
    with servers.start_postgres(binaries=postgres_programs, settings=settings) as found:
        yield found


def fill(admin: psycopg.Connection[Any], runs: int, records: int) -> None:
    """So many runs of so many records: of 20, 12 idle, 4 due now, 2 due later, 1 held, 1 closed."""
    now = time.time()
    # The oldest runs are of a namespace that is too small for the statistics to know of it.
    for namespace, count in (("small", 30), ("default", runs)):
        admin.execute(
            "insert into journal.runs (namespace, run, agent, created, turns, closed_at) "
            "select %s, 'other-' || n, 'agent-' || mod(n, 7), %s, 1, case when mod(n, 20) = 0 then 0 end "
            "from generate_series(1, %s) n",
            (namespace, now, count),
        )
    admin.execute(
        "insert into journal.queue (rid, namespace, agent, lock, priority, due_at, lease_until, epoch, token, status) "
        "select rid, namespace, agent, rid, mod(rid, 3), "
        "case when mod(rid, 20) between 13 and 16 then %(now)s - random() * 1e5 "
        "when mod(rid, 20) between 17 and 18 then %(now)s + 1e5 + random() * 1e5 end, "
        "case when mod(rid, 20) = 19 then %(now)s + 1e5 end, 1, case when mod(rid, 20) = 19 then 'token'::bytea end, "
        "case when mod(rid, 20) between 13 and 16 then 'pending' when mod(rid, 20) between 17 and 18 then 'parked' "
        "when mod(rid, 20) = 19 then 'running' when mod(rid, 100) = 12 then 'failed' else 'succeeded' end "
        "from journal.runs where run <> 'r'",
        {"now": now},
    )
    admin.execute(
        "insert into journal.records (rid, seq, time, type, turn, epoch, batch, body, checksum) "
        "select rid, n, 0, 'call.outcome', 't', 1, int8send(rid) || int8send(n), %s, 0 "
        "from journal.runs cross join generate_series(1, %s) n where run <> 'r'",
        (BODY, records),
    )
    for table, columns, values in (
        ("turns", "rid, turn, submitted, status, finished, ended", "rid, 't', 2, 'succeeded', 3, 0"),
        ("keys", "rid, key, digest, first, last, time", "rid, 'turn:t', 'd', 1, 2, 0"),
        ("deltas", "rid, seq, sub, time, call, number, data", "rid, 3, 1, 0, 'c', 1, 'd'"),
    ):
        chosen = "mod(rid, 5000) = 0" if table == "deltas" else "run <> 'r'"
        statement = (
            f"insert into journal.{table} ({columns}) select {values} from journal.runs where {chosen}"
        )
        admin.execute(statement.encode())


def surprise(admin: psycopg.Connection[Any]) -> None:
    """What came since the statistics were made: many tombstones, and work that is for other workers than ours."""
    admin.execute(
        "insert into journal.runs (namespace, run, agent, created, turns, closed_at, gone_until, is_emptied) "
        "select 'default', 'gone-' || n, 'agent-1', 0, 1, 0, 1e11, true from generate_series(1, %s) n",
        (SURPRISE,),
    )
    for kind, entry in (
        ("unreadable", "'agent-1', rid, 2, rid, null, 0, null, 'pending', 2"),
        ("elsewhere", "'agent-of-others', rid, 0, null, rid, 1, 'token', 'running', 1"),
    ):
        statement = (
            "with made as (insert into journal.runs (namespace, run, agent, created) "
            f"select 'default', '{kind}-' || n, 'agent', 0 from generate_series(1, {SURPRISE}) n returning rid) "
            "insert into journal.queue (rid, namespace, agent, lock, priority, due_at, lease_until, epoch, token, "
            f"status, min_reader) select rid, 'default', {entry} from made"
        )
        admin.execute(statement.encode())


def lengthen(admin: psycopg.Connection[Any], run: str) -> None:
    """Many records more for a run that has two."""
    admin.execute(
        "insert into journal.records (rid, seq, time, type, epoch, batch, body, checksum) "
        "select rid, n, 0, 'x', 0, int8send(n), %s, %s from journal.runs, generate_series(3, %s) n where run = %s",
        (BODY, checksum(run, "x", None, None, None, BODY), LONG, run),
    )


async def hold_at_head(world: World, run: str) -> Holder:
    """As the engine does: it names the batch of the last record that it has read."""
    holder = await hold(world, run)
    (last,) = await world.read(run, after=holder.claimed.head - 1)
    holder.prev = last.batch
    return holder


async def work(url: str) -> None:
    """Everything that workers, submitters and readers do, but for counting."""
    async with open_postgres(url) as world, open_postgres(f"{url}&notify=off") as other:
        holder = await hold_at_head(world, "r")
        await holder.start()
        for _ in range(5):
            await holder.change(Progress(), holder.outcome())
        lost = holder.batch(holder.outcome())
        committed(await world.append(lost))
        await world.append(lost)
        holder.prev = lost.id
        committed(await holder.offer(holder.batch(holder.outcome(), blobs=(Blob("b", b"blob"),))))
        assert await world.get_blob("r", "b") == b"blob"
        assert await world.publish(holder.claim, [Delta(call="c", number=1, data=b"1")])
        committed(await world.append(signal("r")))
        await holder.finish("failed")
        committed(await world.append(retry("r")))
        assert (await world.run("r")) is not None
        assert await world.turn("r", "t1") is not None
        holder = await hold_at_head(other, "r")
        renewer = world.open_renewer()
        assert renewer.renew([holder.claim], 30.0) == {holder.claim}
        renewer.close()
        await holder.finish()
        await _in_groups(world)
        await world.beat(WorkerInfo(worker="w", version=None, slots=1, busy=0, agents=(), started=0.0))
        assert len(await world.workers()) == 1
        await world.leave("w")
        await _list(world, url)
        assert len(await world.read("r", after=LONG - 10, limit=500)) == 22
        committed(await world.append(close("r")))
        offset = f"{LONG - 100:016d}_{0:016d}"
        assert len(await follow_all(world, "r", offset)) == len(await follow_all(other, "r", offset)) > 100
        assert await world.sweep(SweepPolicy(closed_older_than_seconds=1e6, limit=3)) == 3
        assert await world.sweep(SweepPolicy(closed_older_than_seconds=1e10)) == 0


async def _in_groups(world: World) -> None:
    """Batches that wait at the same moment."""
    async with anyio.create_task_group() as group:
        for number in range(12):
            group.start_soon(begin, world, f"g{number}")
    holders = [await hold(world, f"g{number}") for number in range(12)]

    async def carry_on(holder: Holder) -> None:
        await holder.start()
        await holder.record()
        await holder.park()

    async with anyio.create_task_group() as group:
        for holder in holders[:8]:
            group.start_soon(carry_on, holder)
    await holders[8].block()
    await holders[9].release(1000.0)
    for number in range(4):
        committed(await world.append(signal(f"g{number}")))


async def _list(world: World, url: str) -> None:
    for query in (
        RunQuery(limit=20),
        RunQuery(limit=20, before=50_000),
        RunQuery(limit=20, agent="agent-3"),
        RunQuery(limit=20, status="succeeded", before=50_000),
        RunQuery(limit=5, status="failed", agent="agent-3"),
    ):
        assert len(await world.runs(query)) == query.limit
    async with open_postgres(url, namespace="small") as small:
        for query in (RunQuery(), RunQuery(agent="agent-3"), RunQuery(status="succeeded")):
            assert 0 < len(await small.runs(query)) <= 30


CLAIMS: list[tuple[set[str] | None, int, int, int]] = [
    (None, 1, 1, 1),
    (None, 10, 1, 10),
    ({"agent-1"}, 1, 1, 1),
    ({"agent-1"}, 10, 1, 10),
    ({"agent-1"}, 1, 2, 1),
    ({"agent-1", "agent-2", "nobody"}, 10, 1, 10),
    ({"nobody"}, 10, 1, 0),
    ({"agent-1"}, 0, 1, 0),
]
"""Agents, limit, what the worker reads; how many it is given."""


async def claim(url: str) -> None:
    """As workers of many kinds do."""
    async with open_postgres(url) as world:
        await claim_all(world, limit=1)  # plans what is in the functions, and reads the catalogue for it
        for agents, limit, reads, count in CLAIMS:
            assert len(await claim_all(world, agents=agents, limit=limit, reads=reads)) == count


@pytest.mark.parametrize(
    ("runs", "records"),
    [
        pytest.param(125_000, 8, id="125,000 runs"),
        pytest.param(1_000_000, 2, id="1,000,000 runs", marks=[pytest.mark.soak, pytest.mark.timeout(1200)]),
    ],
)
async def test_at_a_million_records_every_statement_is_a_few_index_lookups(
    server: servers.Server, runs: int, records: int
) -> None:
    url = servers.postgres_url(server)
    async with open_postgres(url) as world:
        await begin(world, "r")
    with psycopg.connect(url, autocommit=True) as admin:
        fill(admin, runs, records)
        lengthen(admin, "r")
        admin.execute("vacuum analyze")
        surprise(admin)

    await work(f"{url}?{EXPLAINED}")
    worked = read_plans(server.directory)
    await claim(f"{url}?{EXPLAINED}")
    claimed = read_plans(server.directory)[len(worked) :]
    assert len(worked) > 300, "the statements inside of functions are there"
    assert [plan for plan in worked + claimed if plan.scanned() & BIG] == []
    assert [plan for plan in worked + claimed if plan.passed_over > PASSED_OVER] == []
    assert [plan for plan in worked if plan.blocks > BLOCKS] == []
    claims = [plan for plan in claimed if '"journal".claim(' in plan.text]
    for plan, (agents, limit, *_) in zip(claims[1:], CLAIMS, strict=True):
        places = 3 * (8 if agents is None else len(agents))
        # A few index lookups for each agent and priority, and for each entry that is given.
        assert plan.blocks < 100 + places * (40 + limit) + 40 * limit, plan

"""A holder in another process dies: its turns are taken over, with all that it was told is durable."""

import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from journal.worlds.contract.harness import PATIENCE_SECONDS, Holder, claim_all, committed
from journal.worlds.postgres import open_postgres

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
RUNS = ["a", "b", "c"]


async def test_a_process_that_is_killed_is_taken_over(url: str) -> None:
    command = [sys.executable, "-m", "tests.postgres.actor", url, *RUNS]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines: list[str] = []
        with anyio.fail_after(60):
            while len(lines) < 100:
                lines.append(await to_thread.run_sync(process.stdout.readline))
        process.kill()
        lines += process.stdout.readlines()
    told = [line.split() for line in lines if line.endswith("\n")]
    async with open_postgres(url) as world:
        taken: list[Holder] = []
        with anyio.fail_after(PATIENCE_SECONDS):
            while len(taken) < len(RUNS):
                claims = await world.claim(worker="w", limit=9, lease_seconds=30.0, agents=None, reads=1)
                taken += [Holder(world, claimed) for claimed in claims.claimed]
                if len(taken) < len(RUNS):
                    assert claims.next_due_seconds is not None
                    await world.wait_for_work(claims.next_due_seconds)
        assert await claim_all(world) == []
        for holder in taken:
            assert (holder.claimed.taken_over, holder.claimed.takeovers, holder.claim.epoch) == (True, 1, 2)
            records = await world.read(holder.run, limit=100_000)
            assert [record.seq for record in records] == list(range(1, len(records) + 1))
            found = {record.seq: record.batch.hex() for record in records}
            for run, seq, batch in told:
                if run == holder.run:
                    assert found[int(seq)] == batch
            committed(await holder.offer(holder.batch(holder.outcome())))

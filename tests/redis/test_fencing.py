"""Holders and those who take over, all at once and in several processes: one at a time gets in."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from anyio import to_thread

from journal.core.ids import new_batch_id
from journal.core.ports import Batch, Committed, Held, StaleClaim
from journal.worlds import open_world
from journal.worlds.contract.harness import begin, claim_all, raw

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


async def race(url: str, tag: str, seconds: float) -> int:
    """Take the run over and over, append under each claim until it is gone; how many batches were taken."""
    taken = 0
    async with open_world(url) as world:
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            for claimed in await claim_all(world, lease_seconds=0.005, run="r"):
                prev = None
                for n in range(50):
                    batch = Batch(
                        "r", new_batch_id(), Held(claimed.claim, prev), (raw("r", f"{tag}{n}".encode()),)
                    )
                    answer = await world.append(batch)
                    if isinstance(answer, StaleClaim):
                        break
                    assert isinstance(answer, Committed), answer
                    prev, taken = batch.id, taken + 1
    return taken


async def test_a_claim_that_is_gone_writes_nothing(url: str) -> None:
    async with open_world(url) as world:
        await begin(world, "r")
        command = [sys.executable, "-m", "tests.redis.test_fencing", url]
        others = [
            subprocess.Popen([*command, tag], cwd=ROOT, stdout=subprocess.PIPE, text=True) for tag in "ab"
        ]
        counts = await asyncio.gather(*(race(url, tag, 2.5) for tag in "cd"))
        told = [(await to_thread.run_sync(other.communicate))[0] for other in others]
        taken = sum(counts) + sum(int(text) for text in told)
        records = (await world.read("r", limit=1_000_000))[2:]
        assert len(records) == taken, "as many as were acknowledged"
        epochs = [record.epoch for record in records]
        assert epochs == sorted(epochs), "nobody writes after a successor"
        assert len(set(epochs)) > 20, "the run changed hands"
        assert len({record.body[:1] for record in records}) == 4, "between processes too"


if __name__ == "__main__":
    print(asyncio.run(race(sys.argv[1], sys.argv[2], 2.0)))

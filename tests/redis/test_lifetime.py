"""Opening and closing: what is let go, also when nobody closes properly."""

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from journal.core.errors import WorldUnavailable
from journal.core.ports import Committed, World
from journal.testing import servers
from journal.testing.servers import Server
from journal.worlds import open_world
from journal.worlds.contract.harness import begin, claim_all, hold, signal, watching
from journal.worlds.redis import open_redis

ROOT = Path(__file__).parents[2]
ABANDONED = """
import asyncio, gc, sys
from journal.worlds.contract.harness import begin, claim_all
from journal.worlds.redis import open_redis

async def main():
    opened = open_redis(sys.argv[1])
    world = await opened.__aenter__()
    await begin(world, "r")
    await claim_all(world)  # from here on it listens
    return opened, world

kept = asyncio.run(main())
if sys.argv[2] == "collected":
    del kept
    gc.collect()
print("end")
"""


@pytest.mark.parametrize("how", ["collected", "kept"])
def test_a_loop_that_closed_without_closing_the_world(url: str, how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ABANDONED, url, how],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("end\n", "", 0)


@pytest.mark.anyio
async def test_a_closed_world_says_so(url: str) -> None:
    async with open_world(url) as world:
        as_port: World = world
        await begin(world, "run")
        async with watching(world, "run") as watcher:
            await watcher.until_count(2)
            await world.aclose()
            await watcher.until_end()
            assert isinstance(watcher.error, WorldUnavailable)
    with pytest.raises(WorldUnavailable):
        await as_port.read("run")
    with pytest.raises(WorldUnavailable):
        await as_port.append(signal("run"))
    with pytest.raises(WorldUnavailable):
        as_port.open_renewer()
    await as_port.wait_for_work(10)


@pytest.mark.anyio
async def test_closing_finishes_what_is_under_way_and_waits_for_nobody_who_is_away(server: Server) -> None:
    async with open_redis(servers.redis_url(server), patience_seconds=0.5) as world:
        await begin(world, "r")
        holder = await hold(world, "r")
        last = world.append(holder.batch(holder.outcome()))
    assert isinstance(await last, Committed)
    with anyio.fail_after(10):
        async with open_redis(servers.redis_url(server), patience_seconds=0.5) as world:
            await claim_all(world)
            server.kill()
            last = world.append(holder.batch(holder.outcome()))
    assert type(await last).__name__ == "Unknown"

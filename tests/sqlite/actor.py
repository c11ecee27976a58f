"""The other process: what the tests of several processes start. `python -m tests.sqlite.actor VERB PATH …`

Each verb prints a line when it is ready, and what it did at the end; it ends when its input does.
"""

import asyncio
import os
import sqlite3
import sys
import time
from itertools import count

from journal.core.ids import BatchIds
from journal.core.ports import Batch, Committed, Held
from journal.worlds.contract.harness import begin, hold, raw
from journal.worlds.sqlite import open_sqlite


def say(text: object) -> None:
    print(text, flush=True)


async def load(path: str, prefix: str, runs: int, seconds: float) -> None:
    """Append to some runs as fast as it goes; each answered seq is printed, so that it is known after a kill."""
    async with open_sqlite(f"sqlite:{path}") as world:
        holders = []
        for number in range(runs):
            await begin(world, f"{prefix}-{number}")
            holders.append(await hold(world, f"{prefix}-{number}"))
        say("ready")
        sys.stdin.readline()
        end = time.monotonic() + seconds
        answered = dict.fromkeys((holder.run for holder in holders), 0)
        slowest = 0.0

        async def work(number: int) -> int:
            nonlocal slowest
            holder, ids, prev = holders[number], BatchIds(), None
            for done in count():
                if time.monotonic() >= end:
                    return done
                batch = Batch(
                    holder.run,
                    ids.next(),
                    Held(holder.claim, prev),
                    (raw(holder.run, b"x" * 250), raw(holder.run, b"y" * 250)),
                )
                asked = time.monotonic()
                answer = await world.append(batch)
                slowest = max(slowest, time.monotonic() - asked)
                assert isinstance(answer, Committed), answer
                prev = batch.id
                answered[holder.run] = answer.last
                say(f"{holder.run} {answer.last}")
            return 0

        counts = await asyncio.gather(*(work(number) for number in range(len(holders))))
        say(f"done {sum(counts)} {slowest:.3f}")


async def fork(path: str) -> None:
    """Claim, fork a child that outlives us, and wait to be killed."""
    async with open_sqlite(f"sqlite:{path}") as world:
        await begin(world, "run")
        await hold(world, "run", lease_seconds=3600)
        child = os.fork()
        if child == 0:
            # Gone once the test lets go of our input: it is the parent that must not be missed.
            sys.stdin.readline()
            os._exit(0)
        say(child)
        await asyncio.sleep(3600)


def lock(path: str) -> None:
    """Hold SQLite's write lock, without having come through the turnstile, until the input ends."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("begin immediate")
    say("ready")
    sys.stdin.readline()
    connection.execute("rollback")
    connection.close()
    say("done")


async def append_when_told(path: str, run: str) -> None:
    """A record for each line of input."""
    async with open_sqlite(f"sqlite:{path}") as world:
        await begin(world, run)
        holder = await hold(world, run)
        say("ready")
        while await asyncio.to_thread(sys.stdin.readline):
            await holder.record()
            say(time.time())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["load", path, prefix, runs, seconds]:
            asyncio.run(load(path, prefix, int(runs), float(seconds)))
        case ["fork", path]:
            asyncio.run(fork(path))
        case ["append", path, run]:
            asyncio.run(append_when_told(path, run))
        case ["lock", path]:
            lock(path)
        case other:
            raise SystemExit(f"no such verb: {other}")

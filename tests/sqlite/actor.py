"""The other process: what the tests of several processes start. `python -m tests.sqlite.actor VERB PATH …`

Each verb prints a line when it is ready, and what it did at the end; it ends when its input does.
"""

import asyncio
import os
import signal
import sqlite3
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

from journal.core.ids import BatchIds
from journal.core.ports import Batch, Committed, Delta, Finish, Held
from journal.core.records import TurnFinished
from journal.worlds.contract.harness import begin, hold, raw, submit
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


async def publish_when_told(path: str, run: str) -> None:
    """Claim with a short lease that nobody renews; a delta for each line of input, and whether it was taken."""
    async with open_sqlite(f"sqlite:{path}") as world:
        await begin(world, run)
        holder = await hold(world, run, lease_seconds=0.2)
        say("ready")
        while await asyncio.to_thread(sys.stdin.readline):
            say(await world.publish(holder.claim, [Delta(call="c", number=1, data=b"theirs")] * 2))


class Mortal(sqlite3.Connection):
    """Once armed, kills its process before or after the statement whose turn it is."""

    is_armed = False
    left = 0

    def _pass(self) -> None:
        if Mortal.is_armed:
            if Mortal.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            Mortal.left -= 1

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        self._pass()
        cursor = super().execute(*arguments)
        self._pass()
        return cursor

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        self._pass()
        cursor = super().executemany(*arguments)
        self._pass()
        return cursor


def die(folder: str, kind: str) -> None:
    """Offer the same batch in one child after another, each on a file of its own and killed one point later.

    Prints how many points there were: the last child lived.
    """
    plain = sqlite3.connect
    vars(sqlite3)["connect"] = lambda *args, **options: plain(*args, **options, factory=Mortal)
    for number in count():
        child = os.fork()
        if child == 0:
            asyncio.run(offer_and_die(Path(folder) / f"{number}.db", kind, number))
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            say(number)
            return


async def offer_and_die(path: Path, kind: str, points: int) -> None:
    async with open_sqlite(f"sqlite:{path}") as world:
        batch = submit("run")
        if kind == "finish":
            await begin(world, "run")
            holder = await hold(world, "run")
            finished = raw("run", b"", kind=TurnFinished.TYPE, turn="t1")
            batch = holder.batch(holder.outcome(), finished, queue=Finish("t1", "succeeded"))
        Mortal.is_armed, Mortal.left = True, points
        answer = await world.append(batch)
        path.with_suffix(".answered").write_text(type(answer).__name__)
        Mortal.is_armed = False


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["load", path, prefix, runs, seconds]:
            asyncio.run(load(path, prefix, int(runs), float(seconds)))
        case ["fork", path]:
            asyncio.run(fork(path))
        case ["append", path, run]:
            asyncio.run(append_when_told(path, run))
        case ["publish", path, run]:
            asyncio.run(publish_when_told(path, run))
        case ["die", folder, kind]:
            die(folder, kind)
        case ["lock", path]:
            lock(path)
        case other:
            raise SystemExit(f"no such verb: {other}")

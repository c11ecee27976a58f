"""How long it takes until somebody else hears of it: a worker of a submit, a follower of a record. Two processes."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from statistics import quantiles
from typing import Any

from journal import Journal, Turn
from journal.core.records import Record
from journal.worlds import open_world

PAUSE_SECONDS = 0.03
"""Between two submits, so that the worker is idle when the next one comes."""


def wake_ms(url: str, count: int) -> tuple[float, float]:
    """From the answer to a submit to its start in the idle worker of another process: (p50, p99), milliseconds."""
    return _beside("work", url, lambda: _submit(url, count))


def follow_ms(url: str, count: int) -> tuple[float, float]:
    """From an append that was offered to its follower in another process: (p50, p99), milliseconds."""
    return _beside("follow", url, lambda: _append(url, count))


def _beside(
    role: str, url: str, act: Callable[[], Coroutine[Any, Any, dict[str, float]]]
) -> tuple[float, float]:
    command = [sys.executable, "-m", "benchmarks.latency", role, url]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    try:
        assert other.stdout.readline() == "ready\n"
        began: dict[str, float] = asyncio.run(act())
        heard: dict[str, float] = {}
        while not began.keys() <= heard.keys():
            name, moment = other.stdout.readline().split()
            heard[name] = float(moment)
    finally:
        other.kill()
        other.communicate()
    waits = sorted((heard[name] - began[name]) * 1000 for name in began)
    cuts = quantiles(waits, n=100, method="inclusive")
    return cuts[49], cuts[98]


async def _submit(url: str, count: int) -> dict[str, float]:
    began: dict[str, float] = {}
    async with Journal(url) as journal:
        for number in range(count):
            await asyncio.sleep(PAUSE_SECONDS)
            await journal.submit("tell", None, run_id=f"r{number}")
            began[f"r{number}"] = time.monotonic()
    return began


async def _work(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def tell(turn: Turn, _: None) -> None:
        _say(f"{turn.run_id} {time.monotonic()}")

    async with journal, journal.worker(concurrency=4).running():
        _say("ready")
        await asyncio.Event().wait()


async def _append(url: str, count: int) -> dict[str, float]:
    from benchmarks.door import holders

    began: dict[str, float] = {}
    async with holders(url, 1) as (holder,):
        for number in range(count):
            await asyncio.sleep(PAUSE_SECONDS)
            began[f"{number + 1}"] = time.monotonic()
            await holder.append()
    return began


async def _follow(url: str) -> None:
    async with open_world(url) as world:
        _say("ready")
        count = 0
        async for item in world.follow("bench-0"):
            if isinstance(item, Record) and item.type == "call.outcome":
                count += 1
                _say(f"{count} {time.monotonic()}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[2]) if sys.argv[1] == "work" else _follow(sys.argv[2]))

"""What is measured. A case yields its results as soon as they stand; `CASES` names them all."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median

import msgspec

from benchmarks import door, footprint
from benchmarks.engine import engine
from benchmarks.raw import RawStore
from benchmarks.report import Result

RUNS_AT_ONCE = 50
WORK_SECONDS = 150e-6
"""About what a step computes between two commits."""


class Setting(msgspec.Struct, frozen=True):
    """Where and how long to measure."""

    directory: Path
    """On the disk in question; emptied by whoever made it."""
    seconds: float = 1.0
    """Length of one window."""
    rounds: int = 7
    """How many windows of ours."""


Rate = Callable[[float], Awaitable[float]]


async def beside_raw(setting: Setting, ours: Rate) -> tuple[float, float]:
    """Our rate, and its ratio to the raw one: medians over windows that alternate with raw ones.

    Each of our windows is compared with the two raw windows around it, since the disk of a shared machine may be
    several times slower a few seconds later.
    """
    rates: list[float] = []
    ratios: list[float] = []
    with RawStore(setting.directory) as store:
        before = store.rate(setting.seconds)
        for _ in range(setting.rounds):
            rates.append(await ours(setting.seconds))
            after = store.rate(setting.seconds)
            ratios.append(rates[-1] * 2 / (before + after))
            before = after
    return median(rates), median(ratios)


async def _door(setting: Setting, name: str, count: int) -> Result:
    async with door.holders(f"sqlite:{setting.directory}/door.db", count) as team:
        rate, ratio = await beside_raw(setting, lambda seconds: door.append_rate(team, seconds))
    return Result(name, "sqlite", rate, "appends/s", "raw", ratio)


def door_one(setting: Setting) -> Iterator[Result]:
    """The door, one run: a durable commit an append."""
    yield asyncio.run(_door(setting, "door", 1))


def door_many(setting: Setting) -> Iterator[Result]:
    """The door, fifty runs at once: they share their commits."""
    yield asyncio.run(_door(setting, "door_concurrent", RUNS_AT_ONCE))


async def _steps(setting: Setting, name: str, runs: int) -> Result:
    async with engine(f"sqlite:{setting.directory}/journal.db") as opened:
        rate, ratio = await beside_raw(setting, lambda seconds: opened.rate(seconds, runs))
    return Result(name, "sqlite", rate, "steps/s", "raw", ratio)


def sequential(setting: Setting) -> Iterator[Result]:
    """One run, one safe step after another."""
    yield asyncio.run(_steps(setting, "sequential", 1))


def concurrent(setting: Setting) -> Iterator[Result]:
    """Fifty runs at once: they share their commits."""
    yield asyncio.run(_steps(setting, "concurrent", RUNS_AT_ONCE))


def paced(setting: Setting) -> Iterator[Result]:
    """The raw store where its caller computes between commits, as every program does: the bound for `sequential`.

    A disk that was left alone for a moment answers later than one that is kept busy.
    """
    rates: list[float] = []
    ratios: list[float] = []
    with RawStore(setting.directory) as store:
        for _ in range(setting.rounds):
            tight = store.rate(setting.seconds)
            rates.append(store.paced_rate(setting.seconds, WORK_SECONDS))
            ratios.append(rates[-1] / tight)
    yield Result("paced", "raw", median(rates), "commits/s", "raw", median(ratios))


def memory(setting: Setting) -> Iterator[Result]:
    """What one run's process takes on between its 10,000th and its 100,000th step."""
    command = [sys.executable, "-m", "benchmarks.engine", f"sqlite:{setting.directory}/journal.db"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    growth, total = map(int, done.stdout.split())
    versus = f"after {footprint.FEW:,} steps"
    yield Result("memory", "sqlite", growth / footprint.MIB, "MiB", versus, total / (total - growth))


def import_time(_: Setting) -> Iterator[Result]:
    """`import journal`, over bare Python."""
    bare, full = footprint.import_ms("journal")
    yield Result("import", "-", full - bare, "ms", "bare python", full / bare)


CASES: dict[str, Callable[[Setting], Iterator[Result]]] = {
    "sequential": sequential,
    "concurrent": concurrent,
    "paced": paced,
    "memory": memory,
    "import": import_time,
    "door": door_one,
    "door_concurrent": door_many,
}

"""How results are shown: a table for people, one JSON object a line for programs."""

import platform
import sqlite3
import sys
from importlib.metadata import PackageNotFoundError, version
from os import cpu_count
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.targets import QUICK_LOOP_MS, TARGETS, Target

_WIDTH = 110
"""Of the table where no terminal says."""


class Result(msgspec.Struct, frozen=True):
    """One measured case."""

    name: str
    world: str
    value: float
    unit: str
    versus: str
    """What `ratio` compares with, measured in the same run."""
    ratio: float | None
    loop_ms: float = 0.0
    """What a fixed piece of Python took beside it, or just after it: how quick the processor was at that time."""

    @property
    def target(self) -> Target | None:
        """What is promised."""
        return TARGETS.get((self.name, self.world, self.versus)) or TARGETS.get((self.name, self.world, ""))

    @property
    def is_met(self) -> bool:
        """Whether the target is met; True where there is none."""
        return self.target is None or self.target.is_met(
            value=self.value, ratio=self.ratio, loop_ms=self.loop_ms
        )


def print_json(result: Result) -> None:
    """One line on stdout."""
    ratio = None if result.ratio is None else round(result.ratio, 3)
    rounded = msgspec.structs.replace(
        result, value=round(result.value, 3), ratio=ratio, loop_ms=round(result.loop_ms, 2)
    )
    sys.stdout.write(msgspec.json.encode(rounded).decode() + "\n")
    sys.stdout.flush()


def print_table(results: list[Result], directory: Path) -> None:
    """The table, and under it what it was measured on."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    table = Table(title="durable-journal benchmarks")
    for heading in ("case", "world", "value", "unit", "versus", "ratio", "target", "loop"):
        is_number = heading in ("value", "ratio", "target", "loop")
        table.add_column(heading, justify="right" if is_number else "left")
    for result in results:
        verdict = "" if result.target is None else f"{result.target} {'✓' if result.is_met else '✗'}"
        ratio = "" if result.ratio is None else f"{result.ratio:.2f}"
        value, loop = f"{result.value:,.1f}", f"{result.loop_ms:.1f}"
        table.add_row(result.name, result.world, value, result.unit, result.versus, ratio, verdict, loop)
    console.print(table)
    console.print(
        "loop: ms for a fixed piece of Python beside the case; where that differs, somebody else was on the "
        f"processor, and figures in µs differ as much: those are judged at {QUICK_LOOP_MS:g}",
        soft_wrap=True,
    )
    console.print(machine(directory), soft_wrap=True)


def machine(directory: Path) -> str:
    """The machine and the versions, on one line."""
    try:
        ours = version("durable-journal")
    except PackageNotFoundError:
        ours = "from a checkout"
    return (
        f"{cpu_count()} x {_processor()}, {platform.system()} {platform.release()}, {_filesystem(directory)}; "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
        f"msgspec {version('msgspec')}, durable-journal {ours}"
    )


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _filesystem(directory: Path) -> str:
    """The kind of file system under `directory`: a durable commit to memory (tmpfs) proves nothing."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown file system"
    under = [m for m in mounts if directory.resolve().is_relative_to(m[1])]
    return max(under, key=lambda mount: len(mount[1]))[2] if under else "unknown file system"

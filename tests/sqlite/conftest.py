"""Files, other processes and a small disk for the tests of the SQLite world."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests import disks

ROOT = Path(__file__).parents[2]

Process = subprocess.Popen[str]
Start = Callable[..., Process]


async def line(process: Process) -> str:
    """The next line of its output."""
    assert process.stdout is not None
    with anyio.fail_after(60):
        return (await to_thread.run_sync(process.stdout.readline, abandon_on_cancel=True)).strip()


def tell(process: Process) -> None:
    """A line for its input."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def failed_sync() -> sqlite3.OperationalError:
    """What SQLite raises when the disk does not take a sync."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
    return error


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store goes."""
    return tmp_path / "journal.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:{path}"


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts an actor in a process of its own; all are killed in the end."""
    running: list[Process] = []

    def start(*arguments: object) -> Process:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.sqlite.actor", *map(str, arguments)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB. The full store is also tested by max_page_count, without root."""
    with disks.small_disk(tmp_path / "small", "3m") as folder:
        yield folder

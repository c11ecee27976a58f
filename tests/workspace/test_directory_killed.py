"""The process dies wherever it is at work on files: FAULTS 31."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from journal import DirectoryWorkspace, Journal
from journal.core import values
from journal.core.codec import open_record
from journal.core.records import CallOutcome, TurnFinished
from journal.testing import Crash, crash_everywhere

ROOT = Path(__file__).parent.parent.parent
WHOLE = ["src/1", "halfwhole\n1", "1\tedited 1", "/more\n/out\n/runs\n/src/1"]
UNKNOWN = ["src/1", "unknown", "1\tedited 1", "/out\n/runs\n/src/1"]


def same(crash: Crash) -> None:
    """With the command's file, or, where nobody knows whether it ended, without it."""
    finished = open_record(crash.log[-1])
    assert isinstance(finished, TurnFinished)
    assert isinstance(finished.output, bytes)
    assert values.decode(finished.output) == (UNKNOWN if crash.unknown else WHOLE)


def test_files_survive_a_kill_at_every_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILDER_ROOT", str(tmp_path / "root"))
    report = crash_everywhere("tests.workspace.builder:builder", "src", check=same)
    assert len(report.crashes) > 20


@pytest.mark.parametrize(
    "dies",
    [
        *(
            "writing:1",
            "contents:1",
            "contents:3",
            "list:1",
            "list:2",
            "reference:1",
            "reference:2",
            "reference:3",
        ),
        *("record:1", "record:2", "record:3", "copy:1", "swap:1"),
    ],
)
def test_killed_within(dies: str, tmp_path: Path) -> None:
    """Within a call that writes, while a snapshot is made, between it and its record, while a directory is made.

    What the next process goes on from is whole, and nothing is left that no record names.
    """
    env = os.environ | {
        "BUILDER_ROOT": str(tmp_path / "root"),
        "JOURNAL_WORLD": f"sqlite:{tmp_path / 'j.db'}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }
    command = [sys.executable, "-m", "tests.workspace.builder"]
    died = subprocess.run(command, env=env | {"BUILDER_DIES": dies}, capture_output=True, text=True, cwd=ROOT)
    assert died.returncode == -signal.SIGKILL, died.stderr
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = done.stdout.strip()
    assert found in (str(WHOLE), str(UNKNOWN))
    if dies in ("writing:1", "contents:1", "list:1", "reference:1", "record:1", "copy:1", "swap:1"):
        assert found == str(WHOLE)
    asyncio.run(_nothing_is_left(tmp_path))


async def _nothing_is_left(tmp_path: Path) -> None:
    workspace = DirectoryWorkspace(tmp_path / "root")
    async with Journal(f"sqlite:{tmp_path / 'j.db'}") as journal:
        bodies = [open_record(record) for record in await journal.read("r")]
        files = {path: await journal.files.read("r", path) for path in await journal.files.glob("r")}
    named = {
        change.snapshot.id
        for body in bodies
        if isinstance(body, CallOutcome)
        for change in body.files
        if change.snapshot is not None
    }
    place = Path(workspace.lifecycle.find("r"))
    assert {path.name for path in (place / "refs").iterdir()} == named
    assert list((place / "trees").iterdir()) == []
    assert files["/out"] == b"halfwhole\n"
    assert files["/runs"] == b"1"
    assert all(workspace.snapshots.load(name).tree.count for name in named)

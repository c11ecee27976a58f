"""What a nursery starts is a process like any other."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.forks import Fork, Nursery, nursery


def start(folder: Path, *args: str, by: Nursery | None = None) -> Fork:
    (folder / "effects").touch()
    world = {"CRASH_WORLD": f"sqlite:{folder / 'journal.db'}", "CRASH_EFFECTS": str(folder / "effects")}
    return (by or nursery()).start("tests.crash.app", args, {**os.environ, **world})


def test_each_is_a_process_of_its_own(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = start(tmp_path / "one", "serve"), start(tmp_path / "two", "serve")
    assert len({one.pid, two.pid, os.getpid()}) == 3
    one.kill()
    assert one.wait(60) == -signal.SIGKILL
    while "serving" not in (tmp_path / "two" / "effects").read_text():
        assert two.poll() is None
    two.send_signal(signal.SIGTERM)
    assert two.wait(60) == 0
    two.kill()  # without effect
    assert two.poll() == 0


def test_waiting_for_it_ends(tmp_path: Path) -> None:
    hanging = start(tmp_path, "serve")
    with pytest.raises(subprocess.TimeoutExpired):
        hanging.wait(0.01)
    assert hanging.poll() is None
    hanging.kill()
    assert hanging.wait() == -signal.SIGKILL


def test_it_ends_as_its_program_does_and_the_nursery_with_us(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own = Nursery()  # its output is that of where it was started
    assert start(tmp_path, "submit", "no number", by=own).wait(60) == 1
    assert "invalid literal for int() with base 10: 'no number'" in capfd.readouterr().err
    own.stop()
    assert own._process.returncode == 0

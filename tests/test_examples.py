"""`examples/refunds.py` behaves as the README says: killed inside the refund, run again, and once more."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "examples" / "refunds.py"


def start(where: Path) -> "subprocess.Popen[str]":
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "JOURNAL_"))}
    environment["JOURNAL_WORLD"] = f"sqlite:{where / 'journal.db'}"
    environment["PYTHONUNBUFFERED"] = "1"
    return subprocess.Popen(
        [sys.executable, SCRIPT],
        cwd=where,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_killed_inside_the_refund_it_carries_on_and_then_answers_from_the_log(tmp_path: Path) -> None:
    with start(tmp_path) as first:
        assert first.stdout is not None
        told = re.search(r"kill -9 (\d+)", first.stdout.readline())
        assert told is not None
        os.kill(int(told[1]), signal.SIGKILL)
        first.communicate()
    assert (tmp_path / "refunds.txt").read_text() == "42 30\n"

    with start(tmp_path) as second:
        answer, complaints = second.communicate(timeout=120)
    assert second.returncode == 0, complaints
    assert "went through before an interruption" in answer
    assert (tmp_path / "refunds.txt").read_text() == "42 30\n"

    with start(tmp_path) as third:
        again, complaints = third.communicate(timeout=120)
    assert third.returncode == 0, complaints
    assert again == answer
    assert (tmp_path / "refunds.txt").read_text() == "42 30\n"

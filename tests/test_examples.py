"""The examples behave as the README says: killed inside the refund, run again, and once more."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def start(script: str, where: Path) -> "subprocess.Popen[str]":
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "JOURNAL_"))}
    environment["JOURNAL_WORLD"] = f"sqlite:{where / 'journal.db'}"
    environment["PYTHONUNBUFFERED"] = "1"
    return subprocess.Popen(
        [sys.executable, EXAMPLES / script],
        cwd=where,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("script", ["refunds.py", "refunds_pydantic_ai.py"])
def test_killed_inside_the_refund_it_carries_on_and_then_answers_from_the_log(
    script: str, tmp_path: Path
) -> None:
    with start(script, tmp_path) as first:
        assert first.stdout is not None
        told = re.search(r"kill -9 (\d+)", first.stdout.readline())
        assert told is not None
        os.kill(int(told[1]), signal.SIGKILL)
        first.communicate()
    assert (tmp_path / "refunds.txt").read_text() == "42 30\n"

    with start(script, tmp_path) as second:
        answer, complaints = second.communicate(timeout=120)
    assert second.returncode == 0, complaints
    assert "went through before an interruption" in answer
    assert (tmp_path / "refunds.txt").read_text() == "42 30\n"

    with start(script, tmp_path) as third:
        again, complaints = third.communicate(timeout=120)
    assert third.returncode == 0, complaints
    assert again == answer
    assert (tmp_path / "refunds.txt").read_text() == "42 30\n"

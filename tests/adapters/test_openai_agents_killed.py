"""A real process is killed with SIGKILL in the middle of a run, and another carries on from the file."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ITEMS = ["user", "function_call", "function_call_output", "function_call", "function_call_output", "message"]


def attempt(folder: Path, at: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "tests.adapters.killed", str(folder), at],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("at", ["refund", "model", "add"])
def test_another_process_carries_on(tmp_path: Path, at: str) -> None:
    killed = attempt(tmp_path, at)
    assert killed.returncode == -9, killed.stderr
    second = attempt(tmp_path, "nowhere")
    assert second.returncode == 0, second.stderr
    said, items = json.loads(second.stdout)
    assert items == ITEMS
    effects = Counter((tmp_path / "effects").read_text().splitlines())
    assert effects["refund"] == 1
    assert effects["lookup"] == 1
    if at == "refund":
        assert said.startswith("refund was started before an interruption and may have completed.")
    else:
        assert said == "refunded 42"
    models = {"model 0": 1, "model 1": 1, "model 2": 1, "model": 1 if at == "model" else 0}
    assert {name: effects[name] for name in models} == models
    third = attempt(tmp_path, "nowhere")
    assert third.stdout == second.stdout
    assert Counter((tmp_path / "effects").read_text().splitlines()) == effects

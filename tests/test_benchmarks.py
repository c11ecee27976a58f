"""The benchmarks run, say what they promise to say, and fail below a target."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.report import Result
from benchmarks.targets import Target

ROOT = Path(__file__).parent.parent
FIELDS = {"name", "world", "value", "unit", "versus", "ratio", "loop_ms"}


def run(*options: str, place: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", "--dir", str(place), "--seconds", "0.05", "--rounds", "1"]
    return subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("case", ["import", "door"])
def test_json_is_one_object_a_line(case: str, tmp_path: Path) -> None:
    done = run("--json", case, place=tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    result = json.loads(line)
    assert set(result) == FIELDS
    assert result["name"] == case
    assert not list(tmp_path.iterdir()), "the measuring leaves nothing behind"


def test_the_table_names_machine_and_versions(tmp_path: Path) -> None:
    done = run("import", place=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "import" in done.stdout
    assert "Python 3." in done.stdout
    assert "SQLite 3." in done.stdout


@pytest.mark.parametrize(
    ("target", "value", "ratio", "is_met"),
    [
        (Target("ratio", at_least=0.55), 1.0, 0.55, True),
        (Target("ratio", at_least=0.55), 1.0, 0.54, False),
        (Target("ratio", at_least=0.55), 1.0, None, False),
        (Target("value", at_most=16), 16.0, None, True),
        (Target("value", at_most=16), 16.1, 0.1, False),
    ],
)
def test_a_target_bounds_one_field(target: Target, value: float, ratio: float | None, is_met: bool) -> None:
    assert target.is_met(value=value, ratio=ratio) is is_met


@pytest.mark.parametrize(("loop_ms", "is_met"), [(4.1, False), (2.0, False), (8.2, True), (0.0, False)])
def test_what_only_computes_is_judged_at_the_pace_it_was_measured_at(loop_ms: float, is_met: bool) -> None:
    result = Result("replay", "sqlite", 17.0, "µs a call", "", None, loop_ms)
    assert str(result.target) == "≤ 10 at 4.1"
    assert result.is_met is is_met


def test_a_result_is_judged_by_the_target_of_its_case_and_world() -> None:
    assert not Result("sequential", "sqlite", 1000.0, "steps/s", "raw", 0.3).is_met
    assert Result("sequential", "memory", 1000.0, "steps/s", "raw", 0.3).is_met

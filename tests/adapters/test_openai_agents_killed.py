"""A run of the SDK is killed at every point, and carried on; as a process, too."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from journal.core import values
from journal.testing import Crash, Report, crash_everywhere
from journal.testing.judge import read_log
from tests.adapters import killed

PROMPT = "Order 42 arrived broken"
ITEMS = ["user", "function_call", "function_call_output", "function_call", "function_call_output", "message"]


def check(crash: Crash) -> None:
    finished = read_log(crash.log).finished
    assert finished is not None
    assert isinstance(finished.output, bytes)
    said, items = values.decode(finished.output)
    assert items == ITEMS
    if crash.unknown:
        assert said.startswith("refund was started before an interruption and may have completed.")
    else:
        assert said == "refunded 42"


@pytest.fixture(autouse=True)
def sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Sees to a folder for the sessions of each run."""
    numbers = count(1)

    def anew() -> None:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        monkeypatch.setenv("SESSIONS", str(folder))

    anew()
    return anew


def test_killed_anywhere_it_is_carried_on(sessions: Callable[[], None]) -> None:
    report = crash_everywhere(
        killed.support, PROMPT, effects=killed.effects, check=check, before_each=sessions
    )
    judge(report)


@pytest.mark.soak
def test_another_process_carries_on() -> None:
    judge(crash_everywhere("tests.adapters.killed:support", PROMPT, check=check))


def judge(report: Report) -> None:
    points = {str(crash.point) for crash in report.crashes}
    assert {
        f"inside {key}" for key in ("model#1", "model#1/0:c1", "model#2", "model#2/0:c2", "model#3")
    } <= points
    # In doubt: from where the intent of the refund is durable to where its outcome is.
    assert sum(bool(crash.unknown) for crash in report.crashes) == 3

"""The demo, whole: real processes, real SIGKILL, the real Agents SDK."""

from io import StringIO

import pytest
from rich.console import Console

from journal.demo.main import show
from journal.demo.scenario import Demo, play


@pytest.fixture(scope="module")
def demo() -> Demo:
    return play()


def test_with_the_journal_nothing_recorded_is_paid_or_refunded_again(demo: Demo) -> None:
    told = demo.summary()
    assert told["status"] == "succeeded"
    assert told["attempts"] == 3
    # By hand: two model calls up to the refund; the one that is killed, and again; two more around the note.
    assert told["model_calls_paid"] == 6
    assert told["model_calls_finished"] == 5
    assert told["never_tool_runs"] == 1
    assert told["safe_tool_runs"] == 3


def test_without_it_everything_is_paid_and_refunded_again(demo: Demo) -> None:
    # By hand: 2 model calls up to the first killing, 3 up to the second, 4 to the end; a refund each time.
    assert demo.plain.attempts == 3
    assert demo.plain.model_calls_paid == 9
    assert demo.plain.refunds == 3
    assert demo.plain.safe_tool_runs == 4


def test_both_timelines_are_shown_and_what_they_cost(demo: Demo) -> None:
    console = Console(file=StringIO(), record=True, width=120)
    show(demo, console)
    text = console.export_text()
    assert "takes over" in text
    assert "starts from the top" in text
    assert "refunded once" in text
    assert "refunded 3 times" in text

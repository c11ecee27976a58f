"""The script without the journal, killed twice by SIGKILL and started anew each time: what that costs."""

from journal.demo.plain import act
from journal.demo.stage import Stage


def test_without_a_journal_everything_is_paid_and_refunded_again() -> None:
    # By hand: 2 model calls up to the refund; then 3 with the one that is killed; then 4 to the end.
    played = Stage().perform(act, model_hang_on=5, environment={})
    assert played.attempts == 3
    assert played.model_calls_paid == 9
    assert played.refunds == 3
    assert played.safe_tool_runs == 4

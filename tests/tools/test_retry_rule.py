"""The retry rule: numbers that make sense, and pauses computed by hand."""

import pytest

from journal.core.errors import InvalidOptions
from journal.tools.retry import Retry, as_retry


@pytest.mark.parametrize(
    ("retry", "delays"),
    [
        (Retry(), [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]),
        (Retry(min_delay=0.5, max_delay=3), [0.5, 1.0, 2.0, 3, 3]),
        (Retry(min_delay=0.5, max_delay=3, backoff="fixed"), [0.5, 0.5, 0.5]),
        (Retry(min_delay=0, max_delay=0), [0, 0]),
    ],
)
def test_pauses(retry: Retry, delays: list[float]) -> None:
    assert [retry.delay(number) for number in range(1, len(delays) + 1)] == delays
    assert [retry.delay(number, 0.0) for number in range(1, len(delays) + 1)] == delays


def test_jitter_shortens_a_pause_to_no_less_than_half() -> None:
    retry = Retry(min_delay=1, max_delay=4, jitter=True)
    assert [retry.delay(2, random) for random in (0.0, 0.5, 1.0)] == [1.0, 1.5, 2.0]
    assert [retry.delay(9, random) for random in (0.0, 0.5, 1.0)] == [2.0, 3.0, 4.0]


def test_a_late_try_does_not_overflow() -> None:
    assert Retry(tries=10**6, min_delay=1, max_delay=60).delay(10**6) == 60


@pytest.mark.parametrize(
    "options",
    [
        {"tries": 0}, {"tries": -1}, {"tries": 1.5}, {"tries": True}, {"min_delay": -1}, {"max_delay": float("nan")},
        {"max_delay": float("inf")}, {"min_delay": 2}, {"min_delay": "1"}, {"backoff": "linear"}, {"should_retry": 3},
    ],
)  # fmt: skip
def test_numbers_that_make_no_sense_are_refused_by_name(options: dict[str, object]) -> None:
    with pytest.raises(InvalidOptions, match=next(iter(options))):
        Retry(**options)  # type: ignore[arg-type]  # what is tested


def test_what_retry_may_be() -> None:
    rule = Retry(tries=5)
    assert as_retry(rule) is rule
    assert as_retry(True) == Retry(tries=3, min_delay=0.1, max_delay=1.0, backoff="exponential", jitter=False)
    assert as_retry(None) is None
    assert as_retry(False) is None
    with pytest.raises(InvalidOptions, match="retry=3"):
        as_retry(3)  # type: ignore[arg-type]  # what is tested

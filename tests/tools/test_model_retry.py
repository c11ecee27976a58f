"""`ModelRetry`: what it waits for, and how long. By table; the loop is tried in tests/engine."""

from typing import Any

import pytest

from journal import ModelRetry, Retry
from journal.core.errors import InvalidOptions
from journal.tools.model_retry import MODEL_RETRY, as_model_retry
from tests.tools.test_provider import NOW, StatusError


def pause(
    rule: ModelRetry, error: Exception, number: int = 1, *, elapsed: float = 0.0, random: float = 1.0
) -> Any:
    return rule.pause(error, number, elapsed=elapsed, now=NOW, random=random)


def test_the_defaults_are_those_promised() -> None:
    assert (MODEL_RETRY.tries, MODEL_RETRY.min_delay, MODEL_RETRY.max_delay) == (3, 0.5, 8.0)
    assert (MODEL_RETRY.total_seconds, MODEL_RETRY.longest_sleep, MODEL_RETRY.long) == (60.0, 20.0, "error")
    assert MODEL_RETRY.jitter


@pytest.mark.parametrize(
    ("number", "least", "most"), [(1, 0.25, 0.5), (2, 0.5, 1.0), (4, 2.0, 4.0), (9, 4.0, 8.0)]
)
def test_the_back_off_doubles_up_to_its_bound_with_jitter(number: int, least: float, most: float) -> None:
    assert pause(MODEL_RETRY, StatusError(500), number, random=0.0) == least
    assert pause(MODEL_RETRY, StatusError(500), number, random=1.0) == most


def test_a_provider_that_asks_for_a_pause_gets_it() -> None:
    assert pause(MODEL_RETRY, StatusError(429, retry_after="20")) == 20.0
    assert pause(MODEL_RETRY, StatusError(503, retry_after_ms="20")) == 0.02
    assert pause(MODEL_RETRY, StatusError(503, retry_after="0")) == 0.5  # it names none, so the back-off


def test_a_longer_pause_than_one_may_be_is_not_waited_for() -> None:
    assert pause(MODEL_RETRY, StatusError(429, retry_after="20.1")) is None
    assert pause(ModelRetry(longest_sleep=30), StatusError(429, retry_after="20.1")) == 20.1


def test_no_try_begins_after_the_time_is_up() -> None:
    assert pause(MODEL_RETRY, StatusError(429, retry_after="20"), elapsed=40.0) == 20.0
    assert pause(MODEL_RETRY, StatusError(429, retry_after="20"), elapsed=40.1) is None
    assert pause(MODEL_RETRY, StatusError(500), elapsed=59.6) is None


def test_precedence_of_what_is_said() -> None:
    agents, own = ModelRetry(tries=2), Retry(tries=7)
    assert as_model_retry(None, agents) is agents
    assert as_model_retry(None, None) is None
    assert as_model_retry(True, None) is MODEL_RETRY
    assert as_model_retry(False, agents) is None
    assert as_model_retry(own, agents) is own


@pytest.mark.parametrize(
    "options", [{"tries": 0}, {"total_seconds": -1}, {"longest_sleep": float("nan")}, {"long": "defer"}]
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptions):
        ModelRetry(**options)

"""The wall clock that a process goes by, when somebody steps the host's."""

import time

import pytest

from journal.core.clock import SystemClock


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """[wall clock, boot clock] of a host, to be set."""
    clocks = [1000.0, 50.0]
    monkeypatch.setattr(time, "time", lambda: clocks[0])
    monkeypatch.setattr(time, "clock_gettime", lambda _: clocks[1])
    monkeypatch.setattr(SystemClock, "_boot_was_at", 0.0)
    return clocks


def test_a_step_back_is_not_followed_and_time_goes_on(host: list[float]) -> None:
    """FAULTS 16."""
    clock = SystemClock()
    assert clock.time() == 1000.0
    host[0] -= 3600
    assert clock.time() == 1000.0
    host[0] += 10
    host[1] += 10
    assert clock.time() == 1010.0


def test_a_step_forward_is_followed(host: list[float]) -> None:
    clock = SystemClock()
    assert clock.time() == 1000.0
    host[0] += 3600
    assert clock.time() == 4600.0


def test_small_adjustments_are_followed_both_ways(host: list[float]) -> None:
    clock = SystemClock()
    assert clock.time() == 1000.0
    host[0] -= 0.5
    assert clock.time() == 999.5

"""Where time comes from.

Two clocks are needed: the wall clock stamps records and says when a timer is due; the boot clock
(CLOCK_BOOTTIME: monotonic, counts suspend) measures leases, so that stepping the wall clock never
makes a healthy holder lose its run. Tests inject ``ManualClock``.
"""

import time
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """Both clocks, in seconds."""

    def time(self) -> float:
        """Wall clock, seconds since the Unix epoch."""
        ...

    def boottime(self) -> float:
        """Seconds since this host booted. Never steps, and counts the time the host was suspended."""
        ...

    def boot_id(self) -> str:
        """Names the boot that ``boottime`` counts from; two values may be compared only under one id."""
        ...


_SLEW_SECONDS = 1.0
"""A wall clock that falls back by less is being adjusted, not stepped."""
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The clocks of this host (macOS has no CLOCK_BOOTTIME: its monotonic clock stands in).

    The wall clock is followed forwards only: where it is stepped back while a process runs, the process goes on by
    the boot clock, so that work which was due stays due and timers keep their length. A new process believes the host.
    """

    _boot_id: str | None = None
    _boot_was_at = 0.0
    """Wall clock of the boot, as this process knows it."""

    def time(self) -> float:
        now, since_boot = time.time(), time.clock_gettime(_BOOTTIME)
        if now - since_boot < SystemClock._boot_was_at - _SLEW_SECONDS:
            return SystemClock._boot_was_at + since_boot
        SystemClock._boot_was_at = now - since_boot
        return now

    def boottime(self) -> float:
        return time.clock_gettime(_BOOTTIME)

    def boot_id(self) -> str:
        if SystemClock._boot_id is None:
            try:
                SystemClock._boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            except OSError:
                SystemClock._boot_id = "unknown"
        return SystemClock._boot_id


class ManualClock:
    """A clock that moves only when told to: for tests of leases and timers."""

    def __init__(self, *, time: float = 1_700_000_000.0, boottime: float = 1000.0) -> None:
        self._time = time
        self._boottime = boottime
        self._boot = 1

    def time(self) -> float:
        return self._time

    def boottime(self) -> float:
        return self._boottime

    def boot_id(self) -> str:
        return f"manual-{self._boot}"

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        self._time += seconds
        self._boottime += seconds

    def step_wall(self, seconds: float) -> None:
        """Step the wall clock alone, as an administrator or NTP would."""
        self._time += seconds

    def reboot(self) -> None:
        """A new boot: the boot clock starts over under another id."""
        self._boot += 1
        self._boottime = 1.0

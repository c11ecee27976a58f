"""How often and after which pauses a failed act is tried again: the rule alone, no waiting.

Retries happen before the outcome is recorded, so the log holds one intent and one outcome whatever their number.
The loop that waits is the engine's.
"""

from collections.abc import Awaitable, Callable
from math import isfinite
from typing import Literal

import msgspec

from journal.core.errors import InvalidOptions

_DOUBLINGS = 60


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """Try again when the act raises; the last error is re-raised unchanged."""

    tries: int = 3
    """In all, the first one included."""
    min_delay: float = 0.1
    """Seconds before the second try."""
    max_delay: float = 1.0
    """Seconds no pause exceeds."""
    backoff: Literal["exponential", "fixed"] = "exponential"
    """Whether the pause doubles from try to try."""
    jitter: bool = False
    """Whether each pause is shortened at random, down to half of it, so that many callers do not come at once."""
    should_retry: Callable[[Exception], bool | Awaitable[bool]] | None = None
    """Whether this error is worth another try, sync or async; not asked after the last try. None: any error is."""

    def __post_init__(self) -> None:
        """Raise `InvalidOptions` for numbers that make no sense."""
        rule = type(self).__name__
        if type(self.tries) is not int or self.tries < 1:
            raise InvalidOptions(f"{rule}(tries={self.tries!r}): a whole number from 1 on is needed")
        for name, seconds in (("min_delay", self.min_delay), ("max_delay", self.max_delay)):
            if type(seconds) not in (int, float) or not isfinite(seconds) or seconds < 0:
                raise InvalidOptions(f"{rule}({name}={seconds!r}): a number of seconds from 0 on is needed")
        if self.max_delay < self.min_delay:
            raise InvalidOptions(
                f"{rule}(min_delay={self.min_delay!r}, max_delay={self.max_delay!r}): max_delay is the smaller one; "
                "raise it or lower min_delay"
            )
        if self.backoff not in ("exponential", "fixed"):
            raise InvalidOptions(f"{rule}(backoff={self.backoff!r}): it is 'exponential' or 'fixed'")
        if self.should_retry is not None and not callable(self.should_retry):
            raise InvalidOptions(f"{rule}(should_retry=): a function of the error is needed")

    def is_worth(self, error: Exception) -> bool:
        """Whether `error` is worth another try where `should_retry` does not say; here any is."""
        return isinstance(error, Exception)

    def pause(
        self, error: Exception, number: int, *, elapsed: float, now: float, random: float
    ) -> float | None:
        """Seconds to wait after try `number` failed with `error`; None: it is not to be waited for.

        `elapsed`: seconds since the first try began; `now`: wall clock; `random`: 0 to 1.
        """
        return self.delay(number, random)

    def delay(self, number: int, random: float = 1.0) -> float:
        """Seconds to wait after try `number` (from 1) has failed. `random`, 0 to 1, is used with jitter only."""
        doublings = min(number - 1, _DOUBLINGS) if self.backoff == "exponential" else 0
        seconds = min(self.min_delay * 2.0**doublings, self.max_delay)
        return seconds * (0.5 + random / 2) if self.jitter else seconds


def as_retry(option: Retry | bool | None) -> Retry | None:
    """What ``retry=`` means: True is the default rule, False and None are no retries."""
    if option is True:
        return Retry()
    if option is None or option is False:
        return None
    if not isinstance(option, Retry):
        raise InvalidOptions(f"retry={option!r}: give True or a Retry(tries=…)")
    return option

"""How often and after which pauses a model call is tried again: the rule alone, no waiting.

On by default. It tries again what may well succeed and heeds how long the provider asks to be left alone; what would
fail again (validation, authentication, a context that is too long, a refusal, a reply that makes no sense) it does
not. Next: `provider.py` (what an error says), `journal.engine.retry` (the loop that waits).
"""

from math import isfinite
from typing import Literal

from journal.core.errors import InvalidOptions
from journal.tools.provider import delay_asked, is_transient
from journal.tools.retry import Retry


class ModelRetry(Retry, frozen=True, kw_only=True):
    """Try a model call again after network errors, timeouts, 408, 409, 429 and 5xx; the last error is re-raised.

    `should_retry`, where given, decides in place of that list. A stream is never tried again once something of it
    was shown; a call that must not be repeated (policy `never`) only where it certainly did not happen.
    """

    min_delay: float = 0.5
    """Seconds before the second try, where the provider asks for none."""
    max_delay: float = 8.0
    jitter: bool = True
    total_seconds: float = 60.0
    """No further try begins later than this after the first began."""
    longest_sleep: float = 20.0
    """Seconds; a provider that asks for more is not waited for."""
    long: Literal["error"] = "error"
    """What becomes of a call whose provider asks for a longer pause: it fails with that error."""

    def __post_init__(self) -> None:
        """Raise `InvalidOptions` for numbers that make no sense."""
        super().__post_init__()
        for name, seconds in (("total_seconds", self.total_seconds), ("longest_sleep", self.longest_sleep)):
            if type(seconds) not in (int, float) or not isfinite(seconds) or seconds < 0:
                raise InvalidOptions(
                    f"ModelRetry({name}={seconds!r}): a number of seconds from 0 on is needed"
                )
        if self.long != "error":
            raise InvalidOptions(f"ModelRetry(long={self.long!r}): it is 'error' in this version")

    def is_worth(self, error: Exception) -> bool:
        """Whether `error` is one of those that another try may do without."""
        return is_transient(error)

    def pause(
        self, error: Exception, number: int, *, elapsed: float, now: float, random: float
    ) -> float | None:
        """As long as the provider asks for, else the back-off; None where that goes beyond a limit."""
        asked = delay_asked(error, now)
        seconds = asked or self.delay(number, random)
        if seconds > self.longest_sleep or elapsed + seconds > self.total_seconds:
            return None
        return seconds


MODEL_RETRY = ModelRetry()
"""What a model call has unless somebody says otherwise."""


def as_model_retry(option: Retry | bool | None, otherwise: Retry | None) -> Retry | None:
    """What ``retry=`` of a model call means: True the default rule, False none, and None what is set further out."""
    if option is None:
        return otherwise
    if option is True:
        return MODEL_RETRY
    if option is False:
        return None
    if not isinstance(option, Retry):
        raise InvalidOptions(f"retry={option!r}: give True, False or a ModelRetry(tries=…)")
    return option

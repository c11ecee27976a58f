"""Exceptions of Pydantic AI that the log keeps well enough to raise them again.

Of a provider's error only status, code and the retry delay are kept, never its body, which may quote the prompt.
"""

import functools
from typing import Any

from pydantic_ai import exceptions

from journal.core.failures import register_error


class ResultLost(Exception):
    """What a tool returned could not be written down. It ran."""

    @classmethod
    def of(cls, error: Exception) -> "ResultLost":
        return cls(f"{type(error).__qualname__}")


_KEPT = ("model_name", "provider_error_code", "provider_error_type", "retry_after", "in_stream")


def _kept(error: exceptions.ModelAPIError) -> dict[str, Any]:
    kept: dict[str, Any] = {name: getattr(error, name) for name in _KEPT}
    if isinstance(error, exceptions.ModelHTTPError):
        kept["status_code"] = error.status_code
    else:
        kept["message"] = type(error).__name__
    if isinstance(error, exceptions.ModelConnectionError):
        kept["phase"] = error.phase
    return kept


def _rebuilt(cls: type[exceptions.ModelAPIError], kept: dict[str, Any]) -> exceptions.ModelAPIError:
    return cls(**kept)


def _register() -> None:
    for plain in (
        exceptions.AgentRunError,
        exceptions.UserError,
        exceptions.UsageLimitExceeded,
        exceptions.ModelRetry,
        exceptions.ToolFailed,
    ):
        register_error(plain)
    for unexpected in (exceptions.UnexpectedModelBehavior, exceptions.ContentFilterError):
        register_error(unexpected, to_data=lambda e: e.message, from_data=unexpected)
    pending: list[type[exceptions.ModelAPIError]] = [exceptions.ModelAPIError]
    while pending:
        cls = pending.pop()
        pending.extend(cls.__subclasses__())
        if cls is not exceptions.ModelRequestTimeout:
            register_error(cls, to_data=_kept, from_data=functools.partial(_rebuilt, cls))


_register()

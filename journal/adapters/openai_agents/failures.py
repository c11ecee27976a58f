"""Exceptions that the log keeps well enough to raise them again: those of the SDK, and of the OpenAI client."""

from agents import exceptions

import journal.adapters.openai_errors  # noqa: F401 - it registers them
from journal.core.failures import register_error


class ToolFailed(Exception):
    """A tool raised, and `text` is what its failure function made of it for the model."""

    def __init__(self, text: str, error: str) -> None:
        self.text, self.error = text, error
        super().__init__(text, error)


def carry_origin(error: BaseException) -> None:
    """Note on `error` which call it comes from, where the SDK wrapped the exception that knows it."""
    part: BaseException | None = error
    for _ in range(16):
        if part is None:
            return
        if (call := getattr(part, "__journal_call__", None)) is not None:
            error.__journal_call__ = call  # type: ignore[attr-defined]  # read when it escapes the handler
            return
        part = part.__cause__


def _register() -> None:
    register_error(ToolFailed)
    for plain in (
        exceptions.AgentsException,
        exceptions.MaxTurnsExceeded,
        exceptions.ModelBehaviorError,
        exceptions.UserError,
        exceptions.MCPToolCancellationError,
    ):
        register_error(plain)
    register_error(
        exceptions.ModelRefusalError, to_data=lambda e: e.refusal, from_data=exceptions.ModelRefusalError
    )
    register_error(
        exceptions.ModelTimeoutError,
        to_data=lambda e: e.timeout_seconds,
        from_data=exceptions.ModelTimeoutError,
    )


_register()

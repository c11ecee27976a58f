"""Exceptions that the log keeps well enough to raise them again: those of the SDK, and of the OpenAI client.

Of a client's error only status, code and the retry headers are kept, never its text, which may quote the prompt: it is
what the SDK's own retry rules look at, so they decide on a replay as they did the first time.
"""

from collections.abc import Callable
from typing import Any

import httpx2 as http
import openai
from agents import exceptions

from journal.core.failures import register_error

_URL = "https://recorded.invalid/"
_HEADERS = ("retry-after", "retry-after-ms", "x-should-retry", "x-request-id")


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


def _status_data(error: openai.APIStatusError) -> dict[str, Any]:
    headers = {name: error.response.headers[name] for name in _HEADERS if name in error.response.headers}
    return {"status": error.response.status_code, "code": error.code, "type": error.type, "headers": headers}


def _status_error(cls: type[openai.APIStatusError]) -> Callable[[Any], openai.APIStatusError]:
    def rebuild(data: Any) -> openai.APIStatusError:
        request = http.Request("POST", _URL)
        response = http.Response(data["status"], headers=data["headers"], request=request)
        text = " ".join(str(part) for part in ("HTTP", data["status"], data["code"]) if part is not None)
        return cls(text, response=response, body={"code": data["code"], "type": data["type"]})

    return rebuild


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
    for status in (
        openai.APIStatusError,
        openai.BadRequestError,
        openai.AuthenticationError,
        openai.PermissionDeniedError,
        openai.NotFoundError,
        openai.ConflictError,
        openai.UnprocessableEntityError,
        openai.RateLimitError,
        openai.InternalServerError,
    ):
        register_error(status, to_data=_status_data, from_data=_status_error(status))
    register_error(
        openai.APITimeoutError,
        to_data=lambda _: None,
        from_data=lambda _: openai.APITimeoutError(http.Request("POST", _URL)),
    )
    register_error(
        openai.APIConnectionError,
        to_data=lambda _: None,
        from_data=lambda _: openai.APIConnectionError(request=http.Request("POST", _URL)),
    )


_register()

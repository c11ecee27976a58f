"""Exceptions that the log keeps well enough to raise them again, and what a broken connection looks like.

Of a provider's error only status, code and the retry delay are kept, never its body, which may quote the prompt.
"""

import functools
from typing import Any

from pydantic_ai import exceptions

from journal.core.failures import register_error

_INTERRUPTIONS = frozenset(
    {
        "TimeoutException",  # httpx
        "NetworkError",
        "RemoteProtocolError",
        "APITimeoutError",  # openai, anthropic
        "APIConnectionError",
        "ServerTimeoutError",  # aiohttp
        "ClientConnectionError",
        "Timeout",  # requests
        "ClosedResourceError",  # anyio: the pipe to an MCP server
        "BrokenResourceError",
        "EndOfStream",
    }
)
_MCP_INTERRUPTIONS = frozenset({-32000, -32001, 408})
"""Codes that an MCP client makes up itself: connection closed, request timed out."""


class ResultLost(Exception):
    """What a tool returned could not be written down. It ran."""

    @classmethod
    def of(cls, error: Exception) -> "ResultLost":
        return cls(f"{type(error).__qualname__}")


class ToolInterrupted(ConnectionError):
    """A `never` tool broke off in a way that does not tell whether its effect took place."""


def is_interruption(error: BaseException | None) -> bool:
    """Whether the effect may have taken place although `error` came, which may be wrapped in another."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, TimeoutError | ConnectionError | EOFError):
            return True
        names = {cls.__name__ for cls in type(error).__mro__}
        if not names.isdisjoint(_INTERRUPTIONS):
            return True
        if names & {"MCPError", "McpError"} and _mcp_code(error) in _MCP_INTERRUPTIONS:
            return True
        if isinstance(error, BaseExceptionGroup) and any(is_interruption(part) for part in error.exceptions):
            return True
        seen.add(id(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


def _mcp_code(error: BaseException) -> object:
    return getattr(getattr(error, "error", error), "code", None)


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
    register_error(ToolInterrupted)
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

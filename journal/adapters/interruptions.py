"""Whether an exception leaves it open if the effect took place: timeouts, and connections that broke."""

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
        "MCPToolCancellationError",  # openai-agents
        "NodeTimeoutError",  # langgraph
        "ClosedResourceError",  # anyio: the pipe to an MCP server
        "BrokenResourceError",
        "EndOfStream",
    }
)
_MCP_INTERRUPTIONS = frozenset({-32000, -32001, 408})
"""Codes that an MCP client makes up itself: connection closed, request timed out."""


class ToolInterrupted(ConnectionError):
    """A `never` tool broke off in a way that does not tell whether its effect took place."""


register_error(ToolInterrupted)


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

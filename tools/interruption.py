"""Whether an exception leaves it open if the effect took place: timeouts, and connections that broke.

Told by class names, so that no client library is imported. Where it is open, a `never` call is unknown and no error.
"""

from journal.core.errors import CallTimeout, DidNotHappen

_INTERRUPTIONS = frozenset(
    {
        "TimeoutException",  # httpx
        "NetworkError",
        "RemoteProtocolError",
        "APITimeoutError",  # openai, anthropic
        "APIConnectionError",
        "ClientConnectionError",  # aiohttp
        "ClientPayloadError",
        "Timeout",  # requests
        "ConnectionError",
        "ChunkedEncodingError",
        "ProtocolError",  # urllib3
        "ReadTimeoutError",
        "IncompleteRead",  # http.client
        "ConnectionClosedError",  # botocore, websockets
        "ConnectionDoesNotExistError",  # asyncpg
        "MCPToolCancellationError",  # openai-agents
        "NodeTimeoutError",  # langgraph
        "ClosedResourceError",  # anyio: the pipe to an MCP server
        "BrokenResourceError",
        "EndOfStream",
    }
)
_MCP_INTERRUPTIONS = frozenset({-32000, -32001, 408})
"""Codes that an MCP client makes up itself: connection closed, request timed out."""


def is_interruption(error: BaseException | None, outer: BaseException | None = None) -> bool:
    """Whether the effect may have taken place although `error` came, which may be wrapped in another.

    What says that it did not happen is none, whatever it was raised over. `outer`: what was being handled when the act
    began; it has nothing to do with it.
    """
    seen: set[int] = set()
    while error is not None and error is not outer and id(error) not in seen:
        if isinstance(error, DidNotHappen):
            return False
        if isinstance(error, TimeoutError | ConnectionError | EOFError | CallTimeout):
            return True
        names = {cls.__name__ for cls in type(error).__mro__}
        if not names.isdisjoint(_INTERRUPTIONS):
            return True
        if names & {"MCPError", "McpError"} and _mcp_code(error) in _MCP_INTERRUPTIONS:
            return True
        if isinstance(error, BaseExceptionGroup) and any(
            is_interruption(part, outer) for part in error.exceptions
        ):
            return True
        seen.add(id(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


def _mcp_code(error: BaseException) -> object:
    return getattr(getattr(error, "error", error), "code", None)

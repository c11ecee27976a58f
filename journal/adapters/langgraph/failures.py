"""Exceptions of LangChain's that the log can raise again, and those after which a call may have happened."""

from langchain_core.tools import ToolException
from langgraph.errors import GraphRecursionError, InvalidUpdateError

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
        "NodeTimeoutError",  # langgraph
        "ClosedResourceError",  # anyio: the pipe to an MCP server
        "BrokenResourceError",
        "EndOfStream",
    }
)


class ToolInterrupted(ConnectionError):
    """A `never` tool broke off in a way that does not tell whether its effect took place."""


def is_interruption(error: BaseException | None) -> bool:
    """Whether the effect may have taken place although `error` came, which may be wrapped in another."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, TimeoutError | ConnectionError | EOFError):
            return True
        if not _INTERRUPTIONS.isdisjoint(cls.__name__ for cls in type(error).__mro__):
            return True
        if isinstance(error, BaseExceptionGroup) and any(is_interruption(part) for part in error.exceptions):
            return True
        seen.add(id(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


for plain in (ToolException, GraphRecursionError, InvalidUpdateError):
    register_error(plain)

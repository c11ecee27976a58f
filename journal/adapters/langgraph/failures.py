"""Exceptions of LangChain and LangGraph that the log can raise again."""

from contextlib import suppress

from langchain_core.tools import ToolException
from langgraph.errors import GraphRecursionError, InvalidUpdateError

from journal.core.failures import register_error

with suppress(ImportError):  # of chat models that are made on it
    import journal.adapters.openai_errors  # noqa: F401 - it registers them

for plain in (ToolException, GraphRecursionError, InvalidUpdateError):
    register_error(plain)

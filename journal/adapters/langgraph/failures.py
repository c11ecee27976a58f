"""Exceptions of LangChain and LangGraph that the log can raise again."""

from langchain_core.tools import ToolException
from langgraph.errors import GraphRecursionError, InvalidUpdateError

from journal.core.failures import register_error

for plain in (ToolException, GraphRecursionError, InvalidUpdateError):
    register_error(plain)

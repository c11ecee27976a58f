"""Tools of ours as the SDK's function tools: those over a workspace, host commands, and users' own."""

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any

import msgspec
from agents import FunctionTool, RunContextWrapper, default_tool_error_function, function_tool
from agents.exceptions import ModelBehaviorError

from journal.core.errors import DidNotHappen, WorkspaceError
from journal.tools.files import FILE_TOOLS
from journal.tools.policy import never, safe
from journal.tools.shell import Shell
from journal.tools.tool import Tool


def file_tools() -> list[FunctionTool]:
    """Read, write, edit, move, delete, list, glob and grep in the agent's workspace; all `safe`.

    They need ``@journal.agent(workspace=...)``. What is wrong with a path, an edit or arguments is told to the model.
    """
    return function_tools(*FILE_TOOLS)


def shell_tool(shell: Shell | None = None) -> FunctionTool:
    """A bash over the agent's workspace, `safe`; needs the extra `shell`. `shell`: its limits."""
    return _function_tool((shell or Shell()).tool())


def function_tools(*tools: Tool[..., Any]) -> list[FunctionTool]:
    """`tools` (made by `@tool`, or ``HostCommands.tool()``) for an agent of the SDK, each with its replay policy.

    What they return is given to the model as text: JSON, unless it is text.
    """
    return [_function_tool(each) for each in tools]


def _function_tool(tool: Tool[..., Any]) -> FunctionTool:
    made = function_tool(
        _as_text(tool.fn),
        name_override=tool.name,
        description_override=tool.description,
        failure_error_function=_told_of(tool),
    )
    if tool.policy == "safe":
        return safe(made)
    return never(made, probe=tool.probe, dedupes=tool.dedupes)


def _as_text(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    async def call(*args: Any, **kwargs: Any) -> str:
        is_async = inspect.iscoroutinefunction(fn)
        result = await fn(*args, **kwargs) if is_async else await asyncio.to_thread(fn, *args, **kwargs)
        return result if isinstance(result, str) else msgspec.json.encode(result).decode()

    call.__annotations__ = {**fn.__annotations__, "return": str}
    return call


def _told_of(tool: Tool[..., Any]) -> Callable[[RunContextWrapper[Any], Exception], str]:
    parts = tool.schema["properties"].items()
    takes = ", ".join(f"{name} ({part.get('type', 'see its schema')})" for name, part in parts)

    def told(context: RunContextWrapper[Any], error: Exception) -> str:
        if isinstance(error, WorkspaceError | DidNotHappen):
            return str(error)
        if isinstance(error, ModelBehaviorError):
            return f"{error}. It takes one JSON object with {takes}: call it again"
        return default_tool_error_function(context, error)

    return told

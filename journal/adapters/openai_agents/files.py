"""The tools over a workspace, as the SDK's function tools."""

from typing import Any

from agents import FunctionTool, RunContextWrapper, default_tool_error_function, function_tool

from journal.core.errors import WorkspaceError
from journal.tools.files import FILE_TOOLS
from journal.tools.shell import Shell
from journal.tools.tool import Tool


def file_tools() -> list[FunctionTool]:
    """Read, write, edit, move, delete, list, glob and grep in the agent's workspace; all `safe`.

    They need ``@journal.agent(workspace=...)``. What is wrong with a path or an edit is told to the model.
    """
    return [_as_function_tool(each) for each in FILE_TOOLS]


def shell_tool(shell: Shell | None = None) -> FunctionTool:
    """A bash over the agent's workspace, `safe`; needs the extra `shell`. `shell`: its limits."""
    return _as_function_tool((shell or Shell()).tool())


def _as_function_tool(tool: Tool[..., Any]) -> FunctionTool:
    return function_tool(
        tool.fn,
        name_override=tool.name,
        description_override=tool.description,
        failure_error_function=_told,
    )


def _told(context: RunContextWrapper[Any], error: Exception) -> str:
    return str(error) if isinstance(error, WorkspaceError) else default_tool_error_function(context, error)

"""The tools over a workspace, as the SDK's function tools."""

from typing import Any

from agents import FunctionTool, RunContextWrapper, default_tool_error_function, function_tool

from journal.core.errors import WorkspaceError
from journal.tools.files import FILE_TOOLS


def file_tools() -> list[FunctionTool]:
    """Read, write, edit, move, delete, list, glob and grep in the agent's workspace; all `safe`.

    They need ``@journal.agent(workspace=...)``. What is wrong with a path or an edit is told to the model.
    """
    return [
        function_tool(
            each.fn,
            name_override=each.name,
            description_override=each.description,
            failure_error_function=_told,
        )
        for each in FILE_TOOLS
    ]


def _told(context: RunContextWrapper[Any], error: Exception) -> str:
    return str(error) if isinstance(error, WorkspaceError) else default_tool_error_function(context, error)

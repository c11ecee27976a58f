"""Tools that are not functions: those the provider runs inside a model call, and those the SDK runs on this machine."""

from collections.abc import Sequence

from agents import FunctionTool, Tool
from agents.tool import (
    ApplyPatchTool,
    ComputerTool,
    CustomTool,
    LocalShellTool,
    ShellTool,
    ToolSearchTool,
)

from journal.adapters.openai_agents.place import Place
from journal.core.errors import InvalidOptions
from journal.tools.policy import marker_of, resolve


def acting_tool(place: Place, tools: Sequence[Tool]) -> str | None:
    """A hosted tool through which the provider may act, unless it was declared safe. Its name, or None."""
    agent = place.attempt.agent
    for tool in tools:
        if isinstance(tool, FunctionTool | ToolSearchTool):
            continue
        found = resolve(tool.name, agent=agent.tools, journal=agent.journal.tools, marker=marker_of(tool))
        if found.policy == "never":
            return tool.name
    return None


def refuse_local(tool: Tool) -> None:
    """Raise `InvalidOptions` for a tool that would run here without being recorded."""
    is_local = isinstance(tool, ApplyPatchTool | ComputerTool | CustomTool | LocalShellTool)
    if isinstance(tool, ShellTool):
        environment = tool.environment
        is_local = not environment or environment["type"] == "local"
    if is_local:
        raise InvalidOptions(
            f"{type(tool).__name__} {tool.name!r} would run on this machine without being recorded: "
            "the adapter does not cover it; offer what it does as a function_tool"
        )

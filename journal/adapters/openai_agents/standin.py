"""Stand-ins for tools that are gone: a recorded reply asks for a tool that the agent no longer has.

Without one the SDK would fail the run over the unknown name. A stand-in serves what was recorded of the call; of a call
that was never started it says that the tool is gone. The model is not told of stand-ins.
"""

from collections.abc import Collection
from typing import Any

from agents import FunctionTool, Tool
from agents.tool_context import ToolContext

from journal.adapters.openai_agents import messages
from journal.adapters.openai_agents.place import Place

_MARK = "__journal_standin__"


def is_standin(tool: Tool) -> bool:
    """Whether `tool` only stands in for one that is gone."""
    return getattr(tool, _MARK, False) is True


def standin(name: str) -> FunctionTool:
    """A tool of that name which cannot run."""

    async def gone(_: ToolContext[Any], __: str) -> str:
        return f"{name} is no longer available. It was not run."

    tool = FunctionTool(
        name=name,
        description="This tool is no longer available.",
        params_json_schema={"type": "object", "properties": {}},
        on_invoke_tool=gone,
        strict_json_schema=False,
    )
    setattr(tool, _MARK, True)
    return tool


async def missing_tools(place: Place, known: Collection[str]) -> list[str]:
    """Names that the recorded reply to the next model call asks for, and that are not among `known`."""
    if (coming := await place.coming_reply()) is None:
        return []
    asked = messages.calls_in(messages.decode_reply(coming[1]).reply)
    return sorted({name for _, name in asked}.difference(known))

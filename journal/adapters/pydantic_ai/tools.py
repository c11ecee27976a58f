"""Tools: their policies, and what a call without a value comes to for the model."""

from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from pydantic_ai.durable_exec import ParameterTransports, ToolsetCallToolParams
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.toolsets.abstract import AbstractToolset, ToolsetTool
from pydantic_ai.toolsets.function import FunctionToolsetTool

from journal.adapters.interruptions import ToolInterrupted, is_interruption
from journal.core.errors import DidNotHappen
from journal.engine.agent import Agent
from journal.engine.context import in_call
from journal.tools.policy import Marker, Resolved, marker_of, resolve
from journal.tools.result import unknown_text

S = TypeVar("S", bound=AbstractToolset[Any])

METADATA_KEY = "journal"
"""Tool metadata that speaks to us: ``metadata={"journal": {"replay": "safe"}}``, or ``{"journal": False}``."""
STANDIN = "durable-journal/standin"
"""In the metadata of what only stands in for a tool that is gone."""
_FOREVER = float("inf")
_BROKEN = ("connection closed", "timed out", "timeout")

_trusted: WeakValueDictionary[int, AbstractToolset[Any]] = WeakValueDictionary()
"""By id: toolsets are compared by value, and not to be hashed."""


def trust_mcp_hints(toolset: S) -> S:
    """Believe what an MCP server says of its tools: `readOnlyHint` and `idempotentHint` make them safe. Returns it.

    Hints come after every policy that was declared here. Without trust they count for nothing.
    """
    _trusted[id(toolset)] = toolset
    return toolset


def policy_of(name: str, tool: object, agent: Agent[Any, Any]) -> tuple[Resolved, Marker | None]:
    """The replay policy of a tool for a journal's `agent`, and the marker on its function."""
    if is_standin(tool):
        return Resolved("never", "the tool is gone"), None
    metadata = hints = marker = None
    if isinstance(tool, ToolsetTool):
        metadata = tool.tool_def.metadata
        marker = _marker(tool)
        if metadata is not None and _trusted.get(id(tool.toolset)) is tool.toolset:
            hints = metadata.get("annotations")
    resolved = resolve(
        name,
        agent=agent.tools,
        journal=agent.journal.tools,
        marker=marker,
        metadata=metadata,
        hints=hints,
    )
    return resolved, marker


def is_standin(tool: object) -> bool:
    """Whether `tool` only stands in for one that is gone."""
    return isinstance(tool, ToolsetTool) and not is_shown(tool.tool_def)


def is_shown(definition: ToolDefinition) -> bool:
    """Whether the model is to know of the tool."""
    return STANDIN not in (definition.metadata or {})


def _marker(tool: ToolsetTool[Any]) -> Marker | None:
    if not isinstance(tool, FunctionToolsetTool) or not isinstance(tool.toolset, FunctionToolset):
        return None
    found = tool.toolset.tools.get(tool.original_name or tool.tool_def.name)
    if found is None:
        return None
    return marker_of(found) or marker_of(found.function)


def timeout_of(tool: object) -> float | None:
    """The time in seconds that a function tool has."""
    if not isinstance(tool, FunctionToolsetTool) or not isinstance(tool.toolset, FunctionToolset):
        return None
    own = tool.tool_def.timeout
    return own if own is not None else tool.toolset.timeout


class Transports(ParameterTransports):
    """What a function tool is run with. What a `never` tool raises is seen before Pydantic AI explains it away.

    Its timeout is kept by the engine: Pydantic AI would ask the model to try again, and it may have taken effect.
    """

    async def prepare_function_call(
        self, toolset: FunctionToolset[Any], params: ToolsetCallToolParams
    ) -> ToolsetCallToolParams:
        context, tool = in_call(), params.tool
        if context is None or not isinstance(tool, FunctionToolsetTool):
            return params
        resolved, _ = policy_of(params.name, tool, context.attempt.agent)
        if resolved.policy != "never":
            return params
        definition = replace(tool.tool_def, timeout=_FOREVER)
        watched = replace(tool, tool_def=definition, call_func=_watched(params.name, tool.call_func))
        return replace(params, tool=watched)


def _watched(name: str, function: Any) -> Any:
    async def call(args: dict[str, Any], ctx: Any) -> Any:
        try:
            return await function(args, ctx)
        except DidNotHappen:
            raise
        except Exception as error:
            if is_interruption(error):
                raise ToolInterrupted(f"{name} broke off: {type(error).__qualname__}") from error
            raise

    return call


def is_broken_off(payload: Any) -> bool:
    """Whether an MCP tool's request for another try stands for a connection that broke: only its words are kept."""
    if not isinstance(payload, dict) or payload.get("kind") != "model_retry":
        return False
    text = str(payload.get("message")).lower()
    return any(word in text for word in _BROKEN)


def told(text: str) -> Any:
    """A tool's result that consists of our words."""
    return {"kind": "tool_return", "result": text}


def with_rejections(payload: Any, words: str) -> Any:
    """The recorded result of a tool, and behind a text what of the call's changes was not saved."""
    if words and isinstance(payload, dict) and isinstance(result := payload.get("result"), str):
        return {**payload, "result": result + words}
    return payload


def unknown(name: str) -> Any:
    """What the model is told of a call in doubt."""
    return told(unknown_text(name))


def lost(name: str) -> Any:
    """What the model is told of a call that completed and whose result could not be kept."""
    return told(f"{name} completed, but its result could not be kept. Do not take it for failed.")


def runs_in_handler(definition: ToolDefinition) -> bool:
    """Whether the tool is to run in the handler, unrecorded, so that it may make calls of its own."""
    return (definition.metadata or {}).get(METADATA_KEY) is False

"""Stand-ins for tools that are gone: a recorded reply asks for a tool that the agent no longer has.

Without one Pydantic AI would tell the model that the name is unknown, which is another conversation. A stand-in serves
what was recorded of the call. The model is not told of stand-ins: they are there only where its reply is in the log.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from pydantic_ai.durable_exec import JSON_CODEC, CallToolResult
from pydantic_ai.durable_exec._toolset import unwrap_tool_call_result
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets import WrapperToolset
from pydantic_ai.toolsets.abstract import ToolsetTool
from pydantic_ai.toolsets.external import TOOL_SCHEMA_VALIDATOR

from journal.adapters.places import asked_key
from journal.adapters.pydantic_ai import backend, messages
from journal.adapters.pydantic_ai.place import current_place, place_here
from journal.adapters.pydantic_ai.tools import STANDIN, is_standin, told
from journal.core import values
from journal.engine.adapting import excuse

_TRIES = 1000
"""Of the model; what the log holds of a tool is not to be counted out."""


@dataclass
class WithStandins(WrapperToolset[Any]):
    """`wrapped`, and stand-ins for what the next reply asks for beyond it."""

    known: Collection[str]
    """Ids of the toolsets that are there."""
    is_blind: bool
    """Whether others are not, in a replay offline: that those were asked is excused."""

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        tools = await super().get_tools(ctx)
        if (place := place_here()) is None:
            return tools
        if self.is_blind and not place.is_blind:
            place.is_blind = True
            excuse(place.attempt, filter(self._is_unknown, list(place.attempt.history.calls)))
        if (coming := await place.coming_reply()) is None:
            return tools
        key, data = coming
        missing = {}
        for position, (call_id, name) in enumerate(messages.asked_in(values.decode(data))):
            call = asked_key(key, position, call_id)
            # Tools for the agent's output are not recorded, and not gone.
            is_recorded = not place.attempt.history.calls.keys().isdisjoint({call, backend.approved(call)})
            if is_recorded and name not in tools:
                missing[name] = self._standin(name)
        return {**tools, **missing}

    def _is_unknown(self, key: str) -> bool:
        toolset, _, verb = key.rpartition("#")[0].rpartition("/")[2].rpartition(".")
        return verb in ("get_tools", "get_instructions") and toolset not in self.known

    def _standin(self, name: str) -> ToolsetTool[Any]:
        definition = ToolDefinition(
            name=name, description="This tool is no longer available.", metadata={STANDIN: True}
        )
        return ToolsetTool(
            toolset=self, tool_def=definition, max_retries=_TRIES, args_validator=TOOL_SCHEMA_VALIDATOR
        )

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        if not is_standin(tool):
            return await super().call_tool(name, tool_args, ctx, tool)

        async def gone() -> object:  # its intent is recorded, and it is never
            return told(f"{name} is no longer available. It was not run.")

        place = current_place(f"tool {name!r}")
        call = backend.tool_call(place, gone, (name, tool_args, ctx, tool), is_mcp=False)
        payload = await backend.payload_of(place, call)
        return unwrap_tool_call_result(JSON_CODEC.load(CallToolResult, payload))

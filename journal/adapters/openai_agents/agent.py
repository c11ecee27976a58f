"""Agents: wrapped copies whose tools, models and handoffs are durable. What the user gave is never changed.

One door for tools: `get_all_tools`, through which the SDK collects static tools, those of MCP servers and those
switched on by a condition. An agent used as a tool is a scope and no call: its function is rebuilt around the wrapped
inner agent.
"""

import copy
import functools
from collections.abc import Sequence
from types import CellType, FunctionType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from agents import Agent, FunctionTool, Handoff, Model, RunConfig, RunContextWrapper, Tool
from agents.mcp import MCPServer
from agents.run_config import _coerce_run_config
from agents.tool import _FailureHandlingFunctionToolInvoker
from agents.tool_context import ToolContext

from journal.adapters.openai_agents.hosted import refuse_local
from journal.adapters.openai_agents.model import durable_model, durable_provider
from journal.adapters.openai_agents.place import Place, current_place, nested_at, place_here
from journal.adapters.openai_agents.session import durable_session
from journal.adapters.openai_agents.standin import missing_tools, standin
from journal.adapters.openai_agents.tools import durable_tool, with_invoke
from journal.core.errors import InvalidOptions, OutcomeUnknown
from journal.tools.result import unknown_text

S = TypeVar("S", bound=MCPServer)
Memo = dict[int, tuple[Agent[Any], Agent[Any]]]
"""By id: (the agent that was given, its wrapped copy). Holds both, so that no id is used again."""

_trusted: "WeakSet[MCPServer]" = WeakSet()


def trust_mcp_hints(server: S) -> S:
    """Believe what `server` says of its tools: `readOnlyHint` and `idempotentHint` make them safe. Returns it.

    Hints come after every policy that was declared here. Without trust they count for nothing.
    """
    _trusted.add(server)
    return server


class DurableAgent(Agent[Any]):
    """An agent whose tools are recorded. Stands before the agent's own class."""

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
        if (place := place_here()) is None:  # a state is being restored: whoever runs these is refused
            return [self._recorded(tool) for tool in await super().get_all_tools(run_context)]
        tools = await self._known_tools(place, run_context)
        place.agent_name = self.name
        names = {tool.name for tool in tools}
        for handoff in self.handoffs:
            names.add(
                handoff.tool_name if isinstance(handoff, Handoff) else Handoff.default_tool_name(handoff)
            )
        tools += [standin(name) for name in await missing_tools(place, names)]
        return [self._recorded(tool) for tool in tools]

    async def _known_tools(self, place: Place, run_context: RunContextWrapper[Any]) -> list[Tool]:
        """All but those of servers, in a replay offline: what they offered is not in the log, and nobody is asked."""
        if not (place.attempt.is_offline and self.mcp_servers):
            return await super().get_all_tools(run_context)
        place.is_blind = True
        alone = copy.copy(self)
        alone.mcp_servers = []
        return await super(DurableAgent, alone).get_all_tools(run_context)

    def _recorded(self, tool: Tool) -> Tool:
        if not isinstance(tool, FunctionTool):
            refuse_local(tool)
            return tool
        if tool._is_agent_tool:  # noqa: SLF001 - the SDK's only mark of one
            return durable_agent_tool(tool)
        server = self._server_of(tool)
        hints = tool.mcp_annotations if server is not None and server in _trusted else None
        return durable_tool(tool, hints=hints, retries=_retries_of(server))

    def _server_of(self, tool: FunctionTool) -> MCPServer | None:
        binding = tool._mcp_tool_binding  # noqa: SLF001 - the SDK's only word of where a tool comes from
        place = None if binding is None else binding[2]
        return None if place is None or place >= len(self.mcp_servers) else self.mcp_servers[place]


def _retries_of(server: MCPServer | None) -> int:
    """How often the server object repeats a call by itself; -1 is without end."""
    retries: Any = getattr(server, "max_retry_attempts", 0)
    return int(retries or 0)


_classes: WeakKeyDictionary[type, type[DurableAgent]] = WeakKeyDictionary()


def _class_of(kind: type[Agent[Any]]) -> type[DurableAgent]:
    if kind is Agent:
        return DurableAgent
    found = _classes.get(kind)
    if found is None:
        found = _classes[kind] = type(kind.__name__, (DurableAgent, kind), {"__module__": kind.__module__})
    return found


def durable_agent(agent: Agent[Any]) -> Agent[Any]:
    """A copy of `agent` whose calls are recorded, and whose handoffs lead to such copies.

    `DurableRunner` makes them by itself. Where the SDK wants the agent beforehand, give it this one:
    ``RunState.from_string(durable_agent(agent), text)``.
    """
    return _durable(agent, {})


def _durable(agent: Agent[Any], memo: Memo) -> Agent[Any]:
    if isinstance(agent, DurableAgent):
        return agent
    if (known := memo.get(id(agent))) is not None:
        return known[1]
    wrapped = copy.copy(agent)
    wrapped.__class__ = _class_of(type(agent))
    memo[id(agent)] = (agent, wrapped)
    if isinstance(agent.model, Model):
        wrapped.model = durable_model(agent.model)
    wrapped.handoffs = [
        _durable(handoff, memo) if isinstance(handoff, Agent) else _durable_handoff(handoff, memo)
        for handoff in agent.handoffs
    ]
    return wrapped


def _durable_handoff(handoff: Handoff[Any, Any], memo: Memo) -> Handoff[Any, Any]:
    async def invoke(context: RunContextWrapper[Any], arguments: str) -> Any:
        return _durable(await handoff.on_invoke_handoff(context, arguments), memo)

    wrapped = copy.copy(handoff)
    wrapped.on_invoke_handoff = invoke
    return wrapped


def durable_config(config: RunConfig | dict[str, Any] | None) -> RunConfig:
    """A copy of `config` whose models are durable."""
    given = RunConfig() if config is None else _coerce_run_config(config)
    wrapped = copy.copy(given)
    wrapped.model_provider = durable_provider(given.model_provider)
    if isinstance(given.model, Model):
        wrapped.model = durable_model(given.model)
    return wrapped


def durable_agent_tool(tool: FunctionTool) -> FunctionTool:
    """An agent's tool around the wrapped agent, running in a scope named after the tool call."""
    inner = tool.on_invoke_tool
    if not isinstance(inner, _FailureHandlingFunctionToolInvoker):
        raise InvalidOptions(f"agent tool {tool.name!r} was changed: its inner agent cannot be made durable")
    changed = copy.copy(tool)
    work = _around_durable(tool.name, inner._invoke_tool_impl)  # noqa: SLF001 - the agent is to be found nowhere else

    async def honest(ctx: ToolContext[Any], arguments: str) -> Any:
        try:
            return await work(ctx, arguments)
        except OutcomeUnknown:  # the SDK would tell the model to try again
            return unknown_text(tool.name)

    run = _FailureHandlingFunctionToolInvoker(
        honest,
        inner._on_handled_error,  # noqa: SLF001 - as above
        function_tool=changed,
    )

    async def invoke(ctx: ToolContext[Any], arguments: str) -> Any:
        place = current_place(f"agent tool {tool.name!r}")
        with nested_at(place, place.tool_key(ctx.tool_call_id)):
            return await run(ctx, arguments)

    durable = with_invoke(tool, invoke)
    durable._agent_instance = durable_agent(tool._agent_instance)  # noqa: SLF001 - the SDK's field for it
    return durable


def _around_durable(name: str, function: Any) -> Any:
    """A copy of the function made by `as_tool` that runs the wrapped agent: it knows it by a closure alone."""
    names: Sequence[str] = getattr(getattr(function, "__code__", None), "co_freevars", ())
    if "self" not in names or function.__closure__ is None:
        raise InvalidOptions(
            f"agent tool {name!r}: this version of the SDK builds it in a way that the adapter does not know"
        )
    wrappers: dict[str, Any] = {
        "self": durable_agent,
        "run_config": durable_config,
        "session": durable_session,
    }
    cells = []
    for variable, cell in zip(names, function.__closure__, strict=True):
        wrap = wrappers.get(variable)
        if wrap is None or cell.cell_contents is None:
            cells.append(cell)
        else:
            cells.append(CellType(wrap(cell.cell_contents)))
    rebuilt = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, tuple(cells)
    )
    return functools.update_wrapper(rebuilt, function)

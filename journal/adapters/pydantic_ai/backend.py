"""Durable operations of Pydantic AI as calls of the engine: what each is called, its policy, its input."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from pydantic_ai.durable_exec import (
    CapabilityOperationId,
    DurableOperationId,
    EventStreamHandlerId,
    JournalCallableOperationBackend,
    ModelCompactMessagesId,
    ModelRequestId,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    ToolsetGetInstructionsId,
    ToolsetGetToolsId,
    ToolsetValidateToolArgumentsId,
    record_durable_unit,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.toolsets.abstract import ToolsetTool

from journal.adapters.interruptions import ToolInterrupted, is_interruption
from journal.adapters.pydantic_ai import messages, tools
from journal.adapters.pydantic_ai.failures import ResultLost
from journal.adapters.pydantic_ai.place import Place, current_place
from journal.adapters.pydantic_ai.tries import counted
from journal.adapters.tries import retry_as_set
from journal.core import values
from journal.core.errors import DidNotHappen, InvalidValue
from journal.core.records import CallKind, Policy
from journal.engine.adapting import reporting
from journal.engine.calls import Call, settle
from journal.engine.turn import failure_of
from journal.tools.policy import resolve
from journal.tools.result import rejected_text

Body = Callable[[], Awaitable[object]]
_SERVER_SIDE = ("openai_previous_response_id", "openai_conversation_id")
"""Settings under which the provider keeps the conversation."""
Config = dict[str, Any]


def operation_config() -> RoleBasedOperationConfig[Config]:
    """One empty configuration for all; False for tools that run in the handler."""

    def of_tool(_: DurableOperationId, tool: object | None, __: str) -> Config | Literal[False]:
        return False if isinstance(tool, ToolsetTool) and tools.runs_in_handler(tool.tool_def) else {}

    return RoleBasedOperationConfig(model={}, event={}, capability={}, tool={}, resolve_tool=of_tool)


class JournalBackend(JournalCallableOperationBackend[Config]):
    """Runs each operation as a call of the turn."""

    def __init__(self, *, agent_name: str, default_model_id: str | None) -> None:
        super().__init__(agent_name=agent_name, default_model_id=default_model_id, config=operation_config())
        self.parameter_transports = tools.Transports()
        self._agent_name = agent_name

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Body,
        cache_key: tuple[object, ...],
        config: Config,
    ) -> object:
        place = current_place(f"agent {self._agent_name!r}")
        match operation_id:
            case ModelRequestId() | ModelCompactMessagesId():
                call = _model_call(place, self._agent_name, operation_id, body, cache_key)
            case ToolsetCallToolId():
                call = tool_call(place, body, cache_key, is_mcp=operation_id.toolset_kind != "function")
            case _:
                call = _step(place, operation_id, name, body, cache_key)
        return await payload_of(place, call)


async def payload_of(place: Place, call: Call) -> Any:
    """Carry `call` through; what it comes to for Pydantic AI, as JSON. Raises what it failed with."""
    settled = await settle(place.attempt, call)
    record_durable_unit(executed=not settled.is_replayed)
    if settled.data is not None:
        payload = values.decode(settled.data)
        if call.kind == "model":
            place.note_asked(call.key, messages.calls_in(payload))
        return tools.with_rejections(payload, rejected_text(settled.outcome))
    if call.kind == "tool":
        match settled.outcome.status:
            case "unknown":
                return tools.unknown(call.name)
            case "value_lost":
                return tools.lost(call.name)
    raise failure_of(settled)


def _model_call(
    place: Place, agent_name: str, operation: DurableOperationId, body: Body, asked: tuple[Any, ...]
) -> Call:
    if isinstance(operation, ModelRequestId):
        _, conversation, settings, parameters, _ = asked
        config: Any = [operation.model_name, settings, parameters]
        retry = retry_as_set((settings or {}).get("max_retries"), place.attempt.agent.model_retry)
        provider_acts = _provider_acts(place, settings, parameters)
    else:
        provider_acts, retry = False, None
        request = asked[1]
        conversation, config = request.messages, [asked[2], request.model_settings]
    said = messages.said(conversation)
    about = [messages.system_prompts(conversation), messages.instructions_of(conversation)]
    return Call(
        key=place.key("model"),
        kind="model",
        name=agent_name,
        act=reporting(counted(body), messages.facts_of_reply),
        input=messages.recorded({"messages": said}),
        input_digest=messages.conversation_digest(said),
        config_digest=None if place.is_blind else messages.digest_of([about, config]),
        policy="never" if provider_acts else "safe",
        retry=retry,
    )


def _provider_acts(place: Place, settings: Any, parameters: ModelRequestParameters) -> bool:
    """Whether the provider itself acts inside the call: tools that it runs, a conversation that it keeps."""
    if any((settings or {}).get(name) for name in _SERVER_SIDE):
        return True
    agent = place.attempt.agent
    return any(
        resolve(tool.kind, agent=agent.tools, journal=agent.journal.tools).policy == "never"
        for tool in parameters.native_tools
        if tool.kind != "tool_search"  # the provider picks among our tools
    )


def approved(key: str) -> str:
    """The key of a tool call once it was approved: the one before ended with the question."""
    return f"{key}/approved"


def tool_call(place: Place, body: Body, asked: tuple[Any, ...], *, is_mcp: bool) -> Call:
    """The call of a tool: `asked` is its name, arguments, context and tool."""
    name, arguments, ctx, tool = asked
    key = place.tool_key(ctx.tool_call_id)
    resolved, marker = tools.policy_of(name, tool, place.attempt.agent)
    policy = resolved.policy
    given = messages.jsonable(arguments)
    return Call(
        key=approved(key) if ctx.tool_call_approved else key,
        kind="tool",
        name=name,
        act=_acting(name, body, policy, is_mcp=is_mcp),
        input=messages.recorded(given),
        input_digest=messages.digest_of(given),
        encode=_encode,
        policy=policy,
        is_counted=False,
        is_lazy=policy == "safe",
        timeout=tools.timeout_of(tool) if policy == "never" else None,
        probe=None if marker is None else marker.probe,
        dedupes=marker is not None and marker.dedupes,
    )


def _acting(name: str, body: Body, policy: Policy, *, is_mcp: bool) -> Body:
    async def act() -> object:
        try:
            payload = await body()
        except ResultLost as error:
            return error
        except DidNotHappen:
            raise
        except Exception as error:
            if policy == "never" and is_interruption(error):
                raise ToolInterrupted(f"{name} broke off: {type(error).__qualname__}") from error
            raise
        if policy == "never" and is_mcp and tools.is_broken_off(payload):
            raise ToolInterrupted(f"{name} broke off")
        return payload

    return act


def _encode(result: object) -> bytes:
    if isinstance(result, ResultLost):
        raise InvalidValue(what="the tool's result", path="", reason=str(result))
    return values.encode(result, what="the tool's result")


def _step(place: Place, operation: DurableOperationId, name: str, body: Body, asked: tuple[Any, ...]) -> Call:
    """Discovery, validation, event handlers and the operations of other capabilities."""
    policy: Policy = "safe"
    match operation:
        case ToolsetValidateToolArgumentsId():
            what = "validate"
            key = f"{place.key('validate')}:{asked[0]}"
        case EventStreamHandlerId():
            what, key = "event", place.key("event")
        case ToolsetGetToolsId(toolset_id=toolset):
            what, key = f"{toolset}.get_tools", place.key(f"{toolset}.get_tools")
        case ToolsetGetInstructionsId(toolset_id=toolset):
            what, key = f"{toolset}.get_instructions", place.key(f"{toolset}.get_instructions")
        case CapabilityOperationId(capability_id=capability, operation=verb):
            what = f"{capability}.{verb}"
            key, agent = place.key(what), place.attempt.agent
            resolved = resolve(what, agent=agent.tools, journal=agent.journal.tools)
            policy = "safe" if resolved.source == "default" else resolved.policy
        case _:
            what, key = name, place.key(name)
    kind: CallKind = "step"
    return Call(
        key=key,
        kind=kind,
        name=what,
        act=body,
        input=None,
        input_digest=values.digest(what.encode()),
        policy=policy,
        is_counted=False,
        is_lazy=policy == "safe",
    )

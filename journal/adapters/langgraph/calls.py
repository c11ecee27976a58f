"""`DurableCalls`: the middleware that records a graph's model and tool calls in the turn that it runs in.

``create_agent(..., middleware=[..., DurableCalls()])``, last, so that what repeats or changes calls stands around it;
for a graph of one's own, ``ToolNode(tools, awrap_tool_call=calls.awrap_tool_call)`` and its sync twin.
What is recorded is not done again; a tool in doubt follows its policy, and the model is told.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest
from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

import journal.adapters.langgraph.failures  # noqa: F401 - it registers them
from journal.adapters.interruptions import ToolInterrupted, is_interruption
from journal.adapters.langgraph import messages
from journal.adapters.langgraph.messages import Suspended
from journal.adapters.langgraph.place import Place, Start, current_place, tool_errors
from journal.adapters.langgraph.tries import asked_once, retry_of
from journal.core import values
from journal.core.errors import DidNotHappen, Diverged, InvalidOptions, InvalidValue, ValueTooLarge
from journal.core.records import Policy
from journal.engine.adapting import reporting
from journal.engine.calls import Call, Settled, settle
from journal.engine.threads import on_thread
from journal.engine.turn import failure_of
from journal.tools.policy import Marker, marker_of, resolve
from journal.tools.result import rejected_text, unknown_text

T = TypeVar("T")
_WHAT = "DurableCalls"


class DurableCalls(AgentMiddleware[Any, Any, Any]):
    """Records calls. Its methods raise `NotInTurn` where the graph does not run through `durable`."""

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        place = current_place(_WHAT)
        asked = request.override(model=asked_once(place, request.model))
        return await _model(place, request, functools.partial(handler, asked))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        return await _tool(current_place(_WHAT), request, functools.partial(handler, request))

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        place = current_place(_WHAT)
        asked = request.override(model=asked_once(place, request.model))
        act = functools.partial(on_thread, place.attempt.threads, functools.partial(handler, asked))
        return _blocking(place, _model(place, request, act))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        place = current_place(_WHAT)
        act = functools.partial(on_thread, place.attempt.threads, functools.partial(handler, request))
        return _blocking(place, _tool(place, request, act))


def _blocking(place: Place, work: Coroutine[Any, Any, T]) -> T:
    """`work` in the turn's event loop, for a graph that runs on a thread."""
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    if here is place.loop:
        work.close()
        raise InvalidOptions(
            "a graph that is invoked synchronously would block the turn's event loop: use await durable(graph).ainvoke"
        )
    return asyncio.run_coroutine_threadsafe(work, place.loop).result()


async def _settled(place: Place, start: Start, call: Call) -> Settled:
    attempt = place.attempt
    if (missing := place.overtaken(call.key)) is not None:
        recorded = attempt.history.calls[missing].intent
        asked = {"key": call.key, "kind": call.kind, "name": call.name}
        known = {} if recorded is None else {"key": missing, "kind": recorded.kind, "name": recorded.name}
        attempt.fatal = attempt.fatal or Diverged(call=missing, recorded=known, asked=asked)
    try:
        settled = await settle(attempt, call)
    except asyncio.CancelledError:
        start.has_failed = True
        raise
    start.has_failed = settled.outcome.status == "error"
    return settled


def _visit(config: Mapping[str, Any], runtime: object) -> tuple[object, ...]:
    """Which execution of its task this is: LangGraph tries tasks again, and the graphs within them."""
    about = getattr(runtime, "execution_info", None)
    return (config.get("metadata") or {}).get("langgraph_checkpoint_ns"), getattr(about, "node_attempt", 1)


# Model calls ---------------------------------------------------------------------------------------


async def _model(place: Place, request: ModelRequest[Any], act: Callable[[], Awaitable[Any]]) -> Any:
    config = get_config()
    task = place.task_of(config, _WHAT)
    asked = messages.said(request.messages)
    digest = messages.input_digest(asked)
    start = place.start(f"{task.path}/model", _visit(config, request.runtime), digest)
    call = Call(
        key=start.key,
        kind="model",
        name=task.node,
        act=reporting(act, messages.facts_of_reply),
        input=messages.recorded_input(request.system_message, asked),
        input_digest=digest,
        is_counted=False,
        config_digest=messages.config_digest(request),
        encode=messages.encode_reply,
        policy="never" if _acts_by_itself(place, request) else "safe",
        retry=retry_of(request.model, place.attempt.agent.model_retry),
    )
    settled = await _settled(place, start, call)
    if settled.data is None:
        raise failure_of(settled)
    place.note_reply(start.key, messages.calls_in(settled.data))
    return messages.decode_reply(settled.data)


def _acts_by_itself(place: Place, request: ModelRequest[Any]) -> bool:
    """Whether the provider may act inside the call: through a hosted tool that was not declared safe."""
    for tool in request.tools:
        if (
            isinstance(tool, Mapping)
            and tool.get("type") not in (None, "function")
            and "function" not in tool
        ):
            name = str(tool.get("name") or tool["type"])
            if _policy(place, name, None, None) == "never":
                return True
    return False


# Tool calls ----------------------------------------------------------------------------------------


async def _tool(place: Place, request: ToolCallRequest, act: Callable[[], Awaitable[Any]]) -> Any:
    asked, tool = request.tool_call, request.tool
    name, call_id = asked["name"], asked["id"] or ""
    config = getattr(request.runtime, "config", None) or get_config()
    task = place.task_of(config, _WHAT)
    marker = _marker(tool)
    policy = _policy(place, name, marker, getattr(tool, "metadata", None))
    recorded, digest = _input(asked["args"])
    start = place.start(place.tool_key(task, call_id), _visit(config, request.runtime), digest)
    call = Call(
        key=start.key,
        kind="tool",
        name=name,
        act=functools.partial(_act, name, policy, act),
        input=recorded,
        input_digest=digest,
        encode=lambda result: messages.encode_result(_as_message(result, name, call_id)),
        policy=policy,
        is_counted=False,
        is_lazy=policy == "safe",
        probe=None if marker is None else marker.probe,
        dedupes=marker is not None and marker.dedupes,
    )
    settled = await _settled(place, start, call)
    if settled.data is not None:
        return _with_rejections(messages.decode_result(settled.data), rejected_text(settled.outcome))
    match settled.outcome.status:
        case "unknown":
            return _told(unknown_text(name), name, call_id)
        case "value_lost":
            text = f"{name} completed, but its result could not be kept. Do not take it for failed."
            return _told(text, name, call_id)
    raise failure_of(settled)


def _as_message(result: Any, name: str, call_id: str) -> Any:
    """What a tool node takes; a probe gives the bare value."""
    if isinstance(result, Suspended | BaseMessage | Command | list):
        return result
    text = result if isinstance(result, str) else values.encode(result, what="the tool's result").decode()
    return ToolMessage(text, name=name, tool_call_id=call_id)


def _with_rejections(result: Any, words: str) -> Any:
    """The recorded result, and behind a text what of the call's changes was not saved."""
    if words and isinstance(result, ToolMessage) and isinstance(result.content, str):
        return result.model_copy(update={"content": result.content + words})
    return result


def _told(text: str, name: str, call_id: str) -> ToolMessage:
    return ToolMessage(text, name=name, tool_call_id=call_id, status="error")


def _marker(tool: object) -> Marker | None:
    """The marker on a tool, or on the function in it."""
    return marker_of(tool) or marker_of(getattr(tool, "coroutine", None))


def _policy(place: Place, name: str, marker: Marker | None, metadata: Any) -> Policy:
    agent = place.attempt.agent
    return resolve(
        name, agent=agent.tools, journal=agent.journal.tools, marker=marker, metadata=metadata
    ).policy


def _input(arguments: Any) -> tuple[bytes | None, bytes]:
    """What the log keeps of the arguments, and their digest."""
    try:
        data = values.encode(arguments, what="the tool's arguments")
    except (InvalidValue, ValueTooLarge):
        return None, values.digest(repr(arguments).encode(errors="backslashreplace"))
    return data, values.digest(data)


async def _act(name: str, policy: Policy, act: Callable[[], Awaitable[Any]]) -> Any:
    raised: list[BaseException] = []
    token = tool_errors.set(raised)
    try:
        result = await act()
    except GraphBubbleUp as control:
        return Suspended(control)
    except Exception as error:
        if policy == "never" and not isinstance(error, DidNotHappen) and is_interruption(error):
            raise ToolInterrupted(f"{name} broke off: {type(error).__qualname__}") from error
        raise
    finally:
        tool_errors.reset(token)
    if policy == "never" and getattr(result, "status", None) == "error":
        # The tool node has made words of it for the model; whether it may have happened, they do not say.
        broke = next((error for error in raised if is_interruption(error)), None)
        if broke is not None:
            raise ToolInterrupted(f"{name} broke off: {type(broke).__qualname__}") from broke
    return result

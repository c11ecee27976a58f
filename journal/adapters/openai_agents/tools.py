"""Function tools: each call recorded under the key that the model's reply gives it, with its replay policy.

What a tool raises is seen before the SDK turns it into words for the model, so that a `never` tool whose connection
broke ends as unknown and not as "please try again". The tool's timeout is kept here for the same reason. Guardrails,
hooks and approvals stay the SDK's.
"""

import copy
import functools
import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

from agents import FunctionTool, get_current_span
from agents.exceptions import ToolTimeoutError
from agents.tool import (
    _DEFAULT_FAILURE_HANDLED_ATTR,
    _FailureHandlingFunctionToolInvoker,
    default_tool_timeout_error_message,
    invoke_function_tool,
    maybe_invoke_function_tool_failure_error_function,
    set_function_tool_failure_error_function,
)
from agents.tool_context import ToolContext

from journal.adapters.interruptions import ToolInterrupted, is_interruption
from journal.adapters.openai_agents.failures import ToolFailed
from journal.adapters.openai_agents.place import current_place
from journal.adapters.openai_agents.results import ResultCodec
from journal.adapters.openai_agents.standin import is_standin
from journal.core import values
from journal.core.errors import (
    CallTimeout,
    DidNotHappen,
    InvalidOptions,
    InvalidValue,
    UsageError,
    ValueTooLarge,
)
from journal.core.records import Policy
from journal.engine.agent import Agent
from journal.engine.calls import Call, Settled, settle
from journal.engine.turn import failure_of
from journal.tools.io import io
from journal.tools.policy import Marker, Resolved, marker_of, resolve
from journal.tools.result import rejected_text, unknown_text

Invoke = Callable[[ToolContext[Any], str], Awaitable[Any]]

IDEMPOTENCY_META = "durable-journal/idempotency-key"
"""Under which an MCP server finds the call's idempotency key, in the request's ``_meta``."""
_ERROR_TEXT_CHARACTERS = 16_000


class DurableInvoker(_FailureHandlingFunctionToolInvoker):
    """Stands where the SDK's own invoker stood, for the SDK looks for one when it prepares arguments."""

    def __init__(self, inner: _FailureHandlingFunctionToolInvoker, invoke: Invoke) -> None:
        super().__init__(inner._invoke_tool_impl, inner._on_handled_error)  # noqa: SLF001 - our base class's own
        self._invoke = invoke

    def __agents_bind_function_tool__(self, function_tool: FunctionTool) -> "DurableInvoker":
        return self

    async def __call__(self, ctx: ToolContext[Any], input: str) -> Any:  # noqa: A002 - the SDK's name
        return await self._invoke(ctx, input)


def with_invoke(tool: FunctionTool, invoke: Invoke) -> FunctionTool:
    """A copy of `tool` that is run by `invoke`."""
    changed = copy.copy(tool)
    inner = tool.on_invoke_tool
    if isinstance(inner, _FailureHandlingFunctionToolInvoker):
        changed.on_invoke_tool = DurableInvoker(inner, invoke)
    else:
        changed.on_invoke_tool = invoke
    return changed


def policy_of(tool: FunctionTool, agent: Agent[Any, Any], *, hints: object = None) -> Resolved:
    """The replay policy of `tool` for a journal's `agent`; `hints` only of a trusted MCP server."""
    if is_standin(tool):
        return Resolved("never", "the tool is gone")
    marker = _marker(tool)
    return resolve(tool.name, agent=agent.tools, journal=agent.journal.tools, marker=marker, hints=hints)


def _marker(tool: FunctionTool) -> Marker | None:
    """The marker on `tool`. Those of MCP servers have none: they must not take one by looking like a marked tool."""
    return marker_of(tool) if tool._mcp_tool_binding is None else None  # noqa: SLF001 - the SDK's only word of it


def durable_tool(tool: FunctionTool, *, hints: object = None, retries: int = 0) -> FunctionTool:
    """A copy of `tool` whose calls are recorded. `retries`: how often its MCP server repeats a call by itself."""
    bare = _bare(tool)
    marker = _marker(tool)
    codec = ResultCodec(tool)

    async def invoke(ctx: ToolContext[Any], arguments: str) -> Any:
        place = current_place(f"tool {tool.name!r}")
        policy = policy_of(tool, place.attempt.agent, hints=hints).policy
        if policy == "never" and retries:
            raise InvalidOptions(
                f"tool {tool.name!r} is never, and its MCP server is set to retry calls (max_retry_attempts): "
                "set that to 0, or declare the tool safe"
            )
        recorded, digest = _input(arguments)
        call = Call(
            key=place.tool_key(ctx.tool_call_id),
            kind="tool",
            name=tool.name,
            act=functools.partial(_act, tool, bare, policy, ctx, arguments),
            input=recorded,
            input_digest=digest,
            encode=codec.encode,
            policy=policy,
            is_counted=False,
            is_lazy=policy == "safe",
            timeout=tool.timeout_seconds,
            probe=None if marker is None else marker.probe,
            dedupes=marker is not None and marker.dedupes,
        )
        settled = await settle(place.attempt, call)
        if settled.data is not None:
            return _told(codec.decode(settled.data), settled)
        return await _words(tool, ctx, settled)

    durable = with_invoke(tool, invoke)
    durable.timeout_seconds = None  # the call's own: the SDK's would cancel it and leave no reason
    return durable


def _bare(tool: FunctionTool) -> FunctionTool:
    """A copy that raises what the function raises, without a timeout of its own."""
    bare = set_function_tool_failure_error_function(copy.copy(tool), None)
    bare.timeout_seconds = None
    inner = bare.on_invoke_tool
    if not isinstance(inner, _FailureHandlingFunctionToolInvoker):
        return bare
    implementation: Any = inner._invoke_tool_impl  # noqa: SLF001 - there is no other way to a tool's function
    if isinstance(implementation, functools.partial) and "meta" in implementation.keywords:
        keyed = _with_key(implementation)
        bare.on_invoke_tool = _FailureHandlingFunctionToolInvoker(
            keyed,
            inner._on_handled_error,  # noqa: SLF001 - as above
            function_tool=bare,
        )
    return bare


def _with_key(call_mcp: "functools.partial[Awaitable[Any]]") -> Invoke:
    """An MCP tool's function that sends our idempotency key along, where the server object takes such things."""
    server = call_mcp.args[0]
    takes_meta = "meta" in inspect.signature(server.call_tool).parameters

    async def invoke(ctx: ToolContext[Any], arguments: str) -> Any:
        if not takes_meta:
            return await call_mcp(ctx, arguments)
        meta = {**(call_mcp.keywords["meta"] or {}), IDEMPOTENCY_META: io.idempotency_key}
        return await call_mcp(ctx, arguments, meta=meta)

    return invoke


def _input(arguments: str) -> tuple[bytes | None, bytes]:
    """What the log keeps of the arguments, and their digest."""
    try:
        asked: Any = values.parse(arguments) if arguments else {}
    except InvalidValue:
        asked = arguments  # no JSON: the SDK will tell the model
    try:
        data = values.encode(asked, what="the tool's arguments")
    except (InvalidValue, ValueTooLarge):
        raw = json.dumps(arguments).encode()
        return None, values.digest(raw)
    return data, values.digest(data)


async def _act(
    tool: FunctionTool, bare: FunctionTool, policy: Policy, ctx: ToolContext[Any], arguments: str
) -> Any:
    try:
        return await invoke_function_tool(function_tool=bare, context=ctx, arguments=arguments)
    except UsageError:
        raise  # of the program, not of the arguments: the run fails over it
    except Exception as error:
        if policy == "never" and not isinstance(error, DidNotHappen) and is_interruption(error):
            raise ToolInterrupted(f"{tool.name} broke off: {type(error).__qualname__}") from error
        text = await maybe_invoke_function_tool_failure_error_function(
            function_tool=tool, context=ctx, error=error
        )
        if text is None:
            raise
        _note_on_span(tool, error)
        raise ToolFailed(str(text)[:_ERROR_TEXT_CHARACTERS], type(error).__qualname__) from error


def _note_on_span(tool: FunctionTool, error: Exception) -> None:
    if (span := get_current_span()) is not None:
        data = {"tool_name": tool.name, "error": type(error).__qualname__}
        span.set_error({"message": "Error running tool (non-fatal)", "data": data})


async def _words(tool: FunctionTool, ctx: ToolContext[Any], settled: Settled) -> Any:
    """What a call without a value comes to for the SDK: text for the model, or the exception."""
    failure = failure_of(settled)
    match settled.outcome.status:
        case "unknown":
            _skip_output_schema(ctx)
            return unknown_text(tool.name)
        case "value_lost":
            _skip_output_schema(ctx)
            return f"{tool.name} completed, but its result could not be kept. Do not take it for failed."
    if isinstance(failure, ToolFailed):
        if tool._use_default_failure_error_function:  # noqa: SLF001 - no other word for "not set by the user"
            _skip_output_schema(ctx)
        return failure.text
    if isinstance(failure, CallTimeout) and tool.timeout_seconds is not None:
        return await _timed_out(tool, ctx, tool.timeout_seconds)
    raise failure


def _told(result: Any, settled: Settled) -> Any:
    """The result, and behind a text what of the call's changes was not saved."""
    words = rejected_text(settled.outcome)
    return f"{result}{words}" if words and isinstance(result, str) else result


def _skip_output_schema(ctx: ToolContext[Any]) -> None:
    """Tell the SDK that the text is no result of the tool, as it tells itself of failures."""
    setattr(ctx, _DEFAULT_FAILURE_HANDLED_ATTR, True)


async def _timed_out(tool: FunctionTool, ctx: ToolContext[Any], seconds: float) -> Any:
    """As the SDK does when its own timeout ends a call."""
    error = ToolTimeoutError(tool_name=tool.name, timeout_seconds=seconds)
    if tool.timeout_behavior == "raise_exception":
        raise error
    if tool.timeout_error_function is None:
        _skip_output_schema(ctx)
        return default_tool_timeout_error_message(tool_name=tool.name, timeout_seconds=seconds)
    text = tool.timeout_error_function(ctx, error)
    return await cast("Awaitable[Any]", text) if inspect.isawaitable(text) else text

"""MCP (`mcp`): ``session = durable_session(session)``, used inside a handler.

Tested with version 2.3, `ClientSession` and `Client`. `call_tool` is a tool call under its replay policy; listings, and
reads of resources and prompts, are steps. What the server gave is served from the log on a replay. See docs/mcp.md.
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from mcp import types
from mcp.shared import exceptions

from journal.adapters.interruptions import ToolInterrupted, is_interruption
from journal.core import values
from journal.core.errors import DidNotHappen, InvalidValue, OutcomeUnknown, ValueLost
from journal.core.failures import register_error
from journal.engine.adapting import scope_here
from journal.engine.calls import Call, Settled, settle
from journal.engine.turn import failure_of
from journal.tools.io import io
from journal.tools.policy import Resolved, resolve
from journal.tools.result import rejected_text, unknown_text

S = TypeVar("S")

IDEMPOTENCY_META = "durable-journal/idempotency-key"
"""Under which a server finds the call's idempotency key, in the request's ``_meta``."""
OUTCOME_META = "durable-journal/outcome"
"""Under which a result says, in its ``_meta``, that it is none: ``unknown`` or ``value_lost``."""

_READS = frozenset(
    {
        "complete",
        "get_prompt",
        "list_prompts",
        "list_resource_templates",
        "list_resources",
        "list_tools",
        "read_resource",
    }
)

_Error: Any = (
    getattr(exceptions, "MCPError", None) or exceptions.__dict__["McpError"]
)  # version 1 has the second


def _error_of(data: list[Any]) -> Any:
    code, message = data
    if _Error.__name__ == "MCPError":
        return _Error(code, message)
    return _Error(types.ErrorData(code=code, message=message))


register_error(_Error, to_data=lambda error: [error.error.code, error.error.message], from_data=_error_of)


class DurableSession:
    """`inner`, with its calls recorded in the turn that they are made in. Everything else is the inner session's."""

    def __init__(self, inner: Any, name: str, *, trusts_hints: bool) -> None:
        self._inner, self._name, self._trusts_hints = inner, name, trusts_hints
        self._hints: dict[str, object] = {}
        """Annotations by tool, as far as tools were listed."""
        self._takes_meta = "meta" in inspect.signature(inner.call_tool).parameters

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._read(name, found) if name in _READS else found

    def policy_of(self, tool: str) -> Resolved:
        """The replay policy of `tool` in the turn at work, and where it comes from. Raises `NotInTurn`."""
        agent = scope_here(f"tool {tool!r} of MCP server {self._name!r}").attempt.agent
        hints = self._hints.get(tool) if self._trusts_hints else None
        return resolve(tool, agent=agent.tools, journal=agent.journal.tools, hints=hints)

    async def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, *args: Any, meta: Any = None, **options: Any
    ) -> Any:
        """As the session's; its idempotency key goes along in `meta`.

        Where nobody knows whether a `never` tool ran, the result says so to the model, with ``is_error`` set and
        ``_meta[OUTCOME_META]``.
        """
        scope = scope_here(f"tool {name!r} of MCP server {self._name!r}")
        policy = self.policy_of(name).policy
        recorded, digest = _input({} if arguments is None else arguments)

        async def act() -> Any:
            try:
                return await self._inner.call_tool(name, arguments, *args, **self._keyed(meta), **options)
            except Exception as error:
                if policy == "never" and not isinstance(error, DidNotHappen) and is_interruption(error):
                    raise ToolInterrupted(f"{name} broke off: {type(error).__qualname__}") from error
                raise

        call = Call(
            key=scope.next_key(f"{self._name}.{name}"),
            kind="tool",
            name=name,
            act=act,
            input=recorded,
            input_digest=digest,
            encode=_encode,
            policy=policy,
            is_lazy=policy == "safe",
        )
        settled = await settle(scope.attempt, call)
        if settled.data is None:
            return _words(name, settled)
        return _with_rejections(_decode(settled.data), rejected_text(settled.outcome))

    def _keyed(self, meta: Any) -> dict[str, Any]:
        if not self._takes_meta:
            return {}
        return {"meta": {**(meta or {}), IDEMPOTENCY_META: io.idempotency_key}}

    def _read(self, name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """The session's method `name`, as a step."""

        async def read(*args: Any, **options: Any) -> Any:
            scope = scope_here(f"{name} of MCP server {self._name!r}")
            recorded, digest = _input({"args": _plain(args), "options": _plain(options)})

            async def act() -> Any:
                return await method(*args, **options)

            call = Call(
                key=scope.next_key(f"{self._name}.{name}"),
                kind="step",
                name=name,
                act=act,
                input=recorded,
                input_digest=digest,
                encode=_encode,
                policy="safe",
                is_lazy=True,
            )
            settled = await settle(scope.attempt, call)
            if settled.data is None:
                raise failure_of(settled)
            found = _decode(settled.data)
            if name == "list_tools":
                self._hints |= {tool.name: tool.annotations for tool in found.tools}
            return found

        return read


def durable_session(session: S, *, name: str = "mcp", trust_hints: bool = False) -> S:
    """`session` (a `ClientSession` or a `Client`) wrapped: its calls are recorded in the turn they are made in.

    `name` stands for the server in the log; choose one for each server. With `trust_hints` a listed tool whose server
    says `readOnlyHint` or `idempotentHint` is safe, unless a policy was declared. Calls outside of a turn raise
    `NotInTurn`.
    """
    return cast("S", DurableSession(session, name, trusts_hints=trust_hints))


def _input(asked: Any) -> tuple[bytes | None, bytes]:
    """What the log keeps of what is asked, and its digest."""
    try:
        data = values.encode(asked, what="the arguments of an MCP call")
    except InvalidValue:
        data = values.encode(repr(asked), what="the arguments of an MCP call")
        return None, values.digest(data)
    return data, values.digest(data)


def _plain(part: Any) -> Any:
    """Arguments in JSON's own types; callbacks and the like, which ask for nothing, are left out."""
    if isinstance(part, list | tuple):
        return [_plain(item) for item in part]
    if isinstance(part, dict):
        return {str(key): _plain(item) for key, item in part.items()}
    if part is None or isinstance(part, str | int | float | bool):
        return part
    dump = getattr(part, "model_dump", None)
    return (
        dump(mode="json", by_alias=True, exclude_none=True) if dump is not None else str(type(part).__name__)
    )


def _encode(result: Any) -> bytes:
    kept = {
        "type": type(result).__name__,
        "value": result.model_dump(mode="json", by_alias=True, exclude_none=True),
    }
    data = values.encode(kept, what="the result of an MCP call")
    try:
        _decode(data)
    except ValueError as error:
        raise InvalidValue(what="the result of an MCP call", path="", reason=type(error).__name__) from error
    return data


def _decode(data: bytes) -> Any:
    kept = values.decode(data)
    cls = getattr(types, kept["type"], None)
    if cls is None:
        raise ValueError(kept["type"])
    return cls.model_validate(kept["value"])


def _with_rejections(result: Any, words: str) -> Any:
    """The recorded result, and behind its content what of the call's changes was not saved."""
    if not words or not isinstance(result, types.CallToolResult):
        return result
    told = types.TextContent(type="text", text=words.lstrip())
    return result.model_copy(update={"content": [*result.content, told]})


def _words(name: str, settled: Settled) -> Any:
    """What a tool call without a value comes to: a result that tells the model, or the exception."""
    failure = failure_of(settled)
    if isinstance(failure, OutcomeUnknown):
        text = unknown_text(name)
    elif isinstance(failure, ValueLost):
        text = f"{name} completed, but its result could not be kept. Do not take it for failed."
    else:
        raise failure
    said = {
        "content": [{"type": "text", "text": text}],
        "isError": True,
        "_meta": {OUTCOME_META: settled.outcome.status},
    }
    return types.CallToolResult.model_validate(said)

"""`JournalDurability`: the capability that lets an agent's runs be carried on after a crash.

Inside a handler every model call and tool call goes through `backend.py`; anywhere else, and inside a call of the
turn, the agent is as it was.
"""

from collections.abc import AsyncIterable, AsyncIterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar

from pydantic_ai.agent import EventStreamHandler
from pydantic_ai.capabilities import WrapRunHandler, WrapToolExecuteHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    ToolsetKind,
    conversation_id_from_run_id,
    replay_scope,
)
from pydantic_ai.messages import (
    AgentStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import AgentDepsT, RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.toolsets._dynamic import DynamicToolset

from journal.adapters.pydantic_ai.backend import JournalBackend
from journal.adapters.pydantic_ai.failures import ResultLost
from journal.adapters.pydantic_ai.place import Place, current_place, nested_at, place_of, running_at
from journal.adapters.pydantic_ai.standin import WithStandins
from journal.adapters.pydantic_ai.tools import METADATA_KEY, is_shown, runs_in_handler
from journal.adapters.pydantic_ai.tries import AskedOnce, is_counted
from journal.core import values
from journal.engine.adapting import inherited_scope, scope_here
from journal.engine.calls import Call, settle
from journal.engine.context import in_call
from journal.engine.readonly import NoDeps
from journal.engine.turn import failure_of

_KINDS: frozenset[ToolsetKind] = frozenset({"function", "mcp", "dynamic"})


class JournalDurability(BaseDurabilityCapability[AgentDepsT]):
    """``Agent(..., name="support", capabilities=[JournalDurability()])``: its runs inside a handler are recorded.

    `event_stream_handler` sees the model's events as they come, once: not again on a replay. `models` are further
    model instances that runs may be switched to, by key; the agent's own is known. `name` is the agent's by default.
    """

    engine_spec: ClassVar[DurabilityEngineSpec] = DurabilityEngineSpec(
        engine_name="Journal",
        durable_unit_noun="call",
        durable_container_noun="handler",
        codec=JSON_CODEC,
        serialization_failure=ResultLost.of,
        wrapped_toolset_kinds=_KINDS,
        toolset_lifecycles={
            "function": "enter-always",
            "mcp": "enter-in-durable-unit",
            "dynamic": "enter-never",
        },
        tool_config_key=METADATA_KEY,
        unsupported_runtime_toolset_kinds=_KINDS,
    )

    _is_blind = False
    """Whether it is bound to toolsets that are not there."""

    @property
    def in_durable_context(self) -> bool:
        return in_call() is None and inherited_scope() is not None

    def get_durable_operation_backend(self) -> JournalBackend:
        return JournalBackend(agent_name=self.name, default_model_id=self.default_model_id)

    # A run's ids are made of the turn's, so that a replay has the same.

    def get_default_run_id(self) -> str | None:
        if not self.in_durable_context:
            return None
        place = self._place()
        return f"{place.attempt.holding.run}:{place.attempt.turn_id}:{place.key('run')}"

    def get_default_conversation_id(self, run_id: str) -> str | None:
        if not self.in_durable_context:
            return None
        self._place()
        return conversation_id_from_run_id(run_id)

    def _place(self) -> Place:
        """The place of the task that starts the run: what the run does in tasks of its own counts there."""
        return place_of(scope_here(f"agent {self.name!r}"))

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        """Recorded, so that a run's `timeout=` counts from when it first started."""
        if not self.in_durable_context:
            return None
        place = self._place()

        async def now() -> float:
            return datetime.now(UTC).timestamp()

        name = "run_start_time"
        call = Call(
            key=place.key(name),
            kind="step",
            name=name,
            act=now,
            input=None,
            input_digest=values.digest(name.encode()),
            policy="safe",
            is_counted=False,
        )
        settled = await settle(place.attempt, call)
        if settled.data is None:
            raise failure_of(settled)
        return datetime.fromtimestamp(values.decode(settled.data), UTC)

    async def wrap_run(self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Let the run work at its place; what it replays is not told to telemetry again."""
        if not self.in_durable_context or (scope := inherited_scope()) is None:
            return await handler()
        place = place_of(scope)
        agent = self.agent
        is_watched = self._effective_event_stream_handler() is not None and agent is not None
        # Events of tools are handled in calls of their own, which count in the order of the tools.
        ordered = (
            agent.parallel_tool_call_execution_mode("parallel_ordered_events")
            if is_watched and agent is not None
            else nullcontext()
        )
        with running_at(place), replay_scope(), ordered:
            result = await super().wrap_run(ctx, handler=handler)
        if place.attempt.fatal is not None:
            raise place.attempt.fatal
        return result

    async def wrap_tool_execute(
        self,
        ctx: RunContext[AgentDepsT],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """A tool that runs in the handler is a scope: its agents and steps count in it, whatever runs beside it."""
        if not self.in_durable_context or not runs_in_handler(tool_def):
            return await handler(args)
        place = current_place(f"tool {tool_def.name!r}")
        with nested_at(place, place.tool_key(call.tool_call_id)):
            return await handler(args)

    def get_wrapper_toolset(self, toolset: AbstractToolset[AgentDepsT]) -> AbstractToolset[AgentDepsT] | None:
        """In a handler: durable toolsets, and stand-ins for tools that are gone."""
        durable = super().get_wrapper_toolset(toolset)
        if not self.in_durable_context:
            return durable
        return WithStandins(durable or toolset, self._toolsets_by_id, is_blind=self._is_blind)

    def _wrap_and_register_leaf(self, ts: AbstractToolset[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
        """In a replay offline a toolset of `turn.deps` is not there: what it gave is in the log."""
        if isinstance(ts, DynamicToolset) and isinstance(ts.toolset_func, NoDeps):
            ts.toolset_func = lambda _: None
            self._is_blind = True
            return ts
        return super()._wrap_and_register_leaf(ts)

    async def before_model_request(
        self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Leave out stand-ins, before Pydantic AI tells the model which tools are new to it."""
        parameters = request_context.model_request_parameters
        shown = [tool for tool in parameters.function_tools if is_shown(tool)]
        if len(shown) < len(parameters.function_tools):
            request_context.model_request_parameters = replace(parameters, function_tools=shown)
        return await super().before_model_request(ctx, request_context)

    def get_wrapper_model(self, model: Model) -> Model | None:
        """In a model call it is asked once: the engine tries again."""
        return AskedOnce(model) if is_counted() else None

    def _model_stream_event_handler(self) -> EventStreamHandler[AgentDepsT] | None:
        """The user's handler, with the text shown to whoever watches the run as well."""
        inner = self._effective_event_stream_handler()

        async def handle(ctx: RunContext[AgentDepsT], events: AsyncIterable[AgentStreamEvent]) -> None:
            if inner is not None:
                await inner(ctx, _emitting(events))
                return
            async for _ in _emitting(events):
                pass

        return handle


async def _emitting(events: AsyncIterable[AgentStreamEvent]) -> AsyncIterator[AgentStreamEvent]:
    context = in_call()
    async for event in events:
        if context is not None:
            context.has_shown = True
            if text := _text(event):
                context.emit({"type": "text-delta", "delta": text})
        yield event


def _text(event: AgentStreamEvent) -> str | None:
    match event:
        case (
            PartStartEvent(part=TextPart(content=text))
            | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
        ):
            return text
        case _:
            return None

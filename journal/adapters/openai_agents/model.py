"""Model calls: recorded before they are sent, and their replies before anyone acts on them.

A wrapped model is the inner one to whoever asks what it is. A call in doubt is sent again, unless the provider itself
acts inside it (hosted tools, a stored prompt, a conversation that it keeps): then its outcome is unknown.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any, cast

from agents import Model, ModelProvider, ModelResponse, ModelSettings, Tool, Usage
from agents.agent_output import AgentOutputSchemaBase
from agents.exceptions import ModelBehaviorError
from agents.handoffs import Handoff
from agents.items import TResponseInputItem, TResponseStreamEvent
from agents.models._response_terminal import (
    response_error_event_failure_error,
    response_terminal_failure_error,
)
from agents.models.default_models import get_default_model
from agents.models.interface import ModelTracing
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from agents.usage import (
    _extract_raw_usage_snapshot,
    _requests_for_response_without_usage,
    _response_usage_to_usage,
)
from openai.types.responses import Response, ResponseCompletedEvent, ResponseOutputItemDoneEvent
from openai.types.responses.response_prompt_param import ResponsePromptParam

from journal.adapters.openai_agents import messages
from journal.adapters.openai_agents.hosted import acting_tool
from journal.adapters.openai_agents.messages import Streamed
from journal.adapters.openai_agents.place import Place, current_place, place_here
from journal.adapters.openai_agents.standin import is_standin
from journal.adapters.openai_agents.tries import facts_of, only_our_tries, report, retry_of
from journal.core.errors import OutcomeUnknown, ValueLost
from journal.core.records import Policy
from journal.engine.calls import Call, settle
from journal.engine.context import in_call
from journal.engine.turn import failure_of


class DurableModel(Model):
    """`inner`, with its calls recorded in the turn that they are made in."""

    def __init__(self, inner: Model) -> None:
        self._inner = inner

    @property  # type: ignore[misc]  # the SDK asks some models what they are by isinstance
    def __class__(self) -> type:
        return type(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self._inner._cleanup_on_run_end(owner)  # noqa: SLF001 - part of the interface that we stand in for

    async def close(self) -> None:
        await self._inner.close()

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        if isinstance(request.error, OutcomeUnknown | ValueLost):
            return ModelRetryAdvice(suggested=False, replay_safety="unsafe", reason="it may have happened")
        return self._inner.get_retry_advice(request)

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002 - the interface's name
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: ResponsePromptParam | None,
    ) -> ModelResponse:
        shown = [tool for tool in tools if not is_standin(tool)]

        async def act() -> ModelResponse:
            with only_our_tries():
                reply = await self._inner.get_response(
                    system_instructions,
                    input,
                    model_settings,
                    shown,
                    output_schema,
                    handoffs,
                    tracing,
                    previous_response_id=previous_response_id,
                    conversation_id=conversation_id,
                    prompt=prompt,
                )
            report(facts_of(reply))
            return reply

        place = current_place("a durable model")
        call = self._call(
            place, act, system_instructions, input, model_settings, shown, output_schema, handoffs,
            previous_response_id or conversation_id, prompt,
        )  # fmt: skip
        return (await _settled(place, call)).reply

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002 - the interface's name
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: ResponsePromptParam | None,
    ) -> AsyncIterator[TResponseStreamEvent]:
        """The inner model's events as they come; the terminal one once the outcome is durable.

        A recorded call gives its terminal event alone: consumers saw the others before the crash.
        """
        shown = [tool for tool in tools if not is_standin(tool)]
        events: asyncio.Queue[TResponseStreamEvent | None] = asyncio.Queue()

        async def act() -> Streamed:
            stream = self._inner.stream_response(
                system_instructions,
                input,
                model_settings,
                shown,
                output_schema,
                handoffs,
                tracing,
                previous_response_id=previous_response_id,
                conversation_id=conversation_id,
                prompt=prompt,
            )
            with only_our_tries():
                reply = await _consumed(stream, events.put_nowait, model_settings)
            report(facts_of(reply))
            return reply

        place = current_place("a durable model")
        call = self._call(
            place, act, system_instructions, input, model_settings, shown, output_schema, handoffs,
            previous_response_id or conversation_id, prompt,
        )  # fmt: skip
        work = asyncio.create_task(_settled(place, call), name=f"journal {call.key}")
        work.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            yield messages.terminal_event(await work)
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait({work})
            if work.done() and not work.cancelled():
                work.exception()  # told to whoever still listens

    def _call(
        self,
        place: Place,
        act: Callable[[], Awaitable[ModelResponse | Streamed]],
        instructions: str | None,
        asked: str | list[TResponseInputItem],
        settings: ModelSettings,
        tools: Sequence[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: Sequence[Handoff[Any, Any]],
        server_side: str | None,
        prompt: ResponsePromptParam | None,
    ) -> Call:
        key = place.scope.next_key("model")
        items = messages.items_of(asked)
        recorded = messages.recorded_input(instructions, items)
        provider_acts = bool(server_side or prompt or place.is_server_side or acting_tool(place, tools))
        policy: Policy = "never" if provider_acts else "safe"
        model = getattr(self._inner, "model", None)
        return Call(
            key=key,
            kind="model",
            name=place.agent_name,
            act=act,
            input=recorded,
            input_digest=messages.input_digest(items),
            config_digest=None
            if place.is_blind
            else messages.config_digest(
                model=model if isinstance(model, str) else type(self._inner).__qualname__,
                instructions=instructions,
                settings=settings,
                tools=tools,
                output_schema=output_schema,
                handoffs=handoffs,
                prompt=prompt,
            ),
            encode=messages.encode_reply,
            policy=policy,
            retry=retry_of(settings, place.attempt.agent.model_retry),
        )


class AbsentModel(Model):
    """A model that cannot be asked, for a replay offline: what it said is in the log."""

    def __init__(self, model: str) -> None:
        self.model = model

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        raise RuntimeError(f"model {self.model!r} is not asked in a replay offline")

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[TResponseStreamEvent]:
        raise RuntimeError(f"model {self.model!r} is not asked in a replay offline")


class DurableProvider(ModelProvider):
    """`inner`, giving durable models."""

    def __init__(self, inner: ModelProvider) -> None:
        self._inner = inner

    @property  # type: ignore[misc]  # as with the models
    def __class__(self) -> type:
        return type(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get_model(self, model_name: str | None) -> Model:
        try:
            return durable_model(self._inner.get_model(model_name))
        except Exception:
            if (place := place_here()) is None or not place.attempt.is_offline:
                raise
            return durable_model(
                AbsentModel(model_name or get_default_model())
            )  # no key, no client: none is needed

    async def aclose(self) -> None:
        await self._inner.aclose()


def durable_model(model: Model) -> Model:
    """`model` wrapped, once."""
    return model if type(model) is DurableModel else DurableModel(model)


def durable_provider(provider: ModelProvider) -> ModelProvider:
    """`provider` wrapped, once."""
    return provider if type(provider) is DurableProvider else DurableProvider(provider)


async def _settled(place: Place, call: Call) -> Streamed:
    settled = await settle(place.attempt, call)
    if settled.data is None:
        raise failure_of(settled)
    reply = messages.decode_reply(settled.data)
    place.note_asked(call.key, [call_id for call_id, _ in messages.calls_in(reply.reply)])
    return reply


async def _consumed(
    stream: AsyncIterator[TResponseStreamEvent],
    show: Callable[[TResponseStreamEvent], None],
    settings: ModelSettings,
) -> Streamed:
    """Read the stream to its end, showing all but its terminal event; raises what the SDK makes of a failed one."""
    context = in_call()
    response: Response | None = None
    done: list[Any] = []
    async with aclosing(cast("Any", stream)):
        async for event in stream:
            if isinstance(event, ResponseCompletedEvent):
                response = event.response
                continue
            if event.type in ("response.incomplete", "response.failed"):
                raise response_terminal_failure_error(event.type, getattr(event, "response", None))
            if event.type in ("error", "response.error"):
                raise response_error_event_failure_error(event.type, event)
            if isinstance(event, ResponseOutputItemDoneEvent):
                done.append(event.item)
            elif event.type == "response.output_text.delta" and context is not None:
                context.emit({"type": "text-delta", "delta": event.delta})
            if context is not None:
                context.has_shown = True
            show(event)
    if response is None:
        raise ModelBehaviorError("Model did not produce a final response!")
    usage = response.usage
    reply = ModelResponse(
        # Some backends leave the terminal event's output empty and send the items before it.
        output=response.output or done,
        usage=(
            _response_usage_to_usage(usage)
            if usage
            else Usage(requests=_requests_for_response_without_usage(response))
        ),
        response_id=response.id,
        request_id=getattr(response, "_request_id", None),
        raw_usage=_extract_raw_usage_snapshot(response) if settings.preserve_raw_usage is True else None,
    )
    return Streamed(reply, str(response.model), float(response.created_at))

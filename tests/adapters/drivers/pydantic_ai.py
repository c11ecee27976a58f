"""Plays the scenes of the suite with Pydantic AI and its function model."""

from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelRetry, RunContext
from pydantic_ai.exceptions import ModelConnectionError, ModelHTTPError
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from journal import Turn, never, safe
from journal.adapters.pydantic_ai import JournalDurability
from tests.adapters.suite import Reply, Scene

scene = Scene.of_arguments()


def reply_to(messages: list[ModelMessage]) -> Reply:
    parts = [part for message in messages for part in message.parts]
    reply = scene.reply(
        [str(part.content) for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart)]
    )
    if reply.status >= 400:
        raise ModelHTTPError(reply.status, "m", headers=reply.headers)
    return reply


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    reply = reply_to(messages)
    if not reply.asks:
        return ModelResponse(parts=[TextPart(reply.text)], finish_reason="stop")
    return ModelResponse(
        parts=[ToolCallPart(ask.tool, {"order": ask.order}, ask.call_id) for ask in reply.asks],
        finish_reason="tool_call",
    )


async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    reply = reply_to(messages)
    for number, ask in enumerate(reply.asks):
        yield {number: DeltaToolCall(ask.tool, f'{{"order": "{ask.order}"}}', tool_call_id=ask.call_id)}
    for part in reply.parts:
        yield part
        if reply.is_torn:
            raise ModelConnectionError("m", "gone", phase="read")


async def show(ctx: RunContext[None], events: AsyncIterable[AgentStreamEvent]) -> None:
    async for event in events:
        match event:
            case PartStartEvent(part=TextPart(content=text)) if text:
                scene.effect("part")
            case PartDeltaEvent():
                scene.effect("part")
            case _:
                pass


live = show if scene.is_streamed else None
agent = Agent(
    FunctionModel(answer, stream_function=stream),
    name="support",
    output_type=[str, DeferredToolRequests],
    capabilities=[JournalDurability(event_stream_handler=live)],
)


@agent.tool_plain
@safe
async def lookup(order: str) -> str:
    return await scene.lookup(order)


@agent.tool_plain
@never
async def refund(order: str) -> str:
    return await scene.refund(order)


@agent.tool_plain(requires_approval=scene.name == "pause", metadata={"journal": {"replay": "safe"}})
async def picky(order: str) -> str:
    if (found := await scene.picky(order)) is None:
        raise ModelRetry("try 42")
    return found


async def streamed(prompt: str) -> Any:
    """The deltas are shown live, by the capability's handler; the end of a reply is seen once it is recorded."""
    ended, said = 0, ""
    async with agent.run_stream_events(prompt) as events:
        async for event in events:
            match event:
                case PartEndEvent(part=TextPart(content=text)):
                    said = text
                    scene.effect(f"ended {ended}")
                case PartEndEvent():
                    scene.effect(f"ended {ended}")
                    ended += 1
                case _:
                    pass
    return {"said": said}


async def work(turn: Turn, prompt: str) -> Any:
    if scene.is_streamed:
        return await streamed(prompt)
    result = await agent.run(prompt)
    if isinstance(result.output, DeferredToolRequests):
        approved: dict[str, Any] = {call.tool_call_id: True for call in result.output.approvals}
        scene.effect("answered")
        result = await agent.run(
            message_history=result.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals=approved),
        )
    items = [part.part_kind for message in result.all_messages() for part in message.parts]
    return {"said": result.output, "items": items}


if __name__ == "__main__":
    scene.play(work)

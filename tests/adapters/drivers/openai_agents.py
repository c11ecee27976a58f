"""Plays the scenes of the suite with the OpenAI Agents SDK and its scripted model."""

from collections.abc import Iterator
from typing import Any

from agents import Agent, SQLiteSession, function_tool, set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from openai.types.responses import Response, ResponseCompletedEvent, ResponseTextDeltaEvent

from journal import Turn, never, safe
from journal.adapters.openai_agents import DurableRunner
from tests.adapters.drivers.failing import check, tear
from tests.adapters.suite import Reply, Scene

scene = Scene.of_arguments()
set_tracing_disabled(True)


@safe
@function_tool
async def lookup(order: str) -> str:
    return await scene.lookup(order)


@never
@function_tool
async def refund(order: str) -> str:
    return await scene.refund(order)


@safe
@function_tool(needs_approval=True)
async def picky(order: str) -> str:
    return str(await scene.picky(order))


class Session(SQLiteSession):
    async def add_items(self, items: list[Any]) -> None:
        await super().add_items(items)
        scene.effect("add")


def reply_to(call: Any) -> Reply:
    return check(
        scene.reply(
            [str(item["output"]) for item in call.input if item.get("type") == "function_call_output"]
        )
    )


def output_of(reply: Reply) -> list[Any]:
    if not reply.asks:
        return [assistant_message(reply.text)]
    return [function_call(ask.tool, {"order": ask.order}, call_id=ask.call_id) for ask in reply.asks]


def events(call: Any) -> Iterator[Any]:
    reply = reply_to(call)
    for number, part in enumerate(reply.parts):
        yield ResponseTextDeltaEvent(
            type="response.output_text.delta",
            item_id="m",
            output_index=0,
            content_index=0,
            delta=part,
            logprobs=[],
            sequence_number=number,
        )
        if reply.is_torn:
            tear()
    response = Response(
        id="r",
        created_at=1.0,
        model="m",
        object="response",
        output=output_of(reply),
        tool_choice="auto",
        tools=[],
        parallel_tool_calls=True,
    )
    yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=9)


def support(model: ScriptedModel) -> Agent[None]:
    return Agent(name="support", tools=[lookup, refund, picky], model=model)


async def streamed(prompt: str) -> Any:
    async def step(call: Any) -> Any:
        for event in events(call):
            yield event

    result = DurableRunner.run_streamed(support(ScriptedModel([ModelStep.stream(step)] * 4)), prompt)
    ended = 0
    async for event in result.stream_events():
        if event.type != "raw_response_event":
            continue
        if event.data.type == "response.output_text.delta":
            scene.effect("part")
        elif event.data.type == "response.completed":
            scene.effect(f"ended {ended}")
            ended += 1
    return {"said": result.final_output}


async def work(turn: Turn, prompt: str) -> Any:
    if scene.is_streamed:
        return await streamed(prompt)
    agent = support(ScriptedModel([ModelStep.respond(lambda call: output_of(reply_to(call)))] * 4))
    session = Session("s", scene.folder / "session.db") if scene.name == "history" else None
    result = await DurableRunner.run(agent, prompt, session=session)
    if result.interruptions:
        state = result.to_state()
        for item in result.interruptions:
            state.approve(item)
        scene.effect("answered")
        result = await DurableRunner.run(agent, state)
    items = [] if session is None else await session.get_items()
    if session is not None:
        session.close()
    return {
        "said": result.final_output,
        "items": [item.get("type") or item.get("role") for item in items],
    }


if __name__ == "__main__":
    scene.play(work)

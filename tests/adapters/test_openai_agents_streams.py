"""Streamed runs: events as they come, the last one only when the outcome is durable, and less on a replay."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents import Agent, ModelSettings, RunConfig, function_tool
from agents.exceptions import ModelBehaviorError
from agents.retry import ModelRetrySettings, retry_policies
from agents.testing import ModelStep, assistant_message, function_call
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFailedEvent,
    ResponseOutputItemDoneEvent,
)

from journal import Turn, TurnBlocked, TurnFailed, safe
from journal.adapters.openai_agents import DurableRunner
from tests.adapters.bench import Bench, CountingModel, drained

pytestmark = pytest.mark.anyio


async def test_a_streamed_run_is_recorded_and_replayed_by_its_last_events(bench: Bench) -> None:
    model = CountingModel([[function_call("look", {}, call_id="c1")], [assistant_message("done")]])
    seen: list[list[str]] = []

    @safe
    @function_tool
    async def look() -> str:
        await bench.effect("look")
        return "found"

    async def work(turn: Turn, prompt: str) -> Any:
        result = DurableRunner.run_streamed(Agent(name="a", tools=[look], model=model), prompt)
        seen.append(await drained(result.stream_events()))
        if bench.is_losing:
            await bench.hang()
        return [result.final_output, [type(r.output[0]).__name__ for r in result.raw_responses]]

    await bench.lose(work)
    end = await bench.run(work)
    assert end == ["done", ["ResponseFunctionToolCall", "ResponseOutputMessage"]]
    first, second = seen
    assert first.count("response.completed") == 2
    assert "response.output_text.delta" in first
    assert second == ["response.completed"] * 2
    assert (model.asked, bench.ran) == (2, ["look"])
    assert list(await bench.calls()) == ["stream#1/model#1", "stream#1/model#1/0:c1", "stream#1/model#2"]


async def test_the_outcome_is_durable_before_the_last_event(bench: Bench) -> None:
    model = CountingModel([[assistant_message("done")]])
    found: list[tuple[str, dict[str, str]]] = []

    async def work(turn: Turn, prompt: str) -> Any:
        result = DurableRunner.run_streamed(Agent(name="a", model=model), prompt)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type in (
                "response.created",
                "response.completed",
            ):
                found.append((event.data.type, await bench.statuses()))  # noqa: PERF401 - it looks in between
        return result.final_output

    await bench.run(work)
    assert found[-1] == ("response.completed", {"stream#1/model#1": "ok"})


async def test_a_stream_that_is_cut_off_is_asked_for_again(bench: Bench) -> None:
    message = assistant_message("done")

    async def events(_: Any) -> AsyncIterator[Any]:
        if bench.is_losing:
            yield ResponseOutputItemDoneEvent(
                type="response.output_item.done", item=message, output_index=0, sequence_number=0
            )
            await bench.hang()
        yield completed([message])

    model = CountingModel([ModelStep.stream(events), ModelStep.stream(events)])

    async def work(turn: Turn, prompt: str) -> Any:
        result = DurableRunner.run_streamed(Agent(name="a", model=model), prompt)
        await drained(result.stream_events())
        return result.final_output

    await bench.lose(work)
    assert await bench.statuses() == {"stream#1/model#1": "in doubt"}
    assert await bench.run(work) == "done"
    assert model.asked == 2


def completed(output: list[Any]) -> ResponseCompletedEvent:
    return ResponseCompletedEvent(type="response.completed", response=response(output), sequence_number=1)


def response(output: list[Any], **options: Any) -> Response:
    return Response(
        id="r1",
        created_at=1.0,
        model="m",
        object="response",
        output=output,
        tool_choice="auto",
        tools=[],
        parallel_tool_calls=True,
        **options,
    )


async def test_items_that_come_before_an_empty_last_event_are_kept(bench: Bench) -> None:
    message: Any = assistant_message("done")
    done = ResponseOutputItemDoneEvent(
        type="response.output_item.done", item=message, output_index=0, sequence_number=0
    )
    model = CountingModel([ModelStep.stream([done, completed([])])])

    async def work(turn: Turn, prompt: str) -> Any:
        result = DurableRunner.run_streamed(Agent(name="a", model=model), prompt)
        await drained(result.stream_events())
        if bench.is_losing:
            await bench.hang()
        return result.final_output

    await bench.lose(work)
    assert await bench.run(work) == "done"
    assert model.asked == 1


async def test_a_stream_that_fails_is_an_error_the_same_on_a_replay(bench: Bench) -> None:
    failed = ResponseFailedEvent(
        type="response.failed", response=response([], status="failed"), sequence_number=0
    )
    model = CountingModel([ModelStep.stream([failed])])
    texts: list[str] = []

    async def work(turn: Turn, prompt: str) -> Any:
        result = DurableRunner.run_streamed(Agent(name="a", model=model), prompt)
        try:
            await drained(result.stream_events())
        except ModelBehaviorError as error:
            texts.append(str(error))
        if bench.is_losing:
            await bench.hang()

    await bench.lose(work)
    await bench.run(work)
    assert model.asked == 1
    assert texts == ["Responses stream ended with terminal event `response.failed`. status=failed."] * 2


async def test_text_is_shown_to_whoever_watches_the_run(bench: Bench) -> None:
    model = CountingModel([[assistant_message("hello")]])

    async def work(turn: Turn, prompt: str) -> Any:
        result = DurableRunner.run_streamed(Agent(name="a", model=model), prompt)
        await drained(result.stream_events())
        return result.final_output

    journal, agent = bench.journal(work)
    async with journal:
        assert await agent.run("go", run_id="r") == "hello"
        handle = await journal.handle("r")
        deltas = [event async for event in handle.events() if event.type == "delta"]
    assert [delta.data for delta in deltas] == [{"type": "text-delta", "delta": "hello"}]


async def test_two_streams_at_once_keep_apart(bench: Bench) -> None:
    models = [CountingModel([[assistant_message(name)]]) for name in "ab"]

    async def work(turn: Turn, prompt: str) -> Any:
        first, second = (DurableRunner.run_streamed(Agent(name="x", model=m), prompt) for m in models)
        await drained(second.stream_events())
        await drained(first.stream_events())
        return [first.final_output, second.final_output]

    assert await bench.run(work) == ["a", "b"]
    assert set(await bench.statuses()) == {"stream#1/model#1", "stream#2/model#1"}


async def test_the_sdks_own_retries_decide_the_same_on_a_replay(bench: Bench) -> None:
    import httpx2
    import openai

    def overloaded() -> openai.InternalServerError:
        answer = httpx2.Response(
            503, request=httpx2.Request("POST", "http://x"), headers={"retry-after": "0"}
        )
        return openai.InternalServerError("quotes the prompt", response=answer, body=None)

    model = CountingModel([ModelStep.raise_error(overloaded()), [assistant_message("done")]])
    retry = ModelRetrySettings(
        max_retries=2, policy=retry_policies.http_status([503]), backoff={"initial_delay": 0}
    )
    config = RunConfig(model_settings=ModelSettings(retry=retry))

    async def work(turn: Turn, prompt: str) -> Any:
        result = await DurableRunner.run(Agent(name="a", model=model), prompt, run_config=config)
        if bench.is_losing:
            await bench.hang()
        return result.final_output

    await bench.lose(work)
    assert await bench.run(work) == "done"
    assert model.asked == 2
    calls = await bench.calls()
    assert await bench.statuses() == {"model#1": "error", "model#2": "ok"}
    assert calls["model#1"].outcome is not None
    assert b"quotes" not in repr(calls["model#1"].outcome).encode()


async def test_an_error_of_the_model_reaches_the_consumer(bench: Bench) -> None:
    model = CountingModel([RuntimeError("down")])

    async def work(turn: Turn, prompt: str) -> Any:
        result = DurableRunner.run_streamed(Agent(name="a", model=model), prompt)
        await drained(result.stream_events())

    with pytest.raises(TurnFailed):
        await bench.run(work)
    assert await bench.statuses() == {"stream#1/model#1": "error"}


async def test_a_handler_may_leave_a_stream_before_its_end(bench: Bench) -> None:
    model = CountingModel([[assistant_message("done")]])

    async def work(turn: Turn, prompt: str) -> Any:
        result = DurableRunner.run_streamed(Agent(name="a", model=model), prompt)
        async for event in result.stream_events():
            if event.type == "raw_response_event":
                result.cancel()
        return "left"

    assert await bench.run(work) == "left"
    assert await bench.run(work) == "left"


async def test_another_prompt_diverges_in_a_stream(bench: Bench) -> None:
    model = CountingModel([[assistant_message("done")]])
    prompts = iter(["one", "two"])

    async def work(turn: Turn, prompt: str) -> Any:
        result = DurableRunner.run_streamed(Agent(name="a", model=model), next(prompts))
        try:
            await drained(result.stream_events())
        except BaseException:  # a harness that swallows everything cannot undo a divergence
            return "swallowed"
        return await bench.hang()

    await bench.lose(work)
    with pytest.raises(TurnBlocked) as blocked:
        await bench.run(work)
    assert blocked.value.reason == "divergence"
    assert model.asked == 1

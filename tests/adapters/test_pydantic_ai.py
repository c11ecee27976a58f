"""JournalDurability with the real package: policies, words for the model, control flow, streams, nesting, telemetry."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel
from pydantic_ai import Agent, FunctionToolset, ModelRetry, RunContext, ToolReturn
from pydantic_ai.capabilities import Instrumentation, NativeTool
from pydantic_ai.exceptions import ModelHTTPError, UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.models.test import TestModel
from pydantic_ai.native_tools import WebSearchTool

from journal import Ran, Turn, TurnBlocked, TurnFailed, never, safe
from journal.adapters.pydantic_ai import JournalDurability
from journal.core.errors import DidNotHappen
from tests.adapters.bench import Bench
from tests.adapters.growing import LONG, check_kept_once

pytestmark = pytest.mark.anyio

UNKNOWN = "refund was started before an interruption and may have completed. It was not repeated."


class Script:
    """A model that asks for the given tools, one reply after the other, and then says `done`."""

    def __init__(self, *replies: list[tuple[str, dict[str, Any]]], bench: Bench | None = None) -> None:
        self.replies, self.bench = replies, bench
        self.asked = 0
        self.told: dict[str, str] = {}
        self.model = FunctionModel(self._answer, stream_function=self._stream)

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.asked += 1
        done = sum(message.kind == "response" for message in messages)
        for message in messages:
            for part in message.parts:
                if isinstance(part, ToolReturnPart | RetryPromptPart):
                    self.told[part.tool_call_id] = str(part.content)
        if done >= len(self.replies):
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(
            parts=[
                ToolCallPart(name, args, f"c{done}{n}") for n, (name, args) in enumerate(self.replies[done])
            ]
        )

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        self.asked += 1
        yield "do"
        yield "ne"


def supporter(script: Script, **options: Any) -> Agent[None, str]:
    return Agent(script.model, name="support", capabilities=[JournalDurability()], **options)


def working(agent: Agent[Any, Any]) -> Any:
    async def work(turn: Turn, prompt: str) -> Any:
        return (await agent.run(prompt)).output

    return work


ORDER = {"order": "42"}


async def test_outside_of_a_handler_the_agent_is_as_it_was() -> None:
    script = Script()
    assert (await supporter(script).run("go")).output == "done"
    assert script.asked == 1


async def test_a_finished_run_is_not_run_again(bench: Bench) -> None:
    script = Script([("lookup", ORDER)])
    agent = supporter(script)

    @agent.tool_plain
    async def lookup(order: str) -> str:
        await bench.effect(f"lookup {order}")
        return f"order {order}"

    assert [await bench.run(working(agent)) for _ in range(2)] == ["done", "done"]
    assert (script.asked, bench.ran) == (2, ["lookup 42"])
    calls = await bench.calls()
    assert list(calls) == ["model#1", "model#1/0:c00", "model#2"]
    assert calls["model#1"].intents[0].name == "support"
    assert calls["model#1/0:c00"].intents[0].name == "lookup"
    outcome = calls["model#1"].outcome
    assert outcome is not None
    assert outcome.usage["output_tokens"] > 0


async def test_the_log_holds_of_a_conversation_what_is_new(bench: Bench) -> None:
    agent = supporter(Script([("lookup", ORDER)], [("lookup", ORDER)]))

    @agent.tool_plain
    async def lookup(order: str) -> str:
        return f"order {order}"

    async def work(turn: Turn, prompt: str) -> Any:
        return (await agent.run(LONG)).output

    assert await bench.run(work) == "done"
    await check_kept_once(bench, LONG, 3)


@pytest.mark.parametrize("said_by", ["nothing", "marker", "metadata", "journal", "agent", "toolset"])
async def test_a_policy_is_said_in_every_way(bench: Bench, said_by: str) -> None:
    """A tool in doubt runs again if something says that it is safe; by default it does not."""
    script = Script([("refund", ORDER)])

    async def refund(order: str) -> str:
        await bench.effect(f"refund {order}", hang=True)
        return f"refunded {order}"

    options: dict[str, Any] = {}
    match said_by:
        case "toolset":
            toolset: FunctionToolset[None] = FunctionToolset(id="shop")
            toolset.add_function(safe(refund))
            agent = supporter(script, toolsets=[toolset])
        case "metadata":
            agent = supporter(script)
            agent.tool_plain(metadata={"journal": {"replay": "safe"}})(refund)
        case "marker":
            agent = supporter(script)
            agent.tool_plain(safe(refund))
        case _:
            agent = supporter(script)
            agent.tool_plain(refund)
            options = {
                "journal": {"tools": {"ref*": "safe"}},
                "agent": {"by_agent": {"refund": "safe"}},
            }.get(said_by, {})
    work = working(agent)
    await bench.lose(work, **options)
    await bench.run(work, **options)
    if said_by == "nothing":
        assert script.told["c00"].startswith(UNKNOWN)
        assert (await bench.statuses())["model#1/0:c00"] == "unknown"
        assert bench.ran == ["refund 42"]
    else:
        assert script.told["c00"] == "refunded 42"
        assert bench.ran == ["refund 42"] * 2


async def test_the_careful_word_wins_over_metadata(bench: Bench) -> None:
    script = Script([("refund", ORDER)])
    agent = supporter(script)

    @agent.tool_plain(metadata={"journal": {"replay": "safe"}})
    async def refund(order: str) -> str:
        await bench.effect("refund", hang=True)
        return "refunded"

    await bench.lose(working(agent), tools={"refund": "never"})
    await bench.run(working(agent), tools={"refund": "never"})
    assert bench.ran == ["refund"]
    assert script.told["c00"].startswith(UNKNOWN)


async def test_a_probe_settles_a_never_tool(bench: Bench) -> None:
    asked: list[Any] = []

    async def probe(given: Any, io: Any) -> Ran:
        asked.append((given, len(io.idempotency_key)))
        return Ran({"kind": "tool_return", "result": "refunded before"})

    script = Script([("refund", ORDER)])
    agent = supporter(script)

    @agent.tool_plain
    @never(probe=probe)
    async def refund(order: str) -> str:
        await bench.effect("refund", hang=True)
        return "refunded"

    await bench.lose(working(agent))
    await bench.run(working(agent))
    assert script.told["c00"] == "refunded before"
    assert asked == [(ORDER, 32)]


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError(), ExceptionGroup("g", [EOFError()])])
async def test_a_never_tool_that_broke_off_is_unknown_and_not_for_another_try(
    bench: Bench, error: Exception
) -> None:
    script = Script([("refund", ORDER)])
    agent = supporter(script)

    @agent.tool_plain(timeout=30)
    async def refund(order: str) -> str:
        await bench.effect("refund")
        raise error

    await bench.run(working(agent))
    assert script.told["c00"].startswith(UNKNOWN)
    assert bench.ran == ["refund"]


async def test_a_never_tool_whose_time_is_over_is_unknown(bench: Bench) -> None:
    """Pydantic AI itself would ask the model to try again."""
    script = Script([("refund", ORDER)])
    agent = supporter(script)

    @agent.tool_plain(timeout=0.05)
    async def refund(order: str) -> str:
        await bench.effect("refund")
        await asyncio.sleep(60)
        return "refunded"

    await bench.run(working(agent))
    assert script.told["c00"].startswith(UNKNOWN)
    assert (await bench.statuses())["model#1/0:c00"] == "unknown"


async def test_a_safe_tool_whose_time_is_over_is_tried_again_by_the_model(bench: Bench) -> None:
    script = Script([("lookup", ORDER)])
    agent = supporter(script)

    @agent.tool_plain(timeout=0.05)
    @safe
    async def lookup(order: str) -> str:
        await asyncio.sleep(60)
        return "found"

    await bench.run(working(agent))
    assert "Timed out" in script.told["c00"]
    assert (await bench.statuses())["model#1/0:c00"] == "ok"


async def test_did_not_happen_is_an_error_and_not_unknown(bench: Bench) -> None:
    script = Script([("refund", ORDER)])
    agent = supporter(script)

    @agent.tool_plain
    async def refund(order: str) -> str:
        raise DidNotHappen("the bank is closed")

    with pytest.raises(TurnFailed):
        await bench.run(working(agent))
    assert (await bench.statuses())["model#1/0:c00"] == "error"


async def test_a_request_for_another_try_is_recorded_as_such(bench: Bench) -> None:
    script = Script([("pick", {"n": 0})], [("pick", {"n": 1})])
    agent = supporter(script)

    @agent.tool_plain(retries=2)
    async def pick(n: int) -> str:
        await bench.effect(f"pick {n}", hang=n == 1)
        if n == 0:
            raise ModelRetry("n must not be 0")
        return "picked"

    await bench.lose(working(agent), tools={"pick": "safe"})
    assert await bench.run(working(agent), tools={"pick": "safe"}) == "done"
    assert bench.ran == ["pick 0", "pick 1", "pick 1"]
    calls = await bench.calls()
    assert calls["model#1/0:c00"].value == {"kind": "model_retry", "message": "n must not be 0"}
    assert script.told["c00"] == "n must not be 0"


class Order(BaseModel):
    number: int


async def test_results_come_back_as_they_were_given_the_first_time(bench: Bench) -> None:
    script = Script([("plain", {}), ("rich", {"order": {"number": 42}})])
    agent = supporter(script)
    seen: list[Any] = []

    @agent.tool_plain
    def plain() -> Order:
        return Order(number=1)

    @agent.tool_plain
    def rich(order: Order) -> ToolReturn:
        return ToolReturn(return_value=order.number, metadata={"private": True})

    async def work(turn: Turn, prompt: str) -> Any:
        result = await agent.run(prompt)
        seen.append(
            [
                (p.content, p.metadata)
                for m in result.all_messages()
                for p in m.parts
                if isinstance(p, ToolReturnPart)
            ]
        )
        if bench.is_losing:
            await bench.hang()
        return result.output

    await bench.lose(work)
    await bench.run(work)
    assert seen[0] == seen[1] == [({"number": 1}, None), (42, {"private": True})]
    assert script.asked == 2


async def test_a_result_that_cannot_be_kept_is_not_told_as_a_failure(bench: Bench) -> None:
    script = Script([("refund", ORDER)])
    agent = supporter(script)

    @agent.tool_plain
    async def refund(order: str) -> Any:
        await bench.effect("refund")
        return object()

    await bench.run(working(agent))
    assert script.told["c00"].startswith("refund completed, but its result could not be kept.")
    assert (await bench.statuses())["model#1/0:c00"] == "value_lost"


async def test_errors_of_the_model_are_the_same_on_a_replay_and_quote_nothing(bench: Bench) -> None:
    seen: list[tuple[type, int, str]] = []

    def fail(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ModelHTTPError(429, "m", body={"prompt": "secret"})

    agent = Agent(FunctionModel(fail), name="a", capabilities=[JournalDurability()])

    async def work(turn: Turn, prompt: str) -> Any:
        try:
            await agent.run(prompt)
        except ModelHTTPError as error:
            seen.append((type(error), error.status_code, str(error)))
        if bench.is_losing:
            await bench.hang()

    await bench.lose(work)
    await bench.run(work)
    assert seen[0] == seen[1]
    assert seen[0][1] == 429
    assert "secret" not in seen[0][2]


async def test_another_conversation_is_a_divergence(bench: Bench) -> None:
    prompts = iter(["go", "stop"])

    async def work(turn: Turn, prompt: str) -> Any:
        agent = supporter(Script([("refund", ORDER)]))

        @agent.tool_plain
        async def refund(order: str) -> str:
            await bench.effect("refund", hang=True)
            return "refunded"

        return (await agent.run(next(prompts))).output

    await bench.lose(work)
    with pytest.raises(TurnBlocked):
        await bench.run(work)
    assert bench.ran == ["refund"]


async def test_instructions_may_change(bench: Bench) -> None:
    days = iter(["Monday", "Tuesday"])

    async def work(turn: Turn, prompt: str) -> Any:
        script = Script([("lookup", ORDER)])
        day = next(days)
        agent = supporter(script, instructions=day, system_prompt=day)

        @agent.tool_plain
        @safe
        async def lookup(order: str) -> str:
            await bench.effect("lookup", hang=True)
            return "found"

        return (await agent.run(prompt)).output

    await bench.lose(work)
    assert await bench.run(work) == "done"


async def test_ids_that_come_again_in_every_reply_are_other_calls(bench: Bench) -> None:
    """Weak providers number anew."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        done = sum(message.kind == "response" for message in messages)
        if done == 2:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("add", {"n": 2 * done + n}, f"call_{n}") for n in range(2)])

    agent = Agent(FunctionModel(answer), name="a", capabilities=[JournalDurability()])

    @agent.tool_plain
    @safe
    async def add(n: int) -> int:
        await bench.effect(f"add {n}", hang=n == 3)
        return n

    await bench.lose(working(agent))
    assert await bench.run(working(agent)) == "done"
    assert sorted(bench.ran) == ["add 0", "add 1", "add 2", "add 3", "add 3"]


async def test_an_agent_in_a_tool_is_part_of_the_tool(bench: Bench) -> None:
    inner, outer = Script(), Script([("ask", {})])
    clerk, agent = supporter(inner), supporter(outer)

    @agent.tool_plain
    @safe
    async def ask() -> str:
        return (await clerk.run("go")).output

    assert await bench.run(working(agent)) == "done"
    assert list(await bench.calls()) == ["model#1", "model#1/0:c00", "model#2"]
    assert outer.told == {"c00": "done"}


async def test_a_tool_that_opts_out_runs_in_the_handler_and_its_agents_are_recorded(bench: Bench) -> None:
    inner, outer = Script([("refund", ORDER)]), Script([("ask", {}), ("ask", {})])
    clerk, agent = supporter(inner), supporter(outer)

    @clerk.tool_plain
    async def refund(order: str) -> str:
        await bench.effect("refund", hang=len(bench.ran) == 1)
        return "refunded"

    @agent.tool_plain(metadata={"journal": False})
    async def ask() -> str:
        return (await clerk.run("go")).output

    await bench.lose(working(agent))
    assert await bench.run(working(agent)) == "done"
    assert bench.ran == ["refund"] * 2
    calls = set(await bench.calls())
    assert {"model#1", "model#1/0:c00/model#1", "model#1/1:c01/model#1/0:c00", "model#2"} <= calls


async def test_agents_at_once_keep_to_their_own(bench: Bench) -> None:
    scripts = [Script([("lookup", {"order": str(n)})]) for n in range(3)]
    agents = [supporter(script) for script in scripts]
    for agent in agents:

        @agent.tool_plain
        @safe
        async def lookup(order: str) -> str:
            await bench.effect(f"lookup {order}", hang=order == "2")
            return f"order {order}"

    async def work(turn: Turn, prompt: str) -> Any:
        return [result.output for result in await asyncio.gather(*(agent.run(prompt) for agent in agents))]

    await bench.lose(work)
    assert await bench.run(work) == ["done"] * 3
    assert [script.told["c00"] for script in scripts] == ["order 0", "order 1", "order 2"]
    assert sorted(bench.ran).count("lookup 2") == 2


async def test_ids_of_a_run_are_the_same_on_a_replay(bench: Bench) -> None:
    script, seen = Script(), []
    agent = supporter(script)

    async def work(turn: Turn, prompt: str) -> Any:
        for _ in range(2):
            result = await agent.run(prompt, timeout=600)
            seen.append((result.run_id, result.conversation_id))
        if bench.is_losing:
            await bench.hang()

    await bench.lose(work)
    await bench.run(work)
    assert seen[:2] == seen[2:]
    assert len(set(seen)) == 2
    assert script.asked == 2


async def test_toolsets_that_come_with_the_run_are_refused(bench: Bench) -> None:
    agent = supporter(Script())
    toolset: FunctionToolset[None] = FunctionToolset(id="late")

    async def work(turn: Turn, prompt: str) -> Any:
        with pytest.raises(UserError, match="cannot be added at runtime"):
            await agent.run(prompt, toolsets=[toolset])

    await bench.run(work)


async def test_what_is_replayed_is_not_told_to_telemetry_again(bench: Bench) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    script = Script([("lookup", ORDER)])
    settings = InstrumentationSettings(tracer_provider=provider)
    agent = Agent(
        script.model, name="support", capabilities=[JournalDurability(), Instrumentation(settings=settings)]
    )

    @agent.tool_plain
    async def lookup(order: str) -> str:
        return "found"

    async def work(turn: Turn, prompt: str) -> Any:
        result = await agent.run(prompt)
        if bench.is_losing:
            await bench.hang()
        return result.usage.requests

    def spans() -> list[str]:
        names = [span.name.split()[0] for span in exporter.get_finished_spans()]
        return sorted(name for name in names if name in ("chat", "execute_tool"))

    await bench.lose(work)
    assert spans() == ["chat", "chat", "execute_tool"]
    assert await bench.run(work) == 2  # usage of the run: counted, not paid again
    assert spans() == ["chat", "chat", "execute_tool"]
    assert script.asked == 2


async def test_text_of_a_stream_reaches_whoever_watches_the_run(bench: Bench) -> None:
    agent = supporter(Script())

    async def work(turn: Turn, prompt: str) -> Any:
        async with agent.run_stream(prompt) as result:
            return await result.get_output()

    journal, served = bench.journal(work)
    async with journal:
        handle = await served.submit("go", run_id="r")
        working = asyncio.create_task(served.run("go", run_id="r"))
        shown = [event.data["delta"] async for event in handle.events() if event.type == "delta"]
        assert await working == "done"
    assert "".join(shown) == "done"


@pytest.mark.parametrize("is_declared", [False, True])
async def test_a_call_in_which_the_provider_acts_is_not_sent_twice(bench: Bench, is_declared: bool) -> None:
    asked: list[str] = []

    class Searching(TestModel):
        @classmethod
        def supported_native_tools(cls) -> frozenset[type[Any]]:
            return frozenset({WebSearchTool})

        async def request(self, *given: Any, **options: Any) -> ModelResponse:
            asked.append("model")
            if bench.is_losing:
                await bench.hang()
            return ModelResponse(parts=[TextPart("found")])

    agent = Agent(Searching(), name="a", capabilities=[JournalDurability(), NativeTool(WebSearchTool())])
    tools: Any = {"web_search": "safe"} if is_declared else None
    await bench.lose(working(agent), tools=tools)
    if is_declared:
        assert await bench.run(working(agent), tools=tools) == "found"
        assert len(asked) == 2
    else:
        with pytest.raises(TurnFailed, match="OutcomeUnknown"):
            await bench.run(working(agent))
        assert len(asked) == 1


async def test_the_test_model_works_too(bench: Bench) -> None:
    agent = Agent(TestModel(), name="t", capabilities=[JournalDurability()])

    @agent.tool
    async def look(ctx: RunContext[object], what: str) -> str:
        await bench.effect("look")
        return "seen"

    async def work(turn: Turn, prompt: str) -> Any:
        output = (await agent.run(prompt)).output
        if bench.is_losing:
            await bench.hang()
        return output

    await bench.lose(work)
    assert await bench.run(work) == '{"look":"seen"}'
    assert bench.ran == ["look"]


def test_an_agent_without_a_name_is_refused() -> None:
    with pytest.raises(UserError, match="unique `name`"):
        Agent(TestModel(), capabilities=[JournalDurability()])

"""Calls in which the provider itself acts, tools that the adapter does not cover, approvals and guardrails."""

import asyncio
from typing import Any

import pytest
from agents import (
    Agent,
    CodeInterpreterTool,
    GuardrailFunctionOutput,
    HostedMCPTool,
    InputGuardrailTripwireTriggered,
    LocalShellTool,
    RunHooks,
    RunState,
    ShellTool,
    Tool,
    WebSearchTool,
    function_tool,
    input_guardrail,
)
from agents.testing import ModelStep, assistant_message, function_call

from journal import OutcomeUnknown, Turn, TurnFailed, safe
from journal.adapters.openai_agents import DurableRunner, durable_agent
from tests.adapters.bench import Bench, CountingModel, outputs

pytestmark = pytest.mark.anyio


SERVER_SIDE = {
    "conversation": "conversation_id",
    "previous": "previous_response_id",
    "auto": "auto_previous_response_id",
}


def hosted(kind: str) -> list[Tool]:
    tools: dict[str, Tool] = {
        "web search": WebSearchTool(),
        "interpreter": CodeInterpreterTool(
            tool_config={"type": "code_interpreter", "container": {"type": "auto"}}
        ),
        "mcp": HostedMCPTool(
            tool_config={
                "type": "mcp",
                "server_label": "s",
                "server_url": "https://x",
                "require_approval": "never",
            }
        ),
        "shell": ShellTool(environment={"type": "container_auto"}),
    }
    return [tools[kind]] if kind in tools else []


async def _in_doubt(bench: Bench, kind: str, **options: Any) -> Any:
    """A model call in doubt: what the handler sees of it on the next attempt."""

    async def answer(_: Any) -> Any:
        await bench.effect("model", hang=True)
        return [assistant_message("done")]

    model = CountingModel([ModelStep.respond(answer), ModelStep.respond(answer)])
    arguments: dict[str, Any] = {}
    if kind in SERVER_SIDE:
        arguments = {SERVER_SIDE[kind]: True if kind == "auto" else "id_1"}
    agent = Agent(name="a", tools=hosted(kind), model=model)
    if kind == "prompt":
        agent.prompt = {"id": "pmpt_1"}

    async def work(turn: Turn, prompt: str) -> Any:
        try:
            return (await DurableRunner.run(agent, prompt, **arguments)).final_output
        except OutcomeUnknown as error:
            return error.name

    await bench.lose(work, **options)
    return await bench.run(work, **options)


@pytest.mark.parametrize(
    "kind", ["web search", "interpreter", "mcp", "shell", "conversation", "previous", "auto", "prompt"]
)
async def test_a_call_in_which_the_provider_acts_is_not_sent_again(bench: Bench, kind: str) -> None:
    assert await _in_doubt(bench, kind) == "a"
    assert bench.ran == ["model"]
    assert await bench.statuses() == {"model#1": "unknown"}


async def test_doubt_inside_an_agent_used_as_a_tool_is_told_to_the_outer_model(bench: Bench) -> None:
    async def answer(_: Any) -> Any:
        await bench.effect("model", hang=True)
        return [assistant_message("done")]

    inner = Agent(name="inner", tools=hosted("web search"), model=CountingModel([ModelStep.respond(answer)]))
    model = CountingModel([[function_call("ask", {"input": "x"}, call_id="o1")], [assistant_message("done")]])
    outer = Agent(name="outer", tools=[inner.as_tool("ask", "asks")], model=model)

    async def work(turn: Turn, prompt: str) -> Any:
        return outputs(await DurableRunner.run(outer, prompt))

    await bench.lose(work)
    found = await bench.run(work)
    assert found["o1"].startswith("ask was started before an interruption")
    assert bench.ran == ["model"]


async def test_a_hosted_tool_that_is_declared_safe_lets_it_be_sent_again(bench: Bench) -> None:
    assert await _in_doubt(bench, "web search", tools={"web_search": "safe"}) == "done"
    assert bench.ran == ["model", "model"]


@pytest.mark.parametrize("tool", [LocalShellTool(executor=lambda _: ""), ShellTool(executor=lambda _: "")])
async def test_what_would_run_here_unrecorded_is_refused(bench: Bench, tool: Tool) -> None:
    model = CountingModel()

    async def work(turn: Turn, prompt: str) -> Any:
        await DurableRunner.run(Agent(name="a", tools=[tool], model=model), prompt)

    with pytest.raises(TurnFailed) as failed:
        await bench.run(work)
    assert failed.value.type.endswith("InvalidOptions")
    assert model.asked == 0


@pytest.mark.parametrize("is_stored", [False, True])
async def test_approvals_come_back_as_interruptions_and_resume(bench: Bench, is_stored: bool) -> None:
    @safe
    @function_tool(needs_approval=True)
    async def pay(amount: int) -> str:
        await bench.effect("pay", hang=True)
        return "paid"

    model = CountingModel([[function_call("pay", {"amount": 5}, call_id="c1")], [assistant_message("done")]])
    agent = Agent(name="a", tools=[pay], model=model)

    async def work(turn: Turn, prompt: str) -> Any:
        result = await DurableRunner.run(agent, prompt)
        assert [item.name for item in result.interruptions] == ["pay"]
        state = result.to_state()
        if is_stored:
            state = await RunState.from_string(durable_agent(agent), state.to_string())
        for item in state.get_interruptions():
            state.approve(item)
        resumed = await DurableRunner.run(agent, state)
        return [resumed.final_output, outputs(resumed)["c1"]]

    await bench.lose(work)
    assert await bench.run(work) == ["done", "paid"]
    assert (model.asked, bench.ran) == (2, ["pay", "pay"])
    assert list(await bench.calls()) == ["model#1", "model#1/0:c1", "model#2"]


async def test_a_state_with_plain_agents_is_refused(bench: Bench) -> None:
    model = CountingModel([[function_call("pay", {"amount": 5}, call_id="c1")]])

    @function_tool(needs_approval=True)
    async def pay(amount: int) -> str:
        raise AssertionError("never reached")

    agent = Agent(name="a", tools=[pay], model=model)

    async def work(turn: Turn, prompt: str) -> Any:
        state = (await DurableRunner.run(agent, prompt)).to_state()
        state = await RunState.from_string(agent, state.to_string())
        state.approve(state.get_interruptions()[0])
        await DurableRunner.run(agent, state)

    with pytest.raises(TurnFailed) as failed:
        await bench.run(work)
    assert failed.value.type.endswith("InvalidOptions")


async def test_a_guardrail_may_ask_a_model_of_its_own(bench: Bench) -> None:
    judge = CountingModel([[assistant_message("fine")]])
    model = CountingModel([[function_call("look", {}, call_id="c1")], [assistant_message("done")]])

    @safe
    @function_tool
    async def look() -> str:
        await bench.effect("look", hang=True)
        return "found"

    @input_guardrail
    async def check(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        verdict = await DurableRunner.run(Agent(name="judge", model=judge), "ok?")
        return GuardrailFunctionOutput(output_info=verdict.final_output, tripwire_triggered=False)

    async def work(turn: Turn, prompt: str) -> Any:
        agent = Agent(name="a", tools=[look], model=model, input_guardrails=[check])
        return (await DurableRunner.run(agent, prompt)).final_output

    await bench.lose(work)
    assert await bench.run(work) == "done"
    assert (judge.asked, model.asked) == (1, 2)


async def test_a_tripped_guardrail_trips_again_on_a_replay(bench: Bench) -> None:
    model = CountingModel([[assistant_message("done")]])

    @input_guardrail(run_in_parallel=False)
    async def check(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    async def work(turn: Turn, prompt: str) -> Any:
        try:
            await DurableRunner.run(Agent(name="a", model=model, input_guardrails=[check]), prompt)
        except InputGuardrailTripwireTriggered:
            if bench.is_losing:
                await bench.hang()
            return "tripped"

    await bench.lose(work)
    assert await bench.run(work) == "tripped"
    assert model.asked == 0


async def test_a_guardrail_that_cut_a_model_call_short_does_so_again(bench: Bench) -> None:
    asked = asyncio.Event()

    async def answer(_: Any) -> Any:
        bench.ran.append("model")
        asked.set()
        await asyncio.Event().wait()

    class Hooks(RunHooks[Any]):
        async def on_llm_start(self, *_: Any) -> None:
            if not bench.is_losing:
                asyncio.get_running_loop().call_later(0.05, asked.set)

    @input_guardrail
    async def check(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        asked.clear()
        await asked.wait()
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    model = CountingModel([ModelStep.respond(answer)])

    async def work(turn: Turn, prompt: str) -> Any:
        try:
            await DurableRunner.run(
                Agent(name="a", model=model, input_guardrails=[check]), prompt, hooks=Hooks()
            )
        except InputGuardrailTripwireTriggered:
            if bench.is_losing:
                await bench.hang()
            return "tripped"

    await bench.lose(work)
    assert await bench.statuses() == {"model#1": "cancelled"}
    assert await bench.run(work) == "tripped"
    assert bench.ran == ["model"]

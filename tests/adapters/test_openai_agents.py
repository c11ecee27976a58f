"""DurableRunner with the real SDK: runs, policies, words for the model, parallel tools, handoffs, nesting."""

import asyncio
import copy
from typing import Any

import pytest
from agents import Agent, FunctionTool, RunConfig, RunContextWrapper, function_tool, handoff
from agents.models.interface import Model, ModelProvider
from agents.testing import assistant_message, function_call
from pydantic import BaseModel

from journal import Journal, NotInTurn, Ran, Turn, TurnBlocked, TurnFailed, io, never, safe
from journal.adapters.openai_agents import DurableRunner
from journal.core.errors import DidNotHappen
from tests.adapters.bench import Bench, CountingModel, outputs

pytestmark = pytest.mark.anyio

UNKNOWN = "was started before an interruption and may have completed. It was not repeated."


def refunds(bench: Bench, description: str | None = None) -> FunctionTool:
    @function_tool(description_override=description)
    async def refund(order: str) -> str:
        await bench.effect(f"refund {order}", hang=True)
        return f"refunded {order}"

    return refund


def lookups(bench: Bench) -> FunctionTool:
    @function_tool
    async def lookup(order: str) -> str:
        await bench.effect(f"lookup {order}")
        return f"order {order}"

    return lookup


def asks(name: str, call_id: str = "c1", **arguments: Any) -> Any:
    return function_call(name, arguments, call_id=call_id)


async def test_outside_of_a_turn_it_refuses() -> None:
    agent = Agent(name="a", model=CountingModel())
    with pytest.raises(NotInTurn):
        await DurableRunner.run(agent, "go")
    with pytest.raises(NotInTurn):
        DurableRunner.run_streamed(agent, "go")


async def test_a_finished_run_is_not_run_again(bench: Bench) -> None:
    model = CountingModel([[asks("lookup", order="42")], [assistant_message("done")]])
    agent = Agent(name="support", tools=[lookups(bench)], model=model)

    async def work(turn: Turn, prompt: str) -> Any:
        return (await DurableRunner.run(agent, prompt)).final_output

    assert [await bench.run(work) for _ in range(2)] == ["done", "done"]
    assert (model.asked, bench.ran) == (2, ["lookup 42"])
    calls = await bench.calls()
    assert list(calls) == ["model#1", "model#1/0:c1", "model#2"]
    assert calls["model#1"].intents[0].name == "support"
    assert calls["model#1/0:c1"].value == "order 42"


async def test_what_was_given_is_not_changed(bench: Bench) -> None:
    model = CountingModel([[assistant_message("done")]])
    tool = lookups(bench)
    other = Agent(name="other", model=model)
    agent = Agent(name="support", tools=[tool], model=model, handoffs=[other])
    before, invoke = copy.copy(vars(agent)), tool.on_invoke_tool

    async def work(turn: Turn, prompt: str) -> Any:
        return (await DurableRunner.run(agent, prompt)).final_output

    await bench.run(work)
    assert type(agent) is Agent
    assert vars(agent) == before
    assert (agent.model, agent.handoffs, agent.tools) == (model, [other], [tool])
    assert tool.on_invoke_tool is invoke


async def test_a_crash_in_the_middle_is_carried_on(bench: Bench) -> None:
    """The first replies and tools are served; the safe tool in doubt runs again; the end is the same."""
    model = CountingModel(
        [[asks("lookup", order="42")], [asks("refund", "c2", order="42")], [assistant_message("done")]]
    )
    agent = Agent(name="support", tools=[lookups(bench), safe(refunds(bench))], model=model)

    async def work(turn: Turn, prompt: str) -> Any:
        result = await DurableRunner.run(agent, prompt)
        return [result.final_output, len(result.raw_responses), outputs(result)]

    await bench.lose(work)
    assert model.asked == 2
    expected = ["done", 3, {"c1": "order 42", "c2": "refunded 42"}]
    assert await bench.run(work) == expected
    assert bench.ran == ["lookup 42", "refund 42", "refund 42"]
    assert model.asked == 3
    assert [len(c.intents) for c in (await bench.calls()).values()] == [1, 1, 1, 2, 1]


async def test_a_never_tool_in_doubt_is_not_repeated_and_the_model_is_told(bench: Bench) -> None:
    model = CountingModel([[asks("refund", order="42")], [assistant_message("I will check")]])
    agent = Agent(name="support", tools=[never(refunds(bench))], model=model)

    async def work(turn: Turn, prompt: str) -> Any:
        return outputs(await DurableRunner.run(agent, prompt))

    await bench.lose(work)
    told = (await bench.run(work))["c1"]
    assert told.startswith(f"refund {UNKNOWN}")
    assert bench.ran == ["refund 42"]
    sent = model.calls[-1].input[-1]
    assert (sent["type"], sent["output"]) == ("function_call_output", told)
    assert (await bench.statuses())["model#1/0:c1"] == "unknown"


async def test_a_probe_settles_a_never_tool(bench: Bench) -> None:
    asked: list[Any] = []

    async def probe(given: Any, io: Any) -> Ran:
        asked.append((given, len(io.idempotency_key)))
        return Ran("refunded before")

    model = CountingModel([[asks("refund", order="42")], [assistant_message("done")]])
    agent = Agent(name="support", tools=[never(refunds(bench), probe=probe)], model=model)

    async def work(turn: Turn, prompt: str) -> Any:
        return outputs(await DurableRunner.run(agent, prompt))

    await bench.lose(work)
    assert await bench.run(work) == {"c1": "refunded before"}
    assert asked == [({"order": "42"}, 32)]
    assert bench.ran == ["refund 42"]


async def test_a_model_call_in_doubt_is_sent_again(bench: Bench) -> None:
    async def answer(_: Any) -> Any:
        await bench.effect("model", hang=True)
        return [assistant_message("done")]

    model = CountingModel([answer_step(answer), answer_step(answer)])
    agent = Agent(name="support", model=model)

    async def work(turn: Turn, prompt: str) -> Any:
        return (await DurableRunner.run(agent, prompt)).final_output

    await bench.lose(work)
    assert await bench.run(work) == "done"
    assert bench.ran == ["model", "model"]
    call = (await bench.calls())["model#1"]
    assert [(i.number, i.policy) for i in call.intents] == [(1, "safe"), (2, "safe")]


def answer_step(responder: Any) -> Any:
    from agents.testing import ModelStep

    return ModelStep.respond(responder)


async def test_usage_is_recorded_as_counts(bench: Bench) -> None:
    from agents import Usage
    from agents.testing import ModelStep

    usage = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
    model = CountingModel([ModelStep(output=[assistant_message("done")], usage=usage)])

    async def work(turn: Turn, prompt: str) -> Any:
        result = await DurableRunner.run(Agent(name="a", model=model), prompt)
        return result.context_wrapper.usage.total_tokens

    assert await bench.run(work) == 15
    outcome = (await bench.calls())["model#1"].outcome
    assert outcome is not None
    assert outcome.usage == {"requests": 1, "input_tokens": 10, "output_tokens": 5, "total_tokens": 15}


class Provider(ModelProvider):
    """Models by name."""

    def __init__(self, **models: Model) -> None:
        self.models = models

    def get_model(self, model_name: str | None) -> Model:
        return self.models[str(model_name)]


@pytest.mark.parametrize("place", ["config instance", "config name", "agent instance", "agent name"])
async def test_a_model_is_recorded_wherever_it_comes_from(bench: Bench, place: str) -> None:
    model = CountingModel([[assistant_message("done")]])
    of_agent: Any = {"agent instance": model, "agent name": "m"}.get(place)
    of_config: Any = {"config instance": model, "config name": "m"}.get(place)
    config = RunConfig(model=of_config, model_provider=Provider(m=model))

    async def work(turn: Turn, prompt: str) -> Any:
        agent = Agent(name="a", model=of_agent)
        return (await DurableRunner.run(agent, prompt, run_config=config)).final_output

    assert await bench.run(work) == "done"
    assert await bench.statuses() == {"model#1": "ok"}
    assert type(config.model_provider) is Provider


async def test_parallel_tools_keep_their_keys(bench: Bench) -> None:
    """Both are under way when the process goes; each is settled by itself, whichever started first."""
    both = asyncio.Barrier(2)

    def waits(name: str) -> FunctionTool:
        async def act(ctx: Any, arguments: str) -> str:
            bench.ran.append(name)
            if bench.is_losing:
                await both.wait()
                await bench.hang()
            return name

        return FunctionTool(name=name, description="", params_json_schema={}, on_invoke_tool=act)

    model = CountingModel(
        [[asks("one", "x"), asks("two", "y"), asks("one", "z")], [assistant_message("done")]]
    )
    first, second = safe(waits("one")), never(waits("two"))

    async def work(turn: Turn, prompt: str) -> Any:
        agent = Agent(name="a", tools=[first, second], model=model)
        return outputs(await DurableRunner.run(agent, prompt))

    both = asyncio.Barrier(3)
    await bench.lose(work)
    found = await bench.run(work)
    assert {k: v for k, v in found.items() if k != "y"} == {"x": "one", "z": "one"}
    assert UNKNOWN in found["y"]
    assert sorted(bench.ran) == ["one"] * 4 + ["two"]
    assert set(await bench.statuses()) == {"model#1", "model#1/0:x", "model#1/1:y", "model#1/2:z", "model#2"}


async def test_a_handoff_leads_to_a_durable_agent(bench: Bench) -> None:
    model = CountingModel(
        [
            [asks("transfer_to_desk")],
            [asks("transfer_to_till", "c2")],
            [asks("refund", "c3", order="42")],
            [assistant_message("done")],
        ]
    )
    till = Agent(name="till", tools=[never(refunds(bench))], model=model)
    desk = Agent(name="desk", handoffs=[handoff(till)], model=model)
    front = Agent(name="front", handoffs=[desk], model=model)

    async def work(turn: Turn, prompt: str) -> Any:
        result = await DurableRunner.run(front, prompt)
        return [result.final_output, result.last_agent.name, outputs(result).get("c3")]

    await bench.lose(work)
    end = await bench.run(work)
    assert end[:2] == ["done", "till"]
    assert UNKNOWN in end[2]
    assert bench.ran == ["refund 42"]
    assert model.asked == 4
    assert [c.intents[0].name for c in (await bench.calls()).values()] == [
        "front", "desk", "till", "refund", "till",
    ]  # fmt: skip


async def test_handoffs_in_a_circle(bench: Bench) -> None:
    model = CountingModel(
        [[asks("transfer_to_b")], [asks("transfer_to_a", "c2")], [assistant_message("done")]]
    )
    a, b = Agent(name="a", model=model), Agent(name="b", model=model)
    a.handoffs, b.handoffs = [b], [a]

    async def work(turn: Turn, prompt: str) -> Any:
        result = await DurableRunner.run(a, prompt)
        return [result.final_output, result.last_agent.name]

    assert await bench.run(work) == ["done", "a"]


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_agent_as_a_tool_is_a_scope(bench: Bench, is_streamed: bool) -> None:
    """Its model instance is recorded as well, and a crash inside it is carried on inside it."""
    inner_model = CountingModel([[asks("refund", "i1", order="42")], [assistant_message("inner done")]])
    outer_model = CountingModel([[asks("ask", "o1", input="hi")], [assistant_message("done")]])
    inner = Agent(name="inner", tools=[never(refunds(bench))], model=inner_model)
    seen: list[str] = []
    tool = inner.as_tool(
        "ask", "asks", on_stream=(lambda event: seen.append(event["event"].type)) if is_streamed else None
    )
    outer = Agent(name="outer", tools=[tool], model=outer_model)

    async def work(turn: Turn, prompt: str) -> Any:
        result = await DurableRunner.run(outer, prompt)
        return [result.final_output, outputs(result)]

    await bench.lose(work)
    assert await bench.run(work) == ["done", {"o1": "inner done"}]
    assert bench.ran == ["refund 42"]
    assert (inner_model.asked, outer_model.asked) == (2, 2)
    assert await bench.statuses() == {
        "model#1": "ok",
        "model#1/0:o1/model#1": "ok",
        "model#1/0:o1/model#1/0:i1": "unknown",
        "model#1/0:o1/model#2": "ok",
        "model#2": "ok",
    }
    assert bool(seen) is is_streamed
    assert inner.model is inner_model


async def test_an_agent_asked_twice_at_once_counts_in_two_scopes(bench: Bench) -> None:
    model = CountingModel(
        [[asks("ask", "o1", input="a"), asks("ask", "o2", input="b")], [assistant_message("done")]]
    )
    provider = Provider(i=CountingModel([[assistant_message("x")], [assistant_message("x")]]))
    outer = Agent(name="outer", tools=[Agent(name="inner", model="i").as_tool("ask", "asks")], model=model)

    async def work(turn: Turn, prompt: str) -> Any:
        result = await DurableRunner.run(outer, prompt, run_config={"model_provider": provider})
        return result.final_output

    assert await bench.run(work) == "done"
    assert set(await bench.statuses()) == {
        "model#1",
        "model#1/0:o1/model#1",
        "model#1/1:o2/model#1",
        "model#2",
    }


async def test_runs_at_once_count_in_their_own_tasks(bench: Bench) -> None:
    models = [CountingModel([[asks("lookup", order=n)], [assistant_message(n)]]) for n in "ab"]
    tool = safe(lookups(bench))

    async def work(turn: Turn, prompt: str) -> Any:
        runs = (DurableRunner.run(Agent(name="x", tools=[tool], model=model), prompt) for model in models)
        return [result.final_output for result in await asyncio.gather(*runs)]

    assert await bench.run(work) == ["a", "b"]
    assert set(await bench.statuses()) == {
        "t1/model#1", "t1/model#1/0:c1", "t1/model#2", "t2/model#1", "t2/model#1/0:c1", "t2/model#2",
    }  # fmt: skip


async def test_a_second_run_in_the_handler_counts_on(bench: Bench) -> None:
    model = CountingModel([[assistant_message("one")], [assistant_message("two")]])

    async def work(turn: Turn, prompt: str) -> Any:
        agent = Agent(name="a", model=model)
        first = await DurableRunner.run(agent, prompt)
        second = await DurableRunner.run(
            first.last_agent, [*first.to_input_list(), {"role": "user", "content": "on"}]
        )
        return [first.final_output, second.final_output]

    assert await bench.run(work) == ["one", "two"]
    calls = await bench.calls()
    assert list(calls) == ["model#1", "model#2"]


# Policies ------------------------------------------------------------------------------------------


async def _policy(bench: Bench, tool: FunctionTool, **options: Any) -> str:
    model = CountingModel([[asks("refund", order="42")], [assistant_message("done")]])

    async def work(turn: Turn, prompt: str) -> Any:
        await DurableRunner.run(Agent(name="a", tools=[tool], model=model), prompt)

    await bench.run(work, **options)
    return (await bench.calls())["model#1/0:c1"].intents[0].policy


async def test_an_undeclared_tool_is_never(bench: Bench) -> None:
    safe(refunds(bench))  # another tool of that name
    assert await _policy(bench, refunds(bench)) == "never"


async def test_a_marker_speaks_for_a_tool(bench: Bench) -> None:
    assert await _policy(bench, safe(refunds(bench))) == "safe"


async def test_a_marker_on_the_function_speaks_too(bench: Bench) -> None:
    @function_tool
    @safe
    async def refund(order: str) -> str:
        return "done"

    assert await _policy(bench, refund) == "safe"


async def test_a_marker_survives_a_copy(bench: Bench) -> None:
    import dataclasses

    tool = safe(refunds(bench, "a tool of this test alone"))
    assert await _policy(bench, dataclasses.replace(tool)) == "safe"


async def test_the_journals_map_comes_before_a_marker(bench: Bench) -> None:
    assert await _policy(bench, safe(refunds(bench)), tools={"ref*": "never"}) == "never"


async def test_the_agents_map_comes_before_the_journals(bench: Bench) -> None:
    options: Any = {"tools": {"refund": "never"}, "by_agent": {"ref*": "safe"}}
    assert await _policy(bench, refunds(bench), **options) == "safe"


# What tools give -----------------------------------------------------------------------------------


async def _told(bench: Bench, tool: FunctionTool, **arguments: Any) -> str:
    """What the model is told, the same on the first run and on a replay."""
    model = CountingModel([[function_call(tool.name, arguments, call_id="c1")], [assistant_message("done")]])

    async def again(turn: Turn, prompt: str) -> Any:
        result = await DurableRunner.run(Agent(name="a", tools=[tool], model=model), prompt)
        if bench.is_losing:
            await bench.hang()
        return outputs(result)["c1"]

    first = CountingModel()
    await bench.lose(again)
    first = model
    told = await bench.run(again)
    assert first.asked == 2
    assert model.calls[-1].input[-1]["output"] == told or not isinstance(
        model.calls[-1].input[-1]["output"], str
    )
    return str(told)


async def test_the_models_word_for_a_failure_is_recorded_as_an_error(bench: Bench) -> None:
    ran: list[int] = []

    def words(ctx: Any, error: Exception) -> str:
        return f"sorry: {error}"

    @safe
    @function_tool(failure_error_function=words)
    async def breaks() -> str:
        ran.append(1)
        raise ValueError("no such order")

    assert await _told(bench, breaks) == "sorry: no such order"
    assert ran == [1]
    outcome = (await bench.calls())["model#1/0:c1"].outcome
    assert outcome is not None
    assert outcome.status == "error"


@pytest.mark.parametrize("error", [TimeoutError("late"), ConnectionResetError("gone")])
async def test_a_never_tool_that_broke_off_is_unknown(bench: Bench, error: Exception) -> None:
    @never
    @function_tool
    async def pay() -> str:
        try:
            raise error
        except OSError as cause:
            raise RuntimeError("payment failed") from cause

    assert UNKNOWN in await _told(bench, pay)
    assert (await bench.statuses())["model#1/0:c1"] == "unknown"


async def test_a_safe_tool_that_broke_off_failed(bench: Bench) -> None:
    @safe
    @function_tool
    async def fetch() -> str:
        raise TimeoutError("late")

    assert "error occurred" in await _told(bench, fetch)
    assert (await bench.statuses())["model#1/0:c1"] == "error"


async def test_did_not_happen_is_an_error_and_no_doubt(bench: Bench) -> None:
    @never
    @function_tool
    async def pay() -> str:
        raise DidNotHappen("card refused") from TimeoutError()

    assert "error occurred" in await _told(bench, pay)
    assert (await bench.statuses())["model#1/0:c1"] == "error"


async def test_a_timeout_of_a_safe_tool_is_the_sdks(bench: Bench) -> None:
    @safe
    @function_tool(timeout=0.01)
    async def slow() -> str:
        await asyncio.Event().wait()
        return ""

    assert await _told(bench, slow) == "Tool 'slow' timed out after 0.01 seconds."
    assert (await bench.statuses())["model#1/0:c1"] == "error"


async def test_a_timeout_of_a_never_tool_is_unknown(bench: Bench) -> None:
    @never
    @function_tool(timeout=0.01)
    async def slow() -> str:
        await asyncio.Event().wait()
        return ""

    assert UNKNOWN in await _told(bench, slow)


async def test_bad_arguments_are_the_models_to_mend(bench: Bench) -> None:
    @function_tool
    async def add(x: int) -> str:
        raise AssertionError("never reached")

    assert "error occurred" in await _told(bench, add, x="many")
    assert (await bench.statuses())["model#1/0:c1"] == "error"


async def test_a_tool_without_a_failure_function_fails_the_run(bench: Bench) -> None:
    @safe
    @function_tool(failure_error_function=None)
    async def breaks() -> str:
        raise ValueError("no such order")

    model = CountingModel([[asks("breaks")]])

    async def work(turn: Turn, prompt: str) -> Any:
        await DurableRunner.run(Agent(name="a", tools=[breaks], model=model), prompt)

    with pytest.raises(TurnFailed) as failed:
        await bench.run(work)
    assert failed.value.type.endswith("UserError")


class Order(BaseModel):
    id: str
    items: list[int]


async def test_results_come_back_as_they_were_declared(bench: Bench) -> None:
    @safe
    @function_tool
    async def order() -> Order:
        return Order(id="42", items=[1])

    model = CountingModel([[asks("order")]])
    seen: list[Any] = []

    async def work(turn: Turn, prompt: str) -> Any:
        agent = Agent(
            name="a", tools=[order], model=model, output_type=Order, tool_use_behavior="stop_on_first_tool"
        )
        result = await DurableRunner.run(agent, prompt)
        seen.append(result.final_output)
        if bench.is_losing:
            await bench.hang()
        return str(result.final_output)

    await bench.lose(work)
    await bench.run(work)
    assert seen == [Order(id="42", items=[1])] * 2


async def test_io_works_inside_a_tool_in_a_thread_too(bench: Bench) -> None:
    keys: list[str] = []

    @safe
    @function_tool
    def pay(ctx: RunContextWrapper[Any]) -> str:
        keys.append(io.idempotency_key)
        return "paid"

    assert await _told(bench, pay) == "paid"
    assert len(keys[0]) == 32


async def test_a_tool_that_nests_a_run_fails_the_turn_by_name(bench: Bench) -> None:
    model = CountingModel([[asks("nests")]])

    @safe
    @function_tool
    async def nests() -> str:
        await DurableRunner.run(Agent(name="b", model=model), "x")
        return ""

    async def work(turn: Turn, prompt: str) -> Any:
        await DurableRunner.run(Agent(name="a", tools=[nests], model=model), prompt)

    with pytest.raises(TurnFailed):
        await bench.run(work)
    assert model.asked == 1


# Changes of the code ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_in_doubt", [False, True])
async def test_a_tool_that_is_gone_has_a_stand_in(bench: Bench, is_in_doubt: bool) -> None:
    """What was recorded of it is served; in doubt it is unknown; never started, it is said to be gone."""
    model = CountingModel(
        [[asks("refund", order="42")], [asks("lookup", "c2", order="1")], [assistant_message("done")]]
    )

    @safe
    @function_tool
    async def lookup(order: str) -> str:
        await bench.effect("lookup", hang=not is_in_doubt)
        return "found"

    tool = safe(refunds(bench)) if is_in_doubt else safe(_refund_at_once(bench))
    tools = [tool, lookup]

    async def work(turn: Turn, prompt: str) -> Any:
        agent = Agent(name="a", tools=list(tools), model=model)
        return outputs(await DurableRunner.run(agent, prompt))

    await bench.lose(work)
    tools.remove(tool)
    found = await bench.run(work)
    assert (UNKNOWN in found["c1"]) if is_in_doubt else (found["c1"] == "refunded 42")
    assert found["c2"] == "found"
    assert bench.ran.count("refund 42") == 1
    assert all(
        shown.name != "refund" for call in model.calls[1 + (not is_in_doubt) :] for shown in call.tools
    )


def _refund_at_once(bench: Bench) -> FunctionTool:
    @function_tool
    async def refund(order: str) -> str:
        await bench.effect(f"refund {order}")
        return f"refunded {order}"

    return refund


async def test_other_instructions_are_drift_and_no_divergence(bench: Bench) -> None:
    model = CountingModel([[asks("refund", order="42")], [assistant_message("done")]])
    words = iter(["It is Monday.", *["It is Tuesday."] * 3])
    tool = safe(refunds(bench))

    async def work(turn: Turn, prompt: str) -> Any:
        agent = Agent(name="a", tools=[tool], model=model, instructions=lambda _, __: next(words))
        return (await DurableRunner.run(agent, prompt)).final_output

    await bench.lose(work)
    assert await bench.run(work) == "done"
    journal, _ = bench.journal(work)
    async with journal:
        noted = [record.key for record in await journal.read("r") if record.type == "observed"]
    assert [str(key).rpartition("@")[2] for key in noted] == ["drift"]


async def test_an_agent_may_refuse_drift(bench: Bench) -> None:
    model = CountingModel([[asks("refund", order="42")], [assistant_message("done")]])
    words = iter(["It is Monday.", *["It is Tuesday."] * 3])
    tool = safe(refunds(bench))

    async def work(turn: Turn, prompt: str) -> Any:
        agent = Agent(name="a", tools=[tool], model=model, instructions=lambda _, __: next(words))
        return (await DurableRunner.run(agent, prompt)).final_output

    await bench.lose(work)
    journal, agent = bench.journal(work)
    agent.drift = "refuse"
    async with journal:
        with pytest.raises(TurnBlocked, match="made with another configuration"):
            await agent.run("go", run_id="r")
    assert model.asked == 1


async def test_another_prompt_diverges(bench: Bench) -> None:
    model = CountingModel([[asks("refund", order="42")], [assistant_message("done")]])
    prompts = iter(["one", "two"])
    tool = safe(refunds(bench))

    async def work(turn: Turn, prompt: str) -> Any:
        return (
            await DurableRunner.run(Agent(name="a", tools=[tool], model=model), next(prompts))
        ).final_output

    await bench.lose(work)
    with pytest.raises(TurnBlocked) as blocked:
        await bench.run(work)
    assert blocked.value.reason == "divergence"
    assert model.asked == 1


async def test_a_failed_model_call_can_be_retried(bench: Bench) -> None:
    """The error that escaped is set aside by `retry`, although the SDK passed it through many hands."""
    model = CountingModel([RuntimeError("provider down"), [assistant_message("done")]])

    async def work(turn: Turn, prompt: str) -> Any:
        return (await DurableRunner.run(Agent(name="a", model=model), prompt)).final_output

    with pytest.raises(TurnFailed):
        await bench.run(work)
    journal, agent = bench.journal(work)
    async with journal:
        await journal.retry("r")
        assert await agent.run("go", run_id="r") == "done"


async def test_journal_is_importable_without_the_sdk() -> None:
    assert isinstance(Journal("memory:"), Journal)

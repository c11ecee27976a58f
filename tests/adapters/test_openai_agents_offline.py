"""Runs of the SDK replayed offline: no model is asked, no tool runs, and drift is told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from agents import Agent, ModelProvider, RunConfig, function_tool
from agents.models.interface import Model
from agents.testing import assistant_message, function_call

from journal import Turn
from journal.adapters.openai_agents import DurableRunner
from journal.engine.in_flight import InFlight, in_flight
from tests.adapters.bench import Bench, CountingModel, Handler
from tests.adapters.test_openai_agents_mcp import in_process

pytestmark = pytest.mark.anyio

REPLIES = [
    [
        function_call("lookup", {"order": "42"}, call_id="c1"),
        function_call("refund", {"order": "42"}, call_id="c2"),
    ],
    [assistant_message("done")],
]


class NoProvider(ModelProvider):
    """As without a key: whoever wants a model gets an error."""

    def get_model(self, model_name: str | None) -> Model:
        raise RuntimeError("no key")


def support(
    bench: Bench, *, instructions: str = "Help.", model: CountingModel | None = None, tools: int = 2
) -> Handler:
    @function_tool
    async def lookup(order: str) -> str:
        await bench.effect(f"lookup {order}")
        return f"order {order}"

    @function_tool
    async def refund(order: str) -> str:
        await bench.effect(f"refund {order}", hang=True)
        return f"refunded {order}"

    chosen: list[Any] = [lookup, refund][:tools]
    agent = Agent(name="support", instructions=instructions, tools=chosen, model=model or "scripted")
    config = RunConfig(model_provider=NoProvider())

    async def work(turn: Turn, prompt: str) -> Any:
        return (await DurableRunner.run(agent, prompt, run_config=config)).final_output

    return work


async def looked_at(bench: Bench, handler: Handler, **options: Any) -> InFlight:
    journal, work = bench.journal(handler, tools={"lookup": "safe"})
    for name, value in options.items():
        setattr(work, name, value)
    async with journal.open_world() as world:
        (found,) = [one async for one in in_flight(journal, world)]
    return found


async def test_a_run_replays_with_a_model_that_is_not_there(bench: Bench) -> None:
    model = CountingModel(REPLIES)
    assert await bench.run(support(bench, model=model)) == "done"
    assert (model.asked, bench.ran) == (2, ["lookup 42", "refund 42"])
    again = CountingModel([])
    for handler in (support(bench, model=again), support(bench)):
        found = await bench.replayed(handler)
        assert (found.verdict, len(found.calls)) == ("same", 4)
    assert (again.asked, len(bench.ran)) == (0, 2)


async def test_an_interrupted_run_is_looked_at_before_a_deploy(bench: Bench) -> None:
    model = CountingModel(REPLIES)
    await bench.lose(support(bench, model=model))
    before = await bench.statuses()
    bench.ran.clear()
    now = CountingModel([])

    same = await looked_at(bench, support(bench, model=now))
    assert same.replay is not None
    assert [(call.key, call.then) for call in same.replay.at] == [("model#1/1:c2", "unknown")]
    assert (same.is_stranded, same.replay.drifted) == (False, [])

    changed = support(bench, model=now, instructions="Help more.")
    drifted = await looked_at(bench, changed)
    assert drifted.replay is not None
    assert (drifted.is_stranded, [call.key for call in drifted.replay.drifted]) == (False, ["model#1"])
    refused = await looked_at(bench, changed, drift="refuse")
    assert refused.replay is not None
    assert (refused.is_stranded, refused.replay.verdict) == (True, "diverged")
    assert "refuses drift" in refused.replay.detail

    gone = await looked_at(bench, support(bench, model=now, tools=1))
    assert gone.replay is not None
    assert (gone.is_stranded, [call.then for call in gone.replay.at]) == (False, ["unknown"])

    assert (now.asked, bench.ran) == (0, [])
    assert await bench.statuses() == before


async def test_a_server_of_the_resources_is_not_missed(bench: Bench) -> None:
    model = CountingModel(REPLIES)

    @asynccontextmanager
    async def resources() -> AsyncIterator[Any]:
        async with in_process(bench) as server:
            yield server

    async def work(turn: Turn, prompt: str) -> Any:
        agent = Agent(name="support", mcp_servers=[turn.deps], model=model)
        return (await DurableRunner.run(agent, prompt)).final_output

    assert await bench.run(work, resources=resources) == "done"
    assert bench.ran == ["lookup", "refund"]
    found = await bench.replayed(work)
    assert (found.verdict, len(found.calls), found.drifted) == ("same", 4, [])
    assert (model.asked, bench.ran) == (2, ["lookup", "refund"])

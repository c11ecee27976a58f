"""LangGraph in a turn: calls are told apart, whatever ids the model gives, and whatever runs again."""

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import RetryPolicy

from journal import Turn, never, safe
from journal.adapters.langgraph import DurableCalls, JournalSaver, durable
from tests.adapters.bench import Bench
from tests.adapters.langgraph_model import GO, Scripted, agent, asks, last, said, saver_in

pytestmark = pytest.mark.anyio


async def test_ids_that_a_model_gives_again_and_again(bench: Bench) -> None:
    model = Scripted(says=[*[asks(("add", {"n": n}, "call_0")) for n in range(3)], AIMessage("done")])

    @tool
    @never
    async def add(n: int) -> str:
        """Add."""
        await bench.effect(f"add {n}", hang=n == 2)
        return str(n)

    async def work(turn: Turn, prompt: str) -> list[str]:
        result = await agent(turn, model, [add]).ainvoke(GO)
        return [str(message.content) for message in result["messages"] if isinstance(message, ToolMessage)]

    await bench.lose(work)
    results = await bench.run(work)
    assert results[:2] == ["0", "1"]
    assert results[2].startswith("add was started")
    assert bench.ran == ["add 0", "add 1", "add 2"]


async def test_a_checkpoint_that_did_not_get_written_repeats_nothing(bench: Bench) -> None:
    """Checkpoints are written behind the graph's back; the calls of later steps are in the log before them."""

    class Late(JournalSaver):
        puts = 0

        async def aput(self, *args: Any) -> Any:
            Late.puts += 1
            if bench.is_losing and Late.puts > 2:  # the input's and the first step's come through
                await asyncio.Event().wait()
            return await super().aput(*args)

        async def aput_writes(self, *args: Any) -> None:
            if bench.is_losing:
                await asyncio.Event().wait()
            await super().aput_writes(*args)

    model = Scripted(says=[asks(("refund", {"n": 1}, "c")), asks(("refund", {"n": 2}, "c")), last])

    @tool
    @never
    async def refund(n: int) -> str:
        """Refund."""
        await bench.effect(f"refund {n}", hang=n == 2)
        return f"refunded {n}"

    async def work(turn: Turn, prompt: str) -> str:
        saver = Late(turn._attempt.agent.journal)
        graph = create_agent(model, [refund], middleware=[DurableCalls()], checkpointer=saver)
        return said(await durable(graph).ainvoke(GO))

    await bench.lose(work)
    assert "may have completed" in await bench.run(work)
    assert bench.ran == ["refund 1", "refund 2"]
    assert len(model.asked) == 3


async def test_a_recorded_sibling_of_a_call_in_doubt_is_served(bench: Bench) -> None:
    """Its write did not get into the thread, so its task runs again."""

    class Late(JournalSaver):
        async def aput_writes(self, *args: Any) -> None:
            if bench.is_losing:
                await asyncio.Event().wait()
            await super().aput_writes(*args)

    model = Scripted(says=[asks(("look", {}, "c1"), ("refund", {}, "c2")), AIMessage("done")])

    @tool
    @safe
    async def look() -> str:
        """Look."""
        bench.ran.append("look")
        return "found"

    @tool
    @never
    async def refund() -> str:
        """Refund."""
        await bench.after("graph#1/model@1/model/0:c1")
        await bench.effect("refund", hang=True)
        return "refunded"

    async def work(turn: Turn, prompt: str) -> list[str]:
        saver = Late(turn._attempt.agent.journal)
        graph = create_agent(model, [look, refund], middleware=[DurableCalls()], checkpointer=saver)
        result = await durable(graph).ainvoke(GO)
        return [str(m.content)[:18] for m in result["messages"] if isinstance(m, ToolMessage)]

    await bench.lose(work)
    assert await bench.run(work) == ["found", "refund was started"]
    assert bench.ran == ["look", "refund"]


async def test_agents_as_nodes_in_parallel(bench: Bench) -> None:
    """Each inner call is recorded by itself: a crash inside one agent repeats neither it nor its neighbour."""

    @tool
    @never
    async def pay(who: str) -> str:
        """Pay."""
        if who == "b":
            await bench.after("graph#1/a@1/model@3/model")
        await bench.effect(f"pay {who}", hang=who == "b")
        return f"paid {who}"

    models = {who: Scripted(says=[asks(("pay", {"who": who}, "c")), last]) for who in "ab"}

    async def work(turn: Turn, prompt: str) -> list[str]:
        graph = StateGraph(MessagesState)
        for who in "ab":
            graph.add_node(who, create_agent(models[who], [pay], middleware=[DurableCalls()]))
            graph.add_edge(START, who)
        compiled = durable(graph.compile(checkpointer=saver_in(turn)))
        result = await compiled.ainvoke(GO)
        return sorted({str(m.content) for m in result["messages"] if isinstance(m, ToolMessage)})

    await bench.lose(work)
    assert [text[:20] for text in await bench.run(work)] == ["paid a", "pay was started befo"]
    assert sorted(bench.ran) == ["pay a", "pay b"]
    assert [len(model.asked) for model in models.values()] == [2, 2]
    assert {key for key in await bench.calls() if "pay" not in key} >= {
        "graph#1/a@1/model@1/model",
        "graph#1/b@1/model@1/model/0:c",
    }


async def test_a_retry_within_the_attempt_is_a_call_of_its_own(bench: Bench) -> None:
    model = Scripted(says=[asks(("flaky", {}, "c1")), last])

    @tool
    @safe
    async def flaky() -> str:
        """Flaky."""
        bench.ran.append("flaky")
        if len(bench.ran) == 1:
            raise ValueError("not now")
        return "fine"

    async def work(turn: Turn, prompt: str) -> str:
        retry = ToolRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False)
        result = await agent(turn, model, [flaky], middleware=[retry]).ainvoke(GO)
        if bench.is_losing:
            await bench.hang()
        return said(result)

    await bench.lose(work)
    assert await bench.run(work) == "fine"
    assert bench.ran == ["flaky", "flaky"]
    statuses = await bench.statuses()
    assert statuses["graph#1/model@1/model/0:c1"] == "error"
    assert statuses["graph#1/model@1/model/0:c1~2"] == "ok"


async def test_a_task_that_is_tried_again_repeats_what_failed_and_nothing_else(bench: Bench) -> None:
    model = Scripted(says=[asks(("pay", {}, "c1"), ("flaky", {}, "c2")), AIMessage("done")])

    @tool
    @never
    async def pay() -> str:
        """Pay."""
        bench.ran.append("pay")
        return "paid"

    @tool
    @safe
    async def flaky() -> str:
        """Flaky."""
        bench.ran.append("flaky")
        if bench.ran.count("flaky") < 3:
            raise ValueError("not now")
        return "fine"

    async def work(turn: Turn, prompt: str) -> list[str]:
        calls = DurableCalls()
        graph = StateGraph(MessagesState)
        graph.add_node("ask", lambda state: {"messages": [model.invoke(state["messages"])]})
        again = RetryPolicy(initial_interval=0.0, retry_on=ValueError)
        graph.add_node(
            "tools", ToolNode([pay, flaky], awrap_tool_call=calls.awrap_tool_call), retry_policy=again
        )
        graph.add_edge(START, "ask")
        graph.add_edge("ask", "tools")
        result = await durable(graph.compile(checkpointer=saver_in(turn))).ainvoke(GO)
        if bench.is_losing:
            await bench.hang()
        return [str(m.content) for m in result["messages"] if isinstance(m, ToolMessage)]

    await bench.lose(work)
    assert await bench.run(work) == ["paid", "fine"]
    assert sorted(bench.ran) == ["flaky", "flaky", "flaky", "pay"]

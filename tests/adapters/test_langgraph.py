"""LangGraph in a turn: what a handler gives a graph, and what it is refused."""

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from journal import NotInTurn, Turn, TurnBlocked, io, never, safe
from journal.adapters.langgraph import DurableCalls, durable
from tests.adapters.bench import Bench
from tests.adapters.langgraph_model import GO, Scripted, agent, asks, last, said, saver_in

pytestmark = pytest.mark.anyio


async def test_the_input_is_given_once(bench: Bench) -> None:
    """Wherever the process goes, a thread has the user's message once; and turns go on in it."""
    model = Scripted(says=[AIMessage("one"), AIMessage("two")])

    async def work(turn: Turn, prompt: str) -> list[str]:
        result = await agent(turn, model, []).ainvoke(GO)
        if bench.is_losing:
            await bench.hang()
        again = await agent(turn, model, []).ainvoke({"messages": [("user", "more")]})
        assert [m.content for m in result["messages"]] == ["go", "one"]
        return [m.content for m in again["messages"]]

    await bench.lose(work)
    assert await bench.run(work) == ["go", "one", "more", "two"]
    assert len(model.asked) == 2


async def test_another_input_is_a_divergence(bench: Bench) -> None:
    model = Scripted(says=[AIMessage("one")])
    given = iter(["first", "second"])

    async def work(turn: Turn, prompt: str) -> str:
        result = await agent(turn, model, []).ainvoke({"messages": [("user", next(given))]})
        if bench.is_losing:
            await bench.hang()
        return said(result)

    await bench.lose(work)
    with pytest.raises(TurnBlocked, match="graph#1/start"):
        await bench.run(work)


async def test_new_calls_do_not_run_inside_old_history(bench: Bench) -> None:
    """The code that carries on has another graph: what was in doubt is not silently dropped."""
    model = Scripted(says=[asks(("refund", {}, "c1")), asks(("other", {}, "c2")), last])

    @tool
    @never
    async def refund() -> str:
        """Refund."""
        await bench.effect("refund", hang=True)
        return "refunded"

    @tool
    @safe
    async def other() -> str:
        """Other."""
        bench.ran.append("other")
        return "other"

    class Skips(AgentMiddleware[Any, Any, Any]):
        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            if request.tool_call["name"] == "refund":
                return ToolMessage("skipped", tool_call_id=request.tool_call["id"])
            return await handler(request)

    async def work(turn: Turn, prompt: str) -> str:
        middleware = [] if bench.is_losing else [Skips()]
        return said(await agent(turn, model, [refund, other], middleware=middleware).ainvoke(GO))

    await bench.lose(work)
    with pytest.raises(TurnBlocked, match="0:c1"):
        await bench.run(work)
    assert bench.ran == ["refund"]


async def test_io_is_there_in_tools(bench: Bench) -> None:
    model = Scripted(says=[asks(("keyed", {}, "c1")), last])
    keys: list[str] = []

    @tool
    @safe
    async def keyed() -> str:
        """Keyed."""
        keys.append(io.idempotency_key)
        await bench.effect("keyed", hang=True)
        return "done"

    async def work(turn: Turn, prompt: str) -> str:
        return said(await agent(turn, model, [keyed]).ainvoke(GO))

    await bench.lose(work)
    await bench.run(work)
    assert len(keys) == 2
    assert keys[0] == keys[1]


async def test_an_agent_that_a_sync_node_invokes(bench: Bench) -> None:
    """It runs on a thread of LangGraph's; its calls are recorded in the turn all the same."""
    model = Scripted(says=[asks(("refund", {}, "c1")), last])

    @tool
    @never
    def refund() -> str:
        """Refund."""
        bench.ran.append("refund")
        return "refunded"

    async def work(turn: Turn, prompt: str) -> str:
        inner = create_agent(model, [refund], middleware=[DurableCalls()])
        graph = StateGraph(MessagesState)
        graph.add_node("node", lambda state: inner.invoke(state))
        graph.add_edge(START, "node")
        result = await durable(graph.compile(checkpointer=saver_in(turn))).ainvoke(GO)
        if bench.is_losing:
            await bench.hang()
        return said(result)

    await bench.lose(work)
    assert await bench.run(work) == "refunded"
    assert bench.ran == ["refund"]
    assert len(model.asked) == 2
    assert (await bench.statuses())["graph#1/node@1/model@1/model/0:c1"] == "ok"


async def test_what_cannot_be_carried_on_is_refused(bench: Bench) -> None:
    model = Scripted(says=[AIMessage("done")])
    errors: list[str] = []

    async def refused(work: Any) -> None:
        try:
            await work
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")

    async def work(turn: Turn, prompt: str) -> None:
        foreign = create_agent(model, [], middleware=[DurableCalls()], checkpointer=InMemorySaver())
        await refused(durable(foreign).ainvoke(GO))
        await refused(agent(turn, model, [], interrupt_before=["model"]).ainvoke(GO))
        await refused(agent(turn, model, []).ainvoke(GO, interrupt_after="*"))
        await refused(agent(turn, model, []).ainvoke(GO, version="v2"))
        plain = create_agent(model, [], middleware=[DurableCalls()])
        await refused(plain.ainvoke(GO))
        inner = agent(turn, model, [])

        async def node(state: MessagesState) -> Any:
            return await inner.ainvoke(GO)

        graph = StateGraph(MessagesState)
        graph.add_node("node", node)
        graph.add_edge(START, "node")
        await refused(durable(graph.compile()).ainvoke(GO))

    await bench.run(work)
    assert [error.partition(":")[0] for error in errors] == [
        "InvalidOptions",
        "InvalidOptions",
        "InvalidOptions",
        "InvalidOptions",
        "NotInTurn",
        "InvalidOptions",
    ]
    assert not model.asked
    with pytest.raises(NotInTurn):
        await durable(create_agent(model, [])).ainvoke(GO)


async def test_streams_show_what_is_new(bench: Bench) -> None:
    model = Scripted(says=[asks(("hang", {}, "c1")), last])

    @tool
    @safe
    async def hang() -> str:
        """Hang."""
        await bench.effect("hang", hang=True)
        return "done"

    shown: list[list[str]] = []

    async def work(turn: Turn, prompt: str) -> Any:
        shown.append([])
        values: Any = None
        stream = agent(turn, model, [hang]).astream(GO, stream_mode=["updates", "values"], durability="sync")
        async for mode, event in stream:
            if mode == "updates":
                shown[-1] += event
            else:
                values = event
        return said(values)

    await bench.lose(work)
    assert await bench.run(work) == "done"
    assert shown == [["model"], ["tools", "model"]]

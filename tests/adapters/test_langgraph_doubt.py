"""LangGraph in a turn: policies, and what becomes of calls in doubt."""

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from journal import Ran, Turn, TurnFailed, never, safe
from journal.adapters.langgraph import DurableCalls, durable
from tests.adapters.bench import Bench
from tests.adapters.growing import LONG, check_kept_once
from tests.adapters.langgraph_model import GO, Scripted, agent, asks, last, said, saver_in

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kept", [True, False])
async def test_a_never_tool_in_doubt_is_told_to_the_model(bench: Bench, kept: bool) -> None:
    """With a checkpointer, and with none: then the graph runs again, and every call is served."""
    model = Scripted(says=[asks(("refund", {"order": "42"}, "c1")), last])

    @tool
    @never
    async def refund(order: str) -> str:
        """Refund."""
        await bench.effect("refund", hang=True)
        return "refunded"

    async def work(turn: Turn, prompt: str) -> str:
        saver = saver_in(turn) if kept else None
        graph = create_agent(model, [refund], middleware=[DurableCalls()], checkpointer=saver)
        return said(await durable(graph).ainvoke(GO))

    await bench.lose(work)
    told = await bench.run(work)
    assert told.startswith("refund was started before an interruption and may have completed.")
    assert bench.ran == ["refund"]
    assert len(model.asked) == 2
    assert (await bench.statuses())["graph#1/model@1/model/0:c1"] == "unknown"


async def test_globs_come_before_marks(bench: Bench) -> None:
    model = Scripted(says=[asks(("refund_all", {}, "c1")), last])

    @tool
    @safe
    async def refund_all() -> str:
        """Refund."""
        await bench.effect("refund", hang=True)
        return "refunded"

    async def work(turn: Turn, prompt: str) -> str:
        return said(await agent(turn, model, [refund_all]).ainvoke(GO))

    await bench.lose(work, tools={"refund_*": "never"})
    assert "may have completed" in await bench.run(work, tools={"refund_*": "never"})
    assert bench.ran == ["refund"]


async def test_the_log_holds_of_a_conversation_what_is_new(bench: Bench) -> None:
    model = Scripted(says=[asks(("look", {}, "c1")), asks(("look", {}, "c2")), AIMessage("done")])

    @tool
    @safe
    async def look() -> str:
        """Look."""
        return "seen"

    async def work(turn: Turn, prompt: str) -> str:
        return said(
            await durable(create_agent(model, [look], middleware=[DurableCalls()])).ainvoke(
                {"messages": [("user", LONG)]}
            )
        )

    assert await bench.run(work) == "done"
    await check_kept_once(bench, LONG, 3)


async def test_policy_of_metadata_and_by_default(bench: Bench) -> None:
    model = Scripted(says=[asks(("plain", {}, "c1"), ("told", {}, "c2")), AIMessage("done")])

    @tool
    async def plain() -> str:
        """Plain."""
        return "p"

    @tool
    async def told() -> str:
        """Told."""
        return "t"

    told.metadata = {"journal": {"replay": "safe"}}

    async def work(turn: Turn, prompt: str) -> str:
        return said(await agent(turn, model, [plain, told]).ainvoke(GO))

    await bench.run(work)
    policies = {call.intents[0].name: call.intents[0].policy for call in (await bench.calls()).values()}
    assert policies["plain"] == "never"
    assert policies["told"] == "safe"


@pytest.mark.parametrize("handled", [True, False])
async def test_a_connection_that_breaks_leaves_a_never_tool_unknown(bench: Bench, handled: bool) -> None:
    """Also where the tool node has made "please try again" of it."""
    model = Scripted(says=[asks(("refund", {}, "c1")), last])

    @tool
    @never
    async def refund() -> str:
        """Refund."""
        bench.ran.append("refund")
        try:
            raise ConnectionResetError("by peer")
        except ConnectionError as error:
            raise RuntimeError("gateway") from error

    async def work(turn: Turn, prompt: str) -> str:
        calls = DurableCalls()
        node = ToolNode(
            [refund],
            handle_tool_errors=handled,
            wrap_tool_call=calls.wrap_tool_call,
            awrap_tool_call=calls.awrap_tool_call,
        )
        graph = StateGraph(MessagesState)
        graph.add_node("ask", lambda state: {"messages": [model.invoke(state["messages"])]})
        graph.add_node("tools", node)
        graph.add_edge(START, "ask")
        graph.add_conditional_edges("ask", tools_condition, ["tools", END])
        graph.add_edge("tools", "ask")
        return said(await durable(graph.compile()).ainvoke(GO))

    assert "may have completed" in await bench.run(work)
    assert (await bench.statuses())["graph#1/tools@2/c1"] == "unknown"


async def test_a_hosted_tool_makes_the_model_call_never(bench: Bench) -> None:
    class Hanging(Scripted):
        async def _agenerate(self, messages: Any, *_: Any, **__: Any) -> Any:
            await bench.effect("model", hang=True)
            return self._generate(messages)

    model = Hanging(says=[AIMessage("found")])

    async def work(turn: Turn, prompt: str) -> str:
        return said(await agent(turn, model, [{"type": "web_search"}]).ainvoke(GO))

    await bench.lose(work)
    with pytest.raises(TurnFailed) as failed:
        await bench.run(work)
    assert failed.value.type.endswith("OutcomeUnknown")
    assert bench.ran == ["model"]


async def test_a_probe_says_what_became_of_it(bench: Bench) -> None:
    model = Scripted(says=[asks(("refund", {}, "c1")), last])

    async def was_refunded(given: Any, context: Any) -> Ran:
        return Ran("refunded, as the bank says")

    @tool
    @never(probe=was_refunded)
    async def refund() -> str:
        """Refund."""
        await bench.effect("refund", hang=True)
        return "refunded"

    async def work(turn: Turn, prompt: str) -> str:
        return said(await agent(turn, model, [refund]).ainvoke(GO))

    await bench.lose(work)
    assert await bench.run(work) == "refunded, as the bank says"
    assert bench.ran == ["refund"]

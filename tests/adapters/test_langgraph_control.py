"""LangGraph in a turn: control flow is no failure."""

from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, ToolException, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from journal import Journal, Turn, never, safe
from journal.adapters.langgraph import DurableCalls, durable
from tests.adapters.bench import Bench
from tests.adapters.langgraph_model import GO, Scripted, agent, asks, last, said, saver_in

pytestmark = pytest.mark.anyio


async def test_an_interrupt_in_a_tool_is_answered_in_the_next_turn(bench: Bench) -> None:
    model = Scripted(says=[asks(("refund", {"order": "42"}, "c1")), last])

    @tool
    @never
    async def refund(order: str) -> str:
        """Refund."""
        answer = interrupt(f"refund {order}?")
        await bench.effect(f"refund {answer}", hang=True)
        return f"refunded, {answer}"

    journal = Journal(bench.url)

    async def work(turn: Turn, given: str) -> Any:
        asked: Any = GO if given == "go" else Command(resume=given)
        result = await agent(turn, model, [refund]).ainvoke(asked)
        return [i.value for i in result["__interrupt__"]] if "__interrupt__" in result else said(result)

    handler = journal.agent(name="work")(work)
    async with journal:
        assert await handler.run("go", run_id="r") == ["refund 42?"]
        assert await handler.run("yes", run_id="r", key="answer") == "refunded, yes"
        assert await handler.run("yes", run_id="r", key="answer") == "refunded, yes"
    assert bench.ran == ["refund yes"]
    assert len(model.asked) == 2


async def test_an_interrupted_tool_is_asked_again_after_a_crash(bench: Bench) -> None:
    """Within one turn: the pause itself is recorded, and so is the answer that was under way."""
    model = Scripted(says=[asks(("refund", {}, "c1")), last])

    @tool
    @never
    async def refund() -> str:
        """Refund."""
        bench.ran.append("asked")
        answer = interrupt("really?")
        await bench.effect(f"refund {answer}", hang=True)
        return "refunded"

    async def work(turn: Turn, prompt: str) -> Any:
        graph = agent(turn, model, [refund])
        result = await graph.ainvoke(GO)
        assert [i.value for i in result["__interrupt__"]] == ["really?"]
        return said(await graph.ainvoke(Command(resume="yes")))

    await bench.lose(work)
    assert bench.ran == ["asked", "asked", "refund yes"]
    assert "may have completed" in await bench.run(work)
    assert bench.ran == ["asked", "asked", "refund yes"]


async def test_a_pause_that_was_not_recorded_whole_pauses_again(bench: Bench) -> None:
    """The process goes after the interrupt, before the handler had it: the tool is not started another time."""
    model = Scripted(says=[asks(("refund", {}, "c1")), last])

    @tool
    @never
    async def refund() -> str:
        """Refund."""
        bench.ran.append("asked")
        return str(interrupt("really?"))

    class Late(AgentMiddleware[Any, Any, Any]):
        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            try:
                return await handler(request)
            finally:
                if bench.is_losing:
                    await bench.hang()

    async def work(turn: Turn, prompt: str) -> Any:
        result = await agent(turn, model, [refund], middleware=[Late()]).ainvoke(GO)
        return [i.value for i in result["__interrupt__"]]

    await bench.lose(work)
    assert await bench.run(work) == ["really?"]
    assert bench.ran == ["asked"]


async def test_commands_of_tools_are_replayed(bench: Bench) -> None:
    model = Scripted(says=[asks(("move", {}, "c1")), asks(("hang", {}, "c2")), last])

    @tool
    @never
    async def move(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Move."""
        bench.ran.append("move")
        return Command(update={"messages": [ToolMessage("moved", tool_call_id=tool_call_id)]})

    @tool
    @safe
    async def hang() -> str:
        """Hang."""
        await bench.effect("hang", hang=True)
        return "done"

    async def work(turn: Turn, prompt: str) -> list[str]:
        graph = create_agent(model, [move, hang], middleware=[DurableCalls()])  # no checkpointer
        result = await durable(graph).ainvoke(GO)
        return [str(m.content) for m in result["messages"] if isinstance(m, ToolMessage)]

    await bench.lose(work)
    assert await bench.run(work) == ["moved", "done"]
    assert bench.ran == ["move", "hang", "hang"]


async def test_plain_nodes_that_are_in_a_checkpoint_do_not_run_again(bench: Bench) -> None:
    async def first(state: MessagesState) -> Any:
        bench.ran.append("first")
        return {"messages": [AIMessage("first")]}

    async def second(state: MessagesState) -> Any:
        await bench.effect("second", hang=True)
        return {"messages": [AIMessage("second")]}

    async def work(turn: Turn, prompt: str) -> list[str]:
        graph = StateGraph(MessagesState)
        graph.add_sequence([first, second])
        graph.add_edge(START, "first")
        compiled = durable(graph.compile(checkpointer=saver_in(turn)))
        result = await compiled.ainvoke(GO, durability="sync")
        return [str(message.content) for message in result["messages"]]

    await bench.lose(work)
    assert await bench.run(work) == ["go", "first", "second"]
    assert bench.ran == ["first", "second", "second"]


async def test_what_a_tool_of_langchain_raises_is_the_same_on_a_replay(bench: Bench) -> None:
    model = Scripted(says=[asks(("pick", {}, "c1")), last])
    seen: list[str] = []

    @tool
    @never
    async def pick() -> str:
        """Pick."""
        raise ToolException("out of stock")

    async def work(turn: Turn, prompt: str) -> None:
        try:
            await agent(turn, model, [pick]).ainvoke(GO)
        except Exception as error:
            seen.append(f"{type(error).__qualname__}: {error}")
        if bench.is_losing:
            await bench.hang()

    await bench.lose(work)
    await bench.run(work)
    assert seen == ["ToolException: out of stock"] * 2

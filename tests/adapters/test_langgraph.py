"""LangGraph in a turn: what is recorded is not done again, and control flow is no failure."""

import asyncio
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ToolRetryMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy, interrupt

from journal import Journal, NotInTurn, Ran, Turn, TurnBlocked, TurnFailed, io, never, safe
from journal.adapters.langgraph import DurableCalls, JournalSaver, durable
from tests.adapters.bench import Bench
from tests.adapters.growing import LONG, check_kept_once
from tests.adapters.langgraph_model import Scripted, asks, last, said

pytestmark = pytest.mark.anyio
GO: Any = {"messages": [("user", "go")]}


def saver_in(turn: Turn) -> JournalSaver:
    return JournalSaver(turn._attempt.agent.journal)


def agent(turn: Turn, model: Scripted, tools: list[Any], **options: Any) -> Any:
    """An agent whose thread is the run's."""
    middleware = [*options.pop("middleware", []), DurableCalls()]
    return durable(create_agent(model, tools, middleware=middleware, checkpointer=saver_in(turn), **options))


# What is in doubt ----------------------------------------------------------------------------------


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


# Keys ----------------------------------------------------------------------------------------------


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
        while bench.is_losing and (await bench.statuses()).get("graph#1/model@1/model/0:c1") != "ok":
            await asyncio.sleep(0.01)
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


# Control flow --------------------------------------------------------------------------------------


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


# Handlers ------------------------------------------------------------------------------------------


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

"""Plays the scenes of the suite with langchain's `create_agent`, and a chat model made of `Scene.reply`."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import ToolException, tool
from langgraph.types import Command

from journal import Turn, never, safe
from journal.adapters.langgraph import DurableCalls, JournalSaver, durable
from tests.adapters.drivers.failing import check, tear
from tests.adapters.suite import Reply, Scene

scene = Scene.of_arguments()


@tool
@safe
async def lookup(order: str) -> str:
    """Look an order up."""
    return await scene.lookup(order)


@tool
@never
async def refund(order: str) -> str:
    """Refund an order."""
    return await scene.refund(order)


@tool
@safe
async def picky(order: str) -> str:
    """Pick an order."""
    if (found := await scene.picky(order)) is None:
        raise ToolException("another one, please")
    return found


picky.handle_tool_error = True


class SceneModel(BaseChatModel):
    """Asks the scene."""

    @property
    def _llm_type(self) -> str:
        return "scene"

    def bind_tools(self, tools: Any, **kwargs: Any) -> "SceneModel":
        return self

    def _reply(self, messages: Sequence[BaseMessage]) -> Reply:
        return check(scene.reply([str(m.content) for m in messages if isinstance(m, ToolMessage)]))

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        reply = self._reply(messages)
        about = {"finish_reason": "tool_calls" if reply.asks else "stop"}
        message = AIMessage(reply.text, tool_calls=_calls(reply), response_metadata=about)
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        reply = self._reply(messages)
        chunks = [AIMessageChunk(content=part) for part in reply.parts]
        if reply.asks:
            chunks.append(AIMessageChunk(content="", tool_calls=_calls(reply)))
        for number, message in enumerate(chunks):
            if number == len(chunks) - 1:
                message.chunk_position = "last"
            chunk = ChatGenerationChunk(message=message)
            if run_manager is not None:
                await run_manager.on_llm_new_token(str(message.content), chunk=chunk)
            yield chunk
            if reply.is_torn:
                tear()


def _calls(reply: Reply) -> list[Any]:
    return [{"name": ask.tool, "args": {"order": ask.order}, "id": ask.call_id} for ask in reply.asks]


class Saver(JournalSaver):
    async def aput(self, *args: Any) -> Any:
        config = await super().aput(*args)
        if scene.name == "history":
            scene.effect("put")
        return config


def support() -> Any:
    pause = [HumanInTheLoopMiddleware({"picky": True})] if scene.name == "pause" else []
    saver = Saver(scene.journal)
    return create_agent(
        SceneModel(), [lookup, refund, picky], middleware=[*pause, DurableCalls()], checkpointer=saver
    )


async def streamed(graph: Any, given: Any) -> Any:
    ended, last = 0, None
    async for mode, event in graph.astream(given, stream_mode=["messages", "updates", "values"]):
        if mode == "values":
            last = event
        elif mode == "messages" and isinstance(event[0], AIMessageChunk) and event[0].content:
            scene.effect("part")
        elif mode == "updates" and "model" in event:
            scene.effect(f"ended {ended}")
            ended += 1
    assert last is not None
    return last


async def work(turn: Turn, prompt: str) -> Any:
    graph = durable(support())
    given = {"messages": [("user", prompt)]}
    if scene.is_streamed:
        result = await streamed(graph, given)
    else:
        result = await graph.ainvoke(given)
    if "__interrupt__" in result:
        scene.effect("answered")
        result = await graph.ainvoke(Command(resume={"decisions": [{"type": "approve"}]}))
    messages = result["messages"]
    return {"said": messages[-1].content, "items": [message.type for message in messages]}


if __name__ == "__main__":
    scene.play(work)

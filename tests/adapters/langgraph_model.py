"""What the tests of the LangGraph adapter share: an agent, and a chat model that says what its turn is to say."""

from collections.abc import Callable, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from journal import Turn
from journal.adapters.langgraph import DurableCalls, JournalSaver, durable

GO: Any = {"messages": [("user", "go")]}
Says = AIMessage | Callable[[Sequence[BaseMessage]], AIMessage]


class Scripted(BaseChatModel):
    """Says `says[n]` to a conversation in which it spoke n times; `asked` is what it was really asked."""

    says: list[Any]
    asked: list[Any] = []

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> "Scripted":
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.asked.append(messages)
        says: Says = self.says[sum(isinstance(message, AIMessage) for message in messages)]
        message = says if isinstance(says, AIMessage) else says(messages)
        return ChatResult(generations=[ChatGeneration(message=message.model_copy())])


def asks(*calls: tuple[str, dict[str, Any], str]) -> AIMessage:
    """A reply that asks for tools: (name, arguments, call id) of each."""
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": id_} for name, args, id_ in calls])


def last(messages: Sequence[BaseMessage]) -> AIMessage:
    """A reply that repeats the last message."""
    return AIMessage(str(messages[-1].content))


def said(result: Any) -> str:
    """What a graph's last message says."""
    text: str = result["messages"][-1].content
    return text


def saver_in(turn: Turn) -> JournalSaver:
    return JournalSaver(turn._attempt.agent.journal)


def agent(turn: Turn, model: Scripted, tools: list[Any], **options: Any) -> Any:
    """An agent whose thread is the run's."""
    middleware = [*options.pop("middleware", []), DurableCalls()]
    return durable(create_agent(model, tools, middleware=middleware, checkpointer=saver_in(turn), **options))

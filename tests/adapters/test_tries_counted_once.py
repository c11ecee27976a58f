"""Harnesses over real clients that would retry by themselves: each request is a try of ours, and none is theirs."""

from functools import cached_property
from typing import Any

import openai
import pytest
from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from openai.resources.chat.completions import AsyncCompletions
from pydantic import ConfigDict
from pydantic_ai import Agent, ModelSettings
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from journal import Turn, TurnFailed
from journal.adapters.langgraph import DurableCalls, durable
from journal.adapters.pydantic_ai import JournalDurability
from journal.core.records import CallOutcome
from tests.adapters.answering import Answer, Answering, answering, chat, failure, response
from tests.adapters.bench import Bench, Handler

pytestmark = pytest.mark.anyio
AWAY = failure(503, retry_after_ms="1")


async def outcome_of(bench: Bench, work: Handler, **options: Any) -> tuple[Any, CallOutcome]:
    """What `work` gave, or what it failed with, and the outcome of its one model call."""
    said: Any
    try:
        said = await bench.run(work, **options)
    except TurnFailed as error:
        said = error.type.rpartition(".")[2]
    (outcome,) = [c.outcome for c in (await bench.calls()).values() if c.intents[0].kind == "model"]
    assert outcome is not None
    return said, outcome


# Pydantic AI -----------------------------------------------------------------------------------------


async def with_pydantic_ai(
    bench: Bench,
    answers: tuple[Answer, ...],
    *,
    kind: Any = OpenAIChatModel,
    settings: ModelSettings | None = None,
    **options: Any,
) -> tuple[Any, CallOutcome, Answering]:
    async with (
        answering(*answers) as server,
        openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=2) as client,
    ):
        model = kind("m", provider=OpenAIProvider(openai_client=client))
        agent = Agent(model, name="a", model_settings=settings, capabilities=[JournalDurability()])

        async def work(turn: Turn, prompt: str) -> Any:
            return (await agent.run(prompt)).output

        said, outcome = await outcome_of(bench, work, **options)
        assert client.max_retries == 2, "what was given is not changed"
        return said, outcome, server


async def test_pydantic_ai_over_a_client_that_would_retry(bench: Bench) -> None:
    said, outcome, server = await with_pydantic_ai(bench, (AWAY,))
    assert (said, server.asked, outcome.tries, outcome.finish) == ("ModelUnavailableError", 3, 3, "error")


async def test_pydantic_ai_after_an_outage(bench: Bench) -> None:
    said, outcome, server = await with_pydantic_ai(bench, (AWAY, chat()))
    assert (said, server.asked, outcome.tries) == ("hi", 2, 2)
    assert (outcome.finish, outcome.raw_finish) == ("stop", "stop")
    assert (outcome.usage["input_tokens"], outcome.usage["output_tokens"]) == (19, 10)


async def test_pydantic_ai_on_the_responses_api(bench: Bench) -> None:
    said, outcome, _ = await with_pydantic_ai(bench, (response(),), kind=OpenAIResponsesModel)
    assert (said, outcome.finish, outcome.raw_finish) == ("hi", "stop", "completed")
    assert (outcome.usage["input_tokens"], outcome.usage["cached_tokens"]) == (36, 4)


@pytest.mark.parametrize("retries", [0, 1])
async def test_a_number_that_was_set_for_the_client_is_ours(bench: Bench, retries: int) -> None:
    _, outcome, server = await with_pydantic_ai(bench, (AWAY,), settings={"max_retries": retries})
    assert (server.asked, outcome.tries) == (retries + 1, retries + 1)


async def test_the_agents_rule_goes_before_the_default(bench: Bench) -> None:
    _, outcome, server = await with_pydantic_ai(bench, (AWAY,), model_retry=False)
    assert (server.asked, outcome.tries) == (1, 1)


async def test_an_agent_inside_a_tool_keeps_the_retries_of_its_client(bench: Bench) -> None:
    """Nobody else would try again: the tool is one call."""
    async with (
        answering(AWAY, chat("inner")) as server,
        openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=2) as client,
    ):
        model = OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))
        clerk = Agent(model, name="clerk", capabilities=[JournalDurability()])

        async def ask() -> str:
            return (await clerk.run("go")).output

        async def work(turn: Turn, prompt: str) -> str:
            return await turn.step(ask)

        assert await bench.run(work) == "inner"
        assert server.asked == 2


# LangGraph -------------------------------------------------------------------------------------------


class Chatting(BaseChatModel):
    """Keeps OpenAI's client in the ways in which langchain's packages keep them."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    url: str
    max_retries: int = 2
    root_async_client: Any = None
    async_client: Any = None

    def model_post_init(self, context: Any, /) -> None:
        self.root_async_client = openai.AsyncOpenAI(
            base_url=self.url, api_key="k", max_retries=self.max_retries
        )
        self.async_client = self.root_async_client.chat.completions

    @cached_property
    def _late(self) -> AsyncCompletions:
        client = openai.AsyncOpenAI(base_url=self.url, api_key="k", max_retries=self.max_retries)
        return client.chat.completions

    @property
    def _llm_type(self) -> str:
        return "chatting"

    def _completions(self) -> AsyncCompletions:
        found: AsyncCompletions = self.async_client
        return found

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        asked: Any = [{"role": "user", "content": str(message.content)} for message in messages]
        reply = await self._completions().create(model="m", messages=asked)
        choice = reply.choices[0]
        about = {"finish_reason": choice.finish_reason}
        message = AIMessage(choice.message.content or "", response_metadata=about)
        return ChatResult(generations=[ChatGeneration(message=message)])


class ChattingRoot(Chatting):
    """Asks the client itself."""

    def _completions(self) -> AsyncCompletions:
        client: openai.AsyncOpenAI = self.root_async_client
        return client.chat.completions


class ChattingLate(Chatting):
    """Makes its client when it is first asked."""

    def _completions(self) -> AsyncCompletions:
        return self._late


@pytest.mark.parametrize("kind", [Chatting, ChattingRoot, ChattingLate])
@pytest.mark.parametrize("options", [{}, {"max_retries": 1}, {"max_retries": 0}], ids=str)
async def test_langgraph_over_a_client_that_would_retry(
    bench: Bench, kind: type[Chatting], options: dict[str, Any]
) -> None:
    tries = int(options.get("max_retries", 2)) + 1
    async with answering(AWAY) as server:
        model = kind(url=server.url, **options)
        if kind is ChattingLate:
            assert model._late  # it was used before
        graph = create_agent(model, [], middleware=[DurableCalls()])

        async def work(turn: Turn, prompt: str) -> str:
            result = await durable(graph).ainvoke({"messages": [("user", prompt)]})
            return str(result["messages"][-1].content)

        said, outcome = await outcome_of(bench, work)
        assert (said, server.asked, outcome.tries) == ("InternalServerError", tries, tries)
        assert model.root_async_client.max_retries == tries - 1, "what was given is not changed"


async def test_langgraph_after_an_outage(bench: Bench) -> None:
    async with answering(AWAY, chat(finish="length")) as server:
        graph = create_agent(Chatting(url=server.url), [], middleware=[DurableCalls()])

        async def work(turn: Turn, prompt: str) -> str:
            result = await durable(graph).ainvoke({"messages": [("user", prompt)]})
            return str(result["messages"][-1].content)

        said, outcome = await outcome_of(bench, work)
        assert (said, server.asked, outcome.tries) == ("hi", 2, 2)
        assert (outcome.finish, outcome.raw_finish) == ("length", "length")

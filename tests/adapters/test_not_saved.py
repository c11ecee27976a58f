"""Of two tools that write one file side by side the model is told which one was not saved, whatever the harness."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import mcp
import pytest
from agents import Agent as OpenAIAgent
from agents import function_tool
from agents.testing import assistant_message, function_call
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from mcp.server import MCPServer
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from journal import Journal, Turn, VirtualWorkspace, io, safe
from journal.adapters.langgraph import DurableCalls, durable
from journal.adapters.mcp import durable_session
from journal.adapters.openai_agents import DurableRunner
from journal.adapters.pydantic_ai import JournalDurability
from tests.adapters.bench import CountingModel, outputs
from tests.adapters.langgraph_model import Scripted, asks

pytestmark = pytest.mark.anyio
Claim = Callable[[str], Awaitable[str]]


async def openai_agents(claim: Claim) -> dict[str, str]:
    calls = [function_call("claim", {"who": who}, call_id=who) for who in "ab"]
    model = CountingModel([calls, [assistant_message("done")]])
    agent = OpenAIAgent(name="a", tools=[safe(function_tool(claim))], model=model)
    return outputs(await DurableRunner.run(agent, "go"))


async def langgraph(claim: Claim) -> dict[str, str]:
    model = Scripted(
        says=[asks(("claim", {"who": "a"}, "a"), ("claim", {"who": "b"}, "b")), AIMessage("done")]
    )
    graph = durable(create_agent(model, [tool(safe(claim))], middleware=[DurableCalls()]))
    found = await graph.ainvoke({"messages": [("user", "go")]})
    return {
        each.tool_call_id: str(each.content) for each in found["messages"] if isinstance(each, ToolMessage)
    }


async def pydantic_ai(claim: Claim) -> dict[str, str]:
    told: dict[str, str] = {}

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        returns = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        told.update({part.tool_call_id: str(part.content) for part in returns})
        if returns:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("claim", {"who": who}, who) for who in "ab"])

    agent = PydanticAgent(FunctionModel(answer), name="a", capabilities=[JournalDurability()])
    agent.tool_plain(safe(claim))
    await agent.run("go")
    return told


class Claiming:
    """A session of the application's own: what its server says goes into the workspace."""

    def __init__(self, client: mcp.Client, claim: Claim) -> None:
        self._client, self._claim = client, claim

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        result = await self._client.call_tool(name, arguments)
        await self._claim(arguments["who"])
        return result


async def mcp_session(claim: Claim) -> dict[str, str]:
    server = MCPServer("claims")

    @server.tool(name="claim")
    async def answer(who: str) -> str:
        return f"claimed by {who}"

    async with mcp.Client(server) as client:
        session = durable_session(Claiming(client, claim))
        results = await asyncio.gather(*(session.call_tool("claim", {"who": who}) for who in "ab"))
    return {
        who: "\n".join(part.text for part in result.content)
        for who, result in zip("ab", results, strict=True)
    }


@pytest.mark.parametrize("harness", [openai_agents, langgraph, pydantic_ai, mcp_session])
async def test_a_model_is_told_what_was_not_saved(harness: Callable[[Claim], Awaitable[Any]]) -> None:
    both = asyncio.Barrier(2)

    async def claim(who: str) -> str:
        """Claim."""
        await io.files.write("/owner", who)
        await both.wait()
        return f"claimed by {who}"

    journal = Journal("memory:")

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, prompt: str) -> dict[str, str]:
        found: dict[str, str] = await harness(claim)
        return found

    async with journal:
        told = await work.run("go", run_id="r")
        owner = (await journal.files.read("r", "/owner")).decode()
    loser = {"a": "b", "b": "a"}[owner]
    assert told[owner] == f"claimed by {owner}"
    assert told[loser].startswith(f"claimed by {loser}\n(Not saved: /owner changed meanwhile.")

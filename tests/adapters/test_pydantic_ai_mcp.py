"""Tools of MCP servers in Pydantic AI: policies by trusted hints, discovery once, doubt when the connection goes."""

import sys
from pathlib import Path
from typing import Any

import pytest
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from journal import Turn
from journal.adapters.pydantic_ai import JournalDurability, trust_mcp_hints
from journal.adapters.pydantic_ai.tools import is_broken_off
from tests.adapters.bench import Bench

pytestmark = pytest.mark.anyio

SCRIPT = Path(__file__).with_name("mcp_server.py")


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    told = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if not told:
        order = {"order": "42"}
        return ModelResponse(parts=[ToolCallPart("lookup", order, "c1"), ToolCallPart("refund", order, "c2")])
    return ModelResponse(parts=[TextPart(" | ".join(str(part.content) for part in told))])


@pytest.mark.parametrize("is_trusted", [False, True])
async def test_hints_count_if_the_server_is_trusted(bench: Bench, tmp_path: Path, is_trusted: bool) -> None:
    transport = StdioTransport(sys.executable, [str(SCRIPT), str(tmp_path / "effects")])
    shop: MCPToolset[None] = MCPToolset(transport, id="shop", init_timeout=60)
    if is_trusted:
        trust_mcp_hints(shop)
    agent = Agent(FunctionModel(answer), name="support", toolsets=[shop], capabilities=[JournalDurability()])

    async def work(turn: Turn, prompt: str) -> Any:
        output = (await agent.run(prompt)).output
        if bench.is_losing:
            await bench.hang()
        return output

    await bench.lose(work)
    found = await bench.run(work)
    assert "order 42" in found
    assert "refunded 42" in found
    lines = sorted(line.rsplit(" ", 1)[0] for line in (tmp_path / "effects").read_text().splitlines())
    assert lines == ["lookup", "refund 42"]
    calls = await bench.calls()
    assert calls["model#1/0:c1"].intents[0].policy == ("safe" if is_trusted else "never")
    assert calls["model#1/1:c2"].intents[0].policy == "never"
    assert [len(call.intents) for key, call in calls.items() if "get_tools" in key] == [1]


@pytest.mark.parametrize(
    ("message", "is_broken"),
    [("Connection closed", True), ("Timed out while waiting for response", True), ("no such order", False)],
)
def test_a_broken_connection_is_told_by_the_words_that_are_left_of_it(message: str, is_broken: bool) -> None:
    assert is_broken_off({"kind": "model_retry", "message": message}) is is_broken
    assert not is_broken_off({"kind": "tool_return", "result": message})

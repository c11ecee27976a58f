"""Tools of MCP servers: policies by trusted hints, keys for the server, doubt when the connection goes."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp
import pytest
from agents import Agent, function_tool
from agents.mcp import MCPServer, MCPServerStdio
from agents.testing import assistant_message, function_call
from mcp.server import MCPServer as Server
from mcp.shared.exceptions import MCPError
from mcp.types import ToolAnnotations

from journal import Turn, TurnFailed, safe
from journal.adapters.openai_agents import DurableRunner, trust_mcp_hints
from tests.adapters.bench import Bench, CountingModel, outputs

pytestmark = pytest.mark.anyio

SCRIPT = Path(__file__).with_name("mcp_server.py")


def script() -> CountingModel:
    order = {"order": "42"}
    calls = [function_call("lookup", order, call_id="c1"), function_call("refund", order, call_id="c2")]
    return CountingModel([calls, [assistant_message("done")]])


def on_stdio(effects: Path, **options: Any) -> MCPServerStdio:
    return MCPServerStdio(params={"command": sys.executable, "args": [str(SCRIPT), str(effects)]}, **options)


@pytest.mark.parametrize("is_trusted", [False, True])
async def test_hints_count_if_the_server_is_trusted(bench: Bench, tmp_path: Path, is_trusted: bool) -> None:
    model = script()

    async def work(turn: Turn, prompt: str) -> Any:
        async with on_stdio(tmp_path / "effects") as server:
            if is_trusted:
                trust_mcp_hints(server)
            result = await DurableRunner.run(Agent(name="a", mcp_servers=[server], model=model), prompt)
        if bench.is_losing:
            await bench.hang()
        return outputs(result)

    await bench.lose(work)
    found = await bench.run(work)
    assert "order 42" in found["c1"]
    assert "refunded 42" in found["c2"]
    lines = sorted((tmp_path / "effects").read_text().splitlines())
    assert lines[0] == "lookup 42"
    assert len(lines) == 2
    assert len(lines[1].split()[2]) == 32  # the idempotency key
    calls = await bench.calls()
    assert calls["model#1/0:c1"].intents[0].policy == ("safe" if is_trusted else "never")
    assert calls["model#1/1:c2"].intents[0].policy == "never"


class InProcess(MCPServer):
    """A server of the `mcp` package in this process."""

    max_retry_attempts = 0

    def __init__(self, client: mcp.Client, bench: Bench) -> None:
        super().__init__()
        self.client, self.bench = client, bench
        self.error: Exception | None = None

    @property
    def name(self) -> str:
        return "shop"

    async def connect(self) -> None: ...
    async def cleanup(self) -> None: ...
    async def list_prompts(self) -> Any: ...
    async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> Any:
        return (await self.client.list_tools()).tools

    async def call_tool(self, tool_name: str, arguments: Any) -> Any:  # type: ignore[override]  # as old ones are
        result = await self.client.call_tool(tool_name, arguments)
        if self.error is not None:
            raise self.error
        if tool_name == "refund" and self.bench.is_losing:
            await self.bench.hang()
        return result


@asynccontextmanager
async def in_process(bench: Bench) -> AsyncIterator[InProcess]:
    shop = Server("shop")

    @shop.tool(annotations=ToolAnnotations(idempotent_hint=True))
    async def lookup(order: str) -> str:
        await bench.effect("lookup")
        return "found"

    @shop.tool()
    async def refund(order: str) -> str:
        await bench.effect("refund")
        return "refunded"

    async with mcp.Client(shop) as client:
        yield InProcess(client, bench)


async def test_a_call_in_doubt_follows_its_policy(bench: Bench) -> None:
    model = script()
    async with in_process(bench) as server:
        trust_mcp_hints(server)

        async def work(turn: Turn, prompt: str) -> Any:
            agent = Agent(name="a", mcp_servers=[server], model=model)
            return outputs(await DurableRunner.run(agent, prompt))

        await bench.lose(work)
        found = await bench.run(work)
    assert "was not repeated" in found["c2"]
    assert bench.ran.count("refund") == 1
    assert model.asked == 2


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MCPError(-32000, "Connection closed"), "unknown"),
        (MCPError(-32001, "Request timed out"), "unknown"),
        (ConnectionResetError(), "unknown"),
        (MCPError(-32602, "no such order"), "error"),
    ],
)
async def test_a_connection_that_goes_leaves_doubt_and_an_answer_does_not(
    bench: Bench, error: Exception, status: str
) -> None:
    model = script()
    async with in_process(bench) as server:
        server.error = error

        async def work(turn: Turn, prompt: str) -> Any:
            await DurableRunner.run(Agent(name="a", mcp_servers=[server], model=model), prompt)

        await bench.run(work)
    assert (await bench.statuses())["model#1/1:c2"] == status


async def test_a_server_that_retries_by_itself_is_refused_for_never_tools(bench: Bench) -> None:
    async with in_process(bench) as server:
        server.max_retry_attempts = 2

        async def work(turn: Turn, prompt: str) -> Any:
            await DurableRunner.run(Agent(name="a", mcp_servers=[server], model=script()), prompt)

        with pytest.raises(TurnFailed) as failed:
            await bench.run(work)
    assert failed.value.type.endswith("UserError")  # the SDK's wrapping of ours
    assert "refund" not in bench.ran


async def test_an_mcp_tool_takes_no_marker_by_looking_like_a_marked_tool(bench: Bench) -> None:
    @safe
    @function_tool
    async def refund(order: str) -> str:
        return ""

    async with in_process(bench) as server:

        async def work(turn: Turn, prompt: str) -> Any:
            await DurableRunner.run(Agent(name="a", mcp_servers=[server], model=script()), prompt)

        await bench.run(work)
    assert (await bench.calls())["model#1/1:c2"].intents[0].policy == "never"
    assert refund.name == "refund"

"""Tools that are gone: from the code, or because a replay offline has no servers."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.mcp import MCPToolset

from journal import Turn
from journal.adapters.pydantic_ai import JournalDurability
from tests.adapters.bench import Bench, Handler
from tests.adapters.test_pydantic_ai import ORDER, UNKNOWN, Script, supporter

pytestmark = pytest.mark.anyio
SCRIPT = Path(__file__).with_name("mcp_server.py")


def handler(bench: Bench, script: Script, *, tools: int = 2, output: Any = str) -> Handler:
    agent: Agent[None, Any] = supporter(script, output_type=output)

    async def lookup(order: str) -> str:
        await bench.effect("lookup")
        if bench.ran == ["lookup"]:
            raise ModelRetry("once more")
        return f"order {order}"

    async def refund(order: str) -> str:
        await bench.effect("refund", hang=True)
        return f"refunded {order}"

    for tool in [lookup, refund][:tools]:
        agent.tool_plain(tool)

    async def work(turn: Turn, prompt: str) -> Any:
        return (await agent.run(prompt)).output

    return work


REPLIES = [[("lookup", ORDER)], [("lookup", ORDER)], [("refund", ORDER)]]


async def test_a_finished_run_replays_without_its_tools(bench: Bench) -> None:
    script, again = Script(*REPLIES), Script(*REPLIES)
    assert await bench.run(handler(bench, script)) == "done"
    ran = list(bench.ran)
    for tools in range(3):
        found = await bench.replayed(handler(bench, again, tools=tools))
        assert (found.verdict, len(found.calls)) == ("same", 7)
    assert (again.asked, bench.ran) == (0, ran)


async def test_a_never_tool_in_doubt_that_is_gone_is_told_to_the_model(bench: Bench) -> None:
    script = Script(*REPLIES)
    await bench.lose(handler(bench, script))
    assert await bench.run(handler(bench, script, tools=0)) == "done"
    assert script.told["c10"] == "order 42"
    assert script.told["c20"].startswith(UNKNOWN)
    assert bench.ran == ["lookup", "lookup", "refund"]
    assert (await bench.statuses())["model#3/0:c20"] == "unknown"


async def test_tools_for_output_are_not_taken_for_gone(bench: Bench) -> None:
    script = Script([("lookup", ORDER)], [("lookup", ORDER)], [("final_result", {"response": 42})])
    work = handler(bench, script, output=int)
    assert await bench.run(work) == 42
    found = await bench.replayed(work)
    assert found.verdict == "same"


async def test_a_server_of_the_resources_is_not_missed_offline(bench: Bench, tmp_path: Path) -> None:
    effects, script = tmp_path / "effects", Script([("lookup", ORDER), ("refund", ORDER)])

    @asynccontextmanager
    async def resources() -> AsyncIterator[Any]:
        transport = StdioTransport(sys.executable, [str(SCRIPT), str(effects)])
        yield MCPToolset(transport, id="shop", init_timeout=60)

    async def work(turn: Turn, prompt: str) -> Any:
        durability: JournalDurability[None] = JournalDurability()
        agent = Agent(script.model, name="support", toolsets=[turn.deps], capabilities=[durability])
        return (await agent.run(prompt)).output

    assert await bench.run(work, resources=resources) == "done"
    assert script.asked == 2
    found = await bench.replayed(work)
    assert (found.verdict, found.detail, found.drifted) == ("same", found.detail, [])
    assert script.asked == 2
    assert len(effects.read_text().splitlines()) == 2

"""MCP sessions: policies, keys for the server, doubt when the connection goes, what is served on a replay."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp
import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp.types import ToolAnnotations

from journal import NotInTurn, Turn
from journal.adapters.mcp import IDEMPOTENCY_META, OUTCOME_META, durable_session
from tests.adapters.bench import Bench

pytestmark = pytest.mark.anyio

SCRIPT = Path(__file__).with_name("mcp_server.py")


def shop(bench: Bench, keys: list[str]) -> MCPServer:
    server = MCPServer("shop")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def lookup(order: str) -> str:
        await bench.effect("lookup", hang=order == "hang")
        return f"order {order}"

    @server.tool(annotations=ToolAnnotations(read_only_hint=False, idempotent_hint=True))
    async def close(order: str) -> str:
        await bench.effect("close", hang=order == "hang")
        return "closed"

    @server.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True))
    async def refund(order: str, ctx: Context[Any, Any]) -> str:
        meta: Any = ctx.request_context.meta
        keys.append(dict(meta)[IDEMPOTENCY_META])
        await bench.effect("refund", hang=order == "hang")
        return f"refunded {order}"

    @server.tool()
    async def broken(order: str) -> str:
        raise ValueError("no such order")

    @server.resource("file://terms")
    async def terms() -> str:
        await bench.effect("terms")
        return "the terms"

    @server.prompt()
    async def greet(name: str) -> str:
        await bench.effect("greet")
        return f"greet {name}"

    return server


@asynccontextmanager
async def session_of(
    bench: Bench, keys: list[str] | None = None, **options: Any
) -> AsyncIterator[mcp.Client]:
    async with mcp.Client(shop(bench, [] if keys is None else keys)) as client:
        yield durable_session(client, name="shop", **options)


def text_of(result: Any) -> str:
    return str(result.content[0].text)


@pytest.mark.parametrize("is_trusted", [False, True])
async def test_hints_count_if_the_server_is_trusted(bench: Bench, is_trusted: bool) -> None:
    async with session_of(bench, trust_hints=is_trusted) as session:

        async def work(turn: Turn, prompt: str) -> None:
            await session.list_tools()
            for name in ("lookup", "close", "refund", "broken"):
                await session.call_tool(name, {"order": "42"})

        await bench.run(work)
    calls = await bench.calls()
    hinted = "safe" if is_trusted else "never"
    found = [calls[f"shop.{name}#1"].intents[0].policy for name in ("lookup", "close", "refund", "broken")]
    assert found == [hinted, hinted, "never", "never"]


async def test_what_is_declared_comes_before_hints(bench: Bench) -> None:
    async with session_of(bench, trust_hints=True) as session:

        async def work(turn: Turn, prompt: str) -> None:
            await session.list_tools()
            await session.call_tool("lookup", {"order": "42"})
            await session.call_tool("refund", {"order": "42"})

        await bench.run(work, tools={"lookup": "never"}, by_agent={"ref*": "safe"})
    calls = await bench.calls()
    assert calls["shop.lookup#1"].intents[0].policy == "never"
    assert calls["shop.refund#1"].intents[0].policy == "safe"


async def test_a_safe_tool_in_doubt_runs_again_and_a_never_tool_does_not(bench: Bench) -> None:
    keys: list[str] = []

    async def both(turn: Turn, prompt: str) -> Any:
        async with session_of(bench, keys, trust_hints=True) as session:
            await session.list_tools()
            first = await session.call_tool("lookup", {"order": "hang"})
            bench.is_losing = bench.is_losing or not keys
            second: Any = await session.call_tool("refund", {"order": "hang"})
            return [text_of(first), text_of(second), second.is_error, (second.meta or {}).get(OUTCOME_META)]

    await bench.lose(both)
    assert bench.ran == ["lookup"]
    await bench.lose(_losing_later(both, bench))
    assert bench.ran == ["lookup", "lookup", "refund"]
    said = await bench.run(both)
    assert said[0] == "order hang"
    assert said[1].startswith("refund was started before an interruption and may have completed.")
    assert said[2:] == [True, "unknown"]
    assert bench.ran == ["lookup", "lookup", "refund"]
    assert len(keys[0]) == 32
    assert (await bench.statuses())["shop.refund#1"] == "unknown"


def _losing_later(work: Any, bench: Bench) -> Any:
    async def run(turn: Turn, prompt: str) -> Any:
        bench.is_losing = False
        return await work(turn, prompt)

    return run


async def test_results_and_listings_are_served_on_a_replay(bench: Bench) -> None:
    async def work(turn: Turn, prompt: str) -> Any:
        async with session_of(bench) as session:
            tools = await session.list_tools()
            result: Any = await session.call_tool("lookup", {"order": "42"})
            failed: Any = await session.call_tool("broken", {"order": "42"})
            resource: Any = await session.read_resource("file://terms")
            prompt_: Any = await session.get_prompt("greet", {"name": "Ann"})
            listed = await session.list_resources()
            found = [
                [tool.name for tool in tools.tools],
                text_of(result),
                result.structured_content,
                failed.is_error,
                resource.contents[0].text,
                prompt_.messages[0].content.text,
                [str(item.uri) for item in listed.resources],
            ]
        if bench.is_losing:
            firsts.append(found)
            await bench.hang()
        return found

    firsts: list[Any] = []
    await bench.lose(work)
    assert await bench.run(work) == firsts[0]
    assert firsts[0] == [
        ["lookup", "close", "refund", "broken"],
        "order 42",
        {"result": "order 42"},
        True,
        "the terms",
        "greet Ann",
        ["file://terms"],
    ]
    assert sorted(bench.ran) == ["greet", "lookup", "terms"]
    kinds = {call.intents[0].name: call.intents[0].kind for call in (await bench.calls()).values()}
    assert kinds == {
        "list_tools": "step",
        "lookup": "tool",
        "broken": "tool",
        "read_resource": "step",
        "get_prompt": "step",
        "list_resources": "step",
    }


async def test_calls_at_once_are_told_apart(bench: Bench) -> None:
    async def work(turn: Turn, prompt: str) -> Any:
        async with session_of(bench) as session:
            results = await asyncio.gather(
                *(session.call_tool("refund", {"order": order}) for order in ("1", "2", "3"))
            )
        if bench.is_losing:
            await bench.hang()
        return [text_of(result) for result in results]

    await bench.lose(work)
    assert await bench.run(work) == ["refunded 1", "refunded 2", "refunded 3"]
    assert bench.ran == ["refund"] * 3


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
    class Failing:
        async def call_tool(self, name: str, arguments: Any, *, meta: Any = None) -> Any:
            raise error

    said: list[str] = []

    async def work(turn: Turn, prompt: str) -> None:
        session: Any = durable_session(Failing())
        try:
            said.append(text_of(await session.call_tool("refund", {"order": "42"})))
        except MCPError as raised:
            said.append(f"{raised.code} {raised}")
        if bench.is_losing:
            await bench.hang()

    await bench.lose(work)
    await bench.run(work)
    assert said[0] == said[1]
    if status == "error":
        assert said[0] == "-32602 no such order"
    assert list((await bench.statuses()).values()) == [status]


async def test_a_server_that_is_killed_in_a_call_leaves_doubt(bench: Bench, tmp_path: Path) -> None:
    """A real server on stdio: its process ends inside the refund."""
    effects = tmp_path / "effects"

    async def work(turn: Turn, prompt: str) -> Any:
        parameters = StdioServerParameters(command=sys.executable, args=[str(SCRIPT), str(effects)])
        async with stdio_client(parameters) as (read, write), mcp.ClientSession(read, write) as inner:
            await inner.initialize()
            session = durable_session(inner, name="shop", trust_hints=True)
            await session.list_tools()
            found = [
                text_of(await session.call_tool("lookup", {"order": "42"})),
                text_of(await session.call_tool("refund", {"order": "die"})),
            ]
        if bench.is_losing:
            await bench.hang()
        return found

    await bench.lose(work)
    found = await bench.run(work)
    assert found[0] == "order 42"
    assert "was not repeated" in found[1]
    lines = effects.read_text().splitlines()
    assert [line.split()[:2] for line in lines] == [["lookup", "42"], ["refund", "die"]]
    assert len(lines[1].split()[2]) == 32


async def test_outside_of_a_turn_it_is_refused(bench: Bench) -> None:
    async with session_of(bench) as session:
        with pytest.raises(NotInTurn):
            await session.call_tool("lookup", {"order": "42"})
        with pytest.raises(NotInTurn):
            await session.list_tools()
        assert session.server_info is not None  # the inner session's
    assert bench.ran == []


async def test_a_session_of_the_resources_is_not_missed_offline(bench: Bench) -> None:
    @asynccontextmanager
    async def resources() -> AsyncIterator[Any]:
        async with mcp.Client(shop(bench, [])) as client:
            yield client

    async def work(turn: Turn, prompt: str) -> Any:
        session = durable_session(turn.deps, name="shop", trust_hints=True)
        listed = await session.list_tools()
        return [len(listed.tools), text_of(await session.call_tool("refund", {"order": "42"}))]

    assert await bench.run(work, resources=resources) == [4, "refunded 42"]
    found = await bench.replayed(work)
    assert (found.verdict, len(found.calls)) == ("same", 2)
    assert bench.ran == ["refund"]

"""Plays the scenes of the suite with the tools of an MCP server; the model is asked in steps."""

from typing import Any

import mcp
from mcp.server import MCPServer
from mcp.types import ToolAnnotations

from journal import Turn, io
from journal.adapters.mcp import durable_session
from tests.adapters.drivers.failing import check
from tests.adapters.drivers.raw import scene, until_said
from tests.adapters.suite import Ask

server = MCPServer("shop")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def lookup(order: str) -> str:
    return await scene.lookup(order)


@server.tool()
async def refund(order: str) -> str:
    return await scene.refund(order)


async def model(told: list[str]) -> dict[str, Any]:
    reply = check(scene.reply(told))
    io.report(finish="tool_calls" if reply.asks else "stop")
    return {"text": reply.text, "asks": [[ask.tool, ask.call_id, ask.order] for ask in reply.asks]}


async def work(turn: Turn, prompt: str) -> Any:
    async with mcp.Client(server) as client:
        session = durable_session(client, name="shop", trust_hints=True)
        await session.list_tools()

        async def ask(messages: list[Any]) -> tuple[str, list[Any], list[Ask]]:
            reply = await turn.model(model, messages[1:])
            return reply["text"], [], [Ask(*parts) for parts in reply["asks"]]

        async def run(a: Ask) -> str:
            result: Any = await session.call_tool(a.tool, {"order": a.order})
            return str(result.content[0].text)

        return await until_said(ask, lambda results: [output for _, output in results], run, prompt)


if __name__ == "__main__":
    scene.play(work)

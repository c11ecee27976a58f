"""Type-checked, never run: what mypy strict and pyright strict must make of the public API."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import assert_type

import msgspec

from journal import (
    Agent,
    DirectoryWorkspace,
    Handle,
    Journal,
    Retry,
    ToolResult,
    Turn,
    never,
    safe,
    step,
    tool,
)
from journal.tools.exec import CommandResult, HostCommands


class Order(msgspec.Struct):
    id: str
    amount: int


@asynccontextmanager
async def resources() -> AsyncGenerator[dict[str, str]]:
    yield {"client": "x"}


local = Journal.local("here", exec=["ls"], version="1")
assert_type(local.commands, HostCommands)
journal = Journal("memory:", resources=resources, tools={"refund_*": "never"}, requires={"log.persistent"})


async def look_up(order_id: str) -> Order:
    return Order(order_id, 5)


def look_up_sync(order_id: str, *, deep: bool = False) -> Order:
    return Order(order_id, 5 + deep)


@step(retry=Retry(tries=3))
async def fetch(url: str) -> bytes:
    return url.encode()


@tool(replay="never")
async def refund(order_id: str, amount: int) -> str:
    return f"{order_id}:{amount}"


@tool
def note(text: str) -> None:
    print(text)


@journal.agent
async def support(turn: Turn, prompt: str) -> Order:
    assert_type(await turn.step(look_up, "a"), Order)
    assert_type(await turn.step(look_up_sync, "a", deep=True), Order)
    assert_type(await turn.step(fetch, "u"), bytes)
    assert_type(await turn.step(fetch.options(key="k"), "u"), bytes)
    assert_type(await turn.model(look_up, prompt), Order)
    assert_type(await turn.tool(refund, "a", amount=1), ToolResult[str])
    assert_type(await turn.tool(refund.options(key="k"), "a", 1), ToolResult[str])
    assert_type(await turn.tool(never(look_up), "a"), ToolResult[Order])
    assert_type((await turn.tool(safe(look_up_sync), "a")).value, Order)
    assert_type(await turn.tool(note, "t"), ToolResult[None])
    commands = HostCommands(cwd="/work", allow=["ls"])
    assert_type(await turn.tool(commands.tool(), "ls"), ToolResult[CommandResult])
    assert_type(await turn.step(commands.run, ["ls"], timeout=1), CommandResult)
    return Order(prompt, 1)


@journal.agent(name="other", tools={"*": "safe"}, workspace=DirectoryWorkspace("/srv/files", max_files=10))
async def other(turn: Turn, order: Order) -> None:
    print(turn.run_id, order)


async def main() -> None:
    assert_type(support, Agent[str, Order])
    assert_type(other, Agent[Order, None])
    assert_type(await support.run("x", run_id="r", key="k", timeout=3), Order)
    handle = await support.submit("x", priority=3, delay=1.5)
    assert_type(handle, Handle[Order])
    assert_type(await handle.result(), Order)
    assert_type(support.run_sync("x"), Order)
    assert_type(support.submit_sync("x"), str)

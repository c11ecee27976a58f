"""The demo's agent without the journal, as a process of its own: what a crash costs when nobody kept a log."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from journal import ToolResult, Turn


def act(environment: Mapping[str, str]) -> None:
    """Work the request through from the start; the process lives as long as this takes."""
    os.environ.update(environment)
    from agents import Runner  # not at the top: whoever directs the play need not wait for this import

    from journal.demo.support import agent
    from journal.demo.tools import PROMPT

    asyncio.run(Runner.run(agent, PROMPT))


def act_by_hand(environment: Mapping[str, str]) -> None:
    """The same without an SDK: the handler as it is, and nothing between it and what it calls."""
    os.environ.update(environment)
    from journal.demo.durable import support_by_hand
    from journal.demo.tools import PROMPT

    async def work() -> str:
        return await support_by_hand.handler(cast("Turn", _NoTurn()), PROMPT)

    asyncio.run(work())


class _NoTurn:
    """Calls what it is given."""

    async def model(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        return await fn(*args)

    async def tool(self, fn: Callable[..., Awaitable[Any]], **arguments: Any) -> ToolResult[Any]:
        return ToolResult(name=fn.__name__, status="ok", result=await fn(**arguments))

"""The demo's agent, in plain OpenAI Agents terms: three tools over the refund service, and no word of a journal.

`plain.py` runs it as it is; the worker of `journal demo` runs it through the durable runner. Importing it imports
the OpenAI Agents SDK (the extra `demo`).
"""

import asyncio
import json
import os
from typing import Any
from urllib.request import Request, urlopen

from agents import Agent, function_tool

from journal.demo.refund_service import URL_VARIABLE

PROMPT = "Order 42 arrived broken, please refund it."


@function_tool(failure_error_function=None)
async def get_order(order_id: str) -> str:
    """Look an order up: what it was, what it cost, what was refunded."""
    return await _ask(f"/orders/{order_id}")


@function_tool(failure_error_function=None)
async def refund(order_id: str, amount: int) -> str:
    """Pay money back for an order."""
    return await _ask("/refunds", {"order_id": order_id, "amount": amount})


@function_tool(failure_error_function=None)
async def post_note(order_id: str, text: str) -> str:
    """Put a note on an order. The same note twice is one note."""
    return await _ask("/notes", {"order_id": order_id, "text": text})


agent: Agent[None] = Agent(
    name="support",
    instructions="You are a support clerk. Look orders up, refund what is broken, and post a note of what you did.",
    model="loopback",
    tools=[get_order, refund, post_note],
)


async def _ask(path: str, body: dict[str, Any] | None = None) -> str:
    """What the service answers, as text for the model."""
    url = os.environ[URL_VARIABLE] + path
    data = json.dumps(body).encode() if body is not None else None
    request = Request(url, data, {"content-type": "application/json"})  # noqa: S310 - the URL is the demo's own

    def fetch() -> str:
        with urlopen(request, timeout=60) as answer:  # noqa: S310 - as above
            text: str = answer.read().decode()
            return text

    return await asyncio.to_thread(fetch)

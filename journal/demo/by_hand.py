"""What the demo's agent is made of where the Agents SDK is not installed: a request to the model, and tools by name."""

import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

from journal.demo.tools import fetch, get_order, post_note, refund

TOOLS: dict[str, Callable[..., Awaitable[str]]] = {
    "get_order": get_order,
    "refund": refund,
    "post_note": post_note,
}

Message = dict[str, Any]
"""Of a conversation, as Chat Completions has it."""


async def ask_model(messages: list[Message]) -> Message:
    """What the model says next."""
    tools = [
        {"type": "function", "function": {"name": name, "description": TOOLS[name].__doc__}} for name in TOOLS
    ]
    body = {"model": "loopback", "messages": messages, "tools": tools}
    answer = json.loads(await fetch(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", body))
    message: Message = answer["choices"][0]["message"]
    return message

"""What the demo's agent can do, over the refund service: three functions, and no word of a journal or of an SDK."""

import asyncio
import json
import os
from typing import Any
from urllib.request import Request, urlopen

from journal.demo.refund_service import URL_VARIABLE

PROMPT = "Order 42 arrived broken, please refund it."


async def get_order(order_id: str) -> str:
    """Look an order up: what it was, what it cost, what was refunded."""
    return await fetch(_url(f"/orders/{order_id}"))


async def refund(order_id: str, amount: int) -> str:
    """Pay money back for an order."""
    return await fetch(_url("/refunds"), {"order_id": order_id, "amount": amount})


async def post_note(order_id: str, text: str) -> str:
    """Put a note on an order. The same note twice is one note."""
    return await fetch(_url("/notes"), {"order_id": order_id, "text": text})


async def fetch(url: str, body: dict[str, Any] | None = None) -> str:
    """What a server of the demo answers, as text."""
    data = json.dumps(body).encode() if body is not None else None
    request = Request(url, data, {"content-type": "application/json"})  # noqa: S310 - the URL is the demo's own

    def read() -> str:
        with urlopen(request, timeout=60) as answer:  # noqa: S310 - as above
            text: str = answer.read().decode()
            return text

    return await asyncio.to_thread(read)


def _url(path: str) -> str:
    return os.environ[URL_VARIABLE] + path

"""The handler behind `tests/golden/runs/by-hand-*.jsonl`: it asks for what old logs hold, and is not to be changed."""

import asyncio
from dataclasses import dataclass

from journal import Journal, Retry, Turn, never, register_error, safe, step, tool

journal = Journal()
acts: list[str] = []
"""What really ran."""
hanging = asyncio.Event()
is_hanging = False
"""Whether `pay` is to be interrupted."""


@dataclass
class Order:
    id: str
    items: list[str]


@dataclass
class Receipt:
    order: str
    total: int
    notes: list[str]
    attachment: int


@register_error
class SoldOut(Exception):
    pass


@step
async def price(item: str) -> int:
    acts.append(f"price {item}")
    return len(item)


@step(retry=Retry(tries=2, min_delay=0.001))
def reserve(order: str) -> str:
    acts.append(f"reserve {order}")
    raise SoldOut(order)


@step
def stumble(order: str) -> str:
    acts.append(f"stumble {order}")
    raise ConnectionRefusedError(111, "nobody there")


async def summarise(words: list[str]) -> str:
    acts.append("summarise")
    return " and ".join(words)


@never
async def pay(order: str, amount: int) -> str:
    acts.append(f"pay {order} {amount}")
    if is_hanging:
        hanging.set()
        await asyncio.sleep(3600)
    return "paid"


@safe
async def look(order: str) -> str:
    acts.append(f"look {order}")
    return f"seen {order}"


@tool(replay="safe")
def refuse(order: str) -> str:
    acts.append(f"refuse {order}")
    raise ValueError("not today")


@step
def attach(size: int) -> str:
    acts.append(f"attach {size}")
    return "é" * size


@journal.agent
async def order(turn: Turn, given: Order) -> Receipt:
    """Every kind of call, and most ways in which one ends."""
    notes: list[str] = []
    prices = await asyncio.gather(*(turn.step(price, item) for item in given.items))
    try:
        await turn.step(reserve, given.id)
    except SoldOut as error:
        notes.append(f"sold out: {error.args[0]}")
    try:
        await turn.step(stumble, given.id)
    except ConnectionError as error:
        notes.append(f"{type(error).__name__} {error.args[0]}")
    notes.append(await turn.model(summarise, given.items))
    notes.append((await turn.tool(pay, given.id, sum(prices))).status)
    seen, refused = await asyncio.gather(turn.tool(look, given.id), turn.tool(refuse, given.id))
    notes += [seen.value, refused.status]
    attachment = await turn.step(attach.options(key="attachment"), 33_000)
    if given.id == "doomed":
        raise SoldOut("for good")
    return Receipt(given.id, sum(prices), notes, len(attachment))

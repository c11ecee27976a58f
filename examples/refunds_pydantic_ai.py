"""The refund of `refunds.py` with Pydantic AI: run it, kill it, run it again, and once more."""

import asyncio
import os
from pathlib import Path

from pydantic_ai import Agent

from journal import Journal, Turn, never, safe
from journal.adapters.pydantic_ai import JournalDurability
from journal.demo.model_server import bundled_model

journal = Journal()  # $JOURNAL_WORLD, else SQLite in .journal/ of the project
bank = Path("refunds.txt")  # stands for the outside world: one line a refund

agent = Agent(
    "openai-responses:gpt-5.2",
    name="support",
    instructions="Look orders up, refund what is broken.",
    capabilities=[JournalDurability()],  # the change
)


@agent.tool_plain
@safe
def get_order(order_id: str) -> str:
    """Look an order up."""
    refunded = order_id in bank.read_text().split() if bank.exists() else False
    return f"order {order_id}: 1 vase, amount: 30 EUR, refunded: {str(refunded).lower()}"


@agent.tool_plain
@never  # in doubt after a crash: not repeated, the model is told
async def refund(order_id: str, amount: int) -> str:
    """Pay money back."""
    with bank.open("a") as book:  # noqa: ASYNC230 - a line in a file
        book.write(f"{order_id} {amount}\n")
    print(f"The money has left, and the bank is slow to say so. Kill me now: kill -9 {os.getpid()}")
    await asyncio.sleep(10)
    return f"{amount} EUR refunded for order {order_id}"


@journal.agent
async def support(turn: Turn, prompt: str) -> str:
    result = await agent.run(prompt)
    return result.output


if __name__ == "__main__":
    with bundled_model():  # a model on this machine, unless OPENAI_API_KEY is set
        print(support.run_sync("Order 42 arrived broken, please refund it.", run_id="order-42"))

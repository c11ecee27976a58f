"""The process under test: one attempt at one turn, killed where it is told.

``python -m tests.adapters.killed FOLDER AT``: AT is `refund`, `model`, `add` or `nowhere`. Effects are lines of
FOLDER/effects, appended in one write each, so that they are counted outside of this process. Prints the output.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from agents import Agent, SQLiteSession, function_tool, set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

from journal import Journal, Turn, never, safe
from journal.adapters.openai_agents import DurableRunner

FOLDER, AT = Path(sys.argv[1]), sys.argv[2]


def effect(name: str) -> None:
    fd = os.open(FOLDER / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{name}\n".encode())
    os.close(fd)
    if name == AT:
        os.kill(os.getpid(), signal.SIGKILL)


@safe
@function_tool
async def lookup(order: str) -> str:
    effect("lookup")
    return f"order {order}"


@never
@function_tool
async def refund(order: str) -> str:
    effect("refund")
    return f"refunded {order}"


class Session(SQLiteSession):
    async def add_items(self, items: list[Any]) -> None:
        await super().add_items(items)
        effect("add")


def answer(call: Any) -> Any:
    """The reply that follows from how much was answered already."""
    done = sum(item.get("type") == "function_call_output" for item in call.input)
    effect(f"model {done}" if AT != "model" or done != 1 else "model")
    order = {"order": "42"}
    return [
        [function_call("lookup", order, call_id="c1")],
        [function_call("refund", order, call_id="c2")],
        [assistant_message(str(call.input[-1].get("output", "")))],
    ][done]


journal = Journal(f"sqlite:{FOLDER / 'journal.db'}")


@journal.agent
async def support(turn: Turn, prompt: str) -> str:
    model = ScriptedModel([ModelStep.respond(answer)] * 3)
    agent = Agent(name="support", tools=[lookup, refund], model=model)
    session = Session("s", FOLDER / "session.db")
    result = await DurableRunner.run(agent, prompt, session=session)
    items = [item.get("type") or item.get("role") for item in await session.get_items()]
    session.close()
    return json.dumps([result.final_output, items])


if __name__ == "__main__":
    set_tracing_disabled(True)

    async def main() -> None:
        async with journal:
            print(await support.run("Order 42 arrived broken", run_id="order-42"))

    asyncio.run(main())

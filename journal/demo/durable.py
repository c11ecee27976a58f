"""The demo's agent with the journal: the same tools and the same prompt as `plain.py`, and one line changed.

`support` is the agent of the Agents SDK; `support_by_hand` is the same as a loop, which needs the base package alone.
"""

import asyncio
import json
import os
from collections.abc import Mapping
from typing import Any

from journal import Agent, Journal, ToolResult, Turn
from journal.demo.by_hand import TOOLS, Message, ask_model
from journal.demo.tools import PROMPT

RUN_VARIABLE = "JOURNAL_DEMO_RUN"
LEASE_SECONDS = 4.0
"""Short: where no lock of the operating system tells that a worker has died, the next one waits so long for its run."""

# The tools say nothing of a journal, so their policies stand here; `refund` is named nowhere, hence `never`.
journal = Journal(tools={"get_order": "safe", "post_note": "safe"}, lease_seconds=LEASE_SECONDS)


@journal.agent
async def support(turn: Turn, prompt: str) -> str:
    """Work one request of a customer through."""
    from journal.adapters.openai_agents import DurableRunner  # imports the Agents SDK, which takes seconds
    from journal.demo.support import agent

    result = await DurableRunner.run(agent, prompt)  # in plain.py: Runner.run(agent, prompt)
    return str(result.final_output)


@journal.agent
async def support_by_hand(turn: Turn, prompt: str) -> str:
    """Work one request of a customer through, without an SDK."""
    messages: list[Message] = [{"role": "user", "content": prompt}]
    while True:
        message = await turn.model(ask_model, messages)
        messages.append(message)
        if not message.get("tool_calls"):
            return str(message["content"])
        for call in message["tool_calls"]:
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
            result: ToolResult[str] = await turn.tool(TOOLS[name], **arguments)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result.text})


def act(environment: Mapping[str, str]) -> None:
    """One worker: see that the request is in the queue, and work until it is answered."""
    os.environ.update(environment)
    asyncio.run(_work(support))


def act_by_hand(environment: Mapping[str, str]) -> None:
    """The same without an SDK."""
    os.environ.update(environment)
    asyncio.run(_work(support_by_hand))


async def _work(agent: Agent[Any, Any]) -> None:
    async with journal:
        # The same request again is the same turn.
        handle = await agent.submit(PROMPT, run_id=os.environ[RUN_VARIABLE])
        async with journal.worker(concurrency=1).running():
            await handle.result()

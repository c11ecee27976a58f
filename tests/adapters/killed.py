"""An application on the OpenAI Agents SDK, with a session, that `crash_everywhere` kills as a process."""

import os
from pathlib import Path
from typing import Any

from agents import Agent, SQLiteSession, function_tool, set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

from journal import Journal, Turn, never, safe
from journal.adapters.openai_agents import DurableRunner
from journal.testing import Effects

set_tracing_disabled(True)
effects = Effects()


@safe
@function_tool
async def lookup(order: str) -> str:
    effects.add("lookup")
    return f"order {order}"


@never
@function_tool
async def refund(order: str) -> str:
    effects.add("refund")
    return f"refunded {order}"


def answer(call: Any) -> Any:
    """The reply that follows from how much was answered already."""
    done = sum(item.get("type") == "function_call_output" for item in call.input)
    effects.add(f"model {done}")
    order = {"order": "42"}
    return [
        [function_call("lookup", order, call_id="c1")],
        [function_call("refund", order, call_id="c2")],
        [assistant_message(str(call.input[-1].get("output", "")))],
    ][done]


journal = Journal()


@journal.agent
async def support(turn: Turn, prompt: str) -> list[Any]:
    """What the agent said, and what its session holds in the end: it is a store that the kills do not spare."""
    model = ScriptedModel([ModelStep.respond(answer)] * 3)
    agent = Agent(name="support", tools=[lookup, refund], model=model)
    session = SQLiteSession("s", Path(os.environ["SESSIONS"]) / f"{turn.run_id}.db")
    result = await DurableRunner.run(agent, prompt, session=session)
    items = [item.get("type") or item.get("role") for item in await session.get_items()]
    session.close()
    return [result.final_output, items]

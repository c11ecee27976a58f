"""With the real SDK: what an agent's log takes, and that inputs come out of it as they were sent."""

from typing import Any

import pytest
from agents import Agent, function_tool
from agents.testing import assistant_message, function_call

from journal import Journal, Turn, safe
from journal.adapters.openai_agents import DurableRunner
from journal.core import values
from journal.core.codec import open_record
from journal.core.records import CallIntent
from journal.replay.fold import fold
from tests.adapters.bench import Bench, CountingModel

pytestmark = pytest.mark.anyio
ROUNDS = 20


async def test_replies_and_tool_results_are_in_the_log_once(bench: Bench) -> None:
    script: list[Any] = [
        [
            assistant_message(f"I look at page {n}. " + f"because{n} " * 60),
            function_call("look", {"page": n}, call_id=f"c{n}"),
        ]
        for n in range(ROUNDS)
    ]
    model = CountingModel([*script, [assistant_message("done")]])

    @safe
    @function_tool
    async def look(page: int) -> str:
        return f"page {page}: " + f"text{page} " * 300

    async def work(turn: Turn, prompt: str) -> Any:
        agent = Agent(name="a", instructions="You read. " * 40, tools=[look], model=model)
        return (await DurableRunner.run(agent, prompt, max_turns=ROUNDS + 1)).final_output

    assert await bench.run(work) == "done"
    async with Journal(bench.url) as journal:
        records = await journal.read("r", limit=1000)
    inputs = [call.input for call in fold(records).calls if call.kind == "model"]
    for shown, sent in zip(inputs, model.calls, strict=True):
        assert shown is not None
        assert shown.json is not None
        items = values.decode(bytes(shown.json))["items"]
        assert [item.get("call_id") for item in items] == [
            None if isinstance(item, str) else item.get("call_id")
            for item in ([sent.input] if isinstance(sent.input, str) else sent.input)
        ]
        assert items[-1].get("output", "go") == (
            "go" if isinstance(sent.input, str) else sent.input[-1].get("output", "go")
        )
    last = inputs[-1]
    assert last is not None
    assert sum(record.size for record in records) <= 1.5 * last.size
    bodies = [open_record(record) for record in records]
    assert sum(body.difference is not None for body in bodies if isinstance(body, CallIntent)) >= ROUNDS - 1

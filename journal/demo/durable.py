"""The demo's agent with the journal: the same tools and the same prompt as `plain.py`, and one line changed."""

import asyncio
import os
from collections.abc import Mapping

from journal import Journal, Turn

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


def act(environment: Mapping[str, str]) -> None:
    """One worker: see that the request is in the queue, and work until it is answered."""
    os.environ.update(environment)
    asyncio.run(_work())


async def _work() -> None:
    from journal.demo.support import PROMPT

    async with journal:
        # The same request again is the same turn.
        handle = await support.submit(PROMPT, run_id=os.environ[RUN_VARIABLE])
        async with journal.worker(concurrency=1).running():
            await handle.result()

"""The demo's agent without the journal, as a process of its own: what a crash costs when nobody kept a log."""

import asyncio
import os
from collections.abc import Mapping


def act(environment: Mapping[str, str]) -> None:
    """Work the request through from the start; the process lives as long as this takes."""
    os.environ.update(environment)
    from agents import Runner  # not at the top: whoever directs the play need not wait for this import

    from journal.demo.support import PROMPT, agent

    asyncio.run(Runner.run(agent, PROMPT))

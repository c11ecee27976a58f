"""Imported by the fork server of `stage.py`, for its side effects: what each process would spend its first second on.

The processes are then forks of one that has imported the Agents SDK and built the client's models, which takes seconds,
and so the demo shows crashes instead of imports. Nothing is opened and nothing started here.
"""

import structlog  # noqa: F401 - as above
from openai import AsyncOpenAI
from openai.types.responses import Response

import journal.adapters.openai_agents
import journal.demo.durable
import journal.demo.plain
import journal.demo.support
import journal.worlds.sqlite  # noqa: F401 - as above

Response.model_rebuild()
AsyncOpenAI(api_key="none").responses  # noqa: B018 - imports what the property gives

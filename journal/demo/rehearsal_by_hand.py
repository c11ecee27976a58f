"""What `rehearsal.py` is, where the Agents SDK is not installed."""

import structlog  # noqa: F401 - for its side effects

import journal.demo.durable
import journal.demo.plain
import journal.worlds.sqlite  # noqa: F401 - as above

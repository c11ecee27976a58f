"""Pydantic AI: ``Agent(..., capabilities=[JournalDurability()])``, and its runs inside a handler are recorded.

Built on `pydantic_ai.durable_exec`, the interface that Pydantic AI offers to durable engines; tested with 2.68. Model
calls, function and MCP tools, dynamic toolsets and event handlers are recorded. See docs/pydantic-ai.md.
"""

from journal.adapters.pydantic_ai.durability import JournalDurability
from journal.adapters.pydantic_ai.tools import trust_mcp_hints

__all__ = ["JournalDurability", "trust_mcp_hints"]

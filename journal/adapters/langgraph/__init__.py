"""LangGraph (`langgraph`, `langchain`): a checkpointer over the journal, and durable graphs inside a turn.

Tested with langgraph 1.2 and langchain 1.5. `JournalSaver` keeps threads, with and without turns; `DurableCalls`
records model and tool calls; `durable(graph)` runs a graph in a turn. See docs/langgraph.md.
"""

from journal.adapters.langgraph.calls import DurableCalls
from journal.adapters.langgraph.graph import DurableGraph, durable
from journal.adapters.langgraph.saver import JournalSaver

__all__ = ["DurableCalls", "DurableGraph", "JournalSaver", "durable"]

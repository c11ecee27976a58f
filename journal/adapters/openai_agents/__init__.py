"""OpenAI Agents SDK (`openai-agents`): ``await DurableRunner.run(agent, prompt)`` inside a handler.

Tested with version 0.24. Model calls, function and MCP tools, handoffs, agents as tools and sessions are recorded.
Tools that the provider runs inside a model call are not, and make that call `never`. See docs/openai-agents.md.
"""

from journal.adapters.openai_agents.agent import durable_agent, trust_mcp_hints
from journal.adapters.openai_agents.own_tools import file_tools, function_tools, shell_tool
from journal.adapters.openai_agents.runner import DurableRunner

__all__ = ["DurableRunner", "durable_agent", "file_tools", "function_tools", "shell_tool", "trust_mcp_hints"]

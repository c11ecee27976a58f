"""The demo's agent, in plain OpenAI Agents terms: three tools over the refund service, and no word of a journal.

`plain.py` runs it as it is; the worker of `journal demo` runs it through the durable runner. Importing it imports
the OpenAI Agents SDK (the extra `demo`).
"""

from agents import Agent, function_tool

from journal.demo import tools

agent: Agent[None] = Agent(
    name="support",
    instructions="You are a support clerk. Look orders up, refund what is broken, and post a note of what you did.",
    model="loopback",
    tools=[
        function_tool(tool, failure_error_function=None)
        for tool in (tools.get_order, tools.refund, tools.post_note)
    ],
)

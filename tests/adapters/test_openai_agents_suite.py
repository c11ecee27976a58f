"""The suite of all adapters, on the OpenAI Agents SDK."""

from tests.adapters.suite import AdapterSuite


class TestOpenAIAgents(AdapterSuite):
    driver = "tests.adapters.drivers.openai_agents"
    preload = ("agents", "agents.testing", "httpcore2", "journal.adapters.openai_agents")
    retries = False  # a tool has no way to ask for another try but to fail, or to say so in its result
    history = (
        "user",
        "function_call",
        "function_call_output",
        "function_call",
        "function_call_output",
        "message",
    )
    history_points = ("add", "model 1", "refund")

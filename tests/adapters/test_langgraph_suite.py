"""The suite of all adapters, on LangGraph."""

from tests.adapters.suite import AdapterSuite


class TestLangGraph(AdapterSuite):
    driver = "tests.adapters.drivers.langgraph"
    preload = ("journal.adapters.langgraph", "langchain.agents", "langchain.agents.middleware")
    history = ("human", "ai", "tool", "ai", "tool", "ai")
    history_points = ("put", "model 1", "refund")

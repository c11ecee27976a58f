"""The suite of all adapters, on Pydantic AI."""

from tests.adapters.suite import AdapterSuite


class TestPydanticAI(AdapterSuite):
    driver = "tests.adapters.drivers.pydantic_ai"
    preload = ("pydantic_ai", "pydantic_ai.models.function", "journal.adapters.pydantic_ai")
    history = ("user-prompt", "tool-call", "tool-return", "tool-call", "tool-return", "text")

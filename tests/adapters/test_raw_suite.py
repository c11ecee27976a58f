"""The suite of all adapters, on raw clients and on MCP sessions."""

from tests.adapters.suite import AdapterSuite

ENGINE = ("structlog", "journal.engine.runtime", "journal.worlds.sqlite")


class TestOpenAIClient(AdapterSuite):
    driver = "tests.adapters.drivers.openai_client"
    preload = (
        "openai",
        "openai.resources.responses",
        "journal.adapters.openai",
        "journal.demo.loopback",
        *ENGINE,
    )
    shows_again = True
    retries = False  # there is no harness whose control flow that would be
    pauses = False


class TestAnthropicClient(AdapterSuite):
    driver = "tests.adapters.drivers.anthropic_client"
    preload = (
        "anthropic",
        "anthropic.resources.messages",
        "journal.adapters.anthropic",
        "journal.demo.loopback",
        *ENGINE,
    )
    shows_again = True
    retries = False
    pauses = False


class TestMCPSession(AdapterSuite):
    driver = "tests.adapters.drivers.mcp_session"
    preload = ("mcp", "mcp.server", "journal.adapters.mcp", *ENGINE)
    streams = False  # the model is none of it
    retries = False
    pauses = False

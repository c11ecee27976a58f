"""What the adapters' pages show is run: the change of a few lines, and a `never` tool with its probe."""

import ast
import re
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import agents
import mcp
import pydantic_ai
import pytest
from agents.testing import assistant_message, function_call
from langchain.agents import create_agent
from langchain_core.tools import tool
from openai import AsyncOpenAI

from journal import Journal, Ran, Turn, io, never, safe
from journal.core.codec import open_record
from journal.core.records import CallIntent
from journal.demo.loopback import Reply
from tests.adapters.answering import response
from tests.adapters.bench import Bench, CountingModel
from tests.adapters.langgraph_model import Scripted, asks, last
from tests.adapters.provider import Provider
from tests.adapters.test_mcp import shop, text_of

pytestmark = pytest.mark.anyio
DOCS = Path(__file__).parents[2] / "docs"
PAID = {"order_id": "42", "amount": 5}


def snippets(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)


class Shown:
    """The names of a page, of those that it presupposes and those that it makes."""

    def __init__(self, page: str, **given: Any) -> None:
        self.page, self.code = page, snippets(page)
        self.keys: list[str] = []
        self.names: dict[str, Any] = {
            "__name__": "shown", "io": io, "never": never, "payments": self, "was_refunded": self.was_refunded, **given
        }  # fmt: skip

    async def refund(self, order_id: str, amount: int, *, idempotency_key: str) -> str:
        """The bank."""
        self.keys.append(idempotency_key)
        return f"refunded {amount} of {order_id}"

    async def was_refunded(self, given: Any, context: Any) -> Ran:
        return Ran("refunded before")

    async def run(self, number: int) -> None:
        """Snippet `number` of the page, from 0."""
        code = compile(
            self.code[number], self.page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )
        work: Awaitable[None] | None = eval(code, self.names)
        if work is not None:
            await work

    async def called(self, run: str = "order-42") -> list[tuple[str, str]]:
        """Name and policy of the calls of a run; closes the page's journal."""
        journal: Journal = self.names["journal"]
        intents = [open_record(record) for record in await journal.read(run)]
        await journal.aclose()
        return [(body.name, body.policy) for body in intents if isinstance(body, CallIntent)]


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JOURNAL_WORLD", f"sqlite:{tmp_path / 'journal.db'}")


@pytest.mark.parametrize(
    ("page", "count"),
    [("openai-agents", 2), ("pydantic-ai", 2), ("langgraph", 2), ("raw-clients", 1), ("mcp", 1)],
)
def test_no_snippet_is_left_out(page: str, count: int) -> None:
    assert len(snippets(page)) == count


async def test_openai_agents() -> None:
    shown = Shown("openai-agents", function_tool=agents.function_tool)
    await shown.run(1)
    model = CountingModel([[function_call("refund", PAID, call_id="c1")], [assistant_message("done")]])
    shown.names["agent"] = agents.Agent(name="support", model=model, tools=[shown.names["refund"]])
    await shown.run(0)
    assert await shown.called() == [("support", "safe"), ("refund", "never"), ("support", "safe")]
    assert len(shown.keys) == 1


async def test_langgraph() -> None:
    shown = Shown("langgraph", create_agent=create_agent, tool=tool)
    await shown.run(1)
    shown.names["model"] = Scripted(says=[asks(("refund", PAID, "c1")), last])

    @tool
    @safe
    async def get_order(order_id: str) -> str:
        """Get an order."""
        return order_id

    shown.names["get_order"] = get_order
    await shown.run(0)
    assert ("refund", "never") in await shown.called()
    assert len(shown.keys) == 1


async def test_pydantic_ai(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Any = response().body
    call = {
        "type": "function_call", "id": "f", "call_id": "c1", "name": "refund", "status": "completed",
        "arguments": '{"order_id":"42","amount":5}',
    }  # fmt: skip
    said = Reply(response("done").body)
    with Provider([said, Reply({**asked, "output": [call]}), said]) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        shown = Shown("pydantic-ai", Agent=pydantic_ai.Agent)
        await shown.run(0)
        await shown.run(1)
        assert await shown.names["support"].run("Refund it", run_id="again") == "done"
        assert [name for name, _ in await shown.called("again")] == ["support", "refund", "support"]
    assert len(shown.keys) == 1


async def test_raw_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    with Provider([Reply(response("done").body)]) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        shown = Shown("raw-clients", AsyncOpenAI=AsyncOpenAI, Turn=Turn, journal=Journal())
        await shown.run(0)
        assert await shown.names["support"].run("hi", run_id="order-42") == "done"
        assert await shown.called() == [("responses", "safe")]
        await shown.names["client"].close()


async def test_mcp() -> None:
    bench, journal = Bench("memory:"), Journal()
    shown = Shown("mcp", Client=lambda _: mcp.Client(shop(bench, [])), journal=journal)

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        await shown.run(0)
        return text_of(shown.names["result"])

    assert await work.run(None, run_id="order-42") == "refunded 42"
    assert await shown.called() == [("list_tools", "safe"), ("refund", "never")]

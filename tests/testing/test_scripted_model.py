"""A scripted model plays replies in order, and the same one to a call that a crash interrupted."""

import asyncio
from typing import Any

import pytest

from journal import Journal, Turn
from journal.testing import ScriptedModel, ScriptEnded, crash_everywhere

pytestmark = pytest.mark.anyio


def agent(model: ScriptedModel, calls: int) -> Any:
    async def work(turn: Turn, prompt: str) -> list[str]:
        return [await turn.model(model, f"{prompt} {number}") for number in range(calls)]

    return Journal("memory:").agent(work)


async def test_replies_come_in_order_and_requests_are_kept() -> None:
    model = ScriptedModel(["one", "two"])
    work = agent(model, 2)
    async with work.journal:
        assert await work.run("go", run_id="r") == ["one", "two"]
        assert await work.run("go", run_id="r") == ["one", "two"]
        assert [r.key for r in await work.journal.read("r") if r.type == "call.intent"] == [
            "model#1",
            "model#2",
        ]
    assert model.requests == ["go 0", "go 1"]
    assert model.asked == 2


async def test_a_function_answers_by_the_request() -> None:
    async def reply(request: str) -> str:
        return request.upper()

    assert await ScriptedModel(str.title)("a b") == "A B"
    assert await ScriptedModel(reply)("a b") == "A B"


async def test_a_script_may_fail_and_ends() -> None:
    model = ScriptedModel([ValueError("no"), "yes"])
    with pytest.raises(ValueError, match="no"):
        await model("?")
    assert await model("?") == "yes"
    with pytest.raises(ScriptEnded, match="2 replies"):
        await model("?")


def test_a_call_that_was_interrupted_is_given_the_same_reply_again() -> None:
    model = ScriptedModel(["one", "two", "three"])
    report = crash_everywhere(agent(model, 3), "go")
    assert model.asked > 3 * len(report.crashes)


async def test_calls_of_other_scopes_take_what_is_left() -> None:
    model = ScriptedModel(["a", "b"])

    async def work(turn: Turn, prompt: str) -> list[str]:
        return list(await asyncio.gather(turn.model(model, 1), turn.model(model, 2)))

    both = Journal("memory:").agent(work)
    async with both.journal:
        assert await both.run("go") == ["a", "b"]

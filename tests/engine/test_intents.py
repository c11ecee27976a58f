"""What is durable before a call acts, and what a call in doubt comes to when its policy has changed: SEMANTICS 2."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from journal import Journal, OutcomeUnknown, Turn, io, safe, tool
from journal.core.records import Policy
from tests.engine.test_diverging import in_doubt

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}" if request.param == "memory" else f"sqlite:{tmp_path / 'j.db'}"


@pytest.mark.parametrize(
    "kind", ["a step", "a safe tool", "a never tool", "an undeclared tool", "a model call"]
)
async def test_which_intents_are_durable_before_the_act(url: str, kind: str) -> None:
    """Those of safe tools and steps may ride with their outcome; while a call goes on they follow by themselves."""
    journal = Journal(url)
    at_first, later = False, False

    async def act() -> None:
        nonlocal at_first, later
        at_first = await is_there()
        async with asyncio.timeout(20):
            while not (later := await is_there()):
                await asyncio.sleep(0.001)

    async def is_there() -> bool:
        return any(record.type == "call.intent" for record in await journal.read("r"))

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        match kind:
            case "a step":
                await turn.step(act)
            case "a safe tool":
                assert (await turn.tool(safe(act))).status == "ok"
            case "a never tool":
                assert (await turn.tool(tool(replay="never")(act))).status == "ok"
            case "an undeclared tool":
                assert (await turn.tool(act)).status == "ok"
            case _:
                await turn.model(act)

    async with journal:
        await work.run(None, run_id="r")
    assert later
    assert at_first == (kind in ("a never tool", "an undeclared tool", "a model call"))


async def test_the_intent_of_a_quick_step_rides_with_its_outcome(url: str) -> None:
    journal = Journal(url)

    async def quick(n: int) -> int:
        return n

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        await turn.step(quick, 1)

    async with journal:
        await work.run(None, run_id="r")
        batches = [record.batch for record in await journal.read("r") if record.type.startswith("call.")]
    assert len(batches) == 2
    assert len(set(batches)) == 1


@pytest.mark.parametrize(
    ("recorded", "declared", "then"),
    [
        ("safe", "safe", "ok"),
        ("safe", "never", "unknown"),
        ("never", "safe", "unknown"),
        ("never", "never", "unknown"),
    ],
)
async def test_in_doubt_after_its_policy_changed(
    url: str, recorded: Policy, declared: Policy, then: str
) -> None:
    acts: list[str] = []

    def refund(replay: Policy, inside: asyncio.Event) -> Any:
        @tool(replay=replay)
        async def refund(order: str) -> str:
            acts.append(order)
            inside.set()
            if len(acts) == 1:
                await asyncio.Event().wait()
            return "refunded"

        return refund

    async def first(turn: Turn, inside: asyncio.Event) -> str:
        return (await turn.tool(refund(recorded, inside), "42")).status

    async def second(turn: Turn, inside: asyncio.Event) -> str:
        result = await turn.tool(refund(declared, inside), "42")
        if result.status == "unknown":
            with pytest.raises(OutcomeUnknown, match="refund"):
                _ = result.value
            for word in ("refund", "interruption", "may have completed", "not repeated", "Check"):
                assert word in result.text
        return result.status

    async with Journal(url):
        journal, work = await in_doubt(url, first, second)
        async with journal:
            assert await work.run(None, run_id="r") == then
    assert acts == ["42"] * (2 if then == "ok" else 1)


async def test_the_same_key_in_another_turn_is_another_call(url: str) -> None:
    """As a model's ids are, which may come again in any turn (FAULTS 22)."""
    journal = Journal(url)
    keys: list[str] = []

    @tool(replay="never", key="model#1/0:call_1")
    async def pay(amount: int) -> int:
        keys.append(io.idempotency_key)
        return amount

    @journal.agent
    async def work(turn: Turn, amount: int) -> int | None:
        return (await turn.tool(pay, amount)).value

    async with journal:
        for _ in range(2):
            assert await work.run(1, run_id="r", key="one") == 1
            assert await work.run(2, run_id="r", key="two") == 2
    assert len(set(keys)) == len(keys) == 2, "each once, and a service can tell them apart"

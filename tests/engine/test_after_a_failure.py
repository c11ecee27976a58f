"""A retry where the handler went on after the failure: what it did then is kept, and may go unasked."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from journal import Journal, NotRun, Turn, TurnBlocked, TurnFailed, tool

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}" if request.param == "memory" else f"sqlite:{tmp_path / 'j.db'}"


class Shaky:
    """Steps and a tool; `bad` is what fails."""

    def __init__(self) -> None:
        self.bad: set[int] = set()
        self.did: Counter[str] = Counter()

    async def step(self, n: int) -> int:
        self.did[f"step {n}"] += 1
        if n in self.bad:
            raise ValueError(n)
        return n

    async def clean(self, n: int) -> None:
        self.did[f"clean {n}"] += 1


async def collects(turn: Turn, shaky: Shaky) -> list[int]:
    found, errors = [], []
    for n in range(3):
        try:
            found.append(await turn.step(shaky.step, n))
        except ValueError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return found


async def cleans_up(turn: Turn, shaky: Shaky) -> list[int]:
    try:
        return [await turn.step(shaky.step, n) for n in (0, 1)] + [2]
    finally:
        await turn.step(shaky.clean, 9)


async def reports(turn: Turn, shaky: Shaky) -> list[int]:
    try:
        return [await turn.step(shaky.step, n) for n in (0, 1)] + [2]
    except ValueError:
        await turn.step(shaky.clean, 9)
        raise


async def cleans_up_behind_a_task(turn: Turn, shaky: Shaky) -> list[int]:
    try:
        return [*await asyncio.gather(*(turn.step(shaky.step, n) for n in (0, 1))), 2]
    finally:
        await turn.step(shaky.clean, 9)


@pytest.mark.parametrize("handler", [collects, cleans_up, reports, cleans_up_behind_a_task])
async def test_what_failed_is_made_again_and_nothing_else(url: str, handler: Any) -> None:
    journal, shaky = Journal(url), Shaky()
    shaky.bad = {1}

    @journal.agent
    async def work(turn: Turn, _: None) -> list[int]:
        return list(await handler(turn, shaky))

    async with journal:
        with pytest.raises(TurnFailed, match="ValueError"):
            await work.run(None, run_id="r")
        with pytest.raises(TurnFailed, match="ValueError"):
            await (await journal.retry("r")).settle(20, serve=True)
        shaky.bad.clear()
        assert await (await journal.retry("r")).settle(20, serve=True) == [0, 1, 2]
    done = "step 2" if handler is collects else "clean 9"
    assert shaky.did == {"step 0": 1, "step 1": 3, done: 1}


async def test_another_input_than_then_is_a_divergence_and_from_sets_it_aside(url: str) -> None:
    journal, shaky = Journal(url), Shaky()
    shaky.bad = {1}

    @journal.agent
    async def work(turn: Turn, _: None) -> int:
        try:
            n = await turn.step(shaky.step, 1)
        except ValueError:
            await turn.step(shaky.clean, 8)
            raise
        await turn.step(shaky.clean, 9)
        return n

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        shaky.bad.clear()
        with pytest.raises(TurnBlocked, match=r'"n":9.*"n":8'):
            await (await journal.retry("r")).settle(20, serve=True)
        assert await (await journal.retry("r", from_call=2)).settle(20, serve=True) == 1


@pytest.mark.parametrize("result", ["paid", NotRun()], ids=["it ran", "it did not run"])
async def test_what_an_unknown_led_to_may_go_unasked_once_it_is_known(url: str, result: Any) -> None:
    journal, shaky = Journal(url), Shaky()

    @tool
    async def pay() -> str:
        shaky.did["pay"] += 1
        if shaky.did["pay"] == 1:
            raise TimeoutError
        return "paid"

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        paid = await turn.tool(pay)
        if paid.status == "unknown":
            await turn.step(shaky.clean, 9)
            raise RuntimeError("somebody has to look")
        await turn.step(shaky.step, 1)
        return paid.value

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        assert await (await journal.retry("r", settle={1: result})).settle(20, serve=True) == "paid"
    assert shaky.did["pay"] == (2 if isinstance(result, NotRun) else 1)


async def test_a_task_is_known_again_by_the_call_that_was_set_aside(url: str) -> None:
    """Its first call failed, and others of it followed: it still has its name."""
    journal, shaky = Journal(url), Shaky()
    shaky.bad = {1}

    @journal.agent
    async def work(turn: Turn, _: None) -> list[list[int]]:
        async def one(n: int) -> list[int]:
            try:
                return [await turn.step(shaky.step, n)]
            finally:
                await turn.step(shaky.clean, n)

        order = range(3) if turn.attempt == 1 else (1, 2, 0)
        tasks = {n: asyncio.create_task(one(n)) for n in order}
        await asyncio.wait(tasks.values())
        return [await tasks[n] for n in range(3)]

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        shaky.bad.clear()
        assert await (await journal.retry("r")).settle(20, serve=True) == [[0], [1], [2]]
    assert shaky.did == {"step 0": 1, "step 1": 2, "step 2": 1, "clean 0": 1, "clean 1": 1, "clean 2": 1}

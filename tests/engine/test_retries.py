"""Tries within a call: SEMANTICS 5."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from journal import Journal, Retry, Turn, TurnFailed, step
from journal.core.codec import open_record
from journal.core.records import CallOutcome
from journal.engine.order import REPLAY_STALL_SECONDS

pytestmark = pytest.mark.anyio


async def turn_of(tmp_path: Path, handler: Callable[[Turn], Any]) -> tuple[Any, list[CallOutcome]]:
    """What the handler gives, and the outcomes it left."""
    journal = Journal(f"memory:{tmp_path.name}")

    @journal.agent
    async def work(turn: Turn, _: None) -> Any:
        return await handler(turn)

    async with journal:
        output = await work.run(None, run_id="r")
        bodies = [open_record(record) for record in await journal.read("r")]
    return output, [body for body in bodies if isinstance(body, CallOutcome)]


def test_defaults() -> None:
    true = Retry()
    assert (true.tries, true.min_delay, true.max_delay, true.backoff) == (3, 0.1, 1.0, "exponential")
    assert (true.jitter, true.should_retry) == (False, None)
    assert REPLAY_STALL_SECONDS == 10


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_the_predicate_decides_and_is_not_asked_after_the_last_try(
    tmp_path: Path, is_async: bool
) -> None:
    asked: list[str] = []
    acts: list[str] = []

    def sync(error: Exception) -> bool:
        asked.append(str(error))
        return isinstance(error, OSError)

    async def later(error: Exception) -> bool:
        await asyncio.sleep(0)
        return sync(error)

    rule = Retry(tries=3, min_delay=0, max_delay=0, should_retry=later if is_async else sync)

    @step(retry=rule)
    async def fails(errors: list[str]) -> None:
        acts.append(errors[0])
        number = len([act for act in acts if act == errors[0]]) - 1
        raise (OSError if errors[number] == "os" else ValueError)(f"{errors[0]} {number}")

    async def handler(turn: Turn) -> list[str]:
        said = []
        for errors in (["os", "os", "os"], ["value"], ["os2"]):
            try:
                await turn.step(fails, errors)
            except (OSError, ValueError) as error:
                said.append(f"{type(error).__name__} {error}")
        return said

    output, outcomes = await turn_of(tmp_path, handler)
    assert output == ["OSError os 2", "ValueError value 0", "ValueError os2 0"]
    assert asked == ["os 0", "os 1", "value 0", "os2 0"]
    assert [outcome.tries for outcome in outcomes] == [3, 1, 1]


async def test_the_last_error_is_the_one_that_is_raised(tmp_path: Path) -> None:
    raised: list[Exception] = []

    @step(retry=Retry(tries=2, min_delay=0, max_delay=0))
    async def fails() -> None:
        raised.append(KeyError(len(raised)))
        raise raised[-1]

    async def handler(turn: Turn) -> int:
        with pytest.raises(KeyError) as told:
            await turn.step(fails)
        assert told.value.args == (1,)
        assert told.value.__cause__ is raised[1], "the very one, with its traceback"
        return len(raised)

    assert (await turn_of(tmp_path, handler))[0] == 2


async def test_cancelling_during_a_back_off_cancels(tmp_path: Path) -> None:
    acts: list[int] = []

    @step(retry=Retry(tries=3, min_delay=3600, max_delay=3600))
    async def fails() -> None:
        acts.append(1)
        raise OSError

    async def handler(turn: Turn) -> str:
        trying = asyncio.create_task(turn.step(fails))
        async with asyncio.timeout(20):
            while not acts:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        trying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trying
        return "cancelled"

    output, (outcome,) = await turn_of(tmp_path, handler)
    assert (output, acts) == ("cancelled", [1])
    assert (outcome.status, outcome.cancelled) == ("cancelled", True)


async def test_an_error_that_is_no_exception_is_not_tried_again(tmp_path: Path) -> None:
    acts: list[int] = []

    @step(retry=Retry(tries=3, min_delay=0, max_delay=0))
    async def leaves() -> None:
        acts.append(1)
        raise SystemExit

    async def handler(turn: Turn) -> None:
        await turn.step(leaves)

    with pytest.raises(TurnFailed):
        await turn_of(tmp_path, handler)
    assert acts == [1]

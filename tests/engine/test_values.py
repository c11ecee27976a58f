"""FAULTS 26 and 27 on every world: kept exactly, refused before anything is written, or lost with an outcome."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from journal import Journal, Turn, TurnFailed, ValueLost, tool
from journal.core.codec import open_record
from journal.core.errors import InvalidId, InvalidValue, UsageError, ValueTooLarge
from journal.core.records import CallIntent, CallOutcome

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


REFUSED: dict[str, tuple[Callable[[], Any], type[UsageError], str]] = {
    "a lone surrogate": (lambda: {"a": "\ud800"}, InvalidValue, "at a: it holds a lone surrogate"),
    "a surrogate in a key": (lambda: [{"\udfff": 1}], InvalidValue, r"at \[0\]: the key"),
    "NaN": (lambda: {"a": [float("nan")]}, InvalidValue, r"at a\[0\]: nan is not JSON"),
    "infinity": (lambda: float("-inf"), InvalidValue, "-inf is not JSON"),
    "2**64": (lambda: [2**64], InvalidValue, r"at \[0\]: the integer is outside"),
    "less than -2**63": (lambda: [-(2**63) - 1], InvalidValue, r"at \[0\]: the integer is outside"),
    "a thousand levels": (lambda: deep(1000), InvalidValue, "nested deeper than 200"),
    "8 MiB and a byte": (lambda: "x" * (8 * MIB - 1), ValueTooLarge, "8,388,609 bytes"),
    "200 MiB": (lambda: "x" * (200 * MIB), ValueTooLarge, "209,715,202 bytes"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_an_input_that_is_refused_is_not_written(url: str, name: str) -> None:
    make, error, says = REFUSED[name]
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, given: Any) -> None: ...

    async with journal:
        with pytest.raises(error, match=says):
            await work.submit(make(), run_id="r")
        assert await journal.runs() == []


@pytest.mark.parametrize("name", REFUSED)
async def test_an_argument_that_is_refused_is_neither_written_nor_acted_on(url: str, name: str) -> None:
    make, error, says = REFUSED[name]
    journal, ran = Journal(url), []

    @tool(replay="never")
    async def pay(given: Any) -> None:
        ran.append(1)

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        with pytest.raises(error, match=says if error is InvalidValue else " bytes"):
            await turn.tool(pay, make())

    async with journal:
        await work.run(None, run_id="r")
        assert not any(r.type == CallIntent.TYPE for r in await journal.read("r"))
    assert ran == []


@pytest.mark.parametrize("size", [8 * MIB - 1, 8 * MIB])
async def test_up_to_8_mib_are_kept_exactly(url: str, size: int) -> None:
    journal = Journal(url)
    value = "x" * (size - 2)  # without the quotes

    async def give() -> str:
        return value

    @journal.agent
    async def work(turn: Turn, given: str) -> str:
        assert given == value
        assert await turn.step(give) == value
        if turn.attempt == 1:
            raise RuntimeError
        return given

    async with journal:
        with pytest.raises(TurnFailed, match="RuntimeError"):
            await work.run(value, run_id="r")
        assert await (await journal.retry("r")).settle(30, serve=True) == value


@pytest.mark.parametrize("bad", ["nul \0 inside", "lone \ud800", "", "x" * 201])
async def test_ids_that_are_refused_write_nothing(url: str, bad: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> None: ...

    async with journal:
        with pytest.raises(InvalidId):
            await work.submit(None, run_id=bad)
        with pytest.raises(InvalidId):
            await work.submit(None, run_id="r", key=bad)
        assert await journal.runs() == []


LOST: dict[str, Callable[[], Any]] = {
    **{name: make for name, (make, _, _) in REFUSED.items() if name != "200 MiB"},
    "an object": object,
    "bytes": lambda: b"\x80\x04.",
    "an exception": lambda: ValueError("x"),
    "a task": asyncio.Event,
}


@pytest.mark.parametrize("name", LOST)
async def test_a_result_that_cannot_be_kept_is_an_outcome_and_no_loop(url: str, name: str) -> None:
    journal, ran, told = Journal(url), [], []

    @tool(replay="never")
    async def pay() -> Any:
        ran.append(1)
        return LOST[name]()

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        result = await turn.tool(pay)
        assert isinstance(result.failure, ValueLost)
        told.append(str(result.failure))
        if turn.attempt == 1:
            raise RuntimeError
        return "went on"

    async with journal:
        with pytest.raises(TurnFailed, match="RuntimeError"):
            await work.run(None, run_id="r")
        assert await (await journal.retry("r")).settle(30, serve=True) == "went on"
        outcomes = [b for r in await journal.read("r") if isinstance(b := open_record(r), CallOutcome)]
        assert [o.status for o in outcomes] == ["value_lost"]
    assert ran == [1], "it happened, and is not done again"
    assert told[0] == told[1], "the replay says the same"

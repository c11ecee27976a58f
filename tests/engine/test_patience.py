"""A replay waits for what the code itself takes its time for, and takes it for no divergence: SEMANTICS 3."""

import asyncio
import time
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest

from journal import Turn, step, tool
from journal.core.records import BlobRef, Value
from journal.engine.attempt import Attempt
from tests.engine.test_order import twice

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}" if request.param == "memory" else f"sqlite:{tmp_path / 'j.db'}"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("journal.engine.order.REPLAY_STALL_SECONDS", 0.2)


async def takes(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


async def test_a_pause_beside_calls_begins_anew_with_the_replay(url: str) -> None:
    """What it came to lay a moment behind the call before it in the log, and is far away on replay."""

    async def handler(turn: Turn) -> list[float]:
        async def beat() -> float:
            await asyncio.sleep(0.8)
            return await turn.step(takes, 0.0)

        beating = asyncio.create_task(beat())
        said = [await turn.step(takes, seconds) for seconds in (0.35, 0.36, 0.37)]
        return [*said, await beating]

    live, replayed = await twice(url, handler)
    assert live == replayed == [0.35, 0.36, 0.37, 0.0]


async def test_a_timeout_around_several_calls_takes_as_long_as_it_did(url: str) -> None:
    async def handler(turn: Turn) -> list[str]:
        said = []
        try:
            async with asyncio.timeout(0.8):
                said.append(f"{await turn.step(takes, 0.6)}")
                said.append(f"{await turn.step(takes, 60.0)}")
        except TimeoutError:
            said.append("timeout")
        return said

    live, replayed = await twice(url, handler)
    assert live == replayed == ["0.6", "timeout"]


async def test_a_store_that_is_slow_while_a_value_is_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call was asked for; that its value takes its time is no fault of the code."""
    load = Attempt.load

    async def slow(attempt: Attempt, value: Value | None) -> bytes | None:
        if isinstance(value, BlobRef):
            await asyncio.sleep(0.8)
        return await load(attempt, value)

    monkeypatch.setattr(Attempt, "load", slow)

    async def large() -> str:
        return "x" * 100_000

    async def handler(turn: Turn) -> list[float]:
        async def behind() -> float:
            return await turn.step(takes, 0.1)

        sizes = await asyncio.gather(turn.step(large), behind())
        return [len(sizes[0]), sizes[1]]

    live, replayed = await twice(url, handler)
    assert live == replayed == [100_000, 0.1]


async def test_a_new_call_beside_one_whose_value_takes_its_time(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for that one, and acts as soon as it is there."""
    load = Attempt.load

    async def slow(attempt: Attempt, value: Value | None) -> bytes | None:
        if isinstance(value, BlobRef):
            await asyncio.sleep(0.1)
        return await load(attempt, value)

    monkeypatch.setattr(Attempt, "load", slow)

    async def large() -> str:
        return "x" * 100_000

    async def handler(turn: Turn) -> list[Any]:
        calls: list[Any] = [turn.step(large), *(turn.step(takes, 0.0) for _ in range(1, turn.attempt))]
        found = await asyncio.gather(*calls)
        return [len(found[0]), *found[1:]]

    live, replayed = await asyncio.wait_for(twice(url, handler), 20)
    assert live == [100_000]
    assert replayed == [100_000, 0.0]


async def test_a_turn_timeout_does_not_run_out_before_the_call_that_it_cancelled_was_asked_for(
    url: str,
) -> None:
    """The handler pauses between its calls, and what ran out then is known at once on replay."""
    polls = 0

    async def poll(job: str) -> str:
        nonlocal polls
        polls += 1
        await asyncio.sleep(30 if polls == 2 else 0.01)
        return job

    async def handler(turn: Turn) -> list[str]:
        said = []
        try:
            async with turn.timeout(0.3):
                while True:
                    said.append(await turn.step(poll, "job"))
                    await asyncio.sleep(0.05)
        except TimeoutError:
            said.append("timeout")
        return [*said, await turn.step(poll, "job")]

    live, replayed = await twice(url, handler)
    assert live == replayed == ["job", "timeout", "job"]
    assert polls == 3


async def test_a_call_that_was_cancelled_after_a_pause_keeps_its_place(url: str) -> None:
    async def work(name: str, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return name

    async def handler(turn: Turn) -> list[str]:
        seen = []

        async def one() -> None:
            try:
                async with asyncio.timeout(0.3):
                    await asyncio.sleep(0.05)
                    await turn.step(work, "slow", 30.0)
            except TimeoutError:
                seen.append("timeout")

        async def two() -> None:
            seen.append(await turn.step(work, "two", 0.6))

        await asyncio.gather(one(), two())
        return seen

    live, replayed = await twice(url, handler)
    assert live == replayed == ["timeout", "two"]


async def test_what_ends_within_the_moment_of_a_timeout_is_seen_the_same_way(url: str) -> None:
    async def handler(turn: Turn) -> list[str]:
        seen = []
        for number in range(40):
            try:
                async with turn.timeout(0.01):
                    await turn.step(takes, 0.008 + 0.0001 * number)
                seen.append("in time")
            except TimeoutError:
                seen.append("timeout")
        return seen

    live, replayed = await twice(url, handler)
    assert live == replayed


async def test_who_lost_a_race_after_a_pause_is_asked_for_again(url: str) -> None:
    @tool(replay="never")
    async def pay(name: str) -> str:
        await asyncio.sleep(30)
        return name

    async def handler(turn: Turn) -> list[str]:
        async def late() -> str:
            await asyncio.sleep(0.05)
            return (await turn.tool(pay, "x")).status

        place, _ = await turn.race(turn.step(takes, 0.3), late())
        return [str(place), f"{await turn.step(takes, 0.0)}"]

    live, replayed = await twice(url, handler)
    assert live == replayed == ["0", "0.0"]


async def within(limit: str, seconds: float, call: Awaitable[str | None]) -> str | None:
    """What `call` gives, or "out of time"."""
    try:
        match limit:
            case "wait_for":
                return await asyncio.wait_for(call, seconds)
            case "timeout":
                async with asyncio.timeout(seconds):
                    return await call
            case _:
                with anyio.fail_after(seconds):
                    return await call
    except TimeoutError:
        return "out of time"


@pytest.mark.parametrize("limit", ["wait_for", "timeout", "fail_after"])
async def test_a_limit_that_runs_out_on_the_replay_alone_changes_nothing(
    url: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call that it holds for has its place in the log behind a pause, which takes its time again."""
    monkeypatch.setattr("journal.engine.order.REPLAY_STALL_SECONDS", 10)
    is_through = asyncio.Event()

    async def behind() -> str:
        await is_through.wait()
        return "in time"

    async def use(said: str) -> str:
        return said

    async def handler(turn: Turn) -> list[str]:
        async def late() -> None:
            if turn.attempt == 2:
                await asyncio.sleep(0.5)
            await turn.step(takes, 0.0)
            is_through.set()

        async def limited() -> str:
            seconds = 30 if turn.attempt == 1 else 0.05
            said = [await within(limit, seconds, turn.step(behind)) for _ in range(2)]
            return await turn.step(use, f"{said}")

        return [said for said in await asyncio.gather(late(), limited()) if said]

    live, replayed = await twice(url, handler)
    assert live == replayed == ["['in time', 'in time']"]


async def test_a_limit_that_ran_out_at_a_recorded_call_is_heard_of_behind_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journal.engine.order.REPLAY_STALL_SECONDS", 10)
    is_through = asyncio.Event()

    async def behind() -> str:
        await is_through.wait()
        return "in time"

    async def handler(turn: Turn) -> list[str]:
        said = []

        async def late() -> None:
            if turn.attempt == 2:
                await asyncio.sleep(0.5)
            await turn.step(takes, 0.0)
            is_through.set()

        async def limited() -> None:
            try:
                async with asyncio.timeout(30 if turn.attempt == 1 else 0.05):
                    said.append(await turn.step(behind))
                    if turn.attempt == 2:
                        await asyncio.Event().wait()
            except TimeoutError:
                said.append("out of time")
            await turn.step(takes, 0.001)

        await asyncio.gather(late(), limited())
        return said

    assert await twice(url, handler) == (["in time"], ["in time", "out of time"])


@pytest.mark.parametrize("besides", ["pause", "thread", "executor", "key"])
async def test_what_the_handler_does_besides_its_calls_has_as_long_as_it_had(url: str, besides: str) -> None:
    """Else the next outcome, which is there at once on replay, comes first."""
    is_seen = asyncio.Event()

    async def fetch(name: str) -> str:
        if name == "small":
            await is_seen.wait()
        return name

    async def fetch_for_all() -> None:
        await is_seen.wait()

    for_all = step(fetch_for_all).options(key="k")

    async def summary(seen: list[str]) -> str:
        return ", ".join(seen)

    async def handler(turn: Turn) -> str:
        seen: list[str] = []

        async def one(name: str) -> None:
            said = await turn.step(fetch, name)
            if name == "big":
                seconds = 0.8 if turn.attempt == 1 else 0.1
                match besides:
                    case "pause":
                        await asyncio.sleep(seconds)
                    case "thread":
                        await asyncio.to_thread(time.sleep, seconds)
                    case "executor":
                        with ThreadPoolExecutor(1) as own:
                            await asyncio.get_running_loop().run_in_executor(own, time.sleep, seconds)
                    case _:
                        await within("wait_for", seconds, turn.step(for_all))
            seen.append(said)
            is_seen.set()

        shared = [turn.step(for_all)] if besides == "key" else []
        await asyncio.gather(*shared, one("big"), one("small"))
        return await turn.step(summary, seen)

    live, replayed = await twice(url, handler)
    assert live == replayed == "big, small"


async def test_threads_are_watched_once_in_a_loop_and_for_others_they_are_as_before(tmp_path: Path) -> None:
    async def handler(turn: Turn) -> float:
        return await turn.step(takes, 0.0)

    for number in range(2):
        await twice(f"memory:{tmp_path.name}.{number}", handler)
    run_in_executor: Any = asyncio.get_running_loop().run_in_executor
    assert "__journal__" not in vars(vars(run_in_executor)["__wrapped__"])
    assert await run_in_executor(executor=None, func=lambda: 5) == 5


async def test_what_beats_all_the_time_is_not_waited_for_as_long_as_it_was(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journal.engine.order._PACE_SECONDS", 0.1)

    async def handler(turn: Turn) -> float:
        async def beat() -> None:
            while True:
                await asyncio.sleep(0.01)

        beating = asyncio.create_task(beat())
        began = time.monotonic()
        await asyncio.gather(*(turn.step(takes, seconds) for seconds in (1.0, 2.0, 3.0)))
        beating.cancel()
        return time.monotonic() - began

    live, replayed = await twice(url, handler)
    assert live >= 3
    assert replayed < live / 2

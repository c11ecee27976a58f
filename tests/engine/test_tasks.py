"""Tasks are known again on replay by what they began with, in whatever order they begin: SEMANTICS 3."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from journal import Journal, Turn, TurnBlocked, TurnFailed, step, tool
from journal.engine.scope import Scope
from journal.replay.history import First

pytestmark = pytest.mark.anyio

Handler = Callable[[Turn], Awaitable[Any]]
Beginning = Callable[[Turn, AsyncExitStack], Awaitable[Any]]


class Again(RuntimeError):
    """Ends the first attempt."""


async def again(url: str, handler: Handler) -> Any:
    """What the second attempt comes to, with the first's records before it."""
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> Any:
        return await handler(turn)

    async with journal:
        with pytest.raises(TurnFailed, match="Again"):
            await work.run(None, run_id="r")
        return await (await journal.retry("r")).settle(20, serve=True)


async def test_a_task_that_left_no_record_may_begin_before_one_that_did() -> None:
    """`as_completed` starts coroutines in the order of a set, which is another one in every process."""
    acts: list[str] = []
    hanging = asyncio.Event()

    async def act(name: str, attempt: int) -> str:
        if name == "a" and attempt == 1:
            hanging.set()
            await asyncio.Event().wait()
        acts.append(name)
        return name

    async def handler(turn: Turn) -> list[str]:
        async def one(name: str) -> str:
            return await turn.step(lambda name: act(name, turn.attempt), name)

        names = "ba" if turn.attempt == 1 else "ab"
        tasks = {name: asyncio.create_task(one(name)) for name in names}
        if turn.attempt == 1:
            await tasks["b"]
            await hanging.wait()
            raise Again
        return list(await asyncio.gather(tasks["a"], tasks["b"]))

    assert await again("memory:", handler) == ["a", "b"]
    assert acts == ["b", "a"], "each acted once"


async def test_a_new_call_acts_behind_all_that_is_recorded() -> None:
    order: list[str] = []

    async def first(name: str) -> str:
        return name

    async def fresh(name: str) -> str:
        order.append(f"{name} acts")
        return name

    async def handler(turn: Turn) -> list[str]:
        async def old() -> None:
            for name in ("one", "two"):
                if turn.attempt == 2:
                    await asyncio.sleep(0.05)
                await turn.step(first, name)
                order.append(f"{name} is through")

        async def new() -> str:
            return await turn.step(fresh, "new")

        if turn.attempt == 1:
            await asyncio.create_task(old())
            order.clear()
            raise Again
        await asyncio.gather(new(), old())
        return order

    assert await again("memory:", handler) == ["one is through", "two is through", "new acts"]


async def test_another_input_among_parallel_calls_is_told_field_by_field(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("journal.engine.order.REPLAY_STALL_SECONDS", 0.2)
    acts: list[str] = []

    async def look(name: str) -> str:
        acts.append(name)
        return name

    async def handler(turn: Turn) -> Any:
        names = ["a", "b"] if turn.attempt == 1 else ["a", "other"]
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(turn.step(look, name))
        raise Again

    with pytest.raises(TurnBlocked, match="divergence") as caught:
        await again("memory:", handler)
    assert '\'t2/look#1\' with the input {"name":"other"}' in str(caught.value)
    assert 'recorded with {"name":"b"}' in str(caught.value)
    assert acts == ["a", "b"], "nothing new acted inside old history"


async def _clock(turn: Turn, _: AsyncExitStack) -> Any:
    return turn.now().isoformat()


async def _chance(turn: Turn, _: AsyncExitStack) -> Any:
    return str(turn.uuid())


async def _timeout(turn: Turn, stack: AsyncExitStack) -> Any:
    return await stack.enter_async_context(turn.timeout(60))


async def _flag(turn: Turn, _: AsyncExitStack) -> Any:
    return turn.is_cancel_requested()


async def _patch(turn: Turn, _: AsyncExitStack) -> Any:
    return turn.patched("p")


async def _race(turn: Turn, _: AsyncExitStack) -> Any:
    async def look(name: str) -> str:
        return name

    return list(await turn.race(turn.step(look, "x")))


@pytest.mark.parametrize("begin", [_clock, _chance, _timeout, _flag, _patch, _race])
@pytest.mark.parametrize("scheme", ["memory", "sqlite"])
async def test_a_task_that_begins_with_no_call_is_known_by_what_it_began_with(
    begin: Beginning, scheme: str, tmp_path: Path
) -> None:
    """Beside one that begins with a call, and comes first on replay."""
    acts: list[str] = []
    said: list[Any] = []

    async def look(name: str) -> str:
        acts.append(name)
        return name

    async def handler(turn: Turn) -> list[str]:
        async def odd() -> str:
            async with AsyncExitStack() as stack:
                said.append(await begin(turn, stack))
                return await turn.step(look, "odd")

        async def plain() -> str:
            return await turn.step(look, "plain")

        makers = [plain, odd] if turn.attempt == 1 else [odd, plain]
        tasks = [asyncio.create_task(make()) for make in makers]
        names = sorted([await task for task in tasks])
        if turn.attempt == 1:
            raise Again
        return names

    url = "memory:" if scheme == "memory" else f"sqlite:{tmp_path / 'j.db'}"
    assert await again(url, handler) == ["odd", "plain"]
    assert sorted(acts) == ["odd", "plain"]
    assert said[0] == said[1]


async def test_a_task_is_known_by_its_first_call_also_once_that_is_set_aside() -> None:
    """A retry sets a failed call aside; the task that made it still has the calls behind it."""
    acts: list[str] = []

    async def fails(name: str) -> str:
        acts.append(name)
        if acts.count(name) == 1:
            raise Again
        return name

    async def handler(turn: Turn) -> list[str]:
        async def one(name: str) -> str:
            return await turn.step(fails, name)

        names = "ab" if turn.attempt == 1 else "ba"
        tasks = [asyncio.create_task(one(name)) for name in names]
        await asyncio.wait(tasks)
        return sorted([await task for task in tasks])

    journal = Journal("memory:")

    @journal.agent
    async def work(turn: Turn, _: None) -> Any:
        return await handler(turn)

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        with pytest.raises(TurnFailed):
            await (await journal.retry("r")).settle(20, serve=True)
        assert await (await journal.retry("r")).settle(20, serve=True) == ["a", "b"]
    assert sorted(acts) == ["a", "a", "b", "b"]


@pytest.mark.parametrize("scheme", ["memory", "sqlite"])
async def test_nothing_new_acts_while_what_is_in_doubt_was_not_asked_for(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed payment in a task: whether the recorded one went through is not known, so the other must not follow."""
    monkeypatch.setattr("journal.engine.order.REPLAY_STALL_SECONDS", 0.2)
    url = f"memory:{tmp_path.name}" if scheme == "memory" else f"sqlite:{tmp_path / 'j.db'}"
    inside = asyncio.Event()
    paid: list[int] = []

    @tool(replay="never")
    async def pay(amount: int) -> None:
        paid.append(amount)
        inside.set()
        await asyncio.Event().wait()

    def build(amount: int) -> tuple[Journal, Any]:
        journal = Journal(url)

        @journal.agent
        async def work(turn: Turn, _: None) -> str:
            return (await asyncio.create_task(turn.tool(pay, amount))).status

        return journal, work

    journal, work = build(10)
    running = asyncio.create_task(work.run(None, run_id="r"))
    await inside.wait()
    await journal.aclose()
    await asyncio.wait({running})
    journal, work = build(20)
    async with journal:
        with pytest.raises(TurnBlocked, match="divergence") as caught:
            await work.run(None, run_id="r")
    assert "'t1/pay#1' with the input {\"amount\":20}" in str(caught.value)
    assert 'recorded with {"amount":10}' in str(caught.value)
    journal, work = build(10)
    async with journal:
        assert await (await journal.retry("r")).settle(20, serve=True) == "unknown"
    assert paid == [10]


async def test_what_a_retry_makes_anew_waits_for_nothing_that_comes_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call in doubt that was begun because the first one had failed is not asked for before that is made again."""
    monkeypatch.setattr("journal.engine.order.REPLAY_STALL_SECONDS", 0.2)
    inside = asyncio.Event()
    tries: list[str] = []

    async def fails(name: str) -> str:
        tries.append(name)
        if len(tries) < 3:
            raise ValueError(name)
        return name

    @tool(replay="never")
    async def undo() -> None:
        inside.set()
        await asyncio.Event().wait()

    journal = Journal("memory:")

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        try:
            return await turn.step(fails, "order")
        except Exception:
            undoing = asyncio.create_task(turn.tool(undo))
            if turn.attempt == 1:
                await inside.wait()
                raise
            return (await undoing).status

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        assert await (await journal.retry("r")).settle(20, serve=True) == "unknown"
    assert tries == ["order", "order"]


async def test_what_is_in_doubt_does_not_act_before_all_that_is_recorded_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Code that leaves a recorded call out is told before the one in doubt is tried again."""
    monkeypatch.setattr("journal.engine.order.REPLAY_STALL_SECONDS", 0.2)
    url = "memory:in-doubt-behind"
    inside = asyncio.Event()
    acts: list[str] = []

    async def act(name: str) -> str:
        acts.append(name)
        if name == "last" and acts.count("last") == 1:
            inside.set()
            await asyncio.Event().wait()
        return name

    async def last(name: str) -> str:
        return await act(name)

    def build(names: list[str]) -> tuple[Journal, Any]:
        journal = Journal(url)

        @journal.agent
        async def work(turn: Turn, _: None) -> str:
            for name in names:
                await turn.step(act, name)
            return await turn.model(last, "last")

        return journal, work

    journal, work = build(["one", "two"])
    running = asyncio.create_task(work.run(None, run_id="r"))
    await inside.wait()
    await journal.aclose()
    await asyncio.wait({running})
    journal, work = build(["one"])
    async with journal:
        with pytest.raises(TurnBlocked, match=r"'act#2'.*no longer asks for it"):
            await work.run(None, run_id="r")
    assert acts == ["one", "two", "last"]
    journal, work = build(["one", "two"])
    async with journal:
        assert await (await journal.retry("r")).settle(20, serve=True) == "last"


async def test_a_call_that_was_moved_into_a_task_is_told_by_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("journal.engine.order.REPLAY_STALL_SECONDS", 0.2)

    async def look(name: str) -> str:
        return name

    async def handler(turn: Turn) -> Any:
        if turn.attempt == 1:
            await turn.step(look, "a")
        else:
            await asyncio.gather(turn.step(look, "a"))
        raise Again

    with pytest.raises(
        TurnBlocked, match=r"the code asks for step 't1/look#1' .*the log holds step 'look#1'"
    ):
        await again("memory:", handler)


class _Counted(bytes):
    """Bytes that count how often they are compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        _Counted.compared += 1
        return bytes.__eq__(self, other)

    __hash__ = bytes.__hash__


def test_thousands_of_recorded_tasks_are_known_again_without_looking_through_all_of_them() -> None:
    many = 3000
    recorded = {f"t{n}": First("work", _Counted(b"%d" % n)) for n in range(1, many + 1)}
    attempt: Any = SimpleNamespace(history=SimpleNamespace(tasks_of=lambda path: recorded))
    scope = Scope(attempt, "", None)
    _Counted.compared = 0
    backwards = [scope.name_of_task(("work", _Counted(b"%d" % n)), None) for n in range(many, 0, -1)]
    assert backwards == [f"t{n}" for n in range(many, 0, -1)]
    fresh = [scope.name_of_task(("new", _Counted(b"%d" % n)), None) for n in range(many)]
    assert fresh == [f"t{n}" for n in range(many + 1, 2 * many + 1)]
    assert _Counted.compared < 10 * many


def test_a_new_task_gets_no_name_that_the_log_knows() -> None:
    recorded = {"t1": First("a", b"1"), "t3": First("a", b"1"), "t4": First("b", b"2")}
    attempt: Any = SimpleNamespace(history=SimpleNamespace(tasks_of=lambda path: recorded))
    scope = Scope(attempt, "", None)
    asked = [("c", b"3"), ("a", b"1"), ("c", b"4"), ("a", b"1"), ("a", b"1"), ("b", b"2")]
    assert [scope.name_of_task(first, None) for first in asked] == ["t2", "t1", "t5", "t3", "t6", "t4"]


class Shuffled:
    """Starts coroutines in another order in each attempt, as `as_completed` does."""

    def __init__(self) -> None:
        self.starts = 0

    def __call__(self, coroutines: list[Any]) -> list["asyncio.Task[Any]"]:
        self.starts += 1
        shift = self.starts % len(coroutines)
        tasks = [asyncio.create_task(coroutine) for coroutine in coroutines[shift:] + coroutines[:shift]]
        return tasks[-shift:] + tasks[:-shift]  # in the order in which they were given


class Order(NamedTuple):
    number: int


@dataclass
class Item:
    number: int


async def _same_call(turn: Turn) -> str:
    async def config() -> str:
        return "config"

    return await turn.step(config)


async def _same_clock(turn: Turn) -> str:
    return turn.now().isoformat()


async def _same_chance(turn: Turn) -> str:
    return str(turn.uuid())


def _as_it_is(number: int) -> Any:
    return number


@pytest.mark.parametrize("begin", [_same_call, _same_clock, _same_chance])
@pytest.mark.parametrize("given", [_as_it_is, Order, Item], ids=["number", "tuple", "dataclass"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "wrapped"])
@pytest.mark.parametrize("scheme", ["memory", "sqlite"])
async def test_tasks_that_begin_with_the_same_are_known_by_what_they_were_started_with(
    begin: Callable[[Turn], Awaitable[str]],
    given: Callable[[int], Any],
    wrapped: bool,
    scheme: str,
    tmp_path: Path,
) -> None:
    acts: list[int] = []
    said: list[list[str]] = []
    start = Shuffled()

    async def charge(number: int, seen: str) -> str:
        acts.append(number)
        return f"{number} {seen}"

    async def handler(turn: Turn) -> list[str]:
        async def one(given: Any, shared: list[int]) -> str:
            number = given if isinstance(given, int) else given.number
            seen = await begin(turn)
            shared.append(number)
            return await turn.step(charge, number, seen)

        async def limited(limit: asyncio.Semaphore, coroutine: Awaitable[str]) -> str:
            async with limit:
                return await coroutine

        shared: list[int] = []
        limit = asyncio.Semaphore(10)
        ones = [one(given(number), shared) for number in range(5)]
        tasks = start([limited(limit, one) for one in ones] if wrapped else ones)
        said.append([await task for task in tasks])
        if turn.attempt == 1:
            raise Again
        return said[-1]

    url = f"memory:{tmp_path.name}" if scheme == "memory" else f"sqlite:{tmp_path / 'j.db'}"
    assert [number[0] for number in await again(url, handler)] == list("01234")
    assert said[0] == said[1]
    assert sorted(acts) == list(range(5)), "each acted once"


async def test_tasks_that_are_started_with_something_new_each_time_are_known_by_their_order() -> None:
    acts: list[int] = []

    async def act(number: int) -> int:
        acts.append(number)
        return number

    async def handler(turn: Turn) -> list[int]:
        async def one(number: int, trace: str) -> int:
            await turn.step(act, 0)
            return await turn.step(act, number)

        tasks = [asyncio.create_task(one(number, f"{turn.attempt}.{number}")) for number in range(1, 4)]
        numbers = [await task for task in tasks]
        if turn.attempt == 1:
            raise Again
        return numbers

    assert await again("memory:", handler) == [1, 2, 3]
    assert sorted(acts) == [0, 0, 0, 1, 2, 3]


@pytest.mark.parametrize("scheme", ["memory", "sqlite"])
async def test_a_task_that_begins_with_a_named_call_is_known_by_that(scheme: str, tmp_path: Path) -> None:
    """The key of that call does not tell whose it is, and those behind it are counted."""
    acts: list[str] = []

    async def act(name: str) -> str:
        acts.append(name)
        return name

    async def handler(turn: Turn) -> list[str]:
        async def one(name: str) -> str:
            await turn.step(step(act).options(key=name), name)
            return await turn.step(act, f"{name} counted")

        names = "ab" if turn.attempt == 1 else "ba"
        tasks = [asyncio.create_task(one(name)) for name in names]
        said = sorted([await task for task in tasks])
        if turn.attempt == 1:
            raise Again
        return said

    url = "memory:" if scheme == "memory" else f"sqlite:{tmp_path / 'j.db'}"
    assert await again(url, handler) == ["a counted", "b counted"]
    assert sorted(acts) == ["a", "a counted", "b", "b counted"]

"""What is asked for and never awaited: a clear error of the call, and no outcome that claims it was done."""

import asyncio
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from anyio import from_thread, to_thread

from journal import Journal, Turn, ValueLost, VirtualWorkspace, io, never, step, tool
from journal.core.errors import NotAwaited
from journal.tools.exec import HostCommands

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")]


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Python warns when a coroutine goes: while that is not an error, and not in the next test."""
    yield
    gc.collect()


@dataclass
class Order:
    id: int


async def helper() -> int:
    return 3


def forgets() -> str:
    io.files.write("/a", "text")  # type: ignore[unused-coroutine]  # that is the point
    return "done"


async def forgets_too() -> str:
    io.files.write("/a", "text")  # type: ignore[unused-coroutine]  # that is the point
    return "done"


def forgets_a_command() -> str:
    HostCommands(allow=["true"], cwd="/").run("true")  # type: ignore[unused-coroutine]  # that is the point
    return "done"


async def forgets_in_a_thread() -> str:
    return await asyncio.to_thread(forgets)


async def outcome_of(fn: Any, *, url: str = "memory:") -> Any:
    """What the handler sees of a step of `fn`, on the first run and on replay; the files that are left."""
    journal, seen = Journal(url), []

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> list[str]:
        try:
            seen.append(await turn.step(fn))
        except Exception as error:
            seen.append(error)
        if len(seen) == 1:
            raise RuntimeError("once more")
        return [file.path for file in await turn.files.list()]

    async with journal:
        with pytest.raises(Exception, match="once more"):
            await work.run(None, run_id="r")
        files = await (await journal.retry("r")).settle(5, serve=True)
    first, again = seen
    assert (type(first), str(first)) == (type(again), str(again))
    return first, files


@pytest.mark.parametrize("fn", [forgets, forgets_too, forgets_in_a_thread])
async def test_a_file_that_is_written_without_awaiting_is_an_error_and_no_success(fn: Any) -> None:
    error, files = await outcome_of(fn)
    assert isinstance(error, NotAwaited)
    assert "io.files.write(...) was called and not awaited" in str(error)
    assert "anyio.from_thread.run(io.files.write, ...)" in str(error)
    assert files == []


async def test_other_helpers_that_are_not_awaited_are_named_too() -> None:
    error, _ = await outcome_of(forgets_a_command)
    assert isinstance(error, NotAwaited)
    assert "HostCommands.run(...) was called and not awaited" in str(error)


async def test_a_never_tool_that_forgets_to_await_has_happened_all_the_same() -> None:
    journal = Journal("memory:")

    @never
    def pay() -> str:
        io.files.write("/receipt", "30 EUR")  # type: ignore[unused-coroutine]  # that is the point
        return "paid 30 EUR"

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> str:
        paid = await turn.tool(pay)
        assert isinstance(paid.failure, ValueLost)
        return paid.text

    async with journal:
        text = await work.run(None)
    assert (
        "happened, but its result could not be kept (io.files.write(...) was called and not awaited" in text
    )
    assert text.endswith("it was 'paid 30 EUR'")


async def test_a_sync_function_may_await_it_from_its_thread() -> None:
    loop = asyncio.get_running_loop()

    def writes() -> str:
        from_thread.run(io.files.write, "/a", "one")
        asyncio.run_coroutine_threadsafe(io.files.write("/b", "two"), loop).result()
        return "done"

    assert await outcome_of(writes) == ("done", ["/a", "/b"])


async def test_a_sync_function_may_return_what_is_to_be_awaited() -> None:
    assert await outcome_of(lambda: io.files.write("/a", "one")) == (None, ["/a"])


async def test_what_another_try_forgot_counts_for_nothing() -> None:
    tries: list[int] = []

    @step(retry=True)
    def stumbles() -> str:
        tries.append(1)
        if len(tries) == 1:
            io.files.write("/a", "text")  # type: ignore[unused-coroutine]  # that is the point
            raise ConnectionError
        return "done"

    assert await outcome_of(stumbles) == ("done", [])


async def returns_it() -> Any:
    return helper()


async def returns_it_as_an_int() -> int:
    return helper()  # type: ignore[return-value]  # that is the point


async def returns_it_as_an_order() -> Order:
    return helper()  # type: ignore[return-value]  # that is the point


def returns_a_list_of_it() -> Any:
    return [1, helper()]


@pytest.mark.parametrize(
    "fn", [returns_it, returns_it_as_an_int, returns_it_as_an_order, returns_a_list_of_it]
)
async def test_a_result_that_is_not_awaited_is_told_as_that(fn: Any) -> None:
    error, _ = await outcome_of(fn)
    assert isinstance(error, ValueLost)
    assert "a coroutine is no value yet: await it" in str(error)
    assert "declare the result's type" not in str(error)


async def test_what_is_awaited_outside_of_a_call_is_not_noted() -> None:
    journal = Journal("memory:")

    @tool(replay="safe")
    async def store() -> None:
        await to_thread.run_sync(lambda: None)
        await io.files.write("/a", "one")

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> str:
        await turn.tool(store)
        return await turn.files.read_text("/a")

    async with journal:
        assert await work.run(None) == "one"

"""Sessions: read once, written once, whatever happens in between."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, SQLiteSession, function_tool
from agents.memory import OpenAIResponsesCompactionSession
from agents.testing import assistant_message, function_call

from journal import Turn, TurnFailed, safe
from journal.adapters.openai_agents import DurableRunner
from tests.adapters.bench import Bench, CountingModel

pytestmark = pytest.mark.anyio


class Fragile(SQLiteSession):
    """Hangs in the add that is to be lost, after so many of its items were written."""

    def __init__(self, path: Path, bench: Bench, *, at: int, written: int) -> None:
        super().__init__("s", path)
        self.bench, self.at, self.written, self.adds = bench, at, written, 0

    async def add_items(self, items: list[Any]) -> None:
        self.adds += 1
        if self.bench.is_losing and self.adds == self.at:
            await super().add_items(items[: self.written])
            await self.bench.hang()
        await super().add_items(items)


@pytest.mark.parametrize(("at", "written"), [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (3, 1)])
async def test_a_crash_between_writing_and_noting_neither_doubles_nor_loses(
    bench: Bench, tmp_path: Path, at: int, written: int
) -> None:
    path = tmp_path / "session.db"
    earlier: list[Any] = [{"role": "user", "content": "go"}, {"role": "user", "content": "go"}]
    with closing(SQLiteSession("s", path)) as session:
        await session.add_items(earlier)
    model = CountingModel([[function_call("look", {}, call_id="c1")], [assistant_message("done")]])

    @safe
    @function_tool
    async def look() -> str:
        return "found"

    async def work(turn: Turn, prompt: str) -> Any:
        with closing(Fragile(path, bench, at=at, written=written)) as session:
            agent = Agent(name="a", tools=[look], model=model)
            return (await DurableRunner.run(agent, prompt, session=session)).final_output

    await bench.lose(work)
    assert await bench.run(work) == "done"
    with closing(SQLiteSession("s", path)) as session:
        items = [item.get("type") or item.get("role") for item in await session.get_items()]
    assert items == ["user", "user", "user", "function_call", "function_call_output", "message"]
    assert model.asked == 2


async def test_what_was_read_is_replayed_though_the_session_has_changed(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "session.db"
    model = CountingModel([[function_call("look", {}, call_id="c1")], [assistant_message("done")]])

    @safe
    @function_tool
    async def look() -> str:
        await bench.effect("look", hang=True)
        return "found"

    async def work(turn: Turn, prompt: str) -> Any:
        with closing(SQLiteSession("s", path)) as session:
            agent = Agent(name="a", tools=[look], model=model)
            return (await DurableRunner.run(agent, prompt, session=session)).final_output

    await bench.lose(work)
    assert await bench.run(work) == "done"
    assert [len(call.input) for call in model.calls] == [1, 3]
    assert [key for key in await bench.calls() if key.startswith("session/")][:2] == [
        "session/get_items#1",
        "session/add_items#1",
    ]


async def test_a_streamed_run_keeps_its_session_too(bench: Bench, tmp_path: Path) -> None:
    model = CountingModel([[assistant_message("done")]])
    path = tmp_path / "session.db"

    async def work(turn: Turn, prompt: str) -> Any:
        with closing(SQLiteSession("s", path)) as session:
            result = DurableRunner.run_streamed(Agent(name="a", model=model), prompt, session=session)
            async for _ in result.stream_events():
                pass
            if bench.is_losing:
                await bench.hang()
            return len(await session.get_items())

    await bench.lose(work)
    assert await bench.run(work) == 2


async def test_a_session_that_compacts_itself_is_refused(bench: Bench) -> None:
    inner = SQLiteSession("s")
    session = OpenAIResponsesCompactionSession("s", inner, client=object())  # type: ignore[arg-type]  # never asked

    async def work(turn: Turn, prompt: str) -> Any:
        await DurableRunner.run(Agent(name="a", model=CountingModel()), prompt, session=session)

    with pytest.raises(TurnFailed) as failed:
        await bench.run(work)
    assert failed.value.type.endswith("InvalidOptions")
    inner.close()

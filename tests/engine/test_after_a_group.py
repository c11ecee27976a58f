"""A retry of a turn that failed beside calls under way, which its task group cancelled over that: they go on."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from journal import Journal, Turn, TurnFailed, tool
from journal.core.ports import Answer, Batch, World
from journal.core.records import CallOutcome
from journal.engine.offline import replay
from journal.replay.recorded import RecordedRun
from journal.worlds import open_world
from tests.engine.test_store_faults import Meddled

pytestmark = pytest.mark.anyio


class Shop:
    """What branches of a group do; one of them fails until it is mended."""

    def __init__(self) -> None:
        self.is_mended = False
        self.did: Counter[str] = Counter()
        self.asked = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def look(self, name: str) -> str:
        self.did[name] += 1
        await asyncio.sleep(0)
        return name

    async def wait(self, name: str) -> str:
        self.did[name] += 1
        if not self.is_mended:
            await asyncio.sleep(3600)
        return name

    @tool(replay="never")
    async def pay(self, name: str) -> str:
        self.did[name] += 1
        return name

    def check(self) -> None:
        if not self.is_mended:
            raise ValueError("a bug")

    async def check_in_a_call(self) -> None:
        self.check()


def journal_on(url: str, shop: Shop) -> Journal:
    """The first outcome lands once a payment was asked for, whose intent does so once the group was cancelled."""

    async def meddle(world: World, batch: Batch) -> Answer:
        if shop.asked.is_set():
            await asyncio.wait_for(shop.cancelled.wait(), 20)
        elif any(record.type == CallOutcome.TYPE for record in batch.records):
            await asyncio.wait_for(shop.asked.wait(), 20)
        return await world.append(batch)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        async with open_world(url) as world:
            yield Meddled(world, meddle)

    return Journal(opened)


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}" if request.param == "memory" else f"sqlite:{tmp_path / 'j.db'}"


async def fails_in_a_call(turn: Turn, shop: Shop) -> str:
    await turn.step(shop.check_in_a_call)
    return "checked"


async def fails_by_itself(turn: Turn, shop: Shop) -> str:
    await turn.step(shop.look, "before")
    shop.check()
    return "checked"


@pytest.mark.parametrize("from_call", [None, 1])
@pytest.mark.parametrize("failing", [fails_in_a_call, fails_by_itself])
async def test_what_was_cancelled_over_it_goes_on(
    url: str, failing: Callable[..., Any], from_call: int | None
) -> None:
    shop = Shop()
    journal = journal_on(url, shop)

    @tool(replay="safe", key="shared")
    async def share() -> str:
        return await shop.wait("shared")

    @journal.agent
    async def work(turn: Turn, _: None) -> list[str]:
        async def waits() -> str:
            return await turn.step(shop.wait, "waited")

        async def pays() -> str:
            await asyncio.sleep(0.01)
            shop.asked.set()
            return str((await turn.tool(shop.pay, "paid")).value)

        async def looks() -> str:
            return await turn.step(shop.look, "looked")

        async def shares() -> str:
            return (await turn.tool(share)).value

        async def tells() -> None:
            try:
                await asyncio.sleep(0 if shop.is_mended else 3600)
            finally:
                shop.cancelled.set()

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(failing(turn, shop))]
            tasks += [group.create_task(branch()) for branch in (waits, pays, looks, shares, shares)]
            group.create_task(tells())
        return [task.result() for task in tasks]

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        assert shop.did["paid"] == 0
        shop.is_mended = True
        result = await (await journal.retry("r", from_call=from_call)).settle(30, serve=True)
        log = await journal.read("r")
    assert result == ["checked", "waited", "paid", "looked", "shared", "shared"]
    assert shop.did["paid"] == 1
    assert str(await replay(work, RecordedRun(log, {}))).startswith("ended as recorded")

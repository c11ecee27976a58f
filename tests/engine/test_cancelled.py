"""A call that is cancelled while what it gave is on its way to the handler: cancelled on replay too (FAULTS 42)."""

import asyncio
from pathlib import Path
from typing import Any, Literal

import pytest

from journal import CallError, CannotTell, Journal, Ran, Turn, TurnFailed, tool
from journal.core.ports import Answer, Batch
from journal.worlds.memory import MemoryWorld
from tests.engine.test_order import Again, twice

pytestmark = pytest.mark.anyio


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}"


async def quick(n: int) -> int:
    return n


async def limited(seconds: float, call: Any) -> str:
    try:
        await asyncio.wait_for(call, seconds)
    except TimeoutError:
        return "out of time"
    return "in time"


async def spin(seconds: float) -> None:
    """Keep the attempt from being at rest."""
    until = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < until:
        await asyncio.sleep(0)


@pytest.mark.parametrize("kind", ["step", "model", "tool"])
async def test_while_its_outcome_is_being_stored(
    url: str, monkeypatch: pytest.MonkeyPatch, kind: Literal["step", "model", "tool"]
) -> None:
    plain = MemoryWorld.append
    is_slow = False

    async def later(world: MemoryWorld, batch: Batch) -> Answer:
        if is_slow and any(record.type == "call.outcome" for record in batch.records):
            await asyncio.sleep(0.3)
        return await plain(world, batch)

    monkeypatch.setattr(MemoryWorld, "append", later)

    async def handler(turn: Turn) -> str:
        nonlocal is_slow
        is_slow = turn.attempt == 1
        said = await limited(0.1 if is_slow else 0.5, getattr(turn, kind)(quick, 1))
        is_slow = False
        await turn.step(quick, len(said))
        return said

    assert await twice(url, handler) == ("out of time", "out of time")


async def test_as_the_store_has_answered(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before whoever waited for the answer has heard of it, while another call is on its way as well."""
    monkeypatch.setattr("journal.engine.order._MOST_PASSES", 10**9)
    plain = MemoryWorld.append
    to_cancel: list[asyncio.Task[str]] = []

    def heard(world: MemoryWorld, batch: Batch) -> asyncio.Future[Answer]:
        answer = plain(world, batch)
        if to_cancel and any(record.type == "call.outcome" for record in batch.records):
            task = to_cancel.pop()
            answer.add_done_callback(lambda _: task.cancel())
        return answer

    monkeypatch.setattr(MemoryWorld, "append", heard)

    async def handler(turn: Turn) -> list[str]:
        async def one(n: int) -> str:
            try:
                await turn.step(quick, n)
            except asyncio.CancelledError:
                return "cancelled"
            return "done"

        spinning = asyncio.create_task(spin(0.2 if turn.attempt == 1 else 0))
        tasks = [asyncio.create_task(one(n)) for n in (1, 2)]
        if turn.attempt == 1:
            to_cancel.append(tasks[0])
        else:
            asyncio.get_running_loop().call_later(0.05, tasks[0].cancel)
        said = [await task for task in tasks]
        await spinning
        await turn.step(quick, len(said))
        return said

    assert await twice(url, handler) == (["cancelled", "done"],) * 2


async def test_as_the_store_answers_several_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them is cancelled just before it is told: it hears of that in its place, not ahead of the others."""
    monkeypatch.setattr("journal.engine.order._MOST_PASSES", 10**9)
    plain = MemoryWorld.append
    to_cancel: list[asyncio.Task[None]] = []

    def heard(world: MemoryWorld, batch: Batch) -> asyncio.Future[Answer]:
        answer = plain(world, batch)
        if to_cancel and sum(record.type == "call.outcome" for record in batch.records) > 1:
            answer.add_done_callback(lambda _: to_cancel.pop().cancel())
        return answer

    monkeypatch.setattr(MemoryWorld, "append", heard)

    async def handler(turn: Turn) -> list[str]:
        said: list[str] = []

        async def one(n: int) -> None:
            try:
                await turn.step(quick, n)
                said.append(f"{n} done")
            except asyncio.CancelledError:
                said.append(f"{n} cancelled")

        spinning = asyncio.create_task(spin(0.2 if turn.attempt == 1 else 0))
        tasks = [asyncio.create_task(one(n)) for n in (1, 2, 3)]
        if turn.attempt == 1:
            to_cancel.append(tasks[2])
        else:
            asyncio.get_running_loop().call_later(0.05, tasks[2].cancel)
        await asyncio.wait([*tasks, spinning])
        await turn.step(quick, len(said))
        return said

    assert await twice(url, handler) == (["1 done", "2 done", "3 cancelled"],) * 2


async def test_a_checkpoint_that_is_being_stored_with_an_outcome(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log says which comes first, and the code hears it so."""
    plain = MemoryWorld.append

    async def later(world: MemoryWorld, batch: Batch) -> Answer:
        if any(record.type == "checkpoint.written" for record in batch.records):
            await asyncio.sleep(0.1)
        return await plain(world, batch)

    monkeypatch.setattr(MemoryWorld, "append", later)

    async def handler(turn: Turn) -> list[str]:
        said: list[str] = []

        async def first() -> None:
            said.append(f"{await turn.step(quick, 1)}")
            writer.cancel()

        async def second() -> None:
            said.append(f"{await turn.step(quick, 2)}")

        async def writing() -> None:
            try:
                await turn.checkpoint("draft", "text")
            except asyncio.CancelledError:
                said.append("cancelled")

        beside = [asyncio.create_task(first()), asyncio.create_task(second())]
        writer = asyncio.create_task(writing())
        await asyncio.wait([*beside, writer])
        await turn.step(quick, len(said))
        return said

    assert await twice(url, handler) == (["1", "2", "cancelled"],) * 2


async def test_while_it_waits_for_its_place(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("journal.engine.order._MOST_PASSES", 10**9)

    async def handler(turn: Turn) -> str:
        await turn.step(quick, 0)
        spinning = asyncio.create_task(spin(1 if turn.attempt == 1 else 0))
        said = await limited(0.05 if turn.attempt == 1 else 0.5, turn.step(quick, 1))
        await turn.step(quick, len(said))
        await spinning
        return said

    assert await twice(url, handler) == ("out of time", "out of time")


async def test_not_on_a_replay_where_what_was_cancelled_rests_on_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit runs out on the replay alone, and the log goes on with a cancellation that came of the outcome."""
    monkeypatch.setattr("journal.engine.order._MOST_PASSES", 10**9)

    async def endless() -> None:
        await asyncio.Event().wait()

    async def handler(turn: Turn) -> str:
        beside = asyncio.create_task(turn.step(endless))
        spinning = asyncio.create_task(spin(0 if turn.attempt == 1 else 0.5))
        said = await limited(30 if turn.attempt == 1 else 0.1, turn.step(quick, 1))
        beside.cancel()
        await asyncio.wait({beside, spinning})
        return said

    assert await twice(url, handler) == ("in time", "in time")


async def test_on_a_replay_where_nothing_rests_on_it_yet(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt ended before anything followed; the second cancels it, and the third is to do the same."""
    monkeypatch.setattr("journal.engine.order._MOST_PASSES", 10**9)
    journal = Journal(url)
    said: list[str] = []

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        if turn.attempt == 1:
            await asyncio.create_task(turn.step(quick, 1))
            raise Again
        spinning = asyncio.create_task(spin(0.5 if turn.attempt == 2 else 0))
        said.append(await limited(0.1 if turn.attempt == 2 else 0.5, turn.step(quick, 1)))
        await turn.step(quick, len(said[-1]))
        await spinning
        if turn.attempt == 2:
            raise Again

    async with journal:
        for attempt in range(2):
            with pytest.raises(TurnFailed, match="Again"):
                await (await journal.retry("r") if attempt else await work.submit(None, run_id="r")).settle(
                    20, serve=True
                )
        await (await journal.retry("r")).settle(20, serve=True)
    assert said == ["out of time", "out of time"]


async def test_while_its_probe_is_asked(url: str) -> None:
    inside = asyncio.Event()
    probes: list[int] = []
    said: list[str] = []

    async def probe(given: Any, io: Any) -> Ran | CannotTell:
        probes.append(1)
        await asyncio.sleep(30 if len(probes) == 1 else 0)
        return Ran("found")

    @tool(probe=probe)
    async def refund() -> str:
        inside.set()
        await asyncio.Event().wait()
        return "refunded"

    def build(seconds: float) -> tuple[Journal, Any]:
        journal = Journal(url)

        @journal.agent
        async def work(turn: Turn, _: None) -> None:
            said.append(await limited(seconds, turn.tool(refund)))
            await turn.step(quick, len(said[-1]))
            if turn.attempt == 2:
                raise Again

        return journal, work

    async with Journal(url):
        journal, work = build(30)
        serving = asyncio.create_task(work.run(None, run_id="r"))
        await inside.wait()
        await journal.aclose()
        with pytest.raises((asyncio.CancelledError, Exception)):
            await serving
        journal, work = build(0.3)
        async with journal:
            with pytest.raises(TurnFailed, match="Again"):
                await work.run(None, run_id="r")
            await (await journal.retry("r")).settle(20, serve=True)
    assert said == ["out of time", "out of time"]
    assert probes == [1], "what is settled is not asked again"


@pytest.mark.parametrize("kind", ["step", "model", "tool"])
async def test_an_act_that_cancels_itself_in_a_task_that_has_swallowed_a_cancellation(
    url: str, kind: Literal["step", "model", "tool"]
) -> None:
    """Nobody cancels the call, so that it is a failure, as it is elsewhere."""

    async def cancels_itself() -> None:
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    async def handler(turn: Turn) -> list[str]:
        said: list[str] = []

        async def one() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                said.append("swallowed")
            try:
                result = await getattr(turn, kind)(cancels_itself)
                said.append(result.status)
            except CallError as error:
                said.append(error.type)

        task = asyncio.create_task(one())
        await turn.step(quick, 1)
        task.cancel()
        await task
        await turn.step(quick, len(said))
        return said

    live, replayed = await twice(url, handler)
    # Of a `never` tool an interruption is unknown.
    assert live == replayed == ["swallowed", "unknown" if kind == "tool" else "CancelledError"]


async def test_a_cancellation_that_is_to_come_when_the_act_begins_is_one(url: str) -> None:
    async def handler(turn: Turn) -> list[str]:
        said: list[str] = []

        async def one() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            try:
                await turn.step(asyncio.sleep, 0.01)
            except asyncio.CancelledError:
                said.append("cancelled")
            await turn.step(quick, 1)

        await asyncio.create_task(one())
        return said

    assert await twice(url, handler) == (["cancelled"], ["cancelled"])


@pytest.mark.parametrize("scheme", ["memory", "sqlite"])
async def test_while_it_waits_to_act_behind_what_is_recorded(scheme: str, tmp_path: Path) -> None:
    """It never began; but what came after it rests on that it was cancelled."""
    acts: list[int] = []
    said: list[str] = []
    journal = Journal(f"memory:{tmp_path.name}" if scheme == "memory" else f"sqlite:{tmp_path / 'j.db'}")

    async def act(number: int) -> int:
        acts.append(number)
        return number

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        async def old() -> None:
            if turn.attempt == 2:
                await asyncio.sleep(0.5)
            await turn.step(act, 1)

        async def new() -> None:
            said.append(await limited(0.05 if turn.attempt == 2 else 0.3, turn.step(act, 2)))
            await turn.step(act, len(said[-1]))

        if turn.attempt == 1:
            await asyncio.create_task(old())
            raise Again
        await asyncio.gather(asyncio.create_task(old()), asyncio.create_task(new()))
        if turn.attempt == 2:
            raise Again

    async with journal:
        with pytest.raises(TurnFailed, match="Again"):
            await work.run(None, run_id="r")
        with pytest.raises(TurnFailed, match="Again"):
            await (await journal.retry("r")).settle(20, serve=True)
        await (await journal.retry("r")).settle(20, serve=True)
    assert said == ["out of time", "out of time"]
    assert acts == [1, len("out of time")]

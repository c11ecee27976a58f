"""The worker's slots: what they ask of the store."""

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest

from journal import Journal, Turn
from journal.cli.worker import in_words
from journal.core.ports import Claims
from journal.engine import runtime
from journal.worlds import open_world

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/journal.db"


async def test_one_turn_wakes_one_slot(url: str) -> None:
    """The claim that brings a turn says when the next is due: the other slots need not ask whether there is one now."""
    journal, answers = Journal(url), list[Claims]()
    begun, may_end = asyncio.Event(), asyncio.Event()

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        begun.set()
        await may_end.wait()

    async with journal:
        world = (await journal.runtime()).world
        plain = world.claim

        async def claim(**asked: Any) -> Claims:
            answers.append(await plain(**asked))
            return answers[-1]

        world.claim = claim  # type: ignore[method-assign]
        async with journal.worker(concurrency=4).running():
            while not answers:
                await asyncio.sleep(0.01)
            answers.clear()  # there was nothing yet
            await journal.submit("work", None, run_id="r")
            await begun.wait()
            await asyncio.sleep(0.3)
            assert [len(claims.claimed) for claims in answers] == [1]
            may_end.set()


async def test_every_slot_gets_work_that_is_there_at_once(url: str) -> None:
    journal = Journal(url)
    begun = list[str]()
    all_begun = asyncio.Event()

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        begun.append(turn.run_id)
        if len(begun) == 4:
            all_begun.set()
        await all_begun.wait()

    async with journal, journal.worker(concurrency=4).running():
        for number in range(4):
            await journal.submit("work", None, run_id=f"r{number}")
        async with asyncio.timeout(10):
            await all_begun.wait()


async def test_a_worker_that_is_idle_knows_what_others_hold(url: str, tmp_path: Path) -> None:
    """Right after a crash, all that is left may be held by the dead: idle is not done."""
    shared = f"memory:{tmp_path}" if url == "memory:" else url
    journal = Journal(shared)

    @journal.agent
    async def held(turn: Turn, _: None) -> None: ...

    async with open_world(shared) as other, journal:
        await held.submit(None, run_id="r")
        claims = await other.claim(worker="other", limit=1, lease_seconds=60, agents=None, reads=1)
        assert len(claims.claimed) == 1
        worker = journal.worker(concurrency=1)
        await worker.run(until_idle=True)
        assert (worker.worked, worker.held) == (0, 1)
        assert worker.held_seconds is not None
        assert 0 < worker.held_seconds <= 60


def test_what_others_hold_is_told() -> None:
    assert in_words(1, 22.2).startswith(
        "1 run is held elsewhere; its lease ends in 22 s unless it is renewed: run"
    )
    assert in_words(3, None).startswith("3 runs are held elsewhere: run this again")


async def test_whoever_waits_for_another_holder_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runtime, "_SAY_SO_SECONDS", 0.0)
    monkeypatch.setattr(runtime, "_POLL_SECONDS", 0.01)
    inside, go = asyncio.Event(), asyncio.Event()

    async def slow(text: str) -> str:
        inside.set()
        await go.wait()
        return text.upper()

    async def work(turn: Turn, text: str) -> str:
        return await turn.step(slow, text)

    first, second = (Journal(f"sqlite:{tmp_path / 'journal.db'}") for _ in range(2))
    agents = first.agent(work), second.agent(work)
    with anyio.fail_after(60):
        async with first, second, anyio.create_task_group() as group:
            world, asked = (await second.runtime()).world, asyncio.Semaphore(0)
            plain = world.claim

            async def claim(**given: Any) -> Claims:
                asked.release()
                return await plain(**given)

            world.claim = claim  # type: ignore[method-assign]
            group.start_soon(lambda: agents[0].run("a", run_id="r"))
            await inside.wait()
            assert "holds the run" not in caplog.text
            waiting = asyncio.create_task(agents[1].run("a", run_id="r"))
            for _ in range(4):
                await asked.acquire()
            go.set()
            assert await waiting == "A"
    assert caplog.text.count("another worker holds the run") == 1

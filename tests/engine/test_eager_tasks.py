"""Where tasks run as soon as they are made (Python 3.12 and later), a turn goes and ends as anywhere."""

import asyncio
import sys
from typing import Any

import pytest

from journal import Journal, Turn, TurnBlocked
from tests.engine.test_order import twice

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks are eager from Python 3.12 on"),
]


@pytest.fixture(autouse=True)
async def eager() -> None:
    factory: Any = vars(asyncio).get("eager_task_factory")
    asyncio.get_running_loop().set_task_factory(factory)


async def test_parallel_calls_are_served_in_their_order(url: str) -> None:
    journal = Journal(url)
    acted: list[int] = []

    async def number(n: int) -> int:
        acted.append(n)
        await asyncio.sleep(0.001 * (3 - n))
        return n

    @journal.agent
    async def work(turn: Turn, _: None) -> list[int]:
        done = [await each for each in asyncio.as_completed([turn.step(number, n) for n in range(3)])]
        if turn.attempt == 1:
            raise RuntimeError
        return done

    async with journal:
        with pytest.raises(Exception, match="RuntimeError"):
            await work.run(None, run_id="r")
        first = [r.key for r in await journal.read("r") if r.type == "call.outcome"]
        again = await (await journal.retry("r")).settle(10, serve=True)
    assert sorted(acted) == [0, 1, 2], "each once"
    assert len(first) == len(again) == 3


async def test_a_task_goes_on_once_all_were_made_on_replay_too() -> None:
    """What is recorded is there at once; but the code that makes the tasks is in the midst of that."""

    async def echo(n: int) -> int:
        return n

    async def handler(turn: Turn) -> list[str]:
        said: list[str] = []

        async def one(n: int) -> None:
            said.append(f"asks {n}")
            said.append(f"has {await turn.step(echo, n)}")

        await asyncio.gather(one(1), one(2))
        return said

    live, replayed = await twice("memory:", handler)
    assert live == replayed
    assert live[:2] == ["asks 1", "asks 2"]


async def test_a_divergence_at_the_very_beginning_ends_the_handler(url: str) -> None:
    journal = Journal(url)

    async def echo(n: int) -> int:
        return n

    async def twice(turn: Turn) -> None:
        await turn.step(echo, 1)
        await turn.step(echo, 1 + turn.attempt)

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        task = asyncio.ensure_future(twice(turn))
        if turn.attempt > 1:
            await asyncio.Event().wait()
        await task
        raise RuntimeError

    async with journal, asyncio.timeout(4):  # sooner than a look whether the handler has listened
        with pytest.raises(Exception, match="RuntimeError"):
            await work.run(None, run_id="r")
        with pytest.raises(TurnBlocked):
            await (await journal.retry("r")).settle(10, serve=True)

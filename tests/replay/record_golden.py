"""`python -m tests.replay.record_golden DIRECTORY`: the golden runs, recorded with the code of the day.

For a version whose logs look different: under a name of its own, since the files of earlier versions stay.
"""

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from journal import Journal
from tests.replay import golden_agents
from tests.replay.golden_agents import Order, journal, order


async def record(path: Path) -> None:
    """A run of two turns: one whose first attempt is lost inside `pay`, and one that fails."""
    with TemporaryDirectory() as home:
        journal.url = f"sqlite:{home}/journal.db"
        golden_agents.is_hanging = True
        handle: Any = None
        async with journal:
            handle = await order.submit(Order("42", ["vase", "lamp"]), run_id="order-42")
            working = asyncio.create_task(handle.settle(None, serve=True))
            await golden_agents.hanging.wait()
        await asyncio.wait({working})
        golden_agents.is_hanging = False
        async with journal:
            print(await order.run(Order("42", ["vase", "lamp"]), run_id="order-42"))
            try:
                await order.run(Order("doomed", ["cup"]), run_id="order-42", key="second")
            except Exception as error:
                print(repr(error))
            await journal.export("order-42", path)


async def record_demo(path: Path) -> None:
    """The demo's run: killed inside a refund and inside a model call, carried on by a third process."""
    from journal.demo.scenario import play

    with TemporaryDirectory() as home:
        url = f"sqlite:{home}/journal.db"
        played = await asyncio.to_thread(play, url)
        async with Journal(url) as store:
            await store.export(played.run.run, path)


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    asyncio.run(record(directory / "by-hand-v1.jsonl"))
    asyncio.run(record_demo(directory / "demo-v1.jsonl"))

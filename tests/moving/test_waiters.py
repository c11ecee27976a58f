"""Who waits for a run, or asks for it, hears where it is."""

import asyncio
from pathlib import Path

import anyio
import pytest

from journal import Journal, Turn
from journal.core.clock import SystemClock
from journal.core.errors import RunBuilding, RunGone, TurnBlocked
from journal.engine.moving import Mover
from journal.worlds import open_world

pytestmark = pytest.mark.anyio


def application(url: str) -> Journal:
    journal = Journal(url)

    @journal.agent
    async def echo(turn: Turn, text: str) -> str:
        return text

    return journal


async def test_whoever_waits_is_told_where_the_run_went(tmp_path: Path) -> None:
    here, there = f"sqlite:{tmp_path / 'here.db'}", f"sqlite:{tmp_path / 'there.db'}"
    async with application(here) as old, application(there) as new, open_world(here) as source:
        handle = await old.submit("echo", "hello", run_id="r")
        waiting = asyncio.create_task(handle.result(30))
        await anyio.sleep(0.05)  # it may wait already, or be about to: it hears of it either way
        async with open_world(there) as target:
            assert (
                await Mover(source, target, clock=SystemClock(), freeze=True).carry("r")
            ).result == "moved"
        with pytest.raises(RunGone) as gone:
            await waiting
        assert gone.value.to == there
        for attempt in (
            old.submit("echo", "hello", run_id="r"),
            old.cancel("r"),
            old.retry("r"),
            old.close("r"),
            (await old.handle("r")).result(30),
        ):
            with pytest.raises(RunGone, match="moved to"):
                await attempt
        same = await new.submit("echo", "hello", run_id="r")
        async with new.worker().running():
            assert await same.result(30) == "hello"


async def test_a_copy_is_held_back_and_can_be_sent_on(tmp_path: Path) -> None:
    here, there = f"sqlite:{tmp_path / 'here.db'}", f"sqlite:{tmp_path / 'there.db'}"
    async with application(here) as old, application(there) as new, open_world(here) as source:
        await old.submit("echo", "hello", run_id="r")
        async with open_world(there) as target:
            image = await source.image("r")
            await target.build(image, await source.read("r"), ())
            for attempt in (new.submit("echo", "hello", run_id="r"), new.retry("r"), new.close("r")):
                with pytest.raises(RunBuilding, match="run the same command"):
                    await attempt
            assert (await Mover(source, target, clock=SystemClock()).carry("r")).held_back
        async with new.worker().running():
            with pytest.raises(TurnBlocked, match=r"held back.*journal retry( --world \S+)? r"):
                await (await new.handle("r")).result(30)
            assert await (await new.retry("r")).result(30) == "hello"

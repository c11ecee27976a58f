"""What only the memory world has: names, threads, and nothing that lasts."""

import asyncio
import threading

import anyio
import anyio.lowlevel
import pytest

from journal.core.errors import WorldUnavailable
from journal.core.ports import World
from journal.worlds import open_world
from journal.worlds.contract.harness import (
    begin,
    close,
    committed,
    follow_all,
    hold,
    refusal,
    submit,
    watching,
)
from journal.worlds.memory import forget, open_memory

pytestmark = pytest.mark.anyio


async def test_without_a_name_it_is_private() -> None:
    async with open_world("memory:") as one, open_world("memory:") as two:
        await begin(one, "r")
        assert await two.run("r") is None


async def test_a_name_is_one_store_until_it_is_forgotten() -> None:
    async with open_world("memory:test-name") as one, open_world("memory:test-name") as two:
        await begin(one, "r")
        assert await two.run("r") is not None
    async with open_world("memory:test-name") as again:
        assert again.url == "memory:test-name"
        assert await again.run("r") is not None
    forget("test-name")
    async with open_world("memory:test-name") as fresh:
        assert await fresh.run("r") is None
    forget("test-name")


async def test_another_thread_with_a_loop_of_its_own() -> None:
    """A follower on one event loop sees what is appended on another."""
    ready = threading.Event()

    async def elsewhere() -> None:
        async with open_memory("memory:two-loops") as world:
            ready.wait(20)
            await begin(world, "r")
            committed(await world.append(close("r")))

    thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
    thread.start()
    try:
        async with open_memory("memory:two-loops") as world, watching(world, "r") as watcher:
            await anyio.lowlevel.checkpoint()
            ready.set()
            await watcher.until_end()
            assert watcher.places() == [(1, 0), (2, 0), (3, 0)]
    finally:
        ready.set()
        thread.join()
        forget("two-loops")


async def test_a_closed_world_says_so() -> None:
    async with open_memory("memory:") as world:
        await begin(world, "r")
    await refusal(WorldUnavailable, world.append(submit("r")))
    await refusal(WorldUnavailable, world.read("r"))
    await refusal(WorldUnavailable, follow_all(world, "r"))


async def test_closing_ends_its_followers() -> None:
    async with open_memory("memory:") as world:
        await begin(world, "r")
        async with watching(world, "r") as watcher:
            await watcher.until_count(2)
            await world.aclose()
            await watcher.until_end()
            assert isinstance(watcher.error, WorldUnavailable)


async def test_a_chain_of_appends_starves_nobody() -> None:
    """An answer comes a pass of the loop later."""
    world: World
    async with open_memory("memory:") as world:
        await begin(world, "r")
        holder = await hold(world, "r")
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as group:
            group.start_soon(other)
            for n in range(20):
                await holder.record(f"step#{n}")
            group.cancel_scope.cancel()
        assert turns >= 20

"""`turn.files`: what a handler reads of its workspace, and that a replay reads the same."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from journal import Journal, Turn, TurnFailed, VirtualWorkspace, io, step, tool
from journal.core.codec import open_record
from journal.core.errors import FileMissing, FileNotText, InvalidOptions, PathRefused
from journal.core.records import Observed, TurnFinished
from journal.engine.offline import replay
from journal.engine.reading import read_file
from journal.testing import crash_everywhere

pytestmark = pytest.mark.anyio
LARGE = bytes(range(256)) * 400


@tool(replay="safe")
async def write(path: str, text: str) -> None:
    await io.files.write(path, text)


@tool(replay="safe")
async def store() -> None:
    """One that lies beside its record."""
    await io.files.write("/d/large", LARGE)


@step
async def note(found: Any) -> Any:
    return found


class Again(RuntimeError):
    """Ends the first attempt."""


async def test_a_handler_reads_what_its_calls_left(world_url: str) -> None:
    journal = Journal(world_url)

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> None:
        files = turn.files
        assert await files.glob() == []
        await turn.tool(store)
        await turn.tool(write, "/a.txt", "täa")
        assert await files.read("/d/large") == LARGE
        assert await files.read_text("/a.txt") == "täa"
        assert (await files.exists("/a.txt"), await files.exists("/d"), await files.exists("/b")) == (
            True,
            False,
            False,
        )
        assert [(f.path, f.is_directory, f.size) for f in await files.list()] == [
            ("/a.txt", False, 4),
            ("/d", True, len(LARGE)),
        ]
        assert [f.path for f in await files.list("/d")] == ["/d/large"]
        assert await files.glob("/**/l*") == ["/d/large"]
        with pytest.raises(FileMissing):
            await files.read("/b")
        with pytest.raises(FileNotText):
            await files.read_text("/d/large")
        with pytest.raises(PathRefused, match="directory"):
            await files.read("/d")
        for look in (files.read("a"), files.list("a"), files.exists("a"), files.glob("a")):
            with pytest.raises(PathRefused):
                await look

    async with journal:
        await work.run(None, run_id="r")
        looks = [
            json.loads(body.value)
            for record in await journal.read("r")
            if isinstance(body := open_record(record), Observed)
        ]
    # What is no path was refused before anything was recorded.
    assert looks[:2] == [{"glob": "/**"}, {"read": "/d/large"}]
    assert [next(iter(look)) for look in looks].count("read") == 5
    assert len(looks) == 12


async def test_what_the_handler_read_is_the_same_on_replay(world_url: str, tmp_path: Path) -> None:
    """Whatever became of the files since: each look is answered as of where it stands in the log."""
    journal, seen = Journal(world_url), list[list[Any]]()

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> list[Any]:
        found: list[Any] = []
        seen.append(found)
        for text in ("one", "two"):
            found.append([await turn.files.exists("/a"), await turn.files.glob()])
            await turn.tool(write, "/a", text)
            await turn.tool(write, f"/{text}", text)
            found.append(await turn.files.read_text("/a"))
        if len(seen) == 1:
            raise Again
        found.append((await turn.files.read("/a")).decode())
        return found

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        await journal.files.write("r", "/a", "the application's")
        await journal.files.delete("r", "/one")
        last = await (await journal.retry("r")).settle(30, serve=True)
        recorded = seen[0]
        assert recorded == [[False, []], "one", [True, ["/a", "/one"]], "two"]
        assert last == [*recorded, "the application's"]
        await journal.export("r", tmp_path / "r.jsonl")
    replayed = await replay(work, await read_file(tmp_path / "r.jsonl"))
    assert seen[2] == last
    assert replayed.verdict == "same", replayed.detail
    assert seen[2] == last


async def test_branches_go_the_same_way_though_reading_takes_time(tmp_path: Path) -> None:
    """A reader waits for the store between two calls of another branch; what it starts then has its place."""
    journal, lives = Journal(f"sqlite:{tmp_path / 'j.db'}"), list[list[str]]()

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> list[str]:
        order: list[str] = []
        lives.append(order)

        async def reads(name: str) -> None:
            assert await turn.files.read("/d/large") == LARGE
            order.append(name)
            await asyncio.gather(turn.step(note, name), turn.step(note, name))

        async def calls(name: str) -> None:
            for number in range(4):
                await turn.step(note, f"{name}{number}")
                order.append(f"{name}{number}")

        await turn.tool(store)
        await asyncio.gather(reads("x"), calls("a"), reads("y"), calls("b"), reads("z"))
        if len(lives) == 1:
            raise Again
        return order

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        await (await journal.retry("r")).settle(30, serve=True)
    assert lives[1] == lives[0]
    assert sorted(lives[0]) == sorted(["x", "y", "z", *(f"{name}{n}" for name in "ab" for n in range(4))])


async def test_the_application_writes_while_the_handler_reads(world_url: str) -> None:
    journal, lives = Journal(world_url), list[list[str]]()

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> list[str]:
        found: list[str] = []
        lives.append(found)
        await turn.tool(write, "/a", "0")
        for number in range(1, 8):
            if turn.attempt == 1:
                await journal.files.write("r", "/a", str(number))
            found.append(await turn.files.read_text("/a"))
        if turn.attempt == 1:
            raise Again
        return found

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        # A foreign change is in the log before the look that follows it, so the look sees it.
        assert lives[0] == ["1", "2", "3", "4", "5", "6", "7"]
        assert await (await journal.retry("r")).settle(30, serve=True) == lives[0]


async def test_a_fork_reads_at_the_same_places(world_url: str) -> None:
    journal = Journal(world_url)

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> list[str]:
        found: list[str] = []
        for text in ("one", "two", "three"):
            await turn.tool(write, "/a", text)
            found.append(await turn.files.read_text("/a"))
            await turn.step(note, text)
        return found

    async with journal:
        await work.run(None, run_id="r")
        await journal.files.write("r", "/a", "later")
        handle = await journal.fork("r", at=4, new_id="f")  # the second step: its turn is to come
        assert await handle.settle(30, serve=True) == ["one", "two", "three"]


@pytest.mark.parametrize("workspace", [None, VirtualWorkspace(durable=False)])
async def test_files_that_no_replay_could_read_are_not_read(workspace: VirtualWorkspace | None) -> None:
    journal = Journal("memory:")

    @journal.agent(workspace=workspace)
    async def work(turn: Turn, _: None) -> None:
        with pytest.raises(InvalidOptions, match="workspace=VirtualWorkspace"):
            await turn.files.read("/a")

    @journal.agent(workspace=VirtualWorkspace())
    async def inside(turn: Turn, _: None) -> None:
        async def reads() -> None:
            await turn.files.read("/a")

        await turn.step(reads)

    async with journal:
        await work.run(None)
        with pytest.raises(TurnFailed, match="inside a call"):
            await inside.run(None)


def test_a_kill_at_every_point_changes_nothing_of_what_is_read() -> None:
    journal = Journal("memory:")

    @journal.agent(workspace=VirtualWorkspace())
    async def reader(turn: Turn, _: None) -> list[Any]:
        await asyncio.gather(*(turn.tool(write, f"/{name}", name) for name in "ab"))
        before = await asyncio.gather(turn.files.glob(), turn.files.read_text("/b"))
        await turn.tool(write, "/b", "more")
        return [*before, await turn.files.read_text("/b")]

    def same(crash: Any) -> None:
        finished = open_record(crash.log[-1])
        assert isinstance(finished, TurnFinished)
        assert isinstance(finished.output, bytes)
        assert json.loads(finished.output) == [["/a", "/b"], "b", "more"]

    assert len(crash_everywhere(reader, None, check=same).crashes) > 8

"""Files of a directory workspace as of a place in the log: what the handler and the application read."""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from journal import DirectoryWorkspace, Journal, Turn, TurnFailed, VirtualWorkspace, io, step, tool
from journal.core.codec import open_record
from journal.core.errors import FileMissing, InvalidOptions, PathRefused, TurnBlocked
from journal.core.records import CallOutcome, FilesChanged, TurnFinished
from journal.engine.offline import replay
from journal.engine.reading import read_file
from journal.testing import crash_everywhere

pytestmark = pytest.mark.anyio


@tool(replay="safe")
async def build(name: str, text: str) -> None:
    """What a program would do."""
    async with io.files.directory() as directory:
        path = Path(directory.path, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@tool(replay="safe")
async def link(name: str, target: str) -> None:
    async with io.files.directory() as directory:
        os.symlink(target, Path(directory.path, name))


@step
async def note(found: Any) -> Any:
    return found


class Again(RuntimeError):
    """Ends the first attempt."""


async def test_what_the_handler_read_is_the_same_on_replay(world_url: str, tmp_path: Path) -> None:
    """Whatever became of the files since: each look is answered as of where it stands in the log."""
    journal, seen = Journal(world_url), list[list[Any]]()

    @journal.agent(workspace=DirectoryWorkspace(tmp_path / "root"))
    async def work(turn: Turn, _: None) -> list[Any]:
        found: list[Any] = []
        seen.append(found)
        files = turn.files
        for text in ("one", "two"):
            found.append([await files.exists("/d/a"), await files.glob(), await files.exists("/d")])
            await turn.tool(build, "d/a", text)
            await turn.tool(build, text, text)
            found.append([await files.read_text("/d/a"), [f.path for f in await files.list()]])
        if len(seen) == 1:
            raise Again
        found.append((await files.read("/d/a")).decode())
        return found

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        await journal.files.write("r", "/d/a", "the application's")
        await journal.files.delete("r", "/one")
        last = await (await journal.retry("r")).settle(30, serve=True)
        assert seen[0] == [
            [False, [], False],
            ["one", ["/d", "/one"]],
            [True, ["/d/a", "/one"], False],
            ["two", ["/d", "/one", "/two"]],
        ]
        assert last == [*seen[0], "the application's"]
        await journal.export("r", tmp_path / "r.jsonl")
    replayed = await replay(work, await read_file(tmp_path / "r.jsonl"))
    assert replayed.verdict == "same", replayed.detail
    assert seen[2] == last
    shutil.rmtree(tmp_path / "root")
    replayed = await replay(work, await read_file(tmp_path / "r.jsonl"))
    assert replayed.verdict == "unreadable"
    assert "cannot be read under" in replayed.detail


async def test_looks_at_once_are_answered_each_at_its_place(tmp_path: Path) -> None:
    """A list of files is read from the disk, and branches go the same way all the same."""
    journal, lives = Journal(f"sqlite:{tmp_path / 'j.db'}"), list[list[str]]()

    @journal.agent(workspace=DirectoryWorkspace(tmp_path / "root"))
    async def work(turn: Turn, _: None) -> list[str]:
        order: list[str] = []
        lives.append(order)

        async def reads(name: str) -> None:
            for _ in range(3):
                order.append(f"{name}{len(await turn.files.glob())}{await turn.files.read_text('/a')}")
                await turn.step(note, name)

        async def writes() -> None:
            for number in range(4):
                await turn.tool(build, "a" if number % 2 else f"b{number}", str(number))
                order.append(str(number))

        await turn.tool(build, "a", "-")
        await asyncio.gather(reads("x"), writes(), reads("y"))
        if len(lives) == 1:
            raise Again
        return order

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        await (await journal.retry("r")).settle(30, serve=True)
    assert lives[1] == lives[0]
    assert len(lives[0]) == 10


async def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    journal = Journal("memory:")

    @journal.agent(workspace=DirectoryWorkspace(tmp_path / "root"))
    async def work(turn: Turn, _: None) -> None:
        await turn.tool(build, "d/a", "x")
        await turn.tool(link, "l", "/etc/passwd")
        assert await turn.files.exists("/l")
        with pytest.raises(PathRefused, match="link"):
            await turn.files.read("/l")
        with pytest.raises(PathRefused, match="directory"):
            await turn.files.read("/d")
        with pytest.raises(FileMissing):
            await turn.files.read("/a")

    async with journal:
        await work.run(None, run_id="r")
        with pytest.raises(PathRefused, match="link"):
            await journal.files.read("r", "/l")


async def test_a_list_that_is_gone_blocks_the_turn_and_is_no_empty_tree(tmp_path: Path) -> None:
    journal, lives, root = Journal("memory:"), list[int](), tmp_path / "root"

    @journal.agent(workspace=DirectoryWorkspace(root))
    async def work(turn: Turn, _: None) -> list[str]:
        lives.append(1)
        await turn.tool(build, "a", "x")
        found = await turn.files.glob()
        await turn.tool(build, "b", "x")
        if len(lives) == 1:
            raise Again
        return found

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        await journal.files.write("r", "/c", "x")
        named = [
            change.snapshot.id
            for record in await journal.read("r")
            if isinstance(body := open_record(record), CallOutcome)
            for change in body.files
            if change.snapshot is not None
        ]
        (root / "snapshots" / named[0]).unlink()
        with pytest.raises(TurnBlocked, match="cannot be read under"):
            await (await journal.retry("r")).settle(30, serve=True)


async def test_the_application_reads_at_a_record(world_url: str, tmp_path: Path) -> None:
    journal = Journal(world_url)

    @journal.agent(workspace=DirectoryWorkspace(tmp_path / "root"))
    async def work(turn: Turn, _: None) -> None:
        for text in ("one", "two"):
            await turn.tool(build, "a", text)
            await turn.tool(build, f"d/{text}", text)

    async with journal:
        await work.run(None, run_id="r")
        await journal.files.write("r", "/a", "three")
        seqs = [
            record.seq
            for record in await journal.read("r")
            if isinstance(body := open_record(record), FilesChanged)
            or (isinstance(body, CallOutcome) and body.files)
        ]
        files = journal.files
        assert [await files.read("r", "/a", upto=seq) for seq in seqs] == [
            b"one", b"one", b"two", b"two", b"three",
        ]  # fmt: skip
        assert [await files.glob("r", upto=seq) for seq in (seqs[0] - 1, seqs[0], seqs[1])] == [
            [],
            ["/a"],
            ["/a", "/d/one"],
        ]
        assert [f.path for f in await files.list("r", "/d", upto=seqs[2])] == ["/d/one"]
        with pytest.raises(FileMissing):
            await files.read("r", "/d/two", upto=seqs[2])


async def test_files_in_the_log_are_not_mixed_with_a_directory(tmp_path: Path) -> None:
    """By the application either: who reads sees what there is, who would change is told."""
    url = f"sqlite:{tmp_path / 'j.db'}"
    virtual, directory = Journal(url), Journal(url)
    for journal, workspace in (
        (virtual, VirtualWorkspace()),
        (directory, DirectoryWorkspace(tmp_path / "root")),
    ):

        @journal.agent(workspace=workspace)
        async def work(turn: Turn, text: str) -> None:
            await turn.step(put, text)

    @step
    async def put(text: str) -> None:
        await io.files.write("/a", text)

    async with virtual, directory:
        await virtual.agents["work"].run("log", run_id="v")
        await directory.agents["work"].run("disk", run_id="d")
        assert [await directory.files.read(run, "/a") for run in "vd"] == [b"log", b"disk"]
        assert [await virtual.files.read(run, "/a") for run in "vd"] == [b"log", b"disk"]
        with pytest.raises(InvalidOptions, match="began with a VirtualWorkspace"):
            await directory.files.write("v", "/b", "x")
        with pytest.raises(InvalidOptions, match="register the agent with its DirectoryWorkspace"):
            await virtual.files.write("d", "/b", "x")
        assert await virtual.files.glob("v") == ["/a"]


async def test_a_fork_reads_at_the_same_places(world_url: str, tmp_path: Path) -> None:
    journal = Journal(world_url)

    @journal.agent(workspace=DirectoryWorkspace(tmp_path / "root"))
    async def work(turn: Turn, _: None) -> list[str]:
        found: list[str] = []
        for text in ("one", "two", "three"):
            await turn.tool(build, "a", text)
            found.append(await turn.files.read_text("/a"))
            await turn.step(note, text)
        return found

    async with journal:
        await work.run(None, run_id="r")
        await journal.files.write("r", "/a", "later")
        handle = await journal.fork("r", at=4, new_id="f")  # the second step: its turn is to come
        assert await handle.settle(30, serve=True) == ["one", "two", "three"]
        assert await journal.files.read("f", "/a") == b"three"


def test_a_kill_at_every_point_changes_nothing_of_what_is_read(tmp_path: Path) -> None:
    journal = Journal("memory:")

    @journal.agent(workspace=DirectoryWorkspace(tmp_path / "root"))
    async def reader(turn: Turn, _: None) -> list[Any]:
        await asyncio.gather(*(turn.tool(build, name, name) for name in "ab"))
        before = await asyncio.gather(turn.files.glob(), turn.files.read_text("/b"))
        await turn.tool(build, "b", "more")
        return [*before, await turn.files.read_text("/b")]

    def same(crash: Any) -> None:
        finished = open_record(crash.log[-1])
        assert isinstance(finished, TurnFinished)
        assert isinstance(finished.output, bytes)
        assert json.loads(finished.output) == [["/a", "/b"], "b", "more"]

    assert len(crash_everywhere(reader, None, check=same).crashes) > 8

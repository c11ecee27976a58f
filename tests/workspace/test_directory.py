"""Directory workspaces: SEMANTICS 7, FAULTS 31 and 32."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from journal import DirectoryWorkspace, Journal, Turn, TurnFailed, io, tool
from journal.core.codec import open_record
from journal.core.records import CallOutcome, FileChange

pytestmark = pytest.mark.anyio


@tool(replay="safe")
async def write(path: str, text: str) -> None:
    await io.files.write(path, text)


@tool(replay="safe")
async def read(path: str) -> str:
    return await io.files.read_text(path)


@tool(replay="safe")
async def build(name: str, text: str) -> list[str]:
    """What a program would do."""
    async with io.files.directory() as directory:
        there = sorted(str(p.relative_to(directory.path)) for p in Path(directory.path).rglob("*"))
        path = Path(directory.path) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return there


class Again(RuntimeError):
    """Ends the first attempt."""


async def changes_of(journal: Journal, run: str) -> list[FileChange]:
    bodies = map(open_record, await journal.read(run))
    return [change for body in bodies if isinstance(body, CallOutcome) for change in body.files]


async def test_calls_see_what_programs_wrote_and_the_other_way_round(tmp_path: Path) -> None:
    """Also after the turn was sent on, and in the next turn; a call that fails leaves nothing."""
    workspace = DirectoryWorkspace(tmp_path / "root")
    journal = Journal(f"sqlite:{tmp_path / 'j.db'}")

    @tool(replay="safe")
    async def fail() -> None:
        async with io.files.directory() as directory:
            Path(directory.path, "d", "b").write_text("half")
            Path(directory.path, "torn").write_text("half")
            raise ValueError("no")

    @journal.agent(workspace=workspace)
    async def work(turn: Turn, _: None) -> Any:
        if turn.id == "2":
            return (await turn.tool(build, "d/c", "three")).value
        await turn.tool(write, "/a", "one")
        found = [(await turn.tool(build, "d/b", "two")).value, (await turn.tool(fail)).status]
        if turn.attempt == 1:
            raise Again
        found.append((await turn.tool(read, "/d/b")).value)
        found.append((await turn.tool(build, "d/b", "TWO")).value)
        return [*found, (await turn.tool(read, "/d/b")).value]

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r", key="1")
        found = await (await journal.retry("r", turn_id="1")).settle(20, serve=True)
        assert found == [["a"], "error", "two", ["a", "d", "d/b"], "TWO"]
        assert await work.run(None, run_id="r", key="2") == ["a", "d", "d/b"]
        named = [c.snapshot for c in await changes_of(journal, "r")]
        assert [(s.files, s.size) for s in named if s is not None] == [(1, 3), (2, 6), (2, 6), (3, 11)]
    info = await workspace.inspect("r")
    assert (info.state, info.ended, info.snapshot) == ("paused", "succeeded", named[-1] and named[-1].id)
    assert os.listdir(Path(workspace.snapshots.run_directory("r"), "trees")) == []

"""A snapshot of what stands holds what a directory workspace needs: its last files, and which are its own."""

from pathlib import Path
from typing import Any

import pytest

from journal import DirectoryWorkspace, Journal, Turn, io, tool
from journal.core.codec import open_record
from journal.core.records import CallOutcome, TurnStarted
from journal.engine.verifying import verify

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("often")]


@tool(replay="safe")
async def build(name: str, text: str) -> list[str]:
    async with io.files.directory() as directory:
        there = sorted(path.name for path in Path(directory.path).iterdir())
        Path(directory.path, name).write_text(text)
    return there


def build_journal(url: str, root: Path) -> tuple[Journal, Any, DirectoryWorkspace]:
    journal, workspace = Journal(url), DirectoryWorkspace(root)

    @journal.agent(workspace=workspace)
    async def work(turn: Turn, number: int) -> list[Any]:
        looked: Any = await turn.files.glob()
        if number >= 0:
            looked = [looked, (await turn.tool(build, f"f{number}", str(number))).value]
            await turn.tool(build, "last", str(number))
        return [looked, (await turn.files.read_text("/last"))]

    return journal, work, workspace


async def test_turns_go_on_with_the_files_from_snapshots(world_url: str, tmp_path: Path) -> None:
    journal, work, workspace = build_journal(world_url, tmp_path / "root")
    async with journal:
        for number in range(5):
            names = [f"f{n}" for n in range(number)] + ["last"] * (number > 0)
            expected = [[[f"/{name}" for name in names], names], str(number)]
            assert await work.run(number, run_id="r", key=f"t{number}") == expected
        records = await journal.read("r", limit=10_000)
        begun = [body for record in records if isinstance(body := open_record(record), TurnStarted)]
        assert [body.snapshot is not None for body in begun] == [False, True, True, True, True]
        # A turn that changes nothing begins with what a snapshot says alone.
        assert (await work.run(-1, run_id="r", key="looks"))[1] == "4"
        assert (await work.run(-1, run_id="r", key="again"))[1] == "4"
        assert await journal.files.read("r", "/f0") == b"0"
        await journal.files.write("r", "/last", "application")
        assert (await work.run(-1, run_id="r", key="then"))[1] == "application"
        world = (await journal.runtime()).world
        assert (await verify(world, await world.image("r"))).problems == ()
    # Nothing that the log names was taken for an orphan.
    place = workspace.lifecycle.find("r")
    named = {
        change.snapshot.id
        for record in records
        if isinstance(body := open_record(record), CallOutcome)
        for change in body.files
        if change.snapshot is not None
    }
    assert named <= workspace.snapshots.referred(place)
    assert len(named) == 10


async def test_an_earlier_turn_that_is_retried_has_the_files_of_then(world_url: str, tmp_path: Path) -> None:
    """A retry sets aside what the snapshot covers: the log is folded whole."""
    journal, work, _ = build_journal(world_url, tmp_path / "root")
    async with journal:
        for number in range(3):
            await work.run(number, run_id="r", key=f"t{number}")
        fork = await journal.fork("r", at=3, new_id="f")  # before the second turn's first call
        assert await fork.settle(30, serve=True) == [[["/f0", "/last"], ["f0", "last"]], "1"]
        assert await journal.files.glob("f") == ["/f0", "/f1", "/last"]
        assert (await work.run(5, run_id="f", key="t5"))[0][1] == ["f0", "f1", "last"]

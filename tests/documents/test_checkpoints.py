"""Checkpoints: SEMANTICS 8."""

from typing import Any

import pytest

from journal import Journal, Turn, TurnFailed
from journal.core.errors import CheckpointNotFound, InvalidId, InvalidOptions, InvalidValue, RunNotFound
from journal.engine.checkpoints import CheckpointInfo
from journal.engine.offline import replay
from journal.engine.reading import read_run

pytestmark = pytest.mark.anyio


class Again(RuntimeError):
    """Ends the first attempt."""


async def test_written_listed_read_replaced_and_deleted(world_url: str) -> None:
    journal = Journal(world_url)

    @journal.agent
    async def work(turn: Turn, _: None) -> list[Any]:
        numbers = [await turn.checkpoint("plan", {"step": n}) for n in range(3)]
        await turn.checkpoint("plan", {"step": "again"}, sequence=2)
        await turn.checkpoint("note", "x", sequence=0)
        await turn.checkpoints.delete("plan", 1)
        await turn.checkpoints.delete("plan", 77)
        listed = [[each.name, each.sequence, each.size] for each in await turn.checkpoints.list()]
        last = await turn.checkpoints.read("plan")
        return [numbers, listed, last, await turn.checkpoints.read("plan", sequence=2)]

    async with journal:
        assert await work.run(None, run_id="r") == [
            [1, 2, 3],
            [["note", 0, 3], ["plan", 2, 16], ["plan", 3, 10]],
            {"step": 2},
            {"step": "again"},
        ]
        assert await journal.checkpoints.list("r", "plan") == [
            CheckpointInfo("plan", 2, 16),
            CheckpointInfo("plan", 3, 10),
        ]
        assert await journal.checkpoints.read("r", "plan") == {"step": 2}
        assert await journal.checkpoints.read("r", "note", sequence=0) == "x"


async def test_a_replay_writes_nothing_again_and_reads_what_was_read(world_url: str) -> None:
    """Also where the checkpoint was replaced or deleted since, and where it is large."""
    journal = Journal(world_url)
    seen: list[Any] = []
    long = "x" * 100_000

    @journal.agent
    async def work(turn: Turn, _: None) -> int:
        await turn.checkpoint("plan", long)
        seen.append((await turn.checkpoints.list(), len(await turn.checkpoints.read("plan"))))
        await turn.checkpoint("plan", "short", sequence=1)
        seen.append((await turn.checkpoints.list(), len(await turn.checkpoints.read("plan"))))
        await turn.checkpoints.delete("plan", 1)
        seen.append((await turn.checkpoints.list(), 0))
        if turn.attempt == 1:
            raise Again
        return await turn.checkpoint("plan", "next")

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        written = [r.seq for r in await journal.read("r") if r.type.startswith("checkpoint")]
        assert len(written) == 3
        assert await (await journal.retry("r")).settle(20, serve=True) == 2
        assert len([r for r in await journal.read("r") if r.type.startswith("checkpoint")]) == 4
        assert seen[:3] == seen[3:]
        assert [size for _, size in seen[:3]] == [100_000, 5, 0]
        log = await read_run((await journal.runtime()).world, "r")
        assert (await replay(work, log)).verdict == "same"


async def test_the_next_turn_and_a_fork_have_them(world_url: str) -> None:
    journal = Journal(world_url)

    @journal.agent
    async def work(turn: Turn, text: str) -> Any:
        there = [each.sequence for each in await turn.checkpoints.list("plan")]
        await turn.checkpoint("plan", text)
        await turn.step(print, end="")
        return there

    async with journal:
        assert await work.run("a", run_id="r", key="1") == []
        assert await work.run("b", run_id="r", key="2") == [1]
        forked = await journal.fork("r", at=2, new_id="f")
        assert await journal.checkpoints.read("f", "plan") == "b"
        assert await forked.settle(20, serve=True) == [1]


async def test_what_is_no_checkpoint_is_told_and_writes_nothing(world_url: str) -> None:
    journal = Journal(world_url)

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        with pytest.raises(InvalidValue, match="checkpoint 'plan'"):
            await turn.checkpoint("plan", object())
        with pytest.raises(InvalidId, match="name of checkpoint"):
            await turn.checkpoint("a b", 1)
        with pytest.raises(InvalidOptions, match="sequence"):
            await turn.checkpoint("plan", 1, sequence=-1)
        with pytest.raises(CheckpointNotFound, match="has no checkpoint 'plan'"):
            await turn.checkpoints.read("plan")

    async with journal:
        await work.run(None, run_id="r")
        assert await journal.checkpoints.list("r") == []
        with pytest.raises(CheckpointNotFound, match="with sequence 3"):
            await journal.checkpoints.read("r", "plan", sequence=3)
        with pytest.raises(RunNotFound):
            await journal.checkpoints.list("nobody")

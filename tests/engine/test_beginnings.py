"""A turn that is submitted and carried out by one process: the store is asked for the claim, and for nothing else."""

import asyncio
from typing import Any

import pytest

from journal import Journal, Turn, TurnCancelled, TurnFailed
from journal.core.ports import Batch, Committed, World
from journal.engine.offering import written_by

pytestmark = pytest.mark.anyio


class Asked:
    """What a store was asked for, and what it was offered."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.for_what: list[str] = []
        self.offered: list[tuple[Batch, Any]] = []
        for name in ("read", "run", "turn", "claim"):
            monkeypatch.setattr(world, name, self._noting(name, getattr(world, name)))
        monkeypatch.setattr(world, "append", self._keeping(world.append))

    def _noting(self, name: str, method: Any) -> Any:
        def asked(*args: Any, **options: Any) -> Any:
            self.for_what.append(name)
            return method(*args, **options)

        return asked

    def _keeping(self, append: Any) -> Any:
        async def offered(batch: Batch) -> Any:
            answer = await append(batch)
            self.offered.append((batch, answer))
            return answer

        return offered


async def asked_of(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked((await journal.runtime()).world, monkeypatch)


async def test_a_new_run_asks_for_its_claim_only(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Journal(url) as journal:

        @journal.agent
        async def work(turn: Turn, what: str) -> str:
            if what == "fails":
                raise ValueError(what)
            return what + await turn.step(str, "!")

        asked = await asked_of(journal, monkeypatch)
        assert await work.run("done") == "done!"
        assert asked.for_what == ["claim"]
        with pytest.raises(TurnFailed, match="fails") as failed:
            await work.run("fails")
        assert isinstance(failed.value.__cause__, ValueError)
        assert asked.for_what == ["claim"] * 2


async def test_what_was_written_is_what_is_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the batch that creates a run, and of one that finds it there: the same records, field by field."""
    async with Journal(url) as journal:

        @journal.agent
        async def work(turn: Turn, what: str) -> str:
            return what

        asked = await asked_of(journal, monkeypatch)
        for key in (None, "second"):
            await work.submit("x" * 100_000 if key else "x", run_id="r", key=key, metadata={"a": "b"})
        log = await journal.read("r")
        written = [
            record
            for batch, answer in asked.offered
            if isinstance(answer, Committed)
            for record in written_by(batch, answer)
        ]
        assert [record.type for record in log] == ["run.created", "turn.submitted", "turn.submitted"]
        assert written == log


async def test_what_came_between_is_read(url: str) -> None:
    """Somebody else appends to the run before it is claimed: here a cancellation, which must be heard."""
    async with Journal(url) as journal:
        begun = []

        @journal.agent
        async def work(turn: Turn, _: None) -> None:
            begun.append(turn.run_id)

        handle = await work.submit(None, run_id="r")
        await journal.cancel("r")
        with pytest.raises(TurnCancelled):
            await handle.settle(30, serve=True)
        assert not begun


async def test_a_handle_of_before_asks_how_it_ended(url: str) -> None:
    """The turn has ended since, elsewhere: its result comes, and nobody is waited for."""
    async with Journal(url) as ours, Journal(url) as theirs:

        @ours.agent(name="work")
        async def work(turn: Turn, what: str) -> str:
            return what

        @theirs.agent(name="work")
        async def work_too(turn: Turn, what: str) -> str:
            return what

        handle = await work.submit("x", run_id="r")
        assert await work_too.run("x", run_id="r") == "x"
        async with asyncio.timeout(20):
            assert await handle.settle(None, serve=True) == "x"
            assert await handle.settle(None, serve=True) == "x"
        second = await work.submit("y", run_id="r", key="2")
        assert await work_too.run("y", run_id="r", key="2") == "y"
        assert await second.result(20) == "y"

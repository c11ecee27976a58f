"""A turn that is submitted and carried out by one process: the store is asked for the claim, and for nothing else."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from journal import Journal, RunNotFound, Turn, TurnCancelled, TurnFailed, never
from journal.core.errors import InvalidOptions, RunBusy, TurnNotFound
from journal.core.ports import Batch, Committed, World
from journal.core.records import Record
from journal.core.typed import PLAIN
from journal.engine.handle import Handle
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


async def test_what_came_between_is_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else appends to the run before it is claimed: here a cancellation, which must be heard."""
    async with Journal(url) as journal:
        begun = []

        @journal.agent
        async def work(turn: Turn, _: None) -> None:
            begun.append(turn.run_id)

        async def cancelled_before(**how: Any) -> Any:
            monkeypatch.undo()
            await journal.cancel("r")
            return await world.claim(**how)

        world = (await journal.runtime()).world
        monkeypatch.setattr(world, "claim", cancelled_before)
        with pytest.raises(TurnCancelled):
            await work.run(None, run_id="r")
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


async def test_a_store_that_lost_what_was_submitted(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has submitted the turn anew by then: what this process remembers is not what the log says."""
    told = []
    async with Journal(url, lease_seconds=1) as journal:

        @never
        async def tell(what: str) -> str:
            told.append(what)
            return what

        @journal.agent
        async def work(turn: Turn, what: str) -> str:
            return str((await turn.tool(tell, what)).value)

        def forgotten(batch: Batch, answer: Committed) -> tuple[Record, ...]:
            return tuple(replace(record, batch=bytes(16)) for record in written_by(batch, answer))

        monkeypatch.setattr("journal.engine.journal.written_by", forgotten)
        async with asyncio.timeout(20):
            assert await work.run("x", run_id="r") == "x"
        assert told == ["x"]


async def test_a_handle_of_what_is_not_there(url: str) -> None:
    """Nothing is waited for that nobody can bring."""
    async with Journal(url) as journal:

        @journal.agent
        async def work(turn: Turn, what: str) -> str:
            return what

        handle = await work.submit("x", run_id="r")
        await handle.settle(30, serve=True)
        for serve in (False, True):
            with pytest.raises(TurnNotFound):
                await (await journal.handle("r", "other")).settle(20, serve=serve)
            with pytest.raises(RunNotFound):
                await Handle(journal, "gone", "start", PLAIN).settle(20, serve=serve)


async def test_two_agents_that_create_one_run_at_once(url: str) -> None:
    """One of them has it; the other is told so, and nothing of it is in the log."""
    async with Journal(url) as journal:

        @journal.agent
        async def greets(turn: Turn, what: str) -> str:
            return f"hello {what}"

        @journal.agent
        async def parts(turn: Turn, what: str) -> str:
            return f"good-bye {what}"

        for keys in ((None, None), ("one", "two")):
            run = f"r-{keys[0]}"
            found = await asyncio.gather(
                *(
                    agent.run("x", run_id=run, key=key)
                    for agent, key in zip((greets, parts), keys, strict=True)
                ),
                return_exceptions=True,
            )
            (refused,) = [one for one in found if isinstance(one, InvalidOptions)]
            assert "belongs to agent" in str(refused)
            assert {"hello x", "good-bye x"} & set(map(str, found))
            assert [r.type for r in await journal.read(run)].count("turn.submitted") == 1


async def test_a_turn_that_waits_for_no_other(url: str) -> None:
    """`if_busy="reject"`, of several at once: one is taken, the others are told that the run is busy."""
    async with Journal(url) as journal:

        @journal.agent
        async def work(turn: Turn, what: str) -> str:
            return what

        for run in ("new", "new", "old"):
            if run == "old":
                await work.run("x", run_id=run)
            found = await asyncio.gather(
                *(work.submit("x", run_id=run, key=key, if_busy="reject") for key in ("a", "b", "c")),
                return_exceptions=True,
            )
            taken = [one for one in found if isinstance(one, Handle)]
            assert len(taken) == 1, found
            assert all(isinstance(one, Handle | RunBusy) for one in found)


async def test_a_journal_that_closes_under_a_run_that_begins(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits hears of it, and the store is not opened anew for it."""
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, what: str) -> str:
        return what

    await journal.__aenter__()
    world = (await journal.runtime()).world
    append = world.append

    async def closed_behind(batch: Batch) -> Any:
        answer = await append(batch)
        await asyncio.wait([asyncio.create_task(journal.aclose())])
        return answer

    monkeypatch.setattr(world, "append", closed_behind)
    task = asyncio.create_task(work.run("x", run_id="r"))
    await asyncio.wait([task])
    assert task.cancelled()
    assert not journal._runtimes, "none is left open"

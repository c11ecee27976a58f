"""What the engine makes of a store that loses answers, fails, or is taken away; and odd values on every world."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from journal import Journal, Turn, TurnFailed, Worker, tool
from journal.core.errors import InvalidOptions, MissingCapability, ValueTooLarge, WorldFull, WorldUnavailable
from journal.core.ports import Answer, Batch, Release, Unknown, World
from journal.core.records import CallIntent, CallOutcome
from journal.worlds import open_world

pytestmark = pytest.mark.anyio


class Meddled:
    """A world whose appends go through `meddle`."""

    def __init__(self, inner: World, meddle: "Meddle") -> None:
        self._inner = inner
        self._meddle = meddle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def append(self, batch: Batch) -> Awaitable[Answer]:
        return asyncio.ensure_future(self._meddle(self._inner, batch))


Meddle = Callable[[World, Batch], Awaitable[Answer]]


def meddled(url: str, meddle: Meddle) -> Callable[[], AbstractAsyncContextManager[Any]]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        async with open_world(url) as world:
            yield Meddled(world, meddle)

    return opened


def has(batch: Batch, body: type[Any]) -> bool:
    return any(r.type == body.TYPE for r in batch.records)


async def test_every_second_answer_is_lost_and_nothing_is_doubled(url: str) -> None:
    """FAULTS 3: the retry finds its own records."""
    seen: set[bytes] = set()

    async def meddle(world: World, batch: Batch) -> Answer:
        answer = await world.append(batch)
        if batch.id in seen:
            return answer
        seen.add(batch.id)
        return Unknown("lost")

    journal = Journal(meddled(url, meddle))
    ran: list[int] = []

    @tool(replay="never")
    async def refund(n: int) -> int:
        ran.append(n)
        return n

    @journal.agent
    async def work(turn: Turn, _: None) -> list[int]:
        results = [await turn.tool(refund, n) for n in range(5)]
        return [r.value for r in results]

    async with Journal(url) as plain, journal:
        assert await work.run(None, run_id="r") == [0, 1, 2, 3, 4]
        assert ran == [0, 1, 2, 3, 4]
        records = await plain.read("r")
        assert [r.seq for r in records] == list(range(1, len(records) + 1))
        assert sum(r.type == CallOutcome.TYPE for r in records) == 5


async def test_an_intent_whose_answer_was_lost_is_not_acted_on_once_the_claim_is_gone(url: str) -> None:
    """FAULTS 38: the door says the intent is there and the claim is not; nobody acts on that."""
    lost = False

    async def meddle(world: World, batch: Batch) -> Answer:
        nonlocal lost
        answer = await world.append(batch)
        if has(batch, CallIntent) and not lost:
            lost = True
            # While nobody hears of it, the run is given to somebody else, who gives it back unfinished.
            await world.append(Batch(batch.run, os.urandom(16), batch.author, queue=Release()))
            claims = await world.claim(
                worker="other", limit=1, lease_seconds=9, agents=None, reads=1, run=batch.run
            )
            assert claims.claimed
            return Unknown("lost")
        return answer

    journal = Journal(meddled(url, meddle))
    ran: list[int] = []

    @tool(replay="never")
    async def refund() -> None:
        ran.append(1)

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        await turn.tool(refund)

    async with journal:
        await work.submit(None, run_id="r")
        worker = journal.worker(concurrency=1)
        async with worker.running():
            while worker.worked == 0:
                await asyncio.sleep(0.005)
    assert lost
    assert ran == []


async def test_an_outcome_that_cannot_be_stored_gives_the_turn_up_with_the_stores_own_words(url: str) -> None:
    full = True

    async def meddle(world: World, batch: Batch) -> Answer:
        if full and has(batch, CallOutcome):
            raise WorldFull("no space left: make room, the turn goes on from its log", world="test")
        return await world.append(batch)

    journal = Journal(meddled(url, meddle), lease_seconds=0.3)
    ran: list[int] = []

    @journal.agent
    async def work(turn: Turn, _: None) -> int:
        async def one() -> int:
            ran.append(1)
            return 1

        return await turn.step(one)

    async with journal:
        with pytest.raises(WorldFull, match="make room"):
            await work.run(None, run_id="r")
        full = False
        assert await work.run(None, run_id="r") == 1
        assert ran == [1, 1]


async def test_a_store_that_never_answers_ends_in_a_clear_error(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journal.engine.claim.UNKNOWN_SECONDS", 0.1)
    monkeypatch.setattr("journal.engine.offering.OFFER_SECONDS", 0.1)
    mute = False

    async def meddle(world: World, batch: Batch) -> Answer:
        return Unknown("silence") if mute else await world.append(batch)

    journal = Journal(meddled(url, meddle))

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        nonlocal mute
        mute = True

        async def nothing() -> None: ...

        await turn.step(nothing)

    async with journal:
        with pytest.raises(WorldUnavailable, match="silence") as run:
            await work.run(None)
        assert run.value.run_id is not None
        assert run.value.run_id in str(run.value)
        assert "is submitted" in str(run.value)
        with pytest.raises(WorldUnavailable, match="repeat it as it was"):
            await work.submit(None, run_id="given")
        with pytest.raises(WorldUnavailable, match="do the same again"):
            await journal.close(run.value.run_id)


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_submission_nobody_answered_is_repeated_under_the_ids_in_its_error(
    url: str, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    """Its run id was made up here: without it, the same again would be a second run."""
    monkeypatch.setattr("journal.engine.offering.OFFER_SECONDS", 0.05)
    mute = True

    async def meddle(world: World, batch: Batch) -> Answer:
        answer = await world.append(batch)
        return Unknown("silence") if mute else answer

    journal = Journal(meddled(url, meddle))

    @journal.agent
    async def work(turn: Turn, _: int) -> None: ...

    async with journal:
        with pytest.raises(WorldUnavailable, match="a second run") as unanswered:
            await work.submit(5, key=key)
        run = unanswered.value.run_id
        assert run is not None
        assert f"run_id={run!r}" in str(unanswered.value)
        assert f"--run {run}" in str(unanswered.value)
        assert ("key='k'" in str(unanswered.value)) == (key is not None)
        mute = False
        again = await work.submit(5, run_id=run, key=key)
        assert (again.run_id, again.turn_id) == (run, key or "start")
        assert [info.run for info in await journal.runs()] == [run]


async def test_a_refusal_after_a_lost_answer_leaves_it_open_what_was_stored(url: str) -> None:
    answers: list[Answer | WorldFull] = [Unknown("silence"), WorldFull("make room", world=url)]

    async def meddle(world: World, batch: Batch) -> Answer:
        answer = answers.pop(0)
        if isinstance(answer, WorldFull):
            raise answer
        return answer

    async with Journal(meddled(url, meddle)) as journal:
        with pytest.raises(WorldUnavailable, match=r"silence.*make room.*run_id=") as unanswered:
            await journal.submit("work", None)
        assert unanswered.value.run_id is not None


async def test_swallowed_control_flow_still_ends_the_turn(url: str) -> None:
    """A harness that catches everything inside a tool does not get around a lost store."""

    async def meddle(world: World, batch: Batch) -> Answer:
        if has(batch, CallOutcome):
            raise WorldFull("full", world="test")
        return await world.append(batch)

    journal = Journal(meddled(url, meddle))

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        async def one() -> int:
            return 1

        for _i in range(3):
            try:
                await turn.step(one)
            except BaseException:
                pass
        return "swallowed"

    async with journal:
        with pytest.raises(WorldFull):
            await work.run(None, run_id="r")
        assert not any(r.type == "turn.finished" for r in await journal.read("r"))


async def test_resources_that_fail_release_the_run_and_say_why(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    fail: Exception | None = OSError("no database")

    @asynccontextmanager
    async def resources() -> AsyncIterator[str]:
        if fail is not None:
            raise fail
        yield "deps"

    journal = Journal(url, resources=resources)

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        return str(turn.deps)

    async with journal:
        with pytest.raises(OSError, match="no database"):
            await work.run(None, run_id="r")
        assert (await journal.get("r")).status == "pending"
        assert f"error='OSError' where='{__file__}:" in caplog.text
        assert "no database" not in caplog.text  # such a text may hold anything
        fail = InvalidOptions("give a database")
        with pytest.raises(InvalidOptions):
            await work.run(None, run_id="r")
        assert "reason='give a database'" in caplog.text
        fail = None
        assert await work.run(None, run_id="r") == "deps"


async def test_a_worker_whose_resources_fail_asks_less_and_less(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a fleet without its database would claim and give back as fast as the store can."""
    monkeypatch.setattr("journal.engine.runtime._COULD_NOT_START_SECONDS", 0.0)
    paused: list[float] = []
    failures = 9

    async def sleep(worker: Worker, seconds: float) -> None:
        paused.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(Worker, "_sleep", sleep)

    @asynccontextmanager
    async def resources() -> AsyncIterator[str]:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise OSError("no database")
        yield "deps"

    journal = Journal(url, resources=resources)

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        return str(turn.deps)

    async with journal:
        handle = await work.submit(None)
        async with journal.worker(concurrency=1).running():
            assert await handle.settle(30, serve=False) == "deps"
    assert paused == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0]


async def test_a_missing_capability_fails_at_open_by_name() -> None:
    journal = Journal("memory:", requires={"log.persistent"})
    with pytest.raises(MissingCapability, match=r"log\.persistent"):
        await journal.runtime()


ODD: list[Any] = [
    "",
    "\0",
    "nul \0 inside",
    "\u2028 \U0001f600",
    None,
    [],
    {},
    {"": None},
    0,
    -0.0,
    1.0,
    1e308,
    5e-324,
    -(2**63),
    2**63,
    2**64 - 1,
    [[[[]]]],
    {"a": {"b": [1, 2.5, "x", None, True]}},
    "x" * (64 * 1024 - 2),
    "x" * (64 * 1024 - 1),
    "é" * 200_000,
]


async def test_odd_values_are_kept_exactly(url: str) -> None:
    """FAULTS 26, through input, argument, result and output."""
    journal = Journal(url)

    async def same(value: Any) -> Any:
        return value

    @journal.agent
    async def work(turn: Turn, value: Any) -> Any:
        assert repr(await turn.step(same, value)) == repr(value)
        return value

    async with journal:
        for n, value in enumerate(ODD):
            for _ in range(2):  # live, then from the log
                assert repr(await work.run(value, run_id=f"r{n}")) == repr(value)


async def test_eight_mebibytes_pass_and_one_byte_more_is_refused_before_anything_is_written(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, value: str) -> int:
        return len(value)

    limit = 8 * 1024 * 1024 - 2  # without the quotes
    async with journal:
        assert await work.run("x" * limit, run_id="fits") == limit
        with pytest.raises(ValueTooLarge, match="8,388,609"):
            await work.run("x" * (limit + 1), run_id="over")
        assert [r.run for r in await journal.runs()] == ["fits"]


async def test_an_output_that_is_no_value_fails_the_turn_and_names_it(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> Any:
        return {"x": [1, object()]}

    async with journal:
        with pytest.raises(TurnFailed, match="InvalidValue"):
            await work.run(None)


async def test_an_agent_that_vanished_between_attempts_leaves_the_run_to_others(url: str) -> None:
    one = Journal(url)

    @one.agent
    async def work(turn: Turn, _: None) -> str:
        return "done"

    other = Journal(url)

    @other.agent
    async def different(turn: Turn, _: None) -> None: ...

    async with one, other:
        await work.submit(None, run_id="r")
        await other.worker().run(until_idle=True)
        assert (await one.get("r")).status == "pending"
        assert await work.run(None, run_id="r") == "done"


def test_a_forked_child_opens_the_store_for_itself(tmp_path: Path) -> None:
    script = f"""
import asyncio, os
from journal import Journal, Turn
journal = Journal("sqlite:{tmp_path / "j.db"}")

@journal.agent
async def work(turn: Turn, n: int) -> int:
    return n + 1

async def parent() -> None:
    async with journal:
        assert await work.run(1, run_id="parent") == 2
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.events._set_running_loop(None)
                os._exit(asyncio.run(child()) - 3)
            finally:
                os._exit(9)
        assert os.waitpid(pid, 0)[1] == 0
        assert await work.run(3, run_id="again") == 4

async def child() -> int:
    return await work.run(2, run_id="child")

asyncio.run(parent())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

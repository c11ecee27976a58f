"""Faults that were found by trying to break it, each with the smallest case that shows it."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from journal import DidNotHappen, Journal, Turn, TurnBlocked, TurnFailed, io, step, tool
from journal.core.codec import open_record, seal
from journal.core.errors import InvalidOptions
from journal.core.ports import Answer, Batch, Drain, Keyed, RunQuery
from journal.core.records import CallEvidence, CallOutcome, CancelRequested, TurnFinished
from journal.tools.retry import Retry
from journal.worlds import open_world
from journal.worlds.memory import MemoryWorld

pytestmark = pytest.mark.anyio

QUICK = Retry(tries=3, min_delay=0.001, max_delay=0.001)


async def outcomes(journal: Journal, run: str = "r") -> list[CallOutcome]:
    return [b for r in await journal.read(run) if isinstance(b := open_record(r), CallOutcome)]


async def test_a_never_call_is_not_retried_whoever_says_that_it_is_never(url: str) -> None:
    ran: list[str] = []
    journal = Journal(url, tools={"pay": "never"})

    @tool(replay="safe", retry=QUICK)
    async def pay() -> None:
        ran.append("pay")
        raise ConnectionError

    @step(retry=QUICK)
    async def refund() -> None:
        ran.append("refund")
        raise ConnectionError

    @step(retry=QUICK)
    async def polite() -> str:
        ran.append("polite")
        if ran.count("polite") < 2:
            raise DidNotHappen
        return "done"

    @journal.agent
    async def work(turn: Turn, _: None) -> list[str]:
        return [(await turn.tool(fn)).status for fn in (pay, refund, polite)]

    async with journal:
        assert await work.run(None) == ["unknown", "unknown", "ok"]
    assert ran == ["pay", "refund", "polite", "polite"]


async def test_a_key_asked_for_twice_joins_the_first(url: str) -> None:
    ran: list[int] = []
    journal = Journal(url)

    @tool(replay="never", key="charge")
    async def charge(n: int) -> int:
        ran.append(n)
        await asyncio.sleep(0.01)
        return n

    @journal.agent
    async def work(turn: Turn, _: None) -> list[Any]:
        both = await asyncio.gather(turn.tool(charge, 1), turn.tool(charge, 1))
        later = await turn.tool(charge, 1)
        with pytest.raises(InvalidOptions, match="a key names one call"):
            await turn.tool(charge, 2)
        with pytest.raises(InvalidOptions, match="given by counting"):
            await turn.tool(charge.options(key="x#1"), 1)
        return [r.value for r in (*both, later)]

    async with journal:
        assert await work.run(None, run_id="r") == [1, 1, 1]
        assert len(await outcomes(journal)) == 1
    assert ran == [1]


async def test_a_result_whose_repr_raises_is_lost_and_no_error(url: str) -> None:
    class Bad:
        def __repr__(self) -> str:
            raise RuntimeError

    journal = Journal(url)

    @tool(replay="never")
    async def odd() -> Any:
        return Bad()

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        await turn.tool(odd)
        return "went on"

    async with journal:
        assert await work.run(None, run_id="r") == "went on"
        assert [o.status for o in await outcomes(journal)] == ["value_lost"]


async def test_a_cancellation_while_output_is_shown_does_not_lose_the_outcome(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(url)

    async def ask() -> int:
        io.emit("piece")
        return 5

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        (attempt,) = (await journal.runtime()).attempts
        with anyio.CancelScope() as scope:
            plain = attempt.deltas.flush

            async def slow() -> None:
                scope.cancel()
                await asyncio.sleep(0.1)
                await plain()

            monkeypatch.setattr(attempt.deltas, "flush", slow)
            await turn.model(ask)
        return "done"

    async with journal:
        assert await work.run(None, run_id="r") == "done"
        assert [o.status for o in await outcomes(journal)] == ["ok"]


async def test_a_task_group_that_failed_is_retried_whole(url: str) -> None:
    ran: list[str] = []
    journal = Journal(url)

    async def slow() -> None:
        ran.append("slow")
        if len(ran) <= 2:
            await asyncio.Event().wait()

    async def flaky() -> None:
        ran.append("flaky")
        if ran.count("flaky") == 1:
            raise ValueError

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(turn.step(slow))
            group.create_task(turn.step(flaky))
        return "both"

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        assert await (await journal.retry("r")).settle(5, serve=True) == "both"
    assert sorted(ran) == ["flaky", "flaky", "slow", "slow"]


async def test_a_step_that_cancels_itself_is_an_error(url: str) -> None:
    journal = Journal(url)

    async def odd() -> None:
        raise asyncio.CancelledError

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        await turn.step(odd)

    async with journal:
        with pytest.raises(TurnFailed, match="CancelledError"):
            await work.run(None, run_id="r")


async def test_a_cancelled_never_call_is_cancelled_on_replay_too(url: str) -> None:
    journal = Journal(url)

    @tool(replay="never")
    async def pay() -> None:
        await asyncio.Event().wait()

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        try:
            await asyncio.wait_for(turn.tool(pay), 0.02)
        except TimeoutError:
            if turn.attempt == 1:
                await turn.step(end)  # by a call, so that nothing before it counts as cancelled over that
            return "timeout"
        return "other branch"

    async def end() -> None:
        raise RuntimeError

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        assert await (await journal.retry("r")).settle(5, serve=True) == "timeout"


async def test_a_recorded_cancellation_that_nothing_repeats_is_a_divergence(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journal.engine.order.REPLAY_STALL_SECONDS", 0.02)
    journal = Journal(url)

    async def slow() -> None:
        await asyncio.Event().wait()

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        try:
            await asyncio.wait_for(turn.step(slow), 0.02 if turn.attempt == 1 else 30)
        finally:
            await turn.step(end)  # by a call, so that nothing before it counts as cancelled over that

    async def end() -> None:
        raise RuntimeError

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        with pytest.raises(TurnBlocked, match="now nothing cancels it"):
            await (await journal.retry("r")).settle(5, serve=True)


async def test_evidence_without_an_intent_blocks_nobody(url: str) -> None:
    """It comes from a holder that lost the run before its lazy intent was durable."""
    journal = Journal(url)

    async def one() -> int:
        return 1

    @journal.agent
    async def work(turn: Turn, _: None) -> int:
        return await turn.step(one)

    async with journal:
        await work.submit(None, run_id="r")
        body = CallEvidence(outcome=CallOutcome(status="ok", value=b"9"), epoch=1)
        record = seal("r", body, turn="start", key="other#1")
        async with open_world(url) as world:
            await world.append(Batch("r", b"e" * 16, Keyed("evidence", b"d"), (record,)))
        assert await work.run(None, run_id="r") == 1


async def test_a_queue_change_waits_for_the_one_before_it(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        (attempt,) = (await journal.runtime()).attempts
        await asyncio.gather(*(attempt.holding.commit(queue=Drain()) for _ in range(3)))

    async with journal:
        await work.run(None, run_id="r")
        assert (await journal.get("r")).status == "succeeded"


async def test_an_exit_ends_the_turn_and_nothing_else(url: str) -> None:
    journal = Journal(url)

    async def leave() -> None:
        sys.exit(3)

    @journal.agent
    async def work(turn: Turn, where: str) -> str:
        if where == "step":
            await turn.step(leave)
        if where == "handler":
            sys.exit(3)
        await asyncio.sleep(0.05)
        return "fine"

    async with journal:
        others = [asyncio.create_task(work.run("nowhere", run_id=f"o{n}")) for n in range(3)]
        for where in ("step", "handler"):
            with pytest.raises(TurnFailed, match="SystemExit"):
                await work.run(where)
        assert await asyncio.gather(*others) == ["fine"] * 3


async def test_renewal_survives_whatever_goes_wrong_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(url, lease_seconds=2.0)
    failed: list[int] = []

    @journal.agent
    async def work(turn: Turn, _: None) -> int:
        runtime = await journal.runtime()
        (attempt,) = runtime.attempts
        trusted_until = attempt.holding.trusted_until
        plain = runtime._renewals._open_renewer

        def out_of_descriptors() -> Any:
            if not failed:
                failed.append(1)
                raise OSError(24, "Too many open files")
            return plain()

        runtime._renewals._open_renewer = out_of_descriptors
        while attempt.holding.trusted_until == trusted_until:
            await asyncio.sleep(0.01)
        return turn.attempt

    async with journal:
        assert await work.run(None, run_id="r") == 1
        assert failed
        assert (await journal.get("r")).epoch == 1


async def test_a_failure_that_comes_from_itself_ends_the_turn(url: str) -> None:
    """Harnesses wrap exceptions in groups that are raised from them."""
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        part = ValueError("part")
        group = ExceptionGroup("group", [part])
        part.__context__ = group
        raise group

    async with journal:
        with pytest.raises(TurnFailed, match="ExceptionGroup"):
            await work.run(None, run_id="r")


async def test_a_retry_takes_an_old_cancel_back(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "journal.engine.runtime._LOOK_SECONDS", 60.0
    )  # the failure comes before the cancel is seen
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> int:
        if turn.attempt == 1:
            (attempt,) = (await journal.runtime()).attempts
            await (await journal.runtime()).world.append(
                Batch(
                    "r",
                    b"c" * 16,
                    Keyed("cancel", b"d"),
                    (seal("r", CancelRequested(), turn="start"),),
                )
            )
            raise ValueError(attempt.number)
        return 7

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        assert await (await journal.retry("r")).settle(5, serve=True) == 7


async def test_a_cancel_that_comes_after_the_end_changes_nothing(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> int:
        return 7

    async with journal:
        assert await work.run(None, run_id="r") == 7
        await journal.cancel("r", turn_id="start")
        ends = [b for r in await journal.read("r") if isinstance(b := open_record(r), TurnFinished)]
        assert [e.status for e in ends] == ["succeeded"]
        assert await work.run(None, run_id="r") == 7


async def test_a_worker_cancelled_while_it_claims_gives_the_run_back(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> int:
        return 7

    async with journal:
        await work.submit(None, run_id="r")
        runtime = await journal.runtime()
        claiming = asyncio.create_task(runtime.claim(agents=None))
        await asyncio.sleep(0)
        claiming.cancel()
        await asyncio.gather(claiming, return_exceptions=True)
        (info,) = await journal.runs(RunQuery())
        assert info.status == "pending"
        assert info.takeovers == 0
        assert await work.run(None, run_id="r") == 7


async def test_a_handler_that_swallows_its_cancellation_does_not_keep_the_worker(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journal.engine.attempt._RECANCEL_SECONDS", 0.02)
    journal, inside, go = Journal(url), asyncio.Event(), asyncio.Event()

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        inside.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                pass

    async with journal:
        await work.submit(None, run_id="r")
        with anyio.fail_after(10):
            async with journal.worker(grace_seconds=0).running():
                await inside.wait()
        assert (await journal.get("r")).status == "running", "nobody else may have it while the handler runs"
        go.set()
        await asyncio.sleep(0)


async def test_a_sync_call_that_never_got_a_thread_leaves_no_mark() -> None:
    from journal.engine.threads import on_thread

    running: set[object] = set()
    task = asyncio.create_task(on_thread(running, lambda: None))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not running


async def test_what_others_append_is_no_trouble_to_an_outcome_that_lands_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two calls end at once: the batch of the second is answered to a callback of the loop, where no task is."""
    plain, journal, in_flight = MemoryWorld.append, Journal(f"memory:{tmp_path.name}"), asyncio.Event()

    async def slow(world: MemoryWorld, batch: Batch) -> Answer:
        answer = await plain(world, batch)
        if not in_flight.is_set() and any(record.type == "call.outcome" for record in batch.records):
            in_flight.set()
            await work.submit(None, run_id="r", key="other")
            await asyncio.sleep(0.05)
        return answer

    monkeypatch.setattr(MemoryWorld, "append", slow)

    async def act(n: int) -> int:
        if n:
            await in_flight.wait()
        return n

    @journal.agent
    async def work(turn: Turn, _: None) -> list[int]:
        return list(await asyncio.gather(turn.step(act, 0), turn.step(act, 1)))

    async with journal:
        assert await work.run(None, run_id="r", timeout=10) == [0, 1]

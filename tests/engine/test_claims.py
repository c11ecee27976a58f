"""Who holds a run: leases, takeovers, crash loops, late results, stopping workers."""

import asyncio
import math
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from journal import Journal, Turn, TurnBlocked, tool
from journal.core.clock import SystemClock
from journal.core.codec import open_record, seal
from journal.core.errors import ClaimLost
from journal.core.ports import Answer, Batch, Claim, Claimed, Committed, Held, Release, SweepPolicy, World
from journal.core.records import CallEvidence, CallOutcome, Observed, TurnStarted
from journal.engine.claim import Flusher, Holding
from journal.engine.opening import CRASH_LOOP_CAP
from journal.engine.worker import SUSPECT_TAKEOVERS, Worker
from journal.worlds import open_world
from journal.worlds.contract.harness import claim_all, close

pytestmark = pytest.mark.anyio


async def take(url: str, run: str = "r", lease: float = 0.0, agent: str = "work") -> Claim:
    """Claim the run as a worker elsewhere would, and fall silent."""
    async with open_world(url) as world:
        while True:
            claims = await world.claim(
                worker="elsewhere", limit=1, lease_seconds=lease, agents={agent}, reads=1, run=run
            )
            if claims.claimed:
                return claims.claimed[0].claim
            await asyncio.sleep(0.005)


async def test_a_healthy_turn_is_left_alone_by_a_booting_worker(url: str) -> None:
    """FAULTS 12."""
    inside, go = asyncio.Event(), asyncio.Event()

    def build() -> tuple[Journal, Any]:
        journal = Journal(url)

        @journal.agent
        async def work(turn: Turn, _: None) -> str:
            async def wait() -> str:
                inside.set()
                await go.wait()
                return "done"

            return await turn.step(wait)

        return journal, work

    (one, work), (two, _) = build(), build()
    async with one, two:
        handle = await work.submit(None, run_id="r")
        async with one.worker().running():
            await inside.wait()
            async with two.worker().running() as booting:
                await asyncio.sleep(0.1)
                assert booting.busy == 0
                go.set()
                assert await handle.result(5) == "done"
        assert (await one.get("r")).epoch == 1


async def test_a_stopping_worker_releases_and_does_not_take_its_turn_back(url: str) -> None:
    """FAULTS 12."""
    inside = asyncio.Event()
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        inside.set()
        await asyncio.Event().wait()  # between calls
        return ""

    async with journal:
        await work.submit(None, run_id="r")
        worker = journal.worker(grace_seconds=0.05)
        async with worker.running():
            await inside.wait()
        info = await journal.get("r")
        assert (info.status, info.epoch, info.takeovers) == ("pending", 1, 0)
        assert info.due_at is not None


async def test_a_turn_with_a_call_under_way_is_drained_not_counted(url: str) -> None:
    inside = asyncio.Event()
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        async def wait() -> None:
            inside.set()
            await asyncio.Event().wait()

        await turn.step(wait)
        return ""

    async with journal:
        await work.submit(None, run_id="r")
        async with journal.worker(grace_seconds=0.05).running():
            await inside.wait()
        # The act was cancelled and left in doubt; whoever carries on runs it again.
        assert [r.type for r in await journal.read("r")][-1] == "call.intent"
        async with open_world(url) as world:
            claims = await world.claim(worker="w", limit=1, lease_seconds=1, agents=None, reads=1, run="r")
            assert claims.claimed[0].takeovers == 0


async def test_a_lost_claim_stops_the_handler_at_once_and_its_result_is_evidence(url: str) -> None:
    """FAULTS 45: the next holder records it as the outcome of the `never` call."""
    inside, go = asyncio.Event(), asyncio.Event()
    ran: list[int] = []

    def build() -> tuple[Journal, Any]:
        journal = Journal(url, lease_seconds=30)

        @tool(replay="never")
        async def refund() -> str:
            ran.append(1)
            inside.set()
            await asyncio.shield(go.wait())
            return "refunded"

        @journal.agent
        async def work(turn: Turn, _: None) -> str:
            result = await turn.tool(refund)
            return f"{result.status} {result.text}"

        return journal, work

    (one, work), (two, again) = build(), build()
    async with one, two:
        await work.submit(None, run_id="r")
        runtime = await one.runtime()
        worker = asyncio.create_task(one.worker(concurrency=1).run())
        await inside.wait()
        (attempt,) = runtime.attempts
        # Somebody else takes the run over, as far as the store knows; this holder has not heard of it yet.
        await usurp(url, "r", attempt.holding.claim)
        go.set()
        while not any(r.type == CallEvidence.TYPE for r in await two.read("r")):
            await asyncio.sleep(0.01)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        assert await again.run(None, run_id="r") == "ok refunded"
        outcomes = [b for r in await two.read("r") if isinstance(b := open_record(r), CallOutcome)]
        assert [(o.status, o.evidence is not None) for o in outcomes] == [("ok", True)]
        assert ran == [1]


async def usurp(url: str, run: str, claim: Claim) -> None:
    """Give the run back behind its holder's back, and claim and give it back again as somebody else."""
    from journal.core.ids import new_batch_id
    from journal.core.ports import Batch, Committed, Release

    async with open_world(url) as world:
        for held in (claim, None):
            if held is None:
                claims = await world.claim(
                    worker="thief", limit=1, lease_seconds=9, agents=None, reads=1, run=run
                )
                held = claims.claimed[0].claim
            answer = await world.append(Batch(run, new_batch_id(), Held(held, None), queue=Release()))
            assert isinstance(answer, Committed)


async def test_trust_counts_from_when_the_claim_was_asked_for(url: str) -> None:
    """FAULTS 17: no `never` call is started once the lease may have run out unrenewed."""
    journal = Journal(url)
    ran: list[int] = []

    @tool(replay="never")
    async def refund() -> None:
        ran.append(1)

    seen: list[BaseException] = []

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        (attempt,) = (await journal.runtime()).attempts
        attempt.holding.trusted_until = journal.clock.boottime() - 0.001
        try:
            await turn.tool(refund)
        except ClaimLost as error:
            seen.append(error)
            raise

    async with journal:
        await work.submit(None, run_id="r")
        worker = asyncio.create_task(journal.worker().run())
        while not seen:
            await asyncio.sleep(0.005)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    assert ran == []


async def test_a_renewal_that_hangs_is_not_waited_for(url: str) -> None:
    """FAULTS 14 and 17: the lease ends by our own clock, and what is under way is stopped then."""
    journal = Journal(url, lease_seconds=0.6)
    hanging = threading.Event()
    stopped: list[float] = []

    class Mute:
        def renew(self, claims: Sequence[Claim], lease_seconds: float) -> set[Claim]:
            hanging.wait(60)
            return set(claims)

        def close(self) -> None: ...

    @journal.agent
    async def work(turn: Turn, _: None) -> int:
        async def wait() -> None:
            if turn.attempt > 1:
                return
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                stopped.append(time.monotonic() - started)
                raise

        started = time.monotonic()
        runtime = await journal.runtime()
        runtime._renewals._open_renewer = Mute
        await turn.step(wait)
        return turn.attempt

    async with journal:
        await work.submit(None, run_id="r")
        worker = asyncio.create_task(journal.worker(concurrency=1).run(until_idle=True))
        try:
            with anyio.fail_after(10):
                while not stopped:
                    await asyncio.sleep(0.01)
        finally:
            hanging.set()
        await worker
        assert 0.5 < stopped[0] < 4
        assert await work.run(None, run_id="r") == 2


async def test_seventeen_takeovers_without_progress_are_a_crash_loop(url: str) -> None:
    """FAULTS 46 and 13: a poisoned turn becomes a dead letter, the others are worked."""
    assert CRASH_LOOP_CAP == 16
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, n: int) -> int:
        return n

    async with journal:
        await work.submit(0, run_id="poisoned")
        for n in range(5):
            await work.submit(n, run_id=f"good{n}")
        for _ in range(17):
            await take(url, "poisoned")
        async with journal.worker(concurrency=2).running():
            for n in range(5):
                handle = await journal.handle(f"good{n}", "start")
                assert await handle.result(5) == n
            with pytest.raises(TurnBlocked, match="crash_loop"):
                await (await journal.handle("poisoned")).result(5)
        info = await journal.get("poisoned")
        assert (info.status, info.takeovers) == ("blocked", 17)
        handle = await journal.retry("poisoned")
        assert await handle.settle(5, serve=True) == 0


async def test_sixteen_takeovers_are_not_yet_a_crash_loop(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, n: int) -> int:
        return n

    async with journal:
        await work.submit(7, run_id="r")
        for _ in range(16):
            await take(url)
        # The last of the sixteen fell silent too: the holder that finds it is the sixteenth takeover.
        assert await work.run(7, run_id="r") == 7


async def test_a_turn_that_may_be_what_kills_workers_is_worked_on_alone(url: str) -> None:
    """FAULTS 13: a poisoned turn would otherwise take its neighbours along, until they count as poisoned too."""
    journal = Journal(url)
    at_work: set[str] = set()
    beside: dict[str, int] = {}

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        async def first() -> None:
            at_work.add(turn.run_id)
            await asyncio.sleep(0.1)
            beside[turn.run_id] = len(at_work) - 1
            at_work.discard(turn.run_id)

        async def second() -> None:
            await asyncio.sleep(0.1)

        await turn.step(first)
        await turn.step(second)  # there was progress: no suspect any more

    async with journal:
        for run in ("one", "two"):
            await work.submit(None, run_id=run)
        for _ in range(SUSPECT_TAKEOVERS + 1):
            async with open_world(url) as world:
                assert len(await claim_all(world, lease_seconds=0)) == 2
        for run in ("three", "four"):
            await work.submit(None, run_id=run)
        await journal.worker(concurrency=4).run(until_idle=True)
        assert {info.status for info in await journal.runs()} == {"succeeded"}
    assert (beside["one"], beside["two"]) == (0, 0)


async def test_progress_resets_the_count(url: str) -> None:
    journal = Journal(url)
    hold = asyncio.Event()

    @journal.agent
    async def work(turn: Turn, n: int) -> int:
        async def one() -> int:
            return 1

        await turn.step(one)
        await hold.wait()
        return n

    async with journal:
        await work.submit(7, run_id="r")
        for _ in range(10):
            await take(url)
        worker = asyncio.create_task(journal.worker(grace_seconds=0).run())
        while (await journal.get("r")).takeovers:
            await asyncio.sleep(0.005)
        assert any(r.type == "call.outcome" for r in await journal.read("r"))
        hold.set()
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


async def test_seventeen_deploys_are_no_crash_loop(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, n: int) -> int:
        if turn.attempt <= 17:
            waiting.set()
            await asyncio.Event().wait()
        return turn.attempt

    waiting = asyncio.Event()
    async with journal:
        handle = await work.submit(1, run_id="r")
        for _ in range(17):
            waiting.clear()
            async with journal.worker(grace_seconds=0).running():
                await waiting.wait()
        assert await handle.settle(5, serve=True) == 18
        started = [b for r in await journal.read("r") if isinstance(b := open_record(r), TurnStarted)]
        assert len(started) == 18
        assert not any(s.taken_over for s in started)


async def test_more_dead_turns_than_slots(url: str) -> None:
    """FAULTS 13."""
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, n: int) -> int:
        return n

    async with journal:
        for n in range(12):
            await work.submit(n, run_id=f"r{n}")
            await take(url, f"r{n}")
        async with journal.worker(concurrency=2).running():
            for n in range(12):
                assert await (await journal.handle(f"r{n}", "start")).result(5) == n


async def test_stopped_past_its_lease_every_append_is_refused(tmp_path: Path) -> None:
    """FAULTS 15: SIGSTOP, taken over, SIGCONT."""
    from tests.crash.stage import Stage

    stage = Stage(tmp_path)
    assert stage.run("submit", "1") == 0
    frozen = stage.start("work", lease=0.6, freeze="ask:sleep")
    try:
        while not stage.effects()["frozen"]:
            await asyncio.sleep(0.01)
        os.kill(frozen.pid, signal.SIGSTOP)
        other = stage.start("work")
        while not stage.effects()["note o0"]:
            if other.poll() is not None:  # it found nothing due: the frozen one's lease still runs
                other = stage.start("work")
            await asyncio.sleep(0.05)
        other.wait(20)
        os.kill(frozen.pid, signal.SIGCONT)
        assert frozen.wait(20) == 0
    finally:
        if frozen.poll() is None:
            frozen.kill()
            frozen.wait()
    outcomes = await stage.outcomes("r0")
    assert outcomes == {"ask#1": "ok", "look#1": "ok", "refund#1": "ok", "note#1": "ok"}
    assert stage.effects()["refund o0"] == 1
    starts = [b for r in await stage.log("r0") if isinstance(b := open_record(r), TurnStarted)]
    assert [s.taken_over for s in starts] == [False, True]


async def test_a_run_is_not_given_back_while_a_thread_works_on_it(url: str) -> None:
    """A sync call cannot be stopped: the run stays with this process, marked as no crash."""
    import threading

    inside, go = threading.Event(), threading.Event()
    journal = Journal(url)

    @tool(replay="never")
    def refund() -> None:
        inside.set()
        go.wait(10)

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        await turn.tool(refund)

    async with journal:
        await work.submit(None, run_id="r")
        async with journal.worker(grace_seconds=0).running():
            while not inside.is_set():
                await asyncio.sleep(0.005)
        assert (await journal.get("r")).status == "running"
        async with open_world(url) as world:
            claims = await world.claim(worker="w", limit=1, lease_seconds=1, agents=None, reads=1, run="r")
            assert claims.claimed == ()
        go.set()


async def test_the_holder_that_is_refused_is_told_both_epochs(url: str) -> None:
    """FAULTS 2."""
    journal = Journal(url)
    seen: list[BaseException | None] = []
    workers: list[Worker] = []

    async def one() -> int:
        return 1

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        await turn.step(one)
        workers[0].stop()  # it claims nothing more
        (attempt,) = (await journal.runtime()).attempts
        await usurp(url, "r", attempt.holding.claim)
        try:
            await turn.step(one)
        finally:
            seen.append(attempt.holding.lost)

    async with journal:
        await work.submit(None, run_id="r")
        worker = journal.worker(concurrency=1)
        workers.append(worker)
        await asyncio.wait_for(worker.run(), 30)
        assert [type(error) for error in seen] == [ClaimLost]
        assert "offered=1, current=2" in str(seen[0])
        keys = [(r.epoch, r.key) for r in await journal.read("r") if r.type == CallOutcome.TYPE]
        assert keys == [(1, "one#1")]


async def test_a_late_result_of_a_safe_call_is_kept_for_reading_and_the_call_runs_again(url: str) -> None:
    """FAULTS 45."""
    inside, go = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    def build(who: str) -> tuple[Journal, Any]:
        journal = Journal(url, lease_seconds=30)

        @tool(replay="safe")
        async def look() -> str:
            ran.append(who)
            inside.set()
            if who == "first":
                await asyncio.shield(go.wait())
            return f"seen by {who}"

        @journal.agent
        async def work(turn: Turn, _: None) -> str:
            return (await turn.tool(look)).text

        return journal, work

    (one, work), (two, again) = build("first"), build("second")
    async with one, two:
        await work.submit(None, run_id="r")
        worker = one.worker(concurrency=1)
        working = asyncio.create_task(worker.run())
        await asyncio.wait_for(inside.wait(), 30)
        worker.stop()  # it claims nothing more
        while not any(r.type == "call.intent" for r in await two.read("r")):
            await asyncio.sleep(0.005)  # it is lazy, and refused it would stop the call
        (attempt,) = (await one.runtime()).attempts
        await usurp(url, "r", attempt.holding.claim)
        go.set()
        await asyncio.wait_for(working, 30)
        assert await again.run(None, run_id="r") == "seen by second"
        log = [open_record(r) for r in await two.read("r")]
        assert [b.outcome.value for b in log if isinstance(b, CallEvidence)] == [b'"seen by first"']
        assert [(b.value, b.evidence) for b in log if isinstance(b, CallOutcome)] == [
            (b'"seen by second"', None)
        ]
    assert ran == ["first", "second"]


async def test_seventeen_deploys_within_a_call_are_no_crash_loop(url: str) -> None:
    """FAULTS 46: the call is cut off each time, and never gets to an outcome."""
    waiting = asyncio.Event()
    tries: list[int] = []

    async def long() -> int:
        tries.append(1)
        waiting.set()
        if len(tries) <= 17:
            await asyncio.Event().wait()
        return len(tries)

    async with Journal(url) as keep:
        for _ in range(17):
            waiting.clear()
            async with deploy(url, long) as (journal, work):
                await work.submit(None, run_id="r")
                async with journal.worker(grace_seconds=0).running():
                    await waiting.wait()
        assert (await keep.get("r")).takeovers == 0
        async with deploy(url, long) as (_, work):
            assert await work.run(None, run_id="r") == 18


@asynccontextmanager
async def deploy(url: str, step: Any) -> AsyncIterator[tuple[Journal, Any]]:
    """A worker's journal, and its agent of one step; gone afterwards, as with its process."""
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> int:
        return int(await turn.step(step))

    async with journal:
        yield journal, work


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
async def test_the_clock_is_stepped_while_turns_are_worked_and_submitted(
    url: str, step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULTS 16."""
    plain, off = time.time, 0.0
    monkeypatch.setattr(time, "time", lambda: plain() + off)
    monkeypatch.setattr(SystemClock, "_boot_was_at", 0.0)
    journal = Journal(url, lease_seconds=1.0)
    inside, go = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        inside.set()
        await go.wait()

    @journal.agent
    async def work(turn: Turn, _: None) -> int:
        await turn.step(wait)
        return turn.attempt

    async with journal, journal.worker(concurrency=2).running():
        before = await work.submit(None, run_id="before")
        await asyncio.wait_for(inside.wait(), 30)
        off = step
        after = await work.submit(None, run_id="after")
        go.set()
        assert await before.result(10) == 1
        assert await after.result(10) == 1, "it was due at once"
        times = [r.time for r in await journal.read("before")]
        assert times == sorted(times), "time goes on"
        assert (await journal.get("before")).epoch == 1


async def test_the_result_of_a_zombie_is_none_of_the_recreated_runs(url: str) -> None:
    """FAULTS 41: closed and swept while a call is under way, then begun anew under the same id."""
    inside, first_may, second_may = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def build(who: str, gate: asyncio.Event | None) -> tuple[Journal, Any]:
        journal = Journal(url)

        @tool(replay="never")
        async def refund() -> str:
            inside.set()
            if gate is not None:
                await gate.wait()
            return f"refunded by {who}"

        @journal.agent
        async def work(turn: Turn, _: None) -> str:
            return (await turn.tool(refund)).status

        return journal, work

    (old, begun), (new, again) = build("old", first_may), build("new", second_may)
    async with old:
        await begun.submit(None, run_id="r")
        worker = old.worker(concurrency=1)
        working = asyncio.create_task(worker.run())
        await asyncio.wait_for(inside.wait(), 30)
        worker.stop()  # it claims nothing more
        inside.clear()
        async with open_world(url) as world:
            await world.append(close("r"))
            assert await world.sweep(SweepPolicy(closed_older_than_seconds=0, tombstone_seconds=0)) == 1
        async with new:
            await again.submit(None, run_id="r")
            async with new.worker(grace_seconds=0).running():
                await asyncio.wait_for(inside.wait(), 30)
                first_may.set()
                await asyncio.wait_for(working, 30)
        last, carried_on = build("last", None)
        async with last:
            assert await carried_on.run(None, run_id="r") == "unknown"


async def test_whoever_gives_a_lost_run_back_is_refused_at_once() -> None:
    """Though it is to be given back already, behind a batch that is not answered yet."""

    answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    class Slow:
        """A store that takes its time."""

        def append(self, batch: Batch) -> asyncio.Future[Answer]:
            return answer

    claimed = Claimed(
        claim=Claim("r", 1, b"token"),
        agent="work",
        turn="t",
        submitted=1,
        head=1,
        takeovers=0,
        taken_over=False,
        min_reader=1,
    )
    holding = Holding(cast("World", Slow()), SystemClock(), claimed, Flusher(), trusted_until=math.inf)
    record = seal("r", Observed(value=b"1"), turn="t", key="k")
    landing = asyncio.ensure_future(holding.commit(record))
    giving = asyncio.ensure_future(holding.commit(queue=Release()))
    await asyncio.sleep(0)
    holding.lose(ClaimLost(run_id="r", reason="it was taken over"))
    with anyio.fail_after(5), pytest.raises(ClaimLost):
        await holding.commit(queue=Release())
    with pytest.raises(ClaimLost):
        await giving
    answer.set_result(Committed(2, 2, 0.0))  # what is under way may land all the same
    assert await landing == 1

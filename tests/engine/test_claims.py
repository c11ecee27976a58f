"""Who holds a run: leases, takeovers, crash loops, late results, stopping workers."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from journal import Journal, Turn, TurnBlocked, tool
from journal.core.codec import open_record
from journal.core.errors import ClaimLost
from journal.core.ports import Claim, Held
from journal.core.records import CallEvidence, CallOutcome, TurnStarted
from journal.engine.opening import CRASH_LOOP_CAP
from journal.worlds import open_world

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}" if request.param == "memory" else f"sqlite:{tmp_path / 'j.db'}"


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


async def test_a_blocked_loop_keeps_its_lease(url: str) -> None:
    """FAULTS 15: CPU-bound code blocks the loop for three lease times."""
    journal, other = Journal(url, lease_seconds=0.3), Journal(url, lease_seconds=0.3)

    @journal.agent
    async def work(turn: Turn, _: None) -> int:
        async def spin() -> None:
            time.sleep(0.9)

        await turn.step(spin)
        return turn.attempt

    async with other:
        async with journal:
            assert await work.run(None, run_id="r") == 1
        assert (await other.get("r")).epoch == 1


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
    frozen = stage.start("freeze", lease=0.6)
    try:
        while not stage.effects()["frozen"]:
            await asyncio.sleep(0.01)
        os.kill(frozen.pid, signal.SIGSTOP)
        other = stage.start("work", lease=0.6)
        while not stage.effects()["note o0"]:
            if other.poll() is not None:  # it found nothing due: the frozen one's lease still runs
                other = stage.start("work", lease=0.6)
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

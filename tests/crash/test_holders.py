"""Who holds a run, with processes that are busy, frozen, dead, poisoned, or go by another clock."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import pytest

from journal.core.codec import open_record
from journal.core.records import CallEvidence, TurnBlocked, TurnStarted
from journal.engine.opening import CRASH_LOOP_CAP
from journal.worlds import open_world
from journal.worlds.contract.harness import claim_all
from tests.crash.stage import Process, Stage

pytestmark = pytest.mark.anyio

HOUR = 3600.0
everywhere = pytest.mark.parametrize("stage", ["sqlite", "postgres", "redis", "cluster"], indirect=True)


@contextmanager
def living(process: Process) -> Iterator[Process]:
    """It does not outlive the block."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


async def until(stage: Stage, effect: str, times: int = 1, *, within: float = 60) -> None:
    """Wait for an effect."""
    with anyio.fail_after(within):
        while stage.effects()[effect] < times:
            await anyio.sleep(0.01)


async def starts(stage: Stage, run: str = "r0") -> list[bool]:
    """For each attempt, whether it took over."""
    found = [b for r in await stage.log(run) if isinstance(b := open_record(r), TurnStarted)]
    return [s.taken_over for s in found]


async def test_busy_for_three_lease_times_it_is_not_taken_over(stage: Stage) -> None:
    """FAULTS 15: another process asks for the run all the time."""
    assert stage.run("submit", "1") == 0
    refusals = 0
    with living(stage.start("work", lease=1.0, freeze="ask:spin", freeze_seconds=3.2)) as busy:
        await until(stage, "frozen")
        async with open_world(stage.url) as world:
            while not stage.effects()["thawed"]:
                assert await claim_all(world, run="r0") == [], "its lease was lost"
                refusals += 1
                await anyio.sleep(0.02)
        assert busy.wait(60) == 0
    assert refusals > 3
    assert await starts(stage) == [False]
    assert (await stage.finished("r0")).status == "succeeded"


@everywhere
async def test_stopped_inside_a_never_call_its_result_is_kept_for_reading(stage: Stage) -> None:
    """FAULTS 15 and 45: the next holder has settled the call before the stopped one goes on."""
    assert stage.run("submit", "1") == 0
    with living(stage.start("work", lease=0.6, freeze="refund:sleep")) as frozen:
        await until(stage, "frozen")
        os.kill(frozen.pid, signal.SIGSTOP)
        deadline = time.monotonic() + 60
        while not stage.effects()["note o0"]:
            assert time.monotonic() < deadline
            assert stage.run("work") == 0  # until the lease of the stopped one is over
        os.kill(frozen.pid, signal.SIGCONT)
        assert frozen.wait(60) == 0
    assert await stage.outcomes("r0") == {
        "ask#1": "ok",
        "look#1": "ok",
        "refund#1": "unknown",
        "note#1": "ok",
    }
    assert stage.effects()["refund o0"] == 1
    log = await stage.log("r0")
    epochs = [record.epoch for record in log if record.epoch]
    assert epochs == sorted(epochs), "the stopped one appended under its claim"
    late = [(r.key, b.epoch, b.outcome.status) for r in log if isinstance(b := open_record(r), CallEvidence)]
    assert late == [("refund#1", 1, "ok")]
    assert (await stage.finished("r0")).status == "succeeded"


@everywhere
async def test_more_dead_turns_than_slots_after_a_kill(stage: Stage) -> None:
    """FAULTS 13."""
    assert stage.run("submit", "9") == 0
    with living(stage.start("work", slots=9, freeze="ask:hang")) as first:
        await until(stage, "frozen", 9)
        first.kill()
    assert stage.finish(slots=2) == 0
    for n in range(9):
        assert (await stage.finished(f"r{n}")).status == "succeeded"
        assert await starts(stage, f"r{n}") == [False, True]


@pytest.mark.parametrize("slots", [1, 3])
async def test_a_turn_that_kills_its_worker_becomes_a_dead_letter(stage: Stage, slots: int) -> None:
    """FAULTS 13 and 46: after seventeen deaths, and the others are worked all the same."""
    assert stage.run("poison") == 0
    assert stage.run("submit", "4") == 0
    codes: list[int] = []
    patient = stage.lease
    while not codes or codes[-1] != 0:
        # Those who die are not waited for; who does the rest keeps its claims, however busy the machine is.
        stage.lease = 0.5 if len(codes) <= CRASH_LOOP_CAP else patient
        codes.append(stage.finish(slots=slots))
        assert len(codes) <= CRASH_LOOP_CAP + 2
    assert codes == [-signal.SIGKILL] * (CRASH_LOOP_CAP + 1) + [0]
    assert stage.effects()["poisoned"] == CRASH_LOOP_CAP + 1
    assert await stage.status("poisoned") == "blocked"
    blocked = [b for r in await stage.log("poisoned") if isinstance(b := open_record(r), TurnBlocked)]
    assert [b.reason for b in blocked] == ["crash_loop"]
    for n in range(4):
        assert (await stage.finished(f"r{n}")).status == "succeeded"
        # One that was killed between the intent and the effect is settled as unknown, and not begun again.
        is_known = (await stage.outcomes(f"r{n}"))["refund#1"] == "ok"
        assert stage.effects()[f"refund o{n}"] in ({1} if is_known else {0, 1})


@everywhere
@pytest.mark.parametrize("wrong_by", [-HOUR, HOUR])
async def test_the_lease_of_a_worker_whose_clock_is_wrong_is_as_good_as_any(
    stage: Stage, wrong_by: float
) -> None:
    """FAULTS 16: it keeps its run while it lives, and loses it when it dies."""
    assert stage.run("submit", "1", clock=wrong_by) == 0
    with living(stage.start("work", lease=1.0, freeze="ask:hang", clock=wrong_by)) as off:
        await until(stage, "frozen")
        async with open_world(stage.url) as world:
            end = time.monotonic() + 2.5
            while time.monotonic() < end:
                assert await claim_all(world, run="r0") == [], "its lease was lost"
                await anyio.sleep(0.05)
        off.kill()
    assert stage.finish() == 0
    assert await starts(stage) == [False, True]
    assert (await stage.finished("r0")).status == "succeeded"
    assert stage.effects()["refund o0"] == 1


@pytest.mark.parametrize("wrong_by", [-HOUR, HOUR])
async def test_a_worker_whose_clock_is_wrong_takes_nothing_from_the_others(
    stage: Stage, wrong_by: float
) -> None:
    """FAULTS 16."""
    assert stage.run("submit", "1") == 0
    with living(stage.start("work", lease=1.0, freeze="ask:sleep", freeze_seconds=3.0)) as right:
        await until(stage, "frozen")
        while not stage.effects()["thawed"]:
            assert stage.run("work", clock=wrong_by) == 0
        assert right.wait(60) == 0
    assert await starts(stage) == [False]
    assert (await stage.finished("r0")).status == "succeeded"
    assert stage.effects()["refund o0"] == 1


@everywhere
async def test_killed_during_a_back_off(stage: Stage) -> None:
    """FAULTS 10: no outcome is on record, so the next holder begins with the first try; all tries are one outcome."""
    with living(stage.start("ask", "stubborn")) as first:
        await until(stage, "shaky o0", 2)
        first.kill()  # within the second between two tries
    assert stage.run("ask", "stubborn") == 0
    effects = stage.effects()
    assert (effects["shaky o0"], effects["told done"]) == (4, 1)
    assert await stage.outcomes("r0") == {"shaky#1": "ok"}
    assert await starts(stage) == [False, True]


@everywhere
async def test_who_waits_is_killed_and_asks_again(stage: Stage) -> None:
    """FAULTS 55: the run goes on without whoever asked, and the same call attaches to it."""
    assert stage.run("submit", "1") == 0
    with living(stage.start("work", freeze="ask:nap", freeze_seconds=3.0)) as worker:
        await until(stage, "frozen")
        with living(stage.start("ask", "orders")) as asking:
            await until(stage, "asked")
            asking.kill()
        with living(stage.start("ask", "orders")) as again:
            assert worker.wait(60) == 0
            assert again.wait(60) == 0
    effects = stage.effects()
    told = ["ask o0", "look o0", "refund o0", "note o0", "told ['about o0', 'refunded 5']"]
    assert [effects[name] for name in told] == [1] * 5
    assert await starts(stage) == [False]

"""Killed at random moments, by one worker and by many: nothing is lost, nothing is doubled."""

import os
import random
import signal
import subprocess
import time
from collections import Counter

import pytest

from journal import Journal
from journal.core.codec import open_record
from journal.core.ports import RunQuery, World
from journal.core.records import CallOutcome, TurnFinished
from journal.worlds import open_world
from tests.crash.stage import Stage

pytestmark = pytest.mark.anyio


async def all_done(stage: Stage, turns: int) -> None:
    """Every run succeeded; each `never` effect happened once, or is told as unknown and happened at most once."""
    statuses: dict[str, str] = {}
    async with Journal(stage.url) as journal:
        before = None
        while page := await journal.runs(RunQuery(before=before, limit=500)):
            statuses.update((r.run, r.status) for r in page)
            before = page[-1].position
    assert statuses == {f"r{n}": "succeeded" for n in range(turns)}
    async with open_world(stage.url) as world:
        await every_turn(stage, world, turns)


async def every_turn(stage: Stage, world: World, turns: int) -> None:
    effects = stage.effects()
    for n in range(turns):
        outcomes = await stage.outcomes(f"r{n}", world)
        assert set(outcomes) == {"ask#1", "look#1", "refund#1", "note#1"}
        assert outcomes["refund#1"] in ("ok", "unknown")
        assert effects[f"refund o{n}"] == 1 or (
            outcomes["refund#1"] == "unknown" and effects[f"refund o{n}"] == 0
        )
        for safe in ("ask", "look", "note"):
            assert outcomes[f"{safe}#1"] == "ok"
            assert effects[f"{safe} o{n}"] >= 1
        await stage.finished(f"r{n}", world)


def kill_at_random(stage: Stage, kills: int, rng: random.Random) -> None:
    """Start workers and kill each after a random time, `kills` times; then let one finish."""
    for _ in range(kills):
        process = stage.start("work", slots=3)
        try:
            process.wait(rng.uniform(0.05, 0.45))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.wait()
    assert stage.finish(slots=3) == 0


@pytest.mark.parametrize("stage", ["sqlite", "postgres", "redis", "cluster"], indirect=True)
async def test_one_worker_killed_at_random(stage: Stage) -> None:
    assert stage.run("submit", "300") == 0
    kill_at_random(stage, 20, random.Random(1))
    await all_done(stage, 300)


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_one_worker_killed_two_hundred_times(stage: Stage) -> None:
    """FAULTS 9."""
    assert stage.run("submit", "4000") == 0
    kill_at_random(stage, 200, random.Random(2))
    await all_done(stage, 4000)


def crowd(
    stage: Stage,
    processes: int,
    seconds_between_kills: float,
    most_kills: int,
    rng: random.Random,
    limit: float,
    *,
    slots: int = 2,
) -> int:
    """Keep `processes` workers at it, killing one at random now and then, until all ended by themselves.

    `most_kills` lets it come to an end where starting takes longer than the time between two kills.
    """
    work = "work" if stage.knows_the_dead else "finish"
    running = [stage.start(work, slots=slots) for _ in range(processes)]
    kills, deadline = 0, time.monotonic() + limit
    while running:
        assert time.monotonic() < deadline, f"{len(running)} workers are still busy"
        time.sleep(seconds_between_kills)
        ended = [p for p in running if p.poll() is not None]
        for process in ended:
            assert process.returncode == 0
            running.remove(process)
        if running and not ended and kills < most_kills:
            victim = rng.choice(running)
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            running.remove(victim)
            running.append(stage.start(work, slots=slots))
            kills += 1
    return kills


async def test_a_crowd_on_one_store(stage: Stage) -> None:
    assert stage.run("submit", "400") == 0
    crowd(stage, 6, 0.4, 30, random.Random(3), 120)
    await all_done(stage, 400)


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_sixteen_processes_work_through_five_thousand_turns(stage: Stage) -> None:
    assert stage.run("submit", "5000") == 0
    kills = crowd(stage, 16, 0.7, 300, random.Random(4), 1500)
    assert kills > 10
    await all_done(stage, 5000)


@pytest.mark.soak
@pytest.mark.timeout(7200)
async def test_a_hundred_thousand_turns_over_a_thousand_runs(stage: Stage) -> None:
    """Four workers, killed at random: none lost, none doubled. $JOURNAL_SOAK_TURNS: another number a run than 100."""
    runs, turns = 1000, int(os.environ.get("JOURNAL_SOAK_TURNS", "100"))
    assert stage.run("queue", str(runs), str(turns), seconds=1800) == 0
    kills = crowd(stage, 4, 3.0, 500, random.Random(5), 6000, slots=16)
    assert kills > 3
    effects, unknown = stage.effects(), 0
    async with open_world(stage.url) as world:
        for n in range(runs):
            ends: Counter[str | None] = Counter()
            refunds: dict[str | None, str] = {}
            for record in await stage.log(f"r{n}", world):
                body = open_record(record)
                if isinstance(body, TurnFinished):
                    assert body.status == "succeeded"
                    ends[record.turn] += 1
                if isinstance(body, CallOutcome):
                    assert record.turn not in refunds, "two outcomes of one call"
                    refunds[record.turn] = body.status
            assert ends == {f"t{number}": 1 for number in range(turns)}
            for number in range(turns):
                status, times = refunds[f"t{number}"], effects[f"refund r{n}.{number}"]
                assert (status, times) in (("ok", 1), ("unknown", 0), ("unknown", 1))
                unknown += status == "unknown"
    print(f"{kills} kills, {unknown} unknown of {runs * turns} turns")

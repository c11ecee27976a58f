"""The crash matrix: each named step x each kind of call x {kill -9, answer lost}, with real processes on every world.

A `never` effect happens exactly once or is reported unknown; a `safe` one at least once; seqs are contiguous; the
turn ends; the listing and the log agree. The expected numbers come from the table of SEMANTICS 2, by hand.
"""

import pytest

from journal.core import values
from tests.crash.stage import Stage

pytestmark = pytest.mark.anyio

STEPS = (
    "before_intent",
    "intent_durable",
    "act_started",
    "act_done",
    "outcome_durable",
    "outcome_acknowledged",
    "turn_finishing",
    "queue_settled",
)
# (times the effect happened, what the log says of the call) after a kill; after a lost answer it is always (1, ok).
NEVER = {
    "before_intent": (1, "ok"),
    "intent_durable": (0, "unknown"),
    "act_started": (0, "unknown"),
    "act_done": (1, "unknown"),
    "outcome_durable": (1, "ok"),
    "outcome_acknowledged": (1, "ok"),
    "turn_finishing": (1, "ok"),
    "queue_settled": (1, "ok"),
}
MODEL = {**dict.fromkeys(STEPS, (1, "ok")), "act_done": (2, "ok")}
# A safe intent rides with its outcome: both points lie behind the act, and before the batch it runs again.
SAFE = {**MODEL, "before_intent": (2, "ok"), "intent_durable": (1, "ok")}
EXPECTED = {"refund": NEVER, "ask": MODEL, "look": SAFE}
OTHERS = {"refund", "ask", "look", "note"}


LOSSES = [step for step in STEPS if not step.startswith("act") and step != "outcome_acknowledged"]


@pytest.mark.parametrize("call", sorted(EXPECTED))
@pytest.mark.parametrize("step", STEPS)
async def test_killed(stage: Stage, step: str, call: str) -> None:
    await kill(stage, step, call)


@pytest.mark.parametrize("stage", ["cluster"], indirect=True)
@pytest.mark.parametrize("step", STEPS)
async def test_killed_on_a_cluster(stage: Stage, step: str) -> None:
    """The call that is told apart at every step; the others differ in the engine, not in the store."""
    await kill(stage, step, "refund")


async def kill(stage: Stage, step: str, call: str) -> None:
    assert stage.run("submit", "1") == 0
    assert stage.run("work", at=f"{step}:{call}:kill") == -9
    assert stage.finish() == 0  # another worker: at once, where the dead one's OS lock is gone
    times, status = EXPECTED[call][step]
    await check(stage, call, times, status)


@pytest.mark.parametrize("call", sorted(EXPECTED))
@pytest.mark.parametrize("step", LOSSES)
async def test_answer_lost(stage: Stage, step: str, call: str) -> None:
    await lose(stage, step, call)


@pytest.mark.parametrize("stage", ["cluster"], indirect=True)
@pytest.mark.parametrize("step", LOSSES)
async def test_answer_lost_on_a_cluster(stage: Stage, step: str) -> None:
    await lose(stage, step, "refund")


async def lose(stage: Stage, step: str, call: str) -> None:
    assert stage.run("submit", "1") == 0
    assert stage.run("work", at=f"{step}:{call}:drop") == 0
    await check(stage, call, 1, "ok")


async def check(stage: Stage, call: str, times: int, status: str) -> None:
    effects, outcomes = stage.effects(), await stage.outcomes("r0")
    assert effects[f"{call} o0"] == times
    assert outcomes[f"{call}#1"] == status
    for other in OTHERS - {call}:
        assert outcomes[f"{other}#1"] == "ok"
        assert effects[f"{other} o0"] >= 1
        assert other != "refund" or effects["refund o0"] == 1
    finished = await stage.finished("r0")
    assert finished.status == "succeeded"
    told = "unknown" if outcomes["refund#1"] == "unknown" else "refunded 5"
    assert finished.output == values.encode(["about o0", told])
    assert await stage.status("r0") == "succeeded"

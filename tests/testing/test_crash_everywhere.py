"""`crash_everywhere` passes what is sound, names what is not and where, and its kill is as final as a real one."""

import asyncio
import gc
import threading
import time
from typing import Any

import pytest

from journal import Journal, NotRun, Ran, Turn, step, tool
from journal.core.errors import InvalidOptions
from journal.core.records import Observed, OutcomeStatus, TurnFinished
from journal.testing import CrashFailed, Effects, Report, crash_everywhere
from journal.testing.crash import Crash
from journal.testing.judge import Story, judge
from journal.testing.judge import raced as judged_races
from journal.testing.life import LaterClock, live_here
from journal.testing.mortal import Watch
from journal.testing.points import Moment, Point
from journal.worlds.memory import forget, open_memory
from tests.replay.hand import Hand

effects = Effects()


@pytest.fixture(autouse=True)
def _no_effects() -> None:
    effects.clear()


@tool(replay="never")
async def refund(order: str, amount: int) -> str:
    effects.add("refund")
    return f"{amount} refunded"


async def look(order: str) -> int:
    effects.add("look")
    return 30


def note(text: str) -> None:
    effects.add("note")


def agent(handler: Any) -> Any:
    return Journal().agent(handler, name="support")


async def support(turn: Turn, order: str) -> str:
    amount = await turn.model(look, order)
    result = await turn.tool(refund, order, amount)
    await turn.step(note, result.status)
    return result.status


async def test_a_sound_agent_is_killed_at_each_intent_act_and_outcome_and_at_the_turns_start_and_end() -> (
    None
):
    report = await asyncio.to_thread(crash_everywhere, agent(support), "42", effects=effects)
    model, never = (
        [
            f"before the intent of {key} was durable",
            f"once the intent of {key} was durable",
            f"inside {key}",
            f"before the outcome of {key} was durable",
            f"once the outcome of {key} was durable",
        ]
        for key in ("look#1", "refund#1")
    )
    points = [str(crash.point) for crash in report.crashes]
    rest = points[len(model) + len(never) + 1 :]
    assert points[: len(points) - len(rest)] == ["at the turn's start", *model, *never]
    # A safe intent rides with its outcome, or goes ahead of it after some milliseconds.
    assert set(rest) >= {"inside note#1", "before the outcome of note#1 was durable"}
    assert rest[-2:] == ["before the turn's end was durable", "once the turn's end was durable"]
    assert all(crash.is_reached for crash in report.crashes)
    # By the table of SEMANTICS 2: in doubt from the durable intent to the durable outcome.
    assert [str(crash.point) for crash in report.crashes if crash.unknown] == never[1:4]
    refunds = {str(c.point): sum(e.name == "refund" for e in c.effects) for c in report.crashes}
    assert [refunds[point] for point in never] == [1, 0, 1, 1, 1]


pytestmark = pytest.mark.anyio


def wrong(handler: Any, **options: Any) -> Report:
    with pytest.raises(CrashFailed) as caught:
        crash_everywhere(agent(handler), "42", effects=effects, **options)
    assert str(caught.value) == str(caught.value.report)
    return caught.value.report


def test_an_effect_between_calls_is_told_with_every_kill_that_doubles_it() -> None:
    async def handler(turn: Turn, order: str) -> None:
        await turn.step(look, order)
        effects.add("mail")
        await turn.tool(refund, order, 1)

    report = wrong(handler)
    for crash in report.wrong:
        assert crash.problems == (
            "'mail' happened 2 times instead of 1, between calls: "
            "that code runs again on resume, so it belongs in a step or a tool",
        )
    # From the mail on, and neither before it nor when the turn has ended.
    fine = [str(crash.point) for crash in report.crashes if not crash.problems]
    assert fine[-1] == "once the turn's end was durable"
    assert all(point == "at the turn's start" or "look#1" in point for point in fine[:-1])
    assert str(report.wrong[-1].point) == "before the turn's end was durable"


def test_code_that_goes_another_way_on_resume_is_told_as_the_block_that_it_is() -> None:
    lives: list[str] = []

    async def handler(turn: Turn, order: str) -> None:
        lives.append(order)
        await turn.step(look, f"{order}.{len(lives)}")
        await turn.tool(refund, order, 1)

    report = wrong(handler, before_each=lives.clear)
    told = {str(crash.point): crash.problems for crash in report.wrong}
    problems = told["before the intent of refund#1 was durable"]
    assert "the turn was blocked: divergence" in problems[0]
    assert problems[-1] == "the turn did not end"


def test_values_that_differ_by_themselves_are_not_compared() -> None:
    async def draw() -> float:
        return time.perf_counter()

    async def handler(turn: Turn, order: str) -> float:
        drawn = await turn.step(draw)
        await turn.step(look, str(drawn))
        return drawn

    crash_everywhere(agent(handler), "42", effects=effects)


def test_another_result_after_a_kill_is_told() -> None:
    async def handler(turn: Turn, order: str) -> int:
        await turn.step(look, order)
        return turn.attempt

    report = wrong(handler)
    assert {problem for crash in report.wrong for problem in crash.problems} == {
        "another result: 2 instead of 1"
    }
    assert "1 of" not in str(report)
    assert "killed before the turn's end was durable:\n  another result: 2 instead of 1" in str(report)


def test_what_an_unknown_call_leads_to_is_left_to_the_users_own_check() -> None:
    seen: list[Crash] = []

    def check(crash: Crash) -> None:
        seen.append(crash)
        assert not crash.unknown, "nobody was told"

    report = wrong(support, check=check)
    assert [crash.problems[0].splitlines()[0] for crash in report.wrong] == ["check: nobody was told"] * 3
    assert {len(crash.problems) for crash in report.wrong} == {1}
    assert len(seen) == len(report.crashes)


def test_a_failed_turn_is_a_result_too() -> None:
    async def handler(turn: Turn, order: str) -> None:
        await turn.step(look, order)
        raise ValueError("no")

    crash_everywhere(agent(handler), "42", effects=effects)


def test_parallel_calls_and_sync_functions_are_killed_too() -> None:
    async def handler(turn: Turn, order: str) -> list[str]:
        both = await asyncio.gather(turn.tool(refund, order, 1), turn.tool(refund, order, 2))
        async with asyncio.TaskGroup() as group:
            for text in "ab":
                group.create_task(turn.step(note, text))
        return [result.status for result in both]

    report = crash_everywhere(agent(handler), "42", effects=effects)
    assert {"inside t1/refund#1", "inside t2/refund#1"} <= {str(crash.point) for crash in report.crashes}


def test_a_probe_and_a_retry_are_followed() -> None:
    ran: list[str] = []

    async def probe(given: Any, io: Any) -> Ran | NotRun:
        return Ran("paid") if ran else NotRun(final=True)

    @tool(replay="never", probe=probe)
    async def pay() -> str:
        ran.append("paid")
        effects.add("paid")
        return "paid"

    tries: list[int] = []

    @step(retry=True)
    async def shaky() -> None:
        tries.append(1)
        if len(tries) % 2:
            raise ConnectionError

    async def handler(turn: Turn, order: str) -> str:
        await turn.step(shaky)
        return (await turn.tool(pay)).value

    def before_each() -> None:
        ran.clear()
        tries.clear()

    report = crash_everywhere(agent(handler), "42", effects=effects, before_each=before_each)
    assert not any(crash.unknown for crash in report.crashes)


class Noted(Watch):
    """Notes what happens after the kill."""

    def __init__(self, at: Point, after: list[str]) -> None:
        super().__init__(at=at)
        self._after = after

    def die(self) -> None:
        super().die()
        self._after.append("killed")


@pytest.mark.parametrize("moment", ["intent", "intent durable", "act", "outcome", "outcome durable"])
def test_nothing_of_a_life_happens_after_it_was_killed(moment: Moment) -> None:
    """No `finally`, no `except`, no other task, nothing of the same step, no thread; also not later."""
    after: list[str] = []

    def note(what: str) -> None:
        if after:
            after.append(what)

    @tool(replay="never")
    async def act(number: int) -> None:
        note(f"act {number}")
        await asyncio.sleep(0)
        note(f"acted {number}")

    async def beside() -> None:
        while True:
            await asyncio.sleep(0)
            note("beside")

    async def branch(turn: Turn, number: int) -> None:
        try:
            await turn.tool(act, number)
            note(f"branch {number}")
            await turn.step(look, str(number))
        except BaseException:
            note(f"except {number}")
            raise
        finally:
            note(f"finally {number}")

    async def handler(turn: Turn, order: str) -> None:
        task = asyncio.create_task(beside())
        try:
            await asyncio.gather(*(branch(turn, number) for number in range(3)), turn.step(snooze))
        finally:
            note("finally")
            task.cancel()

    def snooze() -> None:
        time.sleep(0.05)

    name, before = f"killed-{moment}", set(threading.enumerate())
    life = live_here(
        agent(handler),
        "42",
        open_memory,
        f"memory:{name}",
        Noted(Point(moment, "t2/act#1"), after),
        LaterClock(),
        seconds=9,
    )
    forget(name)
    assert life.is_killed
    gc.collect()
    assert after == ["killed"]
    ours = ("journal-life", "AnyIO worker thread")
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name in ours]


def test_a_life_that_does_not_end_is_told() -> None:
    async def handler(turn: Turn, order: str) -> None:
        await turn.step(look, order)
        if turn.attempt > 1:
            await asyncio.Event().wait()

    report = wrong(handler, seconds=0.3)
    assert {problem for crash in report.wrong for problem in crash.problems} == {"the turn did not end"}


def test_named_agents_are_killed_as_processes_and_the_effects_counted_outside() -> None:
    report = crash_everywhere("tests.testing.bank:pay", 5)
    assert [str(crash.point) for crash in report.crashes if crash.unknown] == [
        "once the intent of transfer#1 was durable",
        "inside transfer#1",
        "before the outcome of transfer#1 was durable",
    ]
    times = {str(c.point): sum(e.name == "transfer" for e in c.effects) for c in report.crashes}
    # Inside is where the act first waits, or else its end.
    assert [times[str(crash.point)] for crash in report.crashes] == [1, 1, 0, 1, 1, 1, 1, 1]


def test_mistakes_are_told() -> None:
    with pytest.raises(InvalidOptions, match="is no agent"):
        crash_everywhere("tests.testing.bank:transfer", 5)
    with pytest.raises(InvalidOptions, match="real processes"):
        crash_everywhere(agent(support), "42", world="sqlite:x.db")


def test_a_kill_that_comes_when_all_is_done_kills_nothing() -> None:
    class Late(Watch):
        def reach(self, points: list[Point]) -> bool:
            if points and points[0].moment == "finish durable":
                self._later(asyncio.get_running_loop())
            return super().reach(points)

        def _later(self, loop: asyncio.AbstractEventLoop) -> None:
            if self.is_over:
                self.die()
            else:
                loop.call_soon(self._later, loop)

    watch = Late()
    life = live_here(agent(support), "42", open_memory, "memory:late", watch, LaterClock(), seconds=9)
    forget("late")
    assert not life.is_killed
    assert life.log[-1].type == "turn.finished"


# Races whose sides end together --------------------------------------------------------------------------


@step
async def one() -> str:
    return "one"


@step
async def other() -> str:
    return "other"


async def raced(turn: Turn, _: str) -> str:
    winner, _result = await turn.race(turn.step(one), turn.step(other))
    return f"somebody won: {winner >= 0}"


async def slow_one() -> str:
    await asyncio.sleep(0.02)
    return "in time"


async def slow_other() -> str:
    await asyncio.sleep(0.02)
    return "in time too"


async def raced_by_hand(turn: Turn, _: str) -> str:
    tasks = [asyncio.ensure_future(turn.step(slow)) for slow in (slow_one, slow_other)]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    return f"somebody won: {bool(done)}"


async def timed(turn: Turn, _: str) -> str:
    try:
        async with turn.timeout(0.02):
            return await turn.step(slow_one)
    except TimeoutError:
        return await turn.step(other)


@pytest.mark.parametrize("handler", [raced, raced_by_hand, timed])
def test_a_race_whose_sides_end_together_is_no_failure(handler: Any) -> None:
    report = crash_everywhere(agent(handler), "x")
    assert report.wrong == ()
    assert len(report.crashes) >= 8


async def paid_by_chance(turn: Turn, _: str) -> str:
    winner, _result = await turn.race(turn.step(one), turn.step(other))
    effects.add("between")
    return str(winner)


def test_a_race_hides_no_effect_that_is_doubled() -> None:
    with pytest.raises(CrashFailed) as failed:
        crash_everywhere(agent(paid_by_chance), "x", effects=effects)
    assert "'between' happened 2 times instead of 1, between calls" in str(failed.value)


def log_of(*ends: tuple[str, OutcomeStatus | None], winner: int | None) -> Story:
    """A turn with safe calls, each with its end, and a race under `@race#1`."""
    hand = Hand()
    hand.start(1)
    for key, status in ends:
        hand.intend(key)
        if status is not None:
            hand.settle(key, status)
    if winner is not None:
        hand.add(Observed(value=b"%d" % winner), key="@race#1")
    hand.add(TurnFinished(status="succeeded", output=b"%d" % (winner or 0)))
    return Story(hand.records, [[]])


def test_what_a_race_explains_and_what_it_does_not() -> None:
    lost, won = "@race#1/1/b#1", "@race#1/0/a#1"
    plain = [log_of((won, "ok"), (lost, "ok"), winner=0)] * 2
    assert judge(log_of((won, "ok"), winner=0), plain) == []
    assert judge(log_of((won, "ok"), (lost, "cancelled"), winner=0), plain) == []
    assert judge(log_of((lost, "ok"), winner=0), plain) == [f"{won} is missing" + BY_HAND]
    another = log_of((lost, "ok"), winner=1)
    assert (judge(another, plain), judged_races(another, plain)) == ([], ["@race#1"])
    side = [log_of(("a#1", "ok"), ("b#1", "ok"), winner=None)] * 2
    assert judge(log_of(("a#1", "ok"), winner=None), side) == ["b#1 is missing"]
    told = judge(log_of(("a#1", "ok"), ("b#1", "error"), winner=None), side)
    assert [line.partition(":")[0] for line in told] == [
        "b#1 had another status", "b#1 had another value", "b#1 had another error",
    ]  # fmt: skip


BY_HAND = " (if the code races it against another by itself: turn.race records who won)"

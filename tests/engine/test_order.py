"""Replay gives the handler the same history in the same order: SEMANTICS 3, FAULTS 22, 42 and 50."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from journal import Journal, Turn, TurnBlocked, TurnFailed, tool
from journal.core.errors import InvalidOptions
from journal.worlds import open_world

pytestmark = pytest.mark.anyio

Handler = Callable[[Turn], Awaitable[Any]]


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}" if request.param == "memory" else f"sqlite:{tmp_path / 'j.db'}"


class Again(RuntimeError):
    """Ends the first attempt, when all is recorded."""


async def twice(url: str, handler: Handler) -> tuple[Any, Any]:
    """What the handler comes to live, and then on a replay of all that."""
    seen: list[Any] = []
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        seen.append(await handler(turn))
        if turn.attempt == 1:
            await turn.step(end)  # by a call, so that nothing before it counts as cancelled over that

    async def end() -> None:
        raise RuntimeError("Again")

    async with journal:
        with pytest.raises(TurnFailed, match="Again"):
            await work.run(None, run_id="r")
        await (await journal.retry("r")).settle(20, serve=True)
    first, second = seen
    return first, second


class Gates:
    """Steps that end when they are let through: `names` one after the other, each when the one before was seen."""

    def __init__(self, *names: str) -> None:
        self.gates = {name: asyncio.Event() for name in names}
        self.acts: list[str] = []

    async def __call__(self, name: str) -> str:
        self.acts.append(name)
        await self.gates[name].wait()
        return name

    async def open(self, *names: str) -> None:
        for name in names:
            self.gates[name].set()
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("order", list(itertools.permutations("abc")), ids="".join)
async def test_parallel_calls_come_back_in_the_order_in_which_they_ended(
    url: str, order: tuple[str, ...]
) -> None:
    gates = Gates(*"abc")

    async def handler(turn: Turn) -> list[str]:
        came: list[str] = []

        async def one(name: str) -> None:
            came.append(await turn.step(gates, name))

        if turn.attempt == 1:
            opening = asyncio.create_task(gates.open(*order))
        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(one(name))
        if turn.attempt == 1:
            await opening
        return came

    live, replayed = await twice(url, handler)
    assert live == replayed == list(order)
    assert gates.acts == ["a", "b", "c"], "nothing ran twice"


async def test_the_first_to_complete_is_the_same_one(url: str) -> None:
    """What follows rests on the branch that was taken: another one would be a divergence."""
    gates = Gates(*"abc")
    after: list[str] = []

    async def follow_up(winner: str) -> str:
        after.append(winner)
        return f"after {winner}"

    async def handler(turn: Turn) -> list[str]:
        if turn.attempt == 1:
            opening = asyncio.create_task(gates.open(*"bca"))
        waiting = {asyncio.create_task(turn.step(gates, name), name=name) for name in "abc"}
        said = []
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            said += [
                await turn.step(follow_up, task.result()) for task in sorted(done, key=asyncio.Task.get_name)
            ]
        if turn.attempt == 1:
            await opening
        return said

    live, replayed = await twice(url, handler)
    assert live == replayed == ["after b", "after c", "after a"]
    assert after == ["b", "c", "a"]


async def test_as_completed_and_what_tasks_share(url: str) -> None:
    """Each outcome comes when what the one before it set going has come to rest, however many passes that takes."""
    gates = Gates(*"ab")

    async def handler(turn: Turn) -> list[str]:
        shared: list[str] = []

        async def one(name: str) -> None:
            await turn.step(gates, name)
            for _ in range(30):
                await asyncio.sleep(0)
            shared.append(f"{name} is through")

        async def other() -> None:
            await turn.step(gates, "b")
            shared.append(f"b sees {shared}")

        if turn.attempt == 1:
            opening = asyncio.create_task(gates.open(*"ab"))
        for done in asyncio.as_completed([one("a"), other()]):
            await done
        if turn.attempt == 1:
            await opening
        return shared

    live, replayed = await twice(url, handler)
    assert live == replayed == ["a is through", "b sees ['a is through']"]


async def test_a_task_in_the_background_has_begun_before_an_outcome_comes(url: str) -> None:
    async def quick() -> None: ...

    async def handler(turn: Turn) -> list[str]:
        seen: list[str] = []
        is_through = False

        async def background() -> None:
            seen.append(f"begun, {is_through}")
            await turn.step(quick)

        task = asyncio.create_task(background())
        await turn.step(quick)
        is_through = True
        await turn.step(quick)
        await task
        return seen

    live, replayed = await twice(url, handler)
    assert live == replayed == ["begun, False"]


@pytest.mark.parametrize("ending", ["cancelled", "ok"])
async def test_a_call_that_is_cancelled_ends_at_its_place(url: str, ending: str) -> None:
    """Its task has the cancellation no sooner than it was recorded: until then others went on."""
    has_come = asyncio.Event()

    async def act(name: str) -> str:
        if name == "fails":
            raise ValueError
        return name

    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await has_come.wait()
            if ending == "cancelled":
                raise
        return "ended all the same"

    async def handler(turn: Turn) -> list[str]:
        came: list[str] = []

        async def bystander() -> None:
            came.append(await turn.step(act, "first"))
            came.append(await turn.step(act, "second"))
            has_come.set()

        async def fails() -> None:
            if turn.attempt == 1:
                await asyncio.sleep(0.02)
            try:
                await turn.step(act, "fails")
            finally:
                beside.append(asyncio.create_task(bystander()))

        beside: list[asyncio.Task[None]] = []
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(turn.step(stubborn))
                group.create_task(fails())
        except ExceptionGroup:
            came.append("the group has failed")
        await asyncio.gather(*beside)
        return came

    live, replayed = await twice(url, handler)
    assert live == replayed == ["first", "second", "the group has failed"]


async def test_what_is_live_waits_for_what_is_recorded(url: str) -> None:
    """It comes later in the log: were it handed out sooner, the next replay would see another order."""
    came: list[list[str]] = []

    async def doubtful() -> str:
        if len(came) == 1:
            await asyncio.Event().wait()  # in doubt when the first attempt ends
        return "doubtful"

    async def quick(n: int) -> str:
        return f"quick {n}"

    def journal() -> tuple[Journal, Any]:
        made = Journal(url)

        @made.agent
        async def work(turn: Turn, nothing: None) -> None:
            came.append([])

            async def one() -> None:
                came[-1].append(await turn.model(doubtful))

            task = asyncio.create_task(one())
            for n in range(3):
                came[-1].append(await turn.step(quick, n))
                for __ in range(20):
                    await asyncio.sleep(0)
            await task

        return made, work

    recorded = ["quick 0", "quick 1", "quick 2"]
    first, work = journal()
    second, again = journal()
    async with open_world(url):  # a store in memory lives as long as somebody has it
        async with first:
            serving = asyncio.create_task(work.run(None, run_id="r"))
            async with asyncio.timeout(20):
                while not came or came[0] != recorded:
                    await asyncio.sleep(0.01)
            serving.cancel()
        async with second:
            await again.run(None, run_id="r")
    assert came == [recorded, [*recorded, "doubtful"]]


async def test_an_outcome_that_nobody_asks_for_is_a_divergence_that_names_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journal.engine.order.REPLAY_STALL_SECONDS", 0.05)
    gates = Gates(*"ab")

    async def handler(turn: Turn) -> None:
        names = "ab" if turn.attempt == 1 else "b"
        if turn.attempt == 1:
            opening = asyncio.create_task(gates.open(*"ab"))
        await asyncio.gather(*(turn.step(gates, name) for name in names))
        if turn.attempt == 1:
            await opening

    with pytest.raises(TurnBlocked, match="call 't1/Gates#1' is in the log"):
        await twice(url, handler)


async def test_replay_goes_on_beside_turns_that_keep_the_loop_busy(url: str) -> None:
    async def quick(n: int) -> int:
        return n

    async def handler(turn: Turn) -> list[int]:
        return await asyncio.gather(*(turn.step(quick, n) for n in range(50)))

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    busy = asyncio.create_task(spin())
    started = time.monotonic()
    live, replayed = await twice(url, handler)
    busy.cancel()
    assert live == replayed == list(range(50))
    assert time.monotonic() - started < 9, "no stall was waited for"


async def test_an_attempt_that_never_rests_goes_on_all_the_same(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journal.engine.order._MOST_PASSES", 20)

    async def quick(n: int) -> int:
        return n

    async def handler(turn: Turn) -> list[int]:
        async def spin() -> None:
            while True:
                await asyncio.sleep(0)

        spinning = asyncio.create_task(spin())
        try:
            return await asyncio.gather(*(turn.step(quick, n) for n in range(3)))
        finally:
            spinning.cancel()

    assert await twice(url, handler) == ([0, 1, 2], [0, 1, 2])


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that does not show what is ready (uvloop): an attempt counts as at rest after a number of passes."""
    monkeypatch.setattr("journal.engine.order.ready_of", lambda loop: None)


@pytest.mark.usefixtures("blind")
async def test_a_loop_that_does_not_show_what_is_ready(url: str) -> None:
    gates = Gates(*"ab")

    async def handler(turn: Turn) -> list[str]:
        if turn.attempt == 1:
            opening = asyncio.create_task(gates.open(*"ba"))
        came: list[str] = []

        async def one(name: str) -> None:
            said = await turn.step(gates, name)
            for _ in range(60 if name == "b" else 0):
                await asyncio.sleep(0)
            came.append(said)

        await asyncio.gather(one("a"), one("b"))
        if turn.attempt == 1:
            await opening
        return came

    assert await twice(url, handler) == (["b", "a"], ["b", "a"])


@pytest.mark.usefixtures("blind")
async def test_such_a_loop_hands_nothing_out_while_the_code_is_busy_the_first_time_either(url: str) -> None:
    go = asyncio.Event()

    async def quick() -> None:
        pass

    async def handler(turn: Turn) -> list[str]:
        came: list[str] = []

        async def busy() -> None:
            await turn.step(quick)
            go.set()
            for _ in range(60):
                await asyncio.sleep(0)
            came.append("busy")

        async def beside() -> None:
            await turn.step(go.wait)
            came.append("beside")

        await asyncio.gather(busy(), beside())
        return came

    assert await twice(url, handler) == (["busy", "beside"], ["busy", "beside"])


@pytest.mark.usefixtures("blind")
async def test_in_such_a_loop_a_task_begins_before_the_code_goes_on_in_each_attempt(url: str) -> None:
    """What is recorded is there at once, unless the code has begun something that may be about to run."""

    async def quick(n: int) -> int:
        return n

    async def handler(turn: Turn) -> list[str]:
        said: list[str] = []

        async def beside() -> None:
            said.append("began")
            await turn.step(quick, 1)

        task = asyncio.create_task(beside())
        await turn.step(quick, 2)
        task.cancel()
        await asyncio.wait({task})
        return said

    assert await twice(url, handler) == (["began"], ["began"])


# Races and timeouts ----------------------------------------------------------------------------------


async def test_a_race_has_the_same_winner_and_its_losers_are_cancelled(url: str) -> None:
    gates = Gates(*"abcd")

    async def handler(turn: Turn) -> list[Any]:
        if turn.attempt == 1:
            opening = asyncio.create_task(gates.open(*"bd"))
        found = [await turn.race(*(turn.step(gates, name) for name in names)) for names in ("ab", "cd")]
        if turn.attempt == 1:
            await opening
        return found

    live, replayed = await twice(url, handler)
    assert live == replayed == [(1, "b"), (1, "d")]
    assert gates.acts == list("abcd")


async def test_two_who_arrive_together_are_told_apart_by_the_record(url: str) -> None:
    async def quick(name: str) -> str:
        return name

    async def handler(turn: Turn) -> Any:
        return [await turn.race(*(turn.step(quick, name) for name in "abc")) for _ in range(5)]

    live, replayed = await twice(url, handler)
    assert live == replayed


async def test_a_race_without_the_branch_that_won_is_a_divergence(url: str) -> None:
    async def quick(n: int) -> int:
        return n

    async def handler(turn: Turn) -> Any:
        late = asyncio.sleep(30) if turn.attempt == 1 else turn.step(quick, 1)
        if turn.attempt == 1:
            return await turn.race(late, turn.step(quick, 1))
        return await turn.race(late)

    with pytest.raises(TurnBlocked, match="was won by branch 1"):
        await twice(url, handler)


async def test_a_race_raises_what_its_winner_raised(url: str) -> None:
    async def fail() -> None:
        raise ValueError("lost")

    async def handler(turn: Turn) -> str:
        with pytest.raises(ValueError, match="lost"):
            await turn.race(turn.step(fail), asyncio.sleep(30))
        with pytest.raises(InvalidOptions, match="at least one"):
            await turn.race()
        return "told"

    assert await twice(url, handler) == ("told", "told")


async def test_a_race_is_over_in_the_same_pass_of_the_loop(url: str) -> None:
    """Two branches end before whoever waits for them goes on: the first of them wins, and another one ended first."""

    async def handler(turn: Turn) -> tuple[int, int]:
        passes = 0

        async def ends_after(count: int) -> None:
            for _ in range(count):
                await asyncio.sleep(0)

        async def counts() -> None:
            nonlocal passes
            while True:
                passes += 1
                await asyncio.sleep(0)

        winner, _ = await turn.race(ends_after(1), ends_after(0), counts())
        return winner, passes

    live, replayed = await twice(url, handler)
    assert live == replayed


async def test_a_timeout_that_ran_out_does_so_again_and_is_not_waited_for(url: str) -> None:
    gates = Gates(*"ab")
    gates.gates["a"].set()

    async def handler(turn: Turn) -> list[str]:
        said = []
        try:
            async with turn.timeout(1 if turn.attempt == 1 else 30):  # "a" is to be recorded by then
                said.append(await turn.step(gates, "a"))
                said.append(await turn.step(gates, "b"))
        except TimeoutError:
            said.append("out of time")
        async with turn.timeout(30):
            said.append(await turn.step(gates, "a"))
        return said

    started = time.monotonic()
    live, replayed = await twice(url, handler)
    assert live == replayed == ["a", "out of time", "a"]
    assert time.monotonic() - started < 9


async def test_a_timeout_around_what_is_not_recorded(url: str) -> None:
    async def handler(turn: Turn) -> str:
        try:
            async with turn.timeout(0.05 if turn.attempt == 1 else 30):
                await asyncio.sleep(30)
        except TimeoutError:
            return "out of time"
        return "in time"

    assert await twice(url, handler) == ("out of time", "out of time")


async def test_a_timeout_that_escaped_is_set_aside_by_a_retry(url: str) -> None:
    journal = Journal(url)

    async def slow(seconds: float) -> str:
        await asyncio.sleep(seconds if seconds < 1 or first else 0)
        return "in time"

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        async with turn.timeout(0.05):
            return await turn.step(slow, 30)

    first = True
    async with journal:
        with pytest.raises(TurnFailed, match="TimeoutError"):
            await work.run(None, run_id="r")
        first = False
        assert await (await journal.retry("r")).settle(20, serve=True) == "in time"


async def test_a_timeout_nested_in_another(url: str) -> None:
    async def handler(turn: Turn) -> str:
        try:
            async with turn.timeout(0.03), turn.timeout(30):
                await asyncio.sleep(30)
        except TimeoutError:
            return "the outer one"
        return "none"

    assert await twice(url, handler) == ("the outer one", "the outer one")


@pytest.mark.parametrize("limit", ["wait_for", "timeout"])
async def test_asyncio_own_timeouts_take_the_same_branch(url: str, limit: str) -> None:
    gates = Gates("never")

    async def handler(turn: Turn) -> str:
        try:
            if limit == "wait_for":
                await asyncio.wait_for(turn.step(gates, "never"), 0.05)
            else:
                async with asyncio.timeout(0.05):
                    await turn.step(gates, "never")
        except TimeoutError:
            return "out of time"
        return "in time"

    assert await twice(url, handler) == ("out of time", "out of time")


# What is observed ------------------------------------------------------------------------------------


async def test_clock_and_chance_are_the_same_on_replay(url: str) -> None:
    async def nothing() -> None: ...

    async def handler(turn: Turn) -> list[Any]:
        async def branch() -> list[Any]:
            await turn.step(nothing)
            return [turn.random(), turn.uuid(), turn.now()]

        before = [turn.now(), turn.uuid(), turn.uuid(), turn.random()]
        branches = await asyncio.gather(branch(), branch())
        return [*before, *branches, turn.now()]

    started = time.time()
    live, replayed = await twice(url, handler)
    assert live == replayed
    assert started <= live[0].timestamp() <= time.time()
    assert live[0] <= live[-1]
    assert len({live[1], live[2], live[4][1], live[5][1]}) == 4, "no two are alike, in whichever branch"
    assert live[1].version == 4


async def test_turns_do_not_share_their_chance(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        return str(turn.uuid())

    async with journal:
        assert await work.run(None, run_id="a") != await work.run(None, run_id="b")
        assert await work.run(None, run_id="a", key="two") != await work.run(None, run_id="a")


async def test_inside_a_call_they_are_refused(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> list[str]:
        said = []
        for ask in (turn.now, turn.uuid, turn.random, turn.is_cancel_requested, lambda: turn.patched("x")):

            async def inside(ask: Callable[[], object] = ask) -> str:
                try:
                    ask()
                except InvalidOptions as error:
                    return str(error)
                return "allowed"

            said.append(await turn.step(tool(replay="safe")(inside)))
        return said

    async with journal:
        for said in await work.run(None):
            assert "inside a call" in said


async def test_the_cancel_flag_is_seen_as_it_was(url: str) -> None:
    journal = Journal(url)
    seen: list[list[bool]] = []

    async def wait(seconds: float) -> None:
        await asyncio.sleep(seconds)

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        flags = [turn.is_cancel_requested()]
        seen.append(flags)
        await turn.step(wait, 0)
        try:
            if turn.attempt == 1:
                await asyncio.sleep(30)
        finally:
            flags.append(turn.is_cancel_requested())
            await turn.step(wait, 0.001)

    async with journal:
        handle = await work.submit(None, run_id="r")
        async with asyncio.timeout(20):
            serving = asyncio.create_task(handle.settle(10, serve=True))
            while not (seen and len(await journal.read("r")) > 4):
                await asyncio.sleep(0.01)
            await journal.cancel("r")
            with pytest.raises(Exception, match="cancel"):
                await serving
    assert seen[0] == [False, True]


async def test_patched_code_goes_the_new_way_only_where_there_is_no_history(url: str) -> None:
    journal = Journal(url)
    is_new = False
    asked: list[str] = []

    async def ask(what: str) -> str:
        asked.append(what)
        return what

    @journal.agent
    async def work(turn: Turn, _: None) -> list[str]:
        said = []
        for n in range(3):
            if is_new and turn.patched("twice"):
                said.append(await turn.step(ask, f"new {n}"))
            said.append(await turn.step(ask, f"old {n}"))
            if turn.attempt <= 2 and n == turn.attempt - 1:
                raise Again
        return said

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        is_new = True
        with pytest.raises(TurnFailed):
            await (await journal.retry("r")).settle(20, serve=True)
        said = await (await journal.retry("r")).settle(20, serve=True)
    assert said == ["old 0", "new 1", "old 1", "new 2", "old 2"]
    assert asked == said, "nothing was asked twice"


async def test_changed_code_without_patched_is_told(url: str) -> None:
    async def ask(what: str) -> str:
        return what

    async def more(what: str) -> str:
        return what

    async def handler(turn: Turn) -> None:
        if turn.attempt > 1:
            await turn.step(more, "new")
        await turn.step(ask, "old")

    with pytest.raises(TurnBlocked, match=r"asks for step 'more#1'.*log holds step 'ask#1'"):
        await twice(url, handler)

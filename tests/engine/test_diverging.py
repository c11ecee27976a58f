"""Code that parts from the log: blocked at once, nothing runs under a new name, nothing is spoiled (FAULTS 23, 43)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from journal import Journal, NotRun, Turn, TurnBlocked, step, tool
from journal.core.codec import open_record
from journal.core.errors import RetryRefused
from journal.core.records import Policy
from journal.core.records import TurnBlocked as Blocked
from journal.engine.offline import replay
from journal.engine.reading import read_run
from tests.engine.test_order import twice

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}" if request.param == "memory" else f"sqlite:{tmp_path / 'j.db'}"


async def quick(n: int) -> int:
    return n


async def in_doubt(url: str, first: Any, second: Any) -> tuple[Journal, Any]:
    """Run `first` until its process is lost inside a call; the journal and agent of `second`, to go on with."""
    inside = asyncio.Event()

    def build(handler: Any) -> tuple[Journal, Any]:
        journal = Journal(url)

        @journal.agent
        async def work(turn: Turn, _: None) -> Any:
            return await handler(turn, inside)

        return journal, work

    journal, work = build(first)
    serving = asyncio.create_task(work.run(None, run_id="r"))
    await inside.wait()
    await journal.aclose()
    with pytest.raises((asyncio.CancelledError, Exception)):
        await serving
    return build(second)


@pytest.mark.parametrize("replay", ["safe", "never"])
@pytest.mark.parametrize("instead", ["nothing", "another", "a named one", "another kind"])
async def test_a_call_in_doubt_that_is_not_asked_for(url: str, replay: Policy, instead: str) -> None:
    did: list[str] = []
    started = asyncio.Event()

    @tool(replay=replay)
    async def pay(inside: str) -> None:
        did.append("pay")
        started.set()
        await asyncio.Event().wait()

    @tool(replay=replay)
    async def pay_anew(inside: str) -> None:
        did.append("pay anew")

    async def first(turn: Turn, inside: asyncio.Event) -> None:
        nonlocal started
        started = inside
        await turn.tool(pay, "x")

    async def second(turn: Turn, inside: asyncio.Event) -> None:
        if instead == "another":
            await turn.tool(pay_anew, "x")
        elif instead == "a named one":
            await turn.tool(pay_anew.options(key="pay"), "x")
        elif instead == "another kind":
            await turn.model(pay, "x")

    async with Journal(url):
        journal, work = await in_doubt(url, first, second)
        async with journal:
            with pytest.raises(TurnBlocked, match="pay#1"):
                await work.run(None, run_id="r")
    assert did == ["pay"], "nothing ran in its place"


async def test_nothing_new_runs_inside_old_history_under_a_key_either(url: str) -> None:
    did: list[str] = []

    async def new() -> None:
        did.append("new")

    async def handler(turn: Turn) -> None:
        if turn.attempt > 1:
            await turn.step(step(new).options(key="new"))
        await turn.step(quick, 1)

    with pytest.raises(TurnBlocked, match=r"asks for step 'new'.*log holds step 'quick#1'"):
        await twice(url, handler)
    assert did == []


async def test_keys_of_tasks_side_by_side_keep_no_order(url: str) -> None:
    async def handler(turn: Turn) -> list[Any]:
        calls = [turn.step(step(quick).options(key=f"k{n}"), n) for n in range(3)]
        if turn.attempt > 1:
            calls.reverse()
        tasks = [asyncio.create_task(call) for call in calls]
        return sorted(await asyncio.gather(*tasks))

    assert await twice(url, handler) == ([0, 1, 2], [0, 1, 2])


async def test_it_is_blocked_though_the_task_that_diverged_is_awaited_by_nobody(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journal.engine.attempt._RECANCEL_SECONDS", 3600)

    async def handler(turn: Turn) -> None:
        queue: asyncio.Queue[int] = asyncio.Queue()

        async def produce() -> None:
            try:
                await queue.put(await turn.step(quick, turn.attempt))
            except BaseException:
                if turn.attempt == 1:
                    raise

        producing = asyncio.create_task(produce())
        await queue.get()
        await producing

    with pytest.raises(TurnBlocked, match='"n":2'):
        await twice(url, handler)


async def test_it_is_blocked_though_the_handler_swallows_it_and_waits(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journal.engine.attempt._RECANCEL_SECONDS", 0.05)

    async def handler(turn: Turn) -> None:
        try:
            await turn.step(quick, turn.attempt)
        except BaseException:
            await asyncio.Event().wait()

    with pytest.raises(TurnBlocked, match='"n":2'):
        await twice(url, handler)


@pytest.mark.parametrize("replay", ["safe", "never"])
async def test_what_is_under_way_beside_it_stays_in_doubt(url: str, replay: Policy) -> None:
    """It is cancelled because the turn stops here, which code that goes by the log will not do again.

    What is new does not begin inside old history; so what is beside it is tried again, or probed.
    """
    begun, reached = asyncio.Event(), asyncio.Event()
    attempt = 1

    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def probe(_: Any, io: Any) -> NotRun:
        if attempt == 2:
            await hang()
        return NotRun(final=True)

    @tool(replay=replay, probe=probe if replay == "never" else None)
    async def slow() -> str:
        if attempt < 3:
            await hang()
        return "slow"

    async def interrupted(number: int) -> int:
        if attempt == 1:
            reached.set()
            await asyncio.Event().wait()
        return number

    async def handler(turn: Turn, inside: asyncio.Event) -> str:
        nonlocal attempt, reached
        attempt, reached = turn.attempt, inside
        beside = asyncio.create_task(turn.tool(slow))
        await begun.wait()
        if attempt == 1:
            await asyncio.sleep(0.05)  # until its intent, which may be lazy, is durable
        begun.clear()
        await turn.model(interrupted, 2 if attempt == 2 else 1)
        return (await beside).status

    async def good(turn: Turn, _: asyncio.Event) -> str:
        nonlocal attempt
        attempt = turn.attempt
        if attempt == 2:
            return await handler(turn, asyncio.Event())
        beside = asyncio.create_task(turn.tool(slow))
        await turn.model(interrupted, 1)
        return (await beside).status

    journal, work = await in_doubt(url, handler, good)
    async with journal:
        with pytest.raises(TurnBlocked, match='"number":2'):
            await work.run(None, run_id="r")
        assert await (await journal.retry("r")).settle(20, serve=True) == "ok"


async def test_what_the_handler_raised_is_not_hidden_by_calls_that_it_did_not_come_to(url: str) -> None:
    async def handler(turn: Turn) -> None:
        if turn.attempt == 1:
            await turn.step(quick, 1)
        elif turn.attempt == 2:
            raise KeyError("my own bug")

    with pytest.raises(TurnBlocked, match=r"no longer asks for it; .*raised KeyError: 'my own bug'") as told:
        await twice(url, handler)
    assert isinstance(told.value.__cause__, KeyError)
    assert told.value.__cause__.__traceback__ is not None
    async with Journal(url) as journal:
        if url.startswith("sqlite"):
            record = (await journal.read("r"))[-1]
            body = open_record(record)
            assert isinstance(body, Blocked)
            assert "KeyError: 'my own bug'" in body.detail


async def test_of_foreign_errors_the_record_names_the_class_alone(url: str) -> None:
    class Bug(RuntimeError):
        pass

    async def handler(turn: Turn) -> None:
        if turn.attempt == 1:
            await turn.step(quick, 1)
        else:
            raise Bug("a secret")

    with pytest.raises(TurnBlocked, match=r"raised .*Bug; deploy") as told:
        await twice(url, handler)
    assert "secret" not in str(told.value)


async def test_the_log_line_of_a_divergence_quotes_no_input(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def look(word: str) -> None: ...

    async def handler(turn: Turn) -> None:
        await turn.step(look, f"a secret {turn.attempt}")

    with pytest.raises(TurnBlocked, match="a secret 2"):
        await twice(url, handler)
    assert "turn blocked" in caplog.text
    assert "secret" not in caplog.text


# How it is told ------------------------------------------------------------------------------------------


def message(n: int, size: int) -> dict[str, str]:
    return {"role": "user" if n % 2 else "assistant", "content": f"{n} " + "why " * (size // 4)}


@pytest.mark.parametrize("size", [40, 400, 40_000], ids=["short", "as a difference", "in blobs"])
@pytest.mark.parametrize("how", ["longer", "shorter", "another"])
async def test_it_is_told_where_a_conversation_parts(url: str, how: str, size: int) -> None:
    async def ask(messages: list[dict[str, str]]) -> str:
        return "reply"

    def conversation(count: int) -> list[dict[str, str]]:
        return [message(n, size) for n in range(1, count + 1)]

    async def first(turn: Turn, inside: asyncio.Event) -> None:
        await turn.model(ask, conversation(3))
        await turn.model(ask, conversation(8))
        inside.set()
        await asyncio.Event().wait()

    async def second(turn: Turn, inside: asyncio.Event) -> None:
        await turn.model(ask, conversation(3))
        now = conversation(10 if how == "longer" else 5 if how == "shorter" else 8)
        if how == "another":
            now[6]["role"] = "tool"
        await turn.model(ask, now)

    journal, work = await in_doubt(url, first, second)
    async with journal:
        with pytest.raises(TurnBlocked) as blocked:
            await work.run(None, run_id="r")
        replayed = await replay(work, await read_run((await journal.runtime()).world, "r"))
    told = "the code asks for 'ask#2' with another input than was recorded: "
    told += {
        "longer": "messages goes on with 2 more behind the 8 recorded: [8] is {",
        "shorter": "messages ends after 5, where 3 more were recorded: [5] was {",
        "another": 'messages[6].role: recorded "user", now "tool"',
    }[how]
    assert blocked.value.detail.startswith(told)
    assert len(blocked.value.detail) < 400
    assert replayed.detail == blocked.value.detail


@pytest.mark.parametrize(
    ("reason", "ways"),
    [
        (
            "divergence",
            ["deploy code", "journal replay r ", "retry r --accept-divergence", "retry r --from N"],
        ),
        ("crash_loop", ["journal show r", "then journal retry r"]),
        ("log_error", ["journal verify r", "journal retry r", "journal fork r --at N"]),
        ("unknown_agent", ["start a worker", "then journal retry r"]),
    ],
)
def test_the_error_names_the_ways_on(reason: str, ways: list[str]) -> None:
    said = str(TurnBlocked(run_id="r", turn_id="t", reason=reason, detail="so it is"))
    assert said.startswith(f"turn 't' of run 'r' is blocked ({reason}): so it is; ")
    assert [way for way in ways if way not in said] == []
    assert said.endswith("journal cancel r gives up")
    old = str(TurnBlocked(run_id="r", turn_id="t", reason=reason, detail="do it, then journal retry r"))
    assert old.endswith("do it, then journal retry r"), "what older versions wrote says it by itself"


async def test_what_cannot_be_accepted_is_not_offered(url: str) -> None:
    async def first(turn: Turn, inside: asyncio.Event) -> None:
        await turn.race(turn.step(quick, 1), turn.step(asyncio.sleep, 60))
        await turn.race(turn.step(asyncio.sleep, 60), turn.step(quick, 2))
        inside.set()
        await asyncio.Event().wait()

    async def second(turn: Turn, inside: asyncio.Event) -> None:
        await turn.race(turn.step(quick, 1), turn.step(asyncio.sleep, 60))
        await turn.race(turn.step(asyncio.sleep, 60))

    journal, work = await in_doubt(url, first, second)
    async with journal:
        with pytest.raises(TurnBlocked, match="the race '@race#2' was won by branch 1") as blocked:
            await work.run(None, run_id="r")
        assert "--accept-divergence" not in str(blocked.value)
        assert "--from N" in str(blocked.value)
        with pytest.raises(RetryRefused, match="is not the outcome of a call"):
            await journal.retry("r", accept_divergence=True)

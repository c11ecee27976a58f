"""Turns end to end on a real world: identity, results, errors, policies, cancel, retry, detach."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from journal import (
    CallError,
    CannotTell,
    DidNotHappen,
    Journal,
    NotInTurn,
    NotRun,
    OutcomeUnknown,
    Ran,
    ResultTimeout,
    Retry,
    RunExists,
    Turn,
    TurnBlocked,
    TurnCancelled,
    TurnFailed,
    UsageError,
    ValueLost,
    io,
    never,
    safe,
    step,
    tool,
)
from journal.core.codec import open_record
from journal.core.errors import InvalidOptions, InvalidValue, KeyConflict, NotRetriable, RunBusy, UnknownType
from journal.core.records import CallIntent, CallOutcome, Policy

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}" if request.param == "memory" else f"sqlite:{tmp_path / 'j.db'}"


async def log_of(journal: Journal, run: str) -> list[tuple[str, str | None]]:
    """(type, what it says in short) of each record."""
    said = []
    for record in await journal.read(run):
        body = open_record(record)
        what = record.key
        if isinstance(body, CallIntent):
            what = f"{record.key} try {body.number}"
        elif isinstance(body, CallOutcome):
            what = f"{record.key} {body.status}"
        said.append((record.type, what))
    return said


async def test_steps_are_recorded_and_the_output_is_stored(url: str) -> None:
    calls: list[int] = []

    async def double(n: int) -> int:
        calls.append(n)
        return n * 2

    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, n: int) -> int:
        return await turn.step(double, n) + await turn.step(double, n + 1)

    async with journal:
        assert await work.run(3, run_id="r") == 14
        assert await work.run(3, run_id="r") == 14  # the stored output
        assert calls == [3, 4]
        assert await log_of(journal, "r") == [
            ("run.created", None),
            ("turn.submitted", None),
            ("turn.started", None),
            ("call.intent", "double#1 try 1"),
            ("call.outcome", "double#1 ok"),
            ("call.intent", "double#2 try 1"),
            ("call.outcome", "double#2 ok"),
            ("turn.finished", None),
        ]
        info = await journal.get("r")
        assert (info.status, info.turn, info.head) == ("succeeded", None, 8)


async def test_identity(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def echo(turn: Turn, text: str) -> str:
        return f"{turn.run_id}/{turn.id}: {text}"

    async with journal:
        first, second = await echo.submit("a"), await echo.submit("a")
        assert first.run_id != second.run_id
        assert await echo.run("a", run_id="r") == "r/start: a"
        with pytest.raises(RunExists):
            await echo.run("b", run_id="r")
        again = await echo.submit("b", run_id="r", if_exists="return")
        assert await again.settle(None, serve=True) == "r/start: a"
        assert await echo.run("b", run_id="r", key="k") == "r/k: b"
        assert await echo.run("b", run_id="r", key="k") == "r/k: b"
        with pytest.raises(KeyConflict):
            await echo.run("c", run_id="r", key="k")


async def test_twenty_submits_of_one_key_are_one_turn(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def echo(turn: Turn, text: str) -> str:
        return text

    async with journal:
        await asyncio.gather(*(echo.submit("a", run_id="r") for _ in range(20)))
        assert [t for t, _ in await log_of(journal, "r")] == ["run.created", "turn.submitted"]


async def test_a_busy_run_queues_or_rejects(url: str) -> None:
    journal = Journal(url)
    order: list[str] = []

    @journal.agent
    async def note(turn: Turn, text: str) -> str:
        order.append(text)
        return text

    async with journal:
        one = await note.submit("1", run_id="r", key="one")
        two = await note.submit("2", run_id="r", key="two")
        with pytest.raises(RunBusy):
            await note.submit("3", run_id="r", key="three", if_busy="reject")
        assert await two.settle(5, serve=True) == "2"
        assert await one.result(5) == "1"
        assert order == ["1", "2"]


async def test_errors_look_the_same_live_and_stored(url: str) -> None:
    class Odd(Exception):
        pass

    seen: list[BaseException] = []

    async def fail(kind: str) -> None:
        raise ValueError("bad", 3) if kind == "plain" else Odd("secret prompt")

    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, kind: str) -> str:
        try:
            await turn.step(fail, kind)
        except Exception as error:
            seen.append(error)
            raise
        return "never"

    async with journal:
        with pytest.raises(TurnFailed, match="ValueError"):
            await work.run("plain", run_id="a")
        with pytest.raises(TurnFailed) as odd:
            await work.run("odd", run_id="b")
        assert isinstance(seen[0], ValueError)
        assert seen[0].args == ("bad", 3)
        assert isinstance(seen[1], CallError)
        assert "Odd" in seen[1].type
        assert "secret" not in str(odd.value) + str(seen[1])
        with pytest.raises(TurnFailed, match="ValueError"):  # the stored failure, nothing runs
            await work.run("plain", run_id="a")
        assert len(seen) == 2


async def test_retry_runs_what_failed_and_nothing_else(url: str) -> None:
    counts = {"good": 0, "bad": 0}

    async def good() -> str:
        counts["good"] += 1
        return "g"

    async def bad() -> str:
        counts["bad"] += 1
        if counts["bad"] == 1:
            raise ValueError("once")
        return "b"

    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        return await turn.step(good) + await turn.step(bad)

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        handle = await journal.retry("r")
        assert await handle.settle(5, serve=True) == "gb"
        assert counts == {"good": 1, "bad": 2}
        with pytest.raises(NotRetriable):
            await journal.retry("r")


async def test_step_retries_are_one_outcome(url: str) -> None:
    tries: list[int] = []

    @step(retry=Retry(tries=3, min_delay=0.001, max_delay=0.001))
    async def flaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("no")
        return len(tries)

    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> int:
        return await turn.step(flaky)

    async with journal:
        assert await work.run(None, run_id="r") == 3
        (outcome,) = [r for r in await journal.read("r") if r.type == "call.outcome"]
        body = open_record(outcome)
        assert isinstance(body, CallOutcome)
        assert body.tries == 3


async def test_a_never_tool_that_times_out_or_breaks_is_unknown(url: str) -> None:
    @tool(replay="never")
    async def refund(how: str) -> str:
        raise {"timeout": TimeoutError(), "broken": ConnectionResetError(), "not": DidNotHappen("closed")}[
            how
        ]

    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, how: str) -> str:
        result = await turn.tool(refund, how)
        return f"{result.status}: {result.text}"

    async with journal:
        for how in ("timeout", "broken"):
            said = await work.run(how)
            assert said.startswith(
                "unknown: refund was started before an interruption and may have completed"
            )
        assert (await work.run("not")).startswith("error: ")


async def test_an_unencodable_result_is_lost_not_an_error(url: str) -> None:
    ran: list[int] = []

    @tool(replay="never")
    async def odd() -> Any:
        ran.append(1)
        return {"x": float("nan")}

    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        result = await turn.tool(odd)
        assert isinstance(result.failure, ValueLost)
        return str(result.failure)

    async with journal:
        said = await work.run(None, run_id="r")
        assert "nan" in said
        assert ran == [1]
        assert ("call.outcome", "odd#1 value_lost") in await log_of(journal, "r")


async def test_bad_arguments_and_types_are_refused_before_acting(url: str) -> None:
    ran: list[int] = []

    async def take(client: object) -> str:
        ran.append(1)
        return ""

    async def give() -> asyncio.Event:
        ran.append(1)
        return asyncio.Event()

    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, how: str) -> str:
        with pytest.raises(InvalidValue, match=r"client.*turn\.deps"):
            await turn.step(take, object())
        with pytest.raises(UnknownType):
            await turn.step(give)
        with pytest.raises(InvalidOptions, match=r"turn\.tool"):
            await turn.step(never(take), object())
        return "fine"

    async with journal:
        assert await work.run("x", run_id="r") == "fine"
        assert ran == []
        assert not [r for r in await journal.read("r") if r.type.startswith("call.")]


async def test_outside_a_turn_nothing_works(url: str) -> None:
    kept: list[Turn] = []
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        kept.append(turn)
        with pytest.raises(NotInTurn):
            print(io.idempotency_key)

    async def nothing() -> None: ...

    async with journal:
        await work.run(None)
        with pytest.raises(NotInTurn):
            await kept[0].step(nothing)


async def test_calls_do_not_nest(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        async def inner() -> str:
            return "x"

        async def outer() -> str:
            return await turn.step(inner)

        with pytest.raises(UsageError, match="do not nest"):
            await turn.step(outer)
        return "done"

    async with journal:
        assert await work.run(None) == "done"


async def test_a_named_call_that_asks_for_itself_is_refused_and_not_waited_for(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        async def inner() -> str:
            return await turn.step(named)

        named = step(inner, name="inner").options(key="k")
        with pytest.raises(UsageError, match="do not nest"):
            await turn.step(named)
        return "done"

    async with journal, asyncio.timeout(10):
        assert await work.run(None) == "done"


async def test_io_inside_a_call(url: str) -> None:
    seen: dict[str, Any] = {}

    @tool(replay="safe")
    async def look() -> str:
        seen.update(key=io.idempotency_key, fence=io.fence, deadline=io.deadline, deps=io.deps)
        io.emit({"n": 1})
        return "ok"

    class Resources:
        def __call__(self) -> AbstractAsyncContextManager[dict[str, int]]:
            from contextlib import asynccontextmanager

            @asynccontextmanager
            async def opened() -> Any:
                seen["opened"] = seen.get("opened", 0) + 1
                try:
                    yield {"db": 1}
                finally:
                    seen["closed"] = True

            return opened()

    journal = Journal(url, resources=Resources())

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        assert turn.deps == {"db": 1}
        return (await turn.tool(look)).value

    async with journal:
        handle = await work.submit(None, run_id="r")
        assert await handle.settle(5, serve=True) == "ok"
        await work.run(None)
        kinds = [e.type async for e in handle.events()]
        assert "delta" in kinds
        assert kinds.index("delta") < kinds.index("call.outcome")
    assert len(seen["key"]) == 32
    assert seen["fence"] == 1
    assert 0 < seen["deadline"] <= 30
    assert (seen["deps"], seen["opened"], seen["closed"]) == ({"db": 1}, 1, True)


async def test_parallel_steps_have_scopes_of_their_own(url: str) -> None:
    async def one(n: int) -> int:
        await asyncio.sleep(0)
        return n

    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> list[int]:
        return await asyncio.gather(*(turn.step(one, n) for n in range(3)))

    async with journal:
        assert await work.run(None, run_id="r") == [0, 1, 2]
        keys = [r.key for r in await journal.read("r") if r.type == "call.intent"]
        assert keys == ["t1/one#1", "t2/one#1", "t3/one#1"]


async def test_sync_steps_run_on_a_thread(url: str) -> None:
    import threading

    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> bool:
        return await turn.step(where)

    async with journal:
        assert await work.run(None) is False


async def test_the_awaiter_only_detaches(url: str) -> None:
    """FAULTS 55."""
    started, go = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        started.set()
        await go.wait()
        return "done"

    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        return await turn.step(wait)

    async with journal:
        task = asyncio.create_task(work.run(None, run_id="r"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(ResultTimeout):
            await work.run(None, run_id="r", timeout=0.01)
        go.set()
        assert await work.run(None, run_id="r") == "done"
        assert [t for t, _ in await log_of(journal, "r")].count("turn.started") == 1


async def test_cancel_reaches_a_running_call(url: str) -> None:
    started = asyncio.Event()

    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    journal, other = Journal(url), Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        await turn.step(wait)

    async with journal, other:
        handle = await work.submit(None, run_id="r")
        task = asyncio.create_task(handle.settle(None, serve=True))
        await started.wait()
        await other.cancel("r", reason="because")
        with pytest.raises(TurnCancelled):
            await asyncio.wait_for(task, 5)
        assert (await journal.get("r")).status == "cancelled"
        assert ("call.outcome", "wait#1 cancelled") in await log_of(journal, "r")


async def test_cancel_before_any_worker(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        raise AssertionError("must not run")

    async with journal:
        handle = await work.submit(None, run_id="r")
        await handle.cancel()
        with pytest.raises(TurnCancelled):
            await handle.settle(5, serve=True)


async def test_a_cancelled_never_call_is_unknown(url: str) -> None:
    started = asyncio.Event()

    @tool(replay="never")
    async def refund() -> None:
        started.set()
        await asyncio.Event().wait()

    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        await turn.tool(refund)

    async with journal:
        handle = await work.submit(None, run_id="r")
        task = asyncio.create_task(handle.settle(None, serve=True))
        await started.wait()
        await handle.cancel()
        with pytest.raises(TurnCancelled):
            await asyncio.wait_for(task, 5)
        assert ("call.outcome", "refund#1 unknown") in await log_of(journal, "r")


async def test_changed_code_blocks_and_a_good_deploy_carries_on(url: str) -> None:
    async def a() -> str:
        return "a"

    async def b() -> str:
        return "b"

    async def build(steps: list[Callable[[], Any]], fail: bool) -> Any:
        journal = Journal(url)

        @journal.agent
        async def work(turn: Turn, _: None) -> str:
            said = [await turn.step(s) for s in steps]
            if fail:
                raise RuntimeError("crash here")
            return "".join(said)

        return journal, work

    journal, work = await build([a], True)
    keep = Journal(url)
    async with keep:
        async with journal:
            with pytest.raises(TurnFailed):
                await work.run(None, run_id="r")
            await journal.retry("r")
        journal, work = await build([b, a], False)
        async with journal:
            with pytest.raises(TurnBlocked, match="divergence") as blocked:
                await work.run(None, run_id="r")
            assert "a#1" in blocked.value.detail
            assert "b#1" in blocked.value.detail
            await journal.retry("r")
        journal, work = await build([a, b], False)
        async with journal:
            assert await work.run(None, run_id="r") == "ab"


async def _interrupted(
    url: str, policy: Policy, probe: Any = None, dedupes: bool = False
) -> tuple[str, list[str]]:
    """Start a tool, lose the process in the middle of it (as far as the log can tell), carry on elsewhere."""
    ran: list[str] = []
    inside = asyncio.Event()

    def build(hang: bool) -> tuple[Journal, Any]:
        journal = Journal(url, lease_seconds=0.3)

        @tool(replay=policy, probe=probe, dedupes=dedupes)
        async def refund(order: str) -> str:
            ran.append(order)
            inside.set()
            if hang:
                await asyncio.Event().wait()
            return "refunded"

        @journal.agent
        async def work(turn: Turn, order: str) -> str:
            result = await turn.tool(refund, order)
            return f"{result.status}:{result.text if result.status != 'unknown' else ''}"

        return journal, work

    keep = Journal(url)
    async with keep:
        journal, work = build(True)
        task = asyncio.create_task(work.run("42", run_id="r"))
        await inside.wait()
        await journal.aclose()  # the act is cancelled without an outcome: in doubt, as after a crash
        with pytest.raises((asyncio.CancelledError, Exception)):
            await task
        journal, work = build(False)
        async with journal:
            return await work.run("42", run_id="r"), ran


async def test_never_is_not_repeated(url: str) -> None:
    assert await _interrupted(url, "never") == ("unknown:", ["42"])


async def test_safe_is_repeated(url: str) -> None:
    assert await _interrupted(url, "safe") == ("ok:refunded", ["42", "42"])


async def test_a_probe_that_found_it_gives_the_outcome(url: str) -> None:
    async def probe(given: Any, io: Any) -> Ran:
        assert given == {"order": "42"}
        assert len(io.idempotency_key) == 32
        return Ran("found")

    assert await _interrupted(url, "never", probe) == ("ok:found", ["42"])


async def test_a_final_probe_lets_it_run(url: str) -> None:
    async def probe(given: Any, io: Any) -> NotRun:
        return NotRun(final=True)

    assert await _interrupted(url, "never", probe) == ("ok:refunded", ["42", "42"])


async def test_a_probe_that_is_not_final_runs_only_behind_a_deduping_service(url: str) -> None:
    async def probe(given: Any, io: Any) -> NotRun:
        return NotRun()

    assert await _interrupted(url, "never", probe) == ("unknown:", ["42"])
    assert await _interrupted(url.replace("j.db", "k.db") + "2", "never", probe, True) == (
        "ok:refunded",
        ["42", "42"],
    )


async def test_a_probe_that_cannot_tell_or_fails_leaves_it_unknown(url: str) -> None:
    async def cannot(given: Any, io: Any) -> CannotTell:
        return CannotTell()

    async def broken(given: Any, io: Any) -> Ran:
        raise ConnectionError

    assert await _interrupted(url, "never", cannot) == ("unknown:", ["42"])
    assert await _interrupted(url.replace("j.db", "k.db") + "2", "never", broken) == ("unknown:", ["42"])


async def test_an_unknown_model_call_raises(url: str) -> None:
    """Only the `never` kind is ever unknown."""
    inside = asyncio.Event()
    asked: list[int] = []

    def build(hang: bool) -> tuple[Journal, Any]:
        journal = Journal(url)

        async def ask(prompt: str) -> str:
            asked.append(1)
            inside.set()
            if hang:
                await asyncio.Event().wait()
            return "answer"

        acting = never(ask) if "acting" in url else ask

        @journal.agent
        async def work(turn: Turn, prompt: str) -> str:
            try:
                return await turn.model(acting, prompt)
            except OutcomeUnknown:
                return "unknown"

        return journal, work

    results = []
    base = url
    for name in ("plain", "acting"):
        url = base + name
        asked.clear()
        inside.clear()
        async with Journal(url):
            journal, work = build(True)
            task = asyncio.create_task(work.run("p", run_id="r"))
            await inside.wait()
            await journal.aclose()
            with pytest.raises((asyncio.CancelledError, Exception)):
                await task
            journal, work = build(False)
            async with journal:
                results.append((await work.run("p", run_id="r"), len(asked)))
    assert results == [("answer", 2), ("unknown", 1)]


async def test_a_worker_runs_what_was_submitted(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, n: int) -> int:
        return n + 1

    async with journal, journal.worker(concurrency=3).running():
        handles = [await work.submit(n) for n in range(20)]
        assert [await h.result(5) for h in handles] == [n + 1 for n in range(20)]


async def test_lifespan_runs_a_worker(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, n: int) -> int:
        return n + 1

    async with journal.lifespan(worker=True)(None):
        assert await (await work.submit(1)).result(5) == 2


def test_sync_facade(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, n: int) -> int:
        return n + 1

    assert work.run_sync(1) == 2
    if url.startswith("sqlite"):
        run = work.submit_sync(5, run_id="r")
        assert run == "r"
        assert work.run_sync(5, run_id="r") == 6


def test_one_journal_serves_several_loops_and_closes_with_them(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, n: int) -> int:
        return n + 1

    assert asyncio.run(work.run(1)) == 2
    assert asyncio.run(work.run(2)) == 3


async def test_markers_and_globs_decide_the_policy(url: str) -> None:
    journal = Journal(url, tools={"refund_*": "never", "look_*": "safe"})

    async def look_up() -> str:
        return "x"

    async def refund_it() -> str:
        return "x"

    async def other() -> str:
        return "x"

    @journal.agent(tools={"refund_it": "safe"})
    async def special(turn: Turn, _: None) -> None:
        await turn.tool(refund_it)

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        await turn.tool(look_up)
        await turn.tool(refund_it)
        await turn.tool(other)
        await turn.tool(safe(other))

    async with journal:
        await work.run(None, run_id="r")
        await special.run(None, run_id="s")
        found = {}
        for run in "rs":
            for record in await journal.read(run):
                body = open_record(record)
                if isinstance(body, CallIntent):
                    found[run + record.key.replace("#", "")] = body.policy  # type: ignore[union-attr]  # calls have keys
        assert found == {
            "rlook_up1": "safe",
            "rrefund_it1": "never",
            "rother1": "never",
            "rother2": "safe",
            "srefund_it1": "safe",
        }


async def test_a_blocked_turn_can_be_cancelled(url: str) -> None:
    async def a() -> None: ...

    async def b() -> None: ...

    steps: list[Any] = [a]
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        await turn.step(steps[0])
        raise RuntimeError

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        steps[0] = b
        handle = await journal.retry("r")
        with pytest.raises(TurnBlocked):
            await handle.settle(5, serve=True)
        await handle.cancel()
        with pytest.raises(TurnCancelled):
            await handle.settle(5, serve=True)


async def test_a_call_cancelled_by_the_handler_is_cancelled_on_replay_too(url: str) -> None:
    ran: list[int] = []

    async def slow() -> None:
        ran.append(1)
        await asyncio.Event().wait()

    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        try:
            await asyncio.wait_for(turn.step(slow), 0.05)
        except TimeoutError:
            pass
        if turn.attempt == 1:
            await turn.step(end)  # by a call, so that nothing before it counts as cancelled over that
        return "in time"

    async def end() -> None:
        raise RuntimeError

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        assert await (await journal.retry("r")).settle(5, serve=True) == "in time"
        assert ran == [1]


async def test_what_a_failed_gather_left_running_is_stopped_and_runs_again_on_retry(url: str) -> None:
    started: list[str] = []
    go = asyncio.Event()

    async def slow() -> str:
        started.append("slow")
        await go.wait()
        return "slow"

    async def bad() -> str:
        started.append("bad")
        if not go.is_set():
            raise ValueError
        return "good"

    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> list[str]:
        return list(await asyncio.gather(turn.step(slow), turn.step(bad)))

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        go.set()
        assert await (await journal.retry("r")).settle(5, serve=True) == ["slow", "good"]
        assert started == ["slow", "bad", "slow", "bad"]


async def test_an_older_turn_is_not_retried_while_a_later_one_is_unfinished(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, n: int) -> int:
        raise ValueError

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(1, run_id="r", key="one")
        await work.submit(2, run_id="r", key="two")
        with pytest.raises(RunBusy):
            await journal.retry("r", turn_id="one")


async def test_a_failure_says_what_the_handler_raised(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        raise ValueError("my bug")

    async with journal:
        with pytest.raises(TurnFailed, match="ValueError: my bug") as live:
            await work.run(None, run_id="r")
        assert isinstance(live.value.__cause__, ValueError)
        assert live.value.__cause__.__traceback__ is not None
        with pytest.raises(TurnFailed, match="ValueError: my bug") as stored:
            await work.run(None, run_id="r")
        assert stored.value.text == "my bug"


async def test_retry_runs_a_safe_call_again_whose_value_was_lost(url: str) -> None:
    values: list[Any] = [float("nan"), 5]

    async def give() -> Any:
        return values.pop(0)

    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> Any:
        return await turn.step(give)

    async with journal:
        with pytest.raises(TurnFailed, match="could not be kept"):
            await work.run(None, run_id="r")
        assert await (await journal.retry("r")).settle(5, serve=True) == 5


async def test_an_input_of_another_type_is_refused_before_anything_is_written(url: str) -> None:
    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, n: int) -> int:
        return n

    async with journal:
        with pytest.raises(InvalidValue, match="Expected `int`, got `str`"):
            await journal.submit("work", "5", run_id="r")
        assert await journal.runs() == []


async def test_a_divergence_by_input_names_both(url: str) -> None:
    currency = ["EUR"]

    async def rate(of: str) -> int:
        return 1

    journal = Journal(url)

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        await turn.step(rate, currency[0])
        raise RuntimeError

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        currency[0] = "USD"
        handle = await journal.retry("r")
        with pytest.raises(TurnBlocked, match=r'"of":"USD".*"of":"EUR".*journal retry( --world \S+)? r'):
            await handle.settle(5, serve=True)


def test_mistakes_with_agents_are_told(url: str) -> None:
    journal = Journal(url)
    with pytest.raises(InvalidOptions, match="the turn comes first"):

        @journal.agent  # type: ignore[arg-type]  # the mistake
        async def wrong(text: str, turn: Turn) -> None: ...

    @journal.agent
    async def work(turn: Turn, n: int) -> int:
        return n

    with pytest.raises(InvalidOptions, match=r"work\.run"):
        work(1)

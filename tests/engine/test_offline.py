"""A replay offline: what it serves, where it stops, what it finds, and that nothing can happen in it."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from journal import Journal, Ran, Turn, TurnFailed, never, safe, step, tool
from journal.engine.agent import Agent
from journal.engine.offline import replay
from journal.engine.reading import read_run
from journal.replay.recorded import RecordedRun
from journal.replay.verdict import Replay, ReplayedCall

pytestmark = pytest.mark.anyio

Handler = Callable[..., Any]


async def recorded(journal: Journal, run: str = "r") -> RecordedRun:
    return await read_run((await journal.runtime()).world, run)


async def ran(handler: Handler, given: Any = "x") -> RecordedRun:
    """The log of a run of `handler` that went through, or failed."""
    journal = Journal("memory:")
    agent = journal.agent(handler, name="work")
    async with journal:
        handle = await agent.submit(given, run_id="r")
        try:
            await handle.settle(None, serve=True)
        except Exception:
            pass
        return await recorded(journal)


def cut(log: RecordedRun, upto: int) -> RecordedRun:
    """The log as it was after record `upto`."""
    return RecordedRun(log.records[:upto], log.blobs)


async def again(handler: Handler, log: RecordedRun, **options: Any) -> Replay:
    agent: Agent[Any, Any] = Journal("memory:").agent(handler, name="work")
    return await replay(agent, log, **options)


def keys(found: Replay) -> list[tuple[int, str, str | None]]:
    return [(call.number, call.key, call.status) for call in found.calls]


class Acts:
    """Counts what really ran."""

    def __init__(self) -> None:
        self.names: list[str] = []


acts = Acts()


@pytest.fixture(autouse=True)
def _no_acts() -> None:
    acts.names = []


@step
async def double(n: int) -> int:
    acts.names.append(f"double {n}")
    return n * 2


@step
def shout(text: str) -> str:
    acts.names.append(f"shout {text}")
    return text.upper()


@step
async def stumble(text: str) -> str:
    acts.names.append(f"stumble {text}")
    raise ValueError(text)


@never
async def pay(amount: int) -> int:
    acts.names.append(f"pay {amount}")
    return amount


@safe
async def look(amount: int) -> str:
    acts.names.append(f"look {amount}")
    return f"seen {amount}"


async def everything(turn: Turn, text: str) -> dict[str, Any]:
    loud = await turn.step(shout, text)
    two, four = await asyncio.gather(turn.step(double, 1), turn.step(double, 2))
    try:
        await turn.step(stumble, "no")
    except ValueError as error:
        failed = str(error)
    paid = await turn.tool(pay, four)
    return {"loud": loud, "sum": two + four, "failed": failed, "paid": paid.value}


async def test_a_finished_turn_ends_as_recorded_and_nothing_runs() -> None:
    log = await ran(everything)
    acts.names = []
    found = await again(everything, log)
    assert (found.verdict, found.has_parted, found.at) == ("same", False, [])
    assert keys(found) == [
        (1, "shout#1", "ok"),
        (2, "t1/double#1", "ok"),
        (3, "t2/double#1", "ok"),
        (4, "stumble#1", "error"),
        (5, "pay#1", "ok"),
    ]
    assert found.replayed is not None
    assert found.replayed.fields() == {
        "status": "succeeded",
        "output": {"loud": "X", "sum": 6, "failed": "no", "paid": 4},
        "error": None,
        "cause": None,
    }
    assert acts.names == []


async def test_at_every_cut_of_the_log_nothing_runs_and_the_end_is_named() -> None:
    log = await ran(everything)
    acts.names = []
    first = next(place for place, record in enumerate(log.records, 1) if record.type == "turn.submitted")
    for upto in range(first, len(log.records)):
        found = await again(everything, cut(log, upto))
        assert found.verdict in ("log_ends", "would_finish"), (upto, found)
        outcomes = [record for record in log.records[:upto] if record.type == "call.outcome"]
        assert len(found.calls) == len(outcomes)
        assert found.recorded is None
    assert (found.verdict, acts.names) == ("would_finish", [])


async def test_a_failure_ends_as_recorded() -> None:
    async def fails(turn: Turn, text: str) -> None:
        await asyncio.gather(turn.step(stumble, text), turn.step(slow))

    log = await ran(fails, "gone")
    acts.names = []
    found = await again(fails, log)
    assert (found.verdict, found.differences, acts.names) == ("same", [], [])
    assert found.replayed is not None
    assert found.replayed.fields()["error"] == {
        "type": "ValueError",
        "code": None,
        "args": ["gone"],
        "data": None,
    }
    assert found.replayed.cause == "t1/stumble#1"


@step
async def slow() -> None:
    acts.names.append("slow")
    await asyncio.sleep(30)


@pytest.mark.parametrize(
    ("tail", "then"), [("never", "unknown"), ("probed", "probe"), ("safe", "again"), ("new", "new")]
)
async def test_in_doubt_nothing_acts_and_nothing_is_probed(tmp_path: Path, tail: str, then: str) -> None:
    written = tmp_path / "effect"

    def write(text: str) -> str:
        written.write_text(text)
        return text

    async def ask(_: Any, __: Any) -> Ran:
        written.write_text("probed")
        return Ran("x")

    tools: dict[str, Any] = {
        "never": tool(write),
        "probed": tool(probe=ask)(write),
        "safe": tool(replay="safe")(write),
        "new": tool(write),
    }

    async def work(turn: Turn, text: str) -> str:
        loud = await turn.step(shout, text)
        return str((await turn.tool(tools[tail], loud)).text)

    log = await ran(work)
    assert written.read_text() == "X"
    written.unlink()
    places = [place for place, record in enumerate(log.records, 1) if record.type == "call.intent"]
    found = await again(work, cut(log, places[-1] - 1 if tail == "new" else places[-1]))
    assert found.verdict == "log_ends"
    assert [(call.number, call.key, call.then) for call in found.at] == [
        (None if tail == "new" else 2, "write#1", then)
    ]
    assert not written.exists()


async def test_another_input_is_shown_field_by_field() -> None:
    @step
    async def charge(order: dict[str, Any]) -> str:
        return "charged"

    async def before(turn: Turn, text: str) -> str:
        return await turn.step(charge, {"id": text, "items": [{"price": 3}, {"price": 4}]})

    async def after(turn: Turn, text: str) -> str:
        return await turn.step(charge, {"id": text, "items": [{"price": 3}, {"price": 5}], "rush": True})

    found = await again(after, await ran(before))
    assert (found.verdict, found.has_parted) == ("diverged", True)
    assert [(d.path, d.recorded, d.asked) for d in found.differences] == [
        ("input.order.items[1].price", "4", "5"),
        ("input.order.rush", "(nothing)", "true"),
    ]


async def test_a_call_that_is_gone_or_renamed_diverges() -> None:
    async def before(turn: Turn, text: str) -> str:
        await turn.step(double, 1)
        return await turn.step(shout, text)

    async def gone(turn: Turn, text: str) -> str:
        return await turn.step(shout, text)

    async def renamed(turn: Turn, text: str) -> str:
        await turn.step(stumble, "")
        return await turn.step(shout, text)

    log = await ran(before)
    found = await again(gone, log)
    assert (found.verdict, found.detail) == (
        "diverged",
        "call 'double#1' is in the log and the code no longer asks for it",
    )
    assert (await again(renamed, log)).detail == (
        "the code asks for step 'stumble#1' (stumble), and the log holds step 'double#1' (double)"
    )
    assert acts.names == ["double 1", "shout x"]


async def test_another_output_is_shown_field_by_field() -> None:
    async def before(turn: Turn, text: str) -> dict[str, Any]:
        return {"text": await turn.step(shout, text), "n": [1, 2]}

    async def after(turn: Turn, text: str) -> dict[str, Any]:
        return {"text": (await turn.step(shout, text)).title(), "n": [1, 2, 3]}

    found = await again(after, await ran(before, "abc"))
    assert (found.verdict, found.has_parted) == ("differs", True)
    assert [(d.path, d.recorded, d.asked) for d in found.differences] == [
        ("output.n[2]", "(nothing)", "3"),
        ("output.text", '"ABC"', '"Abc"'),
    ]


async def test_code_that_goes_on_behind_a_recorded_end_differs() -> None:
    async def before(turn: Turn, text: str) -> str:
        return await turn.step(shout, text)

    async def after(turn: Turn, text: str) -> str:
        loud = await turn.step(shout, text)
        await turn.tool(pay, 3)
        return loud

    found = await again(after, await ran(before))
    assert found.verdict == "differs"
    assert "asks for more: tool pay#1" in found.detail
    assert acts.names == ["shout x"]


async def test_the_other_branch_is_followed_to_its_divergence() -> None:
    """One branch is at the log's end at once; what the other asks for is still compared."""

    def handler(second: str) -> Handler:
        async def work(turn: Turn, text: str) -> str:
            async def branch() -> None:
                await turn.step(double, 1)
                await turn.step(shout, second)
                await turn.step(double, 2)

            await asyncio.gather(turn.tool(pay, 1), branch())
            return "done"

        return work

    log = await ran(handler("a"))
    kept = [r for r in log.records if not (r.type == "call.outcome" and r.key == "t1/pay#1")][:-2]
    renumbered = [msgspec.structs.replace(r, seq=n) for n, r in enumerate(kept, 1)]
    partial = RecordedRun(renumbered, {})
    assert (await again(handler("a"), partial)).verdict == "log_ends"
    found = await again(handler("b"), partial)
    assert found.verdict == "diverged"
    assert [str(d) for d in found.differences] == ['input.text: recorded "a", now "b"']


async def test_it_stops_where_it_is_asked_to() -> None:
    log = await ran(everything)
    seen: list[ReplayedCall] = []

    def watch(call: ReplayedCall) -> bool:
        seen.append(call)
        return call.number < 4

    found = await again(everything, log, watch=watch)
    assert (found.verdict, found.has_parted, found.replayed) == ("stopped", False, None)
    assert [call.number for call in seen] == [1, 2, 3, 4]
    assert [call.number for call in found.calls] == [1, 2, 3]


async def test_parallel_calls_leave_no_task_behind_where_it_stops() -> None:
    def three(start: int) -> Handler:
        async def handler(turn: Turn, text: str) -> int:
            return sum(await asyncio.gather(*(turn.step(double, start + n) for n in range(3))))

        return handler

    log, before = await ran(three(0)), asyncio.all_tasks()
    for until in (1, 2, 3):
        found = await again(three(0), log, watch=lambda call, until=until: call.number != until)
        assert (found.detail, asyncio.all_tasks()) == ("stopped where it was asked to", before)
    assert ((await again(three(1), log)).verdict, asyncio.all_tasks()) == ("differs", before)


async def test_the_turn_is_chosen() -> None:
    journal = Journal("memory:")
    agent = journal.agent(everything, name="work")
    async with journal:
        await agent.run("one", run_id="r", key="first")
        await agent.run("two", run_id="r", key="second")
        log = await recorded(journal)
    last, first = await again(everything, log), await again(everything, log, turn="first")
    assert (last.turn, last.verdict, last.calls[0].number) == ("second", "same", 6)
    assert (first.turn, first.verdict, first.calls[0].number) == ("first", "same", 1)


async def test_large_values_come_out_of_the_log() -> None:
    async def work(turn: Turn, text: str) -> str:
        return await turn.step(shout, text) + "!"

    log = await ran(work, "x" * 100_000)
    assert len(log.blobs) == 4  # the input, the step's argument and result, the output
    found = await again(work, log)
    assert (found.verdict, found.detail) == ("same", "")
    assert (await again(work, RecordedRun(log.records, {}))).verdict == "unreadable"


async def test_a_store_is_out_of_reach_of_the_handler() -> None:
    other = Journal("memory:other")

    @other.agent
    async def elsewhere(turn: Turn, text: str) -> str:
        return text

    async def quiet(turn: Turn, text: str) -> str:
        return await turn.step(shout, text)

    async def reaching(turn: Turn, text: str) -> str:
        loud = await turn.step(shout, text)
        try:
            await elsewhere.submit(loud, run_id="other")
        except BaseException:
            pass  # swallowing it does not help
        return loud

    found = await again(reaching, await ran(quiet))
    assert (found.verdict, "outside of a call" in found.detail) == ("refused", True)
    async with other:
        assert await other.runs() == []


async def test_resources_stay_closed_and_their_parts_may_be_named() -> None:
    async def uses(turn: Turn, text: str) -> str:
        client = turn.deps.client

        async def fetch(path: str) -> str:
            return str(await client.get(path))

        return await turn.step(fetch, text)

    class Client:
        async def get(self, path: str) -> str:
            return f"got {path}"

    class Deps:
        client = Client()

    from contextlib import asynccontextmanager

    opened: list[str] = []

    @asynccontextmanager
    async def resources() -> Any:
        opened.append("once")
        yield Deps()

    journal = Journal("memory:", resources=resources)
    agent = journal.agent(uses, name="work")
    async with journal:
        assert await agent.run("x", run_id="r") == "got x"
        log = await recorded(journal)
    assert (await replay(agent, log)).verdict == "same"
    assert opened == ["once"]

    async def calls_it(turn: Turn, text: str) -> str:
        return str(await turn.deps.client.get(text))

    assert (await again(calls_it, log)).verdict == "refused"
    assert (await again(calls_it, log, deps=Deps())).verdict == "diverged"


async def test_a_cancelled_turn_ends_cancelled() -> None:
    journal = Journal("memory:")
    begun = asyncio.Event()

    @step
    async def wait() -> None:
        begun.set()
        await asyncio.sleep(30)

    async def work(turn: Turn, text: str) -> str:
        await turn.step(shout, text)
        await turn.step(wait)
        return "done"

    agent = journal.agent(work, name="work")
    async with journal:
        handle = await agent.submit("x", run_id="r")
        waiting = asyncio.create_task(handle.settle(None, serve=True))
        await begun.wait()
        await journal.cancel("r")
        await asyncio.wait({waiting})
        waiting.exception()
        log = await recorded(journal)
    found = await again(work, log)
    assert (found.verdict, str(found)) == ("same", "ended as recorded: cancelled")


async def test_code_that_waits_for_something_else_is_given_up() -> None:
    async def quick(turn: Turn, text: str) -> str:
        return await turn.step(shout, text)

    async def hangs(turn: Turn, text: str) -> str:
        loud = await turn.step(shout, text)
        await asyncio.sleep(30)
        return loud

    found = await again(hangs, await ran(quick), stall_seconds=0.2)
    assert (found.verdict, found.has_parted) == ("stalled", True)


async def test_code_that_blocks_the_loop_is_waited_for() -> None:
    async def imports(turn: Turn, text: str) -> str:
        time.sleep(0.5)  # as an import does
        for _ in range(5):
            await asyncio.sleep(0)
        return await turn.step(shout, text)

    found = await again(imports, await ran(imports), stall_seconds=0.2)
    assert found.verdict == "same"


async def test_a_branch_that_is_gone_is_named_before_those_that_wait_behind_it() -> None:
    @step
    async def later(text: str) -> str:
        await asyncio.sleep(0.05)
        return text

    def handler(*names: str) -> Handler:
        steps: dict[str, Any] = {"later": later, "shout": shout}

        async def work(turn: Turn, text: str) -> int:
            return len(await asyncio.gather(*(turn.step(steps[name], name) for name in names)))

        return work

    log = await ran(handler("later", "shout"))
    assert (await again(handler("later", "shout"), log)).verdict == "same"
    found = await again(handler("later"), log, stall_seconds=0.2)
    assert (found.verdict, found.detail) == (
        "diverged",
        "call 't2/shout#1' is in the log and the code does not ask for it, and what it waits for lies behind that",
    )


async def test_what_is_observed_is_answered_and_drift_is_noted_nowhere() -> None:
    async def work(turn: Turn, text: str) -> list[Any]:
        before = turn.now()
        place, said = await turn.race(turn.step(shout, text), turn.step(slow))
        return [before.isoformat(), str(turn.uuid()), turn.random(), place, said]

    log = await ran(work)
    assert (await again(work, log)).verdict == "same"
    first = next(place for place, record in enumerate(log.records, 1) if record.type == "turn.submitted")
    found = await again(work, cut(log, first))
    assert (found.verdict, [call.then for call in found.at]) == ("log_ends", ["new", "new"])

    async def late(turn: Turn, text: str) -> str:
        async with turn.timeout(0.001):
            await turn.tool(pay, 1)
        return "late"

    assert (await again(late, cut(log, first))).verdict == "log_ends"
    assert "pay 1" not in acts.names


async def test_what_a_retry_set_aside_is_not_replayed() -> None:
    is_up = False

    @step
    async def flaky(text: str) -> str:
        if not is_up:
            raise ValueError("down")
        return text

    async def work(turn: Turn, text: str) -> str:
        await turn.step(shout, text)
        return await turn.step(flaky, text)

    journal = Journal("memory:")
    agent = journal.agent(work, name="work")
    async with journal:
        with pytest.raises(TurnFailed):
            await agent.run("x", run_id="r")
        failed = await recorded(journal)
        is_up = True
        handle = await journal.retry("r")
        assert await handle.settle(None, serve=True) == "x"
        log = await recorded(journal)
    assert keys(await again(work, failed)) == [(1, "shout#1", "ok"), (2, "flaky#1", "error")]
    found = await again(work, log)
    assert (found.verdict, keys(found)) == ("same", [(1, "shout#1", "ok"), (3, "flaky#1", "ok")])

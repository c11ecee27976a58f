"""Model calls through a turn: tried again by default, and what their provider said is kept with the outcome."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from journal import CallError, Journal, ModelRetry, Retry, Turn, io, never, step, tool
from journal.core.codec import open_record
from journal.core.records import CallOutcome
from journal.engine.context import in_call
from journal.replay.fold import fold
from journal.replay.timeline import lines, rows
from tests.tools.test_provider import StatusError

pytestmark = pytest.mark.anyio
QUICK = ModelRetry(min_delay=0, max_delay=0)


class Model:
    """Fails as often as it is told to."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.asked = 0

    def fail(self) -> None:
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)


async def outcome_of(
    tmp_path: Path,
    ask: Callable[[], Awaitable[str]] | Any,
    *,
    model_retry: ModelRetry | bool | None = QUICK,
) -> tuple[Any, CallOutcome]:
    """What the handler saw of one model call, and what the log has of it."""
    journal = Journal(f"sqlite:{tmp_path / 'j.db'}")

    @journal.agent(model_retry=model_retry)
    async def work(turn: Turn, _: None) -> Any:
        try:
            return await turn.model(ask)
        except CallError as error:
            return f"failed: {error.code}"

    async with journal:
        seen = await work.run(None, run_id="r")
        bodies = [open_record(record) for record in await journal.read("r")]
    (outcome,) = [body for body in bodies if isinstance(body, CallOutcome)]
    return seen, outcome


async def test_what_may_pass_is_tried_again_by_default_and_the_tries_are_counted(tmp_path: Path) -> None:
    model = Model(StatusError(503, retry_after_ms="1"), StatusError(429, retry_after_ms="1"))

    async def ask() -> str:
        model.fail()
        return "hi"

    seen, outcome = await outcome_of(tmp_path, ask, model_retry=None)
    assert (seen, outcome.status, outcome.tries, model.asked) == ("hi", "ok", 3, 3)


@pytest.mark.parametrize("code", [400, 401])
async def test_what_would_come_again_is_not_tried_again(tmp_path: Path, code: int) -> None:
    model = Model(StatusError(code))

    async def ask() -> str:
        model.fail()
        return "hi"

    seen, outcome = await outcome_of(tmp_path, ask)
    assert (seen, outcome.tries, outcome.finish, model.asked) == (f"failed: {code}", 1, "error", 1)


async def test_three_tries_and_the_last_error_is_the_outcome(tmp_path: Path) -> None:
    limited = {"retry_after_ms": "1", "x_ratelimit_remaining_requests": "0"}
    model = Model(StatusError(500), StatusError(502), StatusError(429, **limited), StatusError(503))

    async def ask() -> str:
        model.fail()
        return "hi"

    seen, outcome = await outcome_of(tmp_path, ask)
    assert (seen, outcome.tries, model.asked) == ("failed: 429", 3, 3)
    assert outcome.rate_limits == {"retry_after_seconds": 0.001, "requests_remaining": 0.0}


async def test_a_longer_pause_than_allowed_fails_at_once(tmp_path: Path) -> None:
    model = Model(StatusError(429, retry_after="3600"))

    async def ask() -> str:
        model.fail()
        return "hi"

    async with asyncio.timeout(5):
        seen, outcome = await outcome_of(tmp_path, ask)
    assert (seen, outcome.tries, model.asked) == ("failed: 429", 1, 1)


async def test_the_call_goes_before_the_agent_and_the_agent_before_the_default(tmp_path: Path) -> None:
    model = Model()

    async def ask() -> str:
        model.fail()
        return "hi"

    said: list[tuple[Retry | bool | None, ModelRetry | bool]] = [
        (None, False), (False, QUICK), (True, False), (Retry(tries=2, min_delay=0), False), (QUICK, False)
    ]  # fmt: skip
    counts = []
    for number, (own, agents) in enumerate(said):
        model.errors, model.asked = [StatusError(500, retry_after_ms="1") for _ in range(9)], 0
        (place := tmp_path / str(number)).mkdir()
        asked = ask if own is None else step(retry=own)(ask)
        _, outcome = await outcome_of(place, asked, model_retry=agents)
        assert outcome.tries == model.asked
        counts.append(model.asked)
    assert counts == [1, 1, 3, 2, 3]


async def test_a_stream_is_not_tried_again_after_its_first_piece(tmp_path: Path) -> None:
    model = Model(StatusError(503), StatusError(503))

    async def ask() -> str:
        if model.asked:
            io.emit("Hel")
        model.fail()
        return "Hello"

    seen, outcome = await outcome_of(tmp_path, ask)
    assert (seen, outcome.tries, model.asked) == ("failed: 503", 2, 2)


@pytest.mark.parametrize(("code", "asked"), [(429, 2), (503, 1)])
async def test_never_is_tried_again_only_where_the_provider_turned_it_away(
    tmp_path: Path, code: int, asked: int
) -> None:
    model = Model(StatusError(code))

    @never
    async def ask() -> str:
        model.fail()
        return "hi"

    await outcome_of(tmp_path, ask)
    assert model.asked == asked


async def test_no_try_begins_once_the_claim_is_not_trusted(tmp_path: Path) -> None:
    """Another holder may be at work by now."""
    journal, lost, asked = Journal(f"sqlite:{tmp_path / 'j.db'}"), asyncio.Event(), [0]

    async def ask() -> str:
        asked[0] += 1
        context = in_call()
        assert context is not None
        holding = context.attempt.holding
        holding.on_lost, holding.trusted_until = lost.set, 0.0
        raise StatusError(503)

    @journal.agent(model_retry=QUICK)
    async def work(turn: Turn, _: None) -> str:
        return await turn.model(ask)

    async with journal:
        task = asyncio.create_task(work.run(None))
        async with asyncio.timeout(20):
            await lost.wait()
        task.cancel()
        await asyncio.wait({task})
    assert asked == [1]


async def test_steps_and_tools_are_not_tried_again_by_default(tmp_path: Path) -> None:
    journal, model = Journal(f"sqlite:{tmp_path / 'j.db'}"), Model(StatusError(503), StatusError(503))

    async def once() -> str:
        model.fail()
        return "hi"

    @journal.agent
    async def work(turn: Turn, _: None) -> list[str]:
        result = await turn.tool(tool(replay="safe")(once))
        try:
            return [await turn.step(once)]
        except CallError as error:
            return [result.status, str(error.code)]

    async with journal:
        assert await work.run(None) == ["error", "503"]
    assert model.asked == 2


async def test_what_the_provider_said_is_kept_and_shown(tmp_path: Path) -> None:
    async def ask() -> str:
        reply = {"stop_reason": "max_tokens", "usage": {"input_tokens": 1204, "output_tokens": 88}}
        io.report(reply, headers={"anthropic-ratelimit-requests-remaining": "49"})
        return "hi"

    journal = Journal(f"sqlite:{tmp_path / 'j.db'}")

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        return await turn.model(ask)

    async with journal:
        await work.run(None, run_id="r")
        records = await journal.read("r")
    state = fold(records)
    outcome = state.calls[0].outcome
    assert outcome is not None
    assert (outcome.finish, outcome.raw_finish) == ("length", "max_tokens")
    assert outcome.usage == {"input_tokens": 1204, "output_tokens": 88}
    assert outcome.rate_limits == {"requests_remaining": 49.0}
    assert any("ok, length, 1,204 input + 88 output tokens" in line for line in lines(rows(state)))

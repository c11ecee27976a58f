"""Tries of model calls with the real OpenAI client, and the SDK on it, against a server on the loopback."""

import time
from typing import Any

import httpx2
import openai
import pytest
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, RunConfig
from agents.retry import ModelRetrySettings, retry_policies

from journal import Journal, Turn, TurnFailed, io
from journal.adapters.openai_agents import DurableRunner
from journal.core.records import CallOutcome
from journal.tools.facts import facts_of, facts_of_error
from journal.tools.model_retry import MODEL_RETRY
from journal.tools.provider import delay_asked, headers_of, is_transient, status_of
from tests.adapters.answering import Answer, answering, chat, failure, response
from tests.adapters.bench import Bench

pytestmark = pytest.mark.anyio
MESSAGES: Any = [{"role": "user", "content": "hi"}]


async def raised(answer: Answer, **options: Any) -> Exception:
    """What the real client raises over `answer`."""
    async with (
        answering(answer) as server,
        openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0, **options) as client,
    ):
        with pytest.raises(Exception) as found:
            await client.chat.completions.create(model="m", messages=MESSAGES)
    assert isinstance(found.value, Exception)
    return found.value


@pytest.mark.parametrize(
    ("answer", "name", "is_worth"),
    [
        (failure(408), "APIStatusError", True),
        (failure(409), "ConflictError", True),
        (failure(429), "RateLimitError", True),
        (failure(500), "InternalServerError", True),
        (failure(503), "InternalServerError", True),
        (Answer(0), "APIConnectionError", True),
        (failure(400, "context_length_exceeded"), "BadRequestError", False),
        (failure(401), "AuthenticationError", False),
        (failure(403), "PermissionDeniedError", False),
        (failure(404), "NotFoundError", False),
        (failure(422), "UnprocessableEntityError", False),
        (Answer(200, "this is no JSON"), "JSONDecodeError", False),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_real_errors_are_told_apart(answer: Answer, name: str, is_worth: bool) -> None:
    error = await raised(answer)
    assert type(error).__name__ == name
    assert is_transient(error) is is_worth
    assert MODEL_RETRY.is_worth(error) is is_worth
    if answer.status >= 400:
        assert status_of(error) == answer.status


async def test_a_timeout_of_the_client_may_pass() -> None:
    error = await raised(Answer(-1), timeout=0.05)
    assert type(error) is openai.APITimeoutError
    assert is_transient(error)


async def test_nobody_listens_there() -> None:
    async with openai.AsyncOpenAI(base_url="http://127.0.0.1:1/v1", api_key="k", max_retries=0) as client:
        with pytest.raises(openai.APIConnectionError) as found:
            await client.chat.completions.create(model="m", messages=MESSAGES)
    assert is_transient(found.value)


@pytest.mark.parametrize(
    ("answer", "name", "is_worth"),
    [
        (failure(503, retry_after="3"), "HTTPStatusError", True),
        (failure(400), "HTTPStatusError", False),
        (Answer(0), "RemoteProtocolError", True),
        (Answer(-1), "ReadTimeout", True),
        (Answer(200, "x", is_torn=True), "RemoteProtocolError", True),
    ],
)
async def test_errors_of_a_bare_http_client(answer: Answer, name: str, is_worth: bool) -> None:
    limit = httpx2.Timeout(60, read=0.5 if answer.status < 0 else 60)
    async with answering(answer) as server, httpx2.AsyncClient(timeout=limit) as client:
        with pytest.raises(httpx2.HTTPError) as found:
            (await client.post(server.url, json={})).raise_for_status()
    assert type(found.value).__name__ == name
    assert is_transient(found.value) is is_worth
    if answer.headers:
        assert (status_of(found.value), delay_asked(found.value, time.time())) == (503, 3.0)


async def test_headers_of_a_real_error() -> None:
    error = await raised(
        failure(429, "rate_limit_exceeded", x_ratelimit_remaining_tokens="0", x_ratelimit_reset_tokens="1.5s")
    )
    assert headers_of(error)["x-ratelimit-reset-tokens"] == "1.5s"
    assert delay_asked(error, time.time()) == 1.5
    assert facts_of_error(error).rate_limits == {"tokens_remaining": 0.0, "tokens_reset_seconds": 1.5}
    assert facts_of_error(await raised(failure(400, "context_length_exceeded"))).finish == "context_limit"
    assert delay_asked(await raised(failure(503, retry_after="7")), time.time()) == 7.0


async def test_real_replies_are_read() -> None:
    async with (
        answering(chat(finish="length")) as server,
        openai.AsyncOpenAI(base_url=server.url, api_key="k") as client,
    ):
        said = facts_of(await client.chat.completions.create(model="m", messages=MESSAGES))
    assert (said.finish, said.raw_finish) == ("length", "length")
    assert said.usage == {"input_tokens": 19, "output_tokens": 10, "total_tokens": 29}
    async with (
        answering(response()) as server,
        openai.AsyncOpenAI(base_url=server.url, api_key="k") as client,
    ):
        said = facts_of(await client.responses.create(model="m", input="hi"))
    assert (said.finish, said.raw_finish) == ("stop", "completed")
    assert (said.usage["input_tokens"], said.usage["cached_tokens"], said.usage["total_tokens"]) == (
        36,
        4,
        123,
    )


async def test_a_call_written_by_hand_with_the_real_client(bench: Bench) -> None:
    async with (
        answering(failure(503, retry_after_ms="1"), chat()) as server,
        openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client,
    ):

        async def ask(prompt: str) -> str:
            raw = await client.chat.completions.with_raw_response.create(model="m", messages=MESSAGES)
            reply = raw.parse()
            io.report(reply, headers=raw.headers)
            return reply.choices[0].message.content or ""

        async def work(turn: Turn, prompt: str) -> Any:
            return await turn.model(ask, prompt)

        assert await bench.run(work) == "hi"
        assert server.asked == 2
    outcome = (await bench.calls())["ask#1"].outcome
    assert outcome is not None
    assert (outcome.tries, outcome.finish, outcome.raw_finish) == (2, "stop", "stop")
    assert outcome.usage == {"input_tokens": 19, "output_tokens": 10, "total_tokens": 29}
    assert outcome.rate_limits == {"requests_remaining": 59.0}


# The SDK on it ---------------------------------------------------------------------------------------


async def with_sdk(
    bench: Bench, kind: Any, *answers: Answer, is_streamed: bool = False, **options: Any
) -> tuple[Any, int, list[CallOutcome]]:
    """A run of the SDK with its real model and a client that would retry; what it gave, requests, and outcomes."""
    async with (
        answering(*answers) as server,
        openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=2) as client,
    ):
        agent = Agent(name="a", model=kind(model="m", openai_client=client))

        async def work(turn: Turn, prompt: str) -> Any:
            if is_streamed:
                result: Any = DurableRunner.run_streamed(agent, prompt, **options)
                async for _ in result.stream_events():
                    pass
            else:
                result = await DurableRunner.run(agent, prompt, **options)
            return result.final_output

        seen: Any
        try:
            seen = await bench.run(work)
        except TurnFailed as error:
            seen = error.type
        outcomes = [call.outcome for call in (await bench.calls()).values() if call.outcome is not None]
        assert client.max_retries == 2, "what was given is not changed"
        return seen, server.asked, outcomes


@pytest.mark.parametrize("kind", [OpenAIChatCompletionsModel, OpenAIResponsesModel])
async def test_tries_are_counted_once(bench: Bench, kind: Any) -> None:
    """The client would try three times by itself, within each of our three tries."""
    seen, asked, (outcome,) = await with_sdk(bench, kind, failure(503, retry_after_ms="1"))
    assert (seen, asked, outcome.status, outcome.tries) == ("openai.InternalServerError", 3, "error", 3)
    assert outcome.finish == "error"


async def test_an_answer_after_an_outage(bench: Bench) -> None:
    seen, asked, (outcome,) = await with_sdk(
        bench,
        OpenAIResponsesModel,
        failure(503, retry_after_ms="1"),
        failure(429, retry_after_ms="1"),
        response(),
    )
    assert (seen, asked, outcome.tries) == ("hi", 3, 3)
    assert (outcome.finish, outcome.raw_finish) == ("stop", "completed")
    assert outcome.usage == {
        "requests": 1, "input_tokens": 36, "output_tokens": 87, "total_tokens": 123, "cached_tokens": 4,
    }  # fmt: skip


async def test_of_a_chat_completion_the_sdk_keeps_no_reason_and_none_is_made_up(bench: Bench) -> None:
    seen, _, (outcome,) = await with_sdk(bench, OpenAIChatCompletionsModel, chat(finish="length"))
    assert (seen, outcome.finish, outcome.raw_finish) == ("hi", None, None)
    assert outcome.usage["input_tokens"] == 19


async def test_a_stream_that_did_not_begin_is_tried_again(bench: Bench) -> None:
    _, asked, (outcome,) = await with_sdk(
        bench, OpenAIResponsesModel, failure(503, retry_after_ms="1"), is_streamed=True
    )
    assert (asked, outcome.tries) == (3, 3)


async def test_a_stream_is_not_tried_again_after_its_first_event(bench: Bench) -> None:
    about = '"id":"r","object":"response","created_at":1,"model":"m","output":[],"parallel_tool_calls":true'
    about += ',"tool_choice":"auto","tools":[],"status":"in_progress"'
    created = f'{{"type":"response.created","sequence_number":0,"response":{{{about}}}}}'
    torn = Answer(
        200,
        f"event: response.created\ndata: {created}\n\n",
        {"content-type": "text/event-stream"},
        is_torn=True,
    )
    _, asked, (outcome,) = await with_sdk(bench, OpenAIResponsesModel, torn, is_streamed=True)
    assert (asked, outcome.status, outcome.tries) == (1, "error", 1)


async def test_where_the_runner_retries_the_engine_does_not(bench: Bench) -> None:
    retry = ModelRetrySettings(
        max_retries=1, policy=retry_policies.http_status([503]), backoff={"initial_delay": 0}
    )
    settings = RunConfig(model_settings=ModelSettings(retry=retry))
    _, asked, outcomes = await with_sdk(bench, OpenAIResponsesModel, failure(503), run_config=settings)
    assert (asked, [outcome.tries for outcome in outcomes]) == (2, [1, 1])


async def test_who_wants_no_retries_gets_none(bench: Bench) -> None:
    settings = RunConfig(model_settings=ModelSettings(retry=ModelRetrySettings(max_retries=0)))
    _, asked, (outcome,) = await with_sdk(bench, OpenAIResponsesModel, failure(503), run_config=settings)
    assert (asked, outcome.tries) == (1, 1)


async def test_the_setting_of_the_agent_goes_before_the_default(tmp_path: Any) -> None:
    journal = Journal(f"sqlite:{tmp_path / 'j.db'}")
    async with (
        answering(failure(503)) as server,
        openai.AsyncOpenAI(base_url=server.url, api_key="k") as client,
    ):
        agent = Agent(name="a", model=OpenAIResponsesModel(model="m", openai_client=client))

        @journal.agent(model_retry=False)
        async def work(turn: Turn, prompt: str) -> Any:
            return (await DurableRunner.run(agent, prompt)).final_output

        async with journal:
            with pytest.raises(TurnFailed):
                await work.run("hi")
        assert server.asked == 1

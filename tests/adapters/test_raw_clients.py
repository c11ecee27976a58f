"""Raw clients of OpenAI and Anthropic: what is sent, what is recorded, what a replay gives."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

from journal import Journal, NotInTurn, OutcomeUnknown, Turn, TurnBlocked
from journal.adapters import anthropic as durable_anthropic
from journal.adapters import openai as durable_openai
from journal.adapters.dialects import read_request
from journal.core.errors import InvalidOptions
from journal.demo.loopback import Reply
from tests.adapters.bench import Bench, Handler
from tests.adapters.growing import LONG, check_kept_once
from tests.adapters.provider import HANG, Provider, chat, chat_stream, failure, message

pytestmark = pytest.mark.anyio

SECRET = "sk-very-secret"
SHORT = httpx2.Timeout(60, read=0.2)
"""For answers that never come; a connection may take its time."""


def openai_at(provider: Provider, **options: Any) -> AsyncOpenAI:
    return durable_openai.durable_client(
        AsyncOpenAI(api_key=SECRET, base_url=f"{provider.url}/v1", **options)
    )


def anthropic_at(provider: Provider) -> AsyncAnthropic:
    return durable_anthropic.durable_client(AsyncAnthropic(api_key=SECRET, base_url=provider.url))


def said(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


async def ask(client: AsyncOpenAI, text: str = "hello", **options: Any) -> str:
    reply = await client.chat.completions.create(model="m", messages=said(text), **options)
    return str(reply.choices[0].message.content)


async def twice(bench: Bench, work: Handler, **options: Any) -> tuple[Any, Any]:
    """What `work` gives in an attempt that is lost after it, and in the one that carries on."""
    first: list[Any] = []

    async def lost_after(turn: Turn, prompt: str) -> Any:
        found = await work(turn, prompt)
        if bench.is_losing:
            first.append(found)
            await bench.hang()
        return found

    await bench.lose(lost_after, **options)
    return first[0], await bench.run(lost_after, **options)


async def log_of(bench: Bench) -> bytes:
    async with Journal(bench.url) as journal:
        return b"".join(record.body for record in await journal.read("r"))


# Replays -------------------------------------------------------------------------------------------


async def test_a_recorded_answer_is_given_again_byte_by_byte(bench: Bench) -> None:
    with Provider([chat("héllo"), chat_stream("a", "b"), message("hi")]) as provider:

        async def work(turn: Turn, prompt: str) -> Any:
            async with openai_at(provider) as client, anthropic_at(provider) as other:
                whole = await client.chat.completions.with_raw_response.create(model="m", messages=said("1"))
                chunks = b""
                async with client.chat.completions.with_streaming_response.create(
                    model="m", messages=said("2"), stream=True
                ) as stream:
                    async for chunk in stream.iter_bytes():
                        chunks += chunk
                last = await other.messages.with_raw_response.create(
                    model="m", max_tokens=1, messages=said("3")
                )
                return [
                    whole.text,
                    dict(whole.headers),
                    chunks.decode(),
                    (await last.parse()).content[0].text,  # type: ignore[union-attr]  # a text block
                ]

        first, again = await twice(bench, work)
        assert first == again
        assert first[2] == "".join(chat_stream("a", "b").events or ())
        assert json.loads(first[0])["choices"][0]["message"]["content"] == "héllo"
        assert first[3] == "hi"
        assert len(provider.asked) == 3
    calls = list((await bench.calls()).values())
    assert [call.intents[0].kind for call in calls] == ["model"] * 3
    assert [call.intents[0].name for call in calls] == ["chat.completions", "chat.completions", "messages"]
    assert calls[0].outcome is not None
    assert calls[0].outcome.usage["input_tokens"] == 11
    assert calls[0].outcome.usage["reasoning_tokens"] == 5


async def test_a_call_in_doubt_is_sent_again_under_the_same_key(bench: Bench) -> None:
    with Provider([chat("one"), HANG, chat("two")], bench) as provider:

        async def work(turn: Turn, prompt: str) -> Any:
            async with openai_at(provider) as client:
                return [await ask(client, "1"), await ask(client, "2"), await ask(client, "2")]

        await bench.lose(work)
        assert await bench.run(work) == ["one", "two", "two"]
        first, second, again, third = provider.keys
        assert second == again
        assert len({first, second, third}) == 3


@pytest.mark.parametrize("is_stream", [False, True])
async def test_nothing_secret_is_recorded(bench: Bench, is_stream: bool) -> None:
    tool: Any = {"type": "mcp", "server_label": "s", "server_url": "http://x", "authorization": SECRET}
    with Provider([chat_stream("a") if is_stream else chat("a")]) as provider:

        async def work(turn: Turn, prompt: str) -> None:
            async with openai_at(provider) as client:
                await client.chat.completions.create(
                    model="m",
                    messages=said("1"),
                    tools=[tool],
                    stream=is_stream,
                    extra_headers={"x-mine": SECRET},
                )

        await bench.run(work)
        assert SECRET in provider.asked[0].headers["authorization"]
    assert SECRET.encode() not in await log_of(bench)


async def test_the_log_holds_of_a_conversation_what_is_new(bench: Bench) -> None:
    with Provider([chat("b")]) as provider:

        async def work(turn: Turn, prompt: str) -> None:
            async with openai_at(provider) as client:
                messages: list[Any] = said(LONG)
                for number in range(3):
                    await client.chat.completions.create(model="m", messages=messages)
                    messages += [{"role": "assistant", "content": "b"}, *said(str(number))]

        await bench.run(work)
    await check_kept_once(bench, LONG, 3)


# What parts from the log ---------------------------------------------------------------------------


async def test_instructions_and_settings_may_drift_and_the_conversation_may_not(bench: Bench) -> None:
    asked: dict[str, Any] = {"system": "be kind", "max_tokens": 1, "text": "hello"}
    with Provider([message("hi")]) as provider:

        async def work(turn: Turn, prompt: str) -> Any:
            async with anthropic_at(provider) as client:
                reply = await client.messages.create(
                    model="m",
                    max_tokens=int(asked["max_tokens"]),
                    system=str(asked["system"]),
                    messages=said(str(asked["text"])),
                )
            if bench.is_losing:
                await bench.hang()
            return reply.content[0].text  # type: ignore[union-attr]  # a text block

        await bench.lose(work)
        await bench.lose(work)
        asked.update(system="be quick", max_tokens=2)
        await bench.lose(work)
        assert len(provider.asked) == 1
        asked["text"] = "another"
        with pytest.raises(TurnBlocked):
            await bench.run(work)
        assert len(provider.asked) == 1


async def test_a_prompt_with_a_date_in_the_system_message_is_drift(bench: Bench) -> None:
    dates = iter("12")
    with Provider([chat("hi")]) as provider:

        async def work(turn: Turn, prompt: str) -> Any:
            async with openai_at(provider) as client:
                messages: list[Any] = [{"role": "system", "content": f"day {next(dates)}"}, *said("hello")]
                reply = await client.chat.completions.create(model="m", messages=messages)
                return reply.choices[0].message.content

        assert await twice(bench, work) == ("hi", "hi")
        assert len(provider.asked) == 1


# Failures ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "cls"),
    [
        (400, "BadRequestError"),
        (401, "AuthenticationError"),
        (429, "RateLimitError"),
        (500, "InternalServerError"),
    ],
)
async def test_a_refusal_is_raised_as_the_library_does_and_again_on_a_replay(
    bench: Bench, status: int, cls: str
) -> None:
    with Provider([failure(status, f"your key {SECRET} is no good")]) as provider:

        async def work(turn: Turn, prompt: str) -> Any:
            async with openai_at(provider) as client, anthropic_at(provider) as other:
                found = []
                for library, call in (
                    (openai, lambda: ask(client)),
                    (anthropic, lambda: other.messages.create(model="m", max_tokens=1, messages=said("1"))),
                ):
                    with pytest.raises(getattr(library, cls)) as raised:
                        await call()
                    error = raised.value
                    found.append([str(error), error.status_code, getattr(error, "code", None), error.body])
                    words = error.response.extensions.get("provider_body", b"")
                    assert (SECRET.encode() in words) is bench.is_losing
                return found

        first, again = await twice(bench, work, model_retry=False)
        assert first == again
        assert first[0][2] == "some_code"
        assert first[1][3]["error"]["type"] == "some_error"
        assert len(provider.asked) == 2
    assert set((await bench.statuses()).values()) == {"error"}
    assert SECRET.encode() not in await log_of(bench)


async def test_a_connection_that_cannot_be_made_fails_alike_on_a_replay(bench: Bench) -> None:
    with Provider([chat("")]) as gone:
        url = gone.url

    async def work(turn: Turn, prompt: str) -> Any:
        found = []
        async with (
            durable_openai.durable_client(AsyncOpenAI(api_key="k", base_url=url)) as client,
            durable_anthropic.durable_client(AsyncAnthropic(api_key="k", base_url=url)) as other,
        ):
            with pytest.raises(openai.APIConnectionError) as raised:
                await ask(client)
            found.append(str(raised.value))
            with pytest.raises(anthropic.APIConnectionError) as also:
                await other.messages.create(model="m", max_tokens=1, messages=said("1"))
            found.append(str(also.value))
        return found

    first, again = await twice(bench, work, model_retry=False)
    assert first == again


async def test_a_timeout_is_one_on_a_replay(bench: Bench) -> None:
    with Provider([HANG]) as provider:

        async def work(turn: Turn, prompt: str) -> None:
            async with openai_at(provider) as client:
                with pytest.raises(openai.APITimeoutError):
                    await ask(client, timeout=SHORT)
                if bench.is_losing:
                    await provider.is_hanging.wait()

        await twice(bench, work, model_retry=False)
        assert len(provider.asked) == 1


async def test_the_librarys_own_retries_are_off(bench: Bench) -> None:
    with Provider([failure(500, ""), chat("a")]) as provider:

        async def work(turn: Turn, prompt: str) -> None:
            async with openai_at(provider, max_retries=5) as client:
                with pytest.raises(openai.InternalServerError):
                    await ask(client)

        await bench.run(work, model_retry=False)
        assert len(provider.asked) == 1


async def test_what_is_no_model_call_is_not_tried_again(bench: Bench) -> None:
    with Provider([failure(503, ""), Reply({"object": "list", "data": []})]) as provider:

        async def work(turn: Turn, prompt: str) -> None:
            async with openai_at(provider) as client:
                with pytest.raises(openai.InternalServerError):
                    await client.models.list()

        await bench.run(work)
        assert len(provider.asked) == 1


@pytest.mark.parametrize(("status", "times"), [(429, 2), (503, 1)])
async def test_where_the_provider_acts_only_a_refusal_is_tried_again(
    bench: Bench, status: int, times: int
) -> None:
    """It says that nothing was begun."""
    refused = Reply({"error": {}}, status=status, headers={"retry-after-ms": "1"})
    with Provider([refused, Reply({"id": "r", "object": "response", "output": []})]) as provider:

        async def work(turn: Turn, prompt: str) -> str:
            async with openai_at(provider) as client:
                try:
                    await client.responses.create(model="m", input="go", background=True)
                except openai.InternalServerError:
                    return "failed"
                return "answered"

        assert await bench.run(work) == ("answered" if times == 2 else "failed")
        assert len(provider.asked) == times


@pytest.mark.parametrize("is_stream", [False, True])
async def test_outcomes_hold_what_the_provider_said_beside_the_reply(bench: Bench, is_stream: bool) -> None:
    """The numbers of the replies that the loopback provider gives."""
    limits = {"x-ratelimit-remaining-requests": "59"}
    whole = Reply(chat("a").body, headers=limits)
    with Provider([chat_stream("a") if is_stream else whole]) as provider:

        async def work(turn: Turn, prompt: str) -> None:
            async with openai_at(provider) as client:
                asked: dict[str, Any] = {"model": "m", "messages": said("1"), "stream": is_stream}
                made: Any = await client.chat.completions.create(**asked)
                if is_stream:
                    async for _ in made:
                        pass

        await bench.run(work)
    (call,) = (await bench.calls()).values()
    assert call.outcome is not None
    assert (call.outcome.finish, call.outcome.raw_finish, call.outcome.tries) == ("stop", "stop", 1)
    usage = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18, "reasoning_tokens": 5}
    assert call.outcome.usage == ({} if is_stream else usage)
    assert call.outcome.rate_limits == ({} if is_stream else {"requests_remaining": 59})


async def test_switched_on_again_they_are_further_tries_of_the_same_call(bench: Bench) -> None:
    """And the engine makes none."""
    again = Reply({"error": {}}, status=409)
    with Provider([again, chat("a"), chat("b")]) as provider:

        async def work(turn: Turn, prompt: str) -> Any:
            async with openai_at(provider) as client:
                return [await ask(client.with_options(max_retries=2)), await ask(client)]

        assert await twice(bench, work) == (["a", "b"], ["a", "b"])
        assert len(provider.asked) == 3
        first, second, other = provider.keys
        assert first == second != other
    keys = list(await bench.calls())
    assert [key.rpartition("#")[2] for key in keys] == ["1", "1", "2"]
    assert ".retry1#" in keys[1]


# Streams -------------------------------------------------------------------------------------------


async def test_a_stream_that_breaks_off_is_no_outcome(bench: Bench) -> None:
    """A server that dies closes its connection, which looks like the end of a body."""
    with Provider([chat_stream("a", "b", end=False)]) as provider:

        async def work(turn: Turn, prompt: str) -> None:
            async with openai_at(provider) as client:
                stream = await client.chat.completions.create(model="m", messages=said("1"), stream=True)
                with pytest.raises(openai.APIConnectionError):
                    async for _ in stream:
                        pass

        await twice(bench, work)
        assert len(provider.asked) == 1
    assert list((await bench.statuses()).values()) == ["error"]


async def test_an_error_within_a_stream_is_the_calls(bench: Bench) -> None:
    frame = json.dumps({"type": "error", "error": {"type": "overloaded_error", "message": SECRET}})
    with Provider([Reply(events=(f"event: error\ndata: {frame}\n\n",))]) as provider:

        async def work(turn: Turn, prompt: str) -> None:
            async with anthropic_at(provider) as client:
                with pytest.raises(anthropic.APIStatusError) as raised:
                    async with client.messages.stream(model="m", max_tokens=1, messages=said("1")) as stream:
                        await stream.get_final_message()
                assert "overloaded_error" in str(raised.value.body)

        await twice(bench, work)
        assert len(provider.asked) == 1
    assert list((await bench.statuses()).values()) == ["error"]
    assert SECRET.encode() not in await log_of(bench)


async def test_a_stream_that_is_left_early_is_recorded_whole(bench: Bench) -> None:
    parts = [str(n) for n in range(50)]
    with Provider([chat_stream(*parts)]) as provider:

        async def work(turn: Turn, prompt: str) -> Any:
            async with openai_at(provider) as client:
                stream = await client.chat.completions.create(model="m", messages=said("1"), stream=True)
                async with stream:
                    async for chunk in stream:
                        return chunk.choices[0].delta.content
                raise AssertionError("it was empty")

        assert await twice(bench, work) == ("0", "0")
        assert len(provider.asked) == 1
    (call,) = (await bench.calls()).values()
    assert call.status == "ok"
    assert "[DONE]" in call.value["text"]


async def test_a_stream_that_is_cancelled_is_recorded_as_that(bench: Bench) -> None:
    """Once the request is there, and on the replay once it was asked for again."""
    with Provider([HANG, chat("b")]) as provider:

        async def expire(scope: asyncio.Timeout, turn: Turn) -> None:
            attempt = turn._attempt
            while not (provider.is_hanging.is_set() and (bench.is_losing or attempt.order._asked)):
                await asyncio.sleep(0.01)
            scope.reschedule(asyncio.get_running_loop().time())

        async def work(turn: Turn, prompt: str) -> Any:
            async with openai_at(provider) as client:
                try:
                    async with asyncio.timeout(None) as scope, asyncio.TaskGroup() as group:
                        group.create_task(expire(scope, turn))
                        await client.chat.completions.create(model="m", messages=said("1"), stream=True)
                except TimeoutError:
                    return await ask(client, "2")
                raise AssertionError("it ended by itself")

        assert await twice(bench, work) == ("b", "b")
        assert len(provider.asked) == 2
    assert list((await bench.statuses()).values()) == ["cancelled", "ok"]


async def test_a_stream_nobody_reads_keeps_nobody(bench: Bench) -> None:
    with Provider([chat_stream("a")]) as provider:

        async def work(turn: Turn, prompt: str) -> str:
            client = openai_at(provider)
            await client.chat.completions.create(model="m", messages=said("1"), stream=True)
            return "done"

        assert await bench.run(work) == "done"


async def test_text_goes_to_whoever_watches(bench: Bench) -> None:
    with Provider([chat_stream("a", "b")]) as provider:

        async def work(turn: Turn, prompt: str) -> None:
            async with openai_at(provider) as client:
                asked: Any = {"model": "m", "messages": said("1"), "stream": True}
                async for _ in await client.chat.completions.create(**asked):
                    pass

        journal, agent = bench.journal(work)
        async with journal:
            await agent.run("go", run_id="r")
            handle = await journal.handle("r")
            deltas = [event.data async for event in handle.events() if event.type == "delta"]
    assert "".join(delta["delta"] for delta in deltas) == "ab"


# The provider acts ---------------------------------------------------------------------------------

HOSTED: list[dict[str, Any]] = [
    {"previous_response_id": "resp_1"},
    {"conversation": "conv_1"},
    {"background": True},
    {"prompt": {"id": "p"}},
    {"tools": [{"type": "web_search"}]},
    {"tools": [{"type": "mcp", "server_label": "shop", "server_url": "https://shop"}]},
]
OWN: list[dict[str, Any]] = [
    {},
    {"background": False},
    {"tools": [{"type": "function", "name": "f", "parameters": {}, "strict": False}]},
    {"tools": [{"type": "custom", "name": "f"}, {"type": "local_shell"}]},
]


async def lost_in_doubt(bench: Bench, call: Callable[[Provider], Any], **options: Any) -> Provider:
    """A request of `call` in doubt, and an attempt after that."""
    with Provider([HANG, Reply({"id": "r", "object": "response", "output": []})], bench) as provider:

        async def work(turn: Turn, prompt: str) -> str:
            try:
                await call(provider)
            except OutcomeUnknown:
                return "unknown"
            return "answered"

        await bench.lose(work, **options)
        said = await bench.run(work, **options)
    assert said == ("unknown" if len(provider.asked) == 1 else "answered")
    return provider


@pytest.mark.parametrize("options", HOSTED, ids=str)
async def test_in_doubt_where_the_provider_acts_it_is_unknown(bench: Bench, options: dict[str, Any]) -> None:
    async def call(provider: Provider) -> None:
        async with openai_at(provider) as client:
            await client.responses.create(model="m", input="go", **options)

    assert len((await lost_in_doubt(bench, call)).asked) == 1


@pytest.mark.parametrize("options", OWN, ids=str)
async def test_in_doubt_where_it_only_answers_it_is_asked_again(
    bench: Bench, options: dict[str, Any]
) -> None:
    async def call(provider: Provider) -> None:
        async with openai_at(provider) as client:
            await client.responses.create(model="m", input="go", **options)

    assert len((await lost_in_doubt(bench, call)).asked) == 2


@pytest.mark.parametrize(
    ("tool", "times"),
    [("web_search_20250305", 1), ("code_execution_20250522", 1), ("bash_20250124", 2), ("custom", 2)],
)
async def test_anthropics_own_tools_likewise(bench: Bench, tool: str, times: int) -> None:
    async def call(provider: Provider) -> None:
        async with anthropic_at(provider) as client:
            tools: Any = [{"type": tool, "name": "x", "input_schema": {}}]
            await client.messages.create(model="m", max_tokens=1, messages=said("1"), tools=tools)

    assert len((await lost_in_doubt(bench, call)).asked) == times


async def test_a_hosted_tool_can_be_declared_safe(bench: Bench) -> None:
    async def call(provider: Provider) -> None:
        async with openai_at(provider) as client:
            await client.responses.create(model="m", input="go", tools=[{"type": "web_search"}])

    assert len((await lost_in_doubt(bench, call, tools={"web_search": "safe"})).asked) == 2


async def test_what_changes_something_at_the_provider_is_never(bench: Bench) -> None:
    async def call(provider: Provider) -> None:
        async with openai_at(provider) as client:
            await client.batches.create(input_file_id="f", endpoint="/v1/responses", completion_window="24h")

    assert len((await lost_in_doubt(bench, call)).asked) == 1
    (made,) = (await bench.calls()).values()
    assert (made.intents[0].kind, made.intents[0].name) == ("tool", "batches")


async def test_what_only_looks_is_a_step(bench: Bench) -> None:
    with Provider([Reply({"object": "list", "data": [{"id": "m"}]})]) as provider:

        async def work(turn: Turn, prompt: str) -> Any:
            async with openai_at(provider) as client:
                return [model.id async for model in client.models.list()]

        assert await twice(bench, work) == (["m"], ["m"])
        assert len(provider.asked) == 1
    (made,) = (await bench.calls()).values()
    assert (made.intents[0].kind, made.intents[0].policy) == ("step", "safe")


async def test_a_retry_of_what_is_unknown_is_not_sent(bench: Bench) -> None:
    """Anthropic's client takes whatever goes wrong on the way for a connection to be tried again."""
    with Provider([HANG]) as provider:

        async def work(turn: Turn, prompt: str) -> None:
            async with anthropic_at(provider) as client:
                eager = client.with_options(max_retries=1, timeout=SHORT)
                with pytest.raises(OutcomeUnknown):
                    await eager.messages.create(
                        model="m", max_tokens=1, messages=said("1"), extra_body={"container": "c"}
                    )

        await bench.run(work)
        await provider.is_hanging.wait()
        assert len(provider.asked) == 1


def test_uploads_are_told_apart_without_their_boundary() -> None:
    def upload(boundary: str, content: str) -> bytes:
        body = f"--{boundary}\r\n\r\n{content}\r\n--{boundary}--".encode()
        header = f'multipart/form-data; boundary="{boundary}"'
        return read_request("POST", "/v1/audio/transcriptions", header, body, lambda _: "never").digest

    assert upload("one", "a") == upload("two", "a") != upload("two", "b")


# Where it does not work ----------------------------------------------------------------------------


async def test_outside_of_a_turn_it_is_refused() -> None:
    with Provider([chat("a")]) as provider:
        async with openai_at(provider) as client, anthropic_at(provider) as other:
            with pytest.raises(NotInTurn):
                await ask(client)
            with pytest.raises(NotInTurn):
                await client.chat.completions.create(model="m", messages=said("1"), stream=True)
            with pytest.raises(NotInTurn):
                await other.messages.create(model="m", max_tokens=1, messages=said("1"))
        assert provider.asked == []


async def test_a_sync_client_is_refused() -> None:
    with pytest.raises(InvalidOptions, match="AsyncOpenAI"):
        durable_openai.durable_client(OpenAI(api_key="k"))  # type: ignore[type-var]  # what it says


async def test_the_given_client_stays_as_it_is() -> None:
    given = AsyncOpenAI(api_key="k", max_retries=3)
    before = dict(vars(given))
    wrapped = durable_openai.durable_client(given)
    assert vars(given) == before
    assert isinstance(wrapped, AsyncOpenAI)
    assert wrapped.max_retries == 0
    assert durable_openai.durable_client(wrapped) is wrapped
    await wrapped.close()
    assert given.is_closed()


async def test_the_transport_alone_works_in_any_client(bench: Bench) -> None:
    with Provider([Reply({"answer": 42})]) as provider:

        async def work(turn: Turn, prompt: str) -> Any:
            transport = durable_openai.durable_transport(httpx2.AsyncHTTPTransport())
            async with httpx2.AsyncClient(transport=transport) as http:
                reply = await http.post(f"{provider.url}/v1/embeddings", json={"input": "a"})
                return reply.json()

        assert await twice(bench, work) == ({"answer": 42}, {"answer": 42})
        assert len(provider.asked) == 1

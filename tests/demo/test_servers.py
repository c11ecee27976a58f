"""The bundled servers, driven by the real OpenAI client and the real Agents Runner."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, RunConfig, Runner, function_tool
from agents.models.interface import Model
from openai import AsyncOpenAI, BadRequestError
from openai.types.responses import ResponseTextDeltaEvent

from journal.demo.loopback import Tally, read_tally
from journal.demo.model_server import ModelServer
from journal.demo.refund_service import RefundService

CONFIG = RunConfig(tracing_disabled=True)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ModelServer]:
    with ModelServer(tally=Tally(tmp_path / "model.tally")) as server:
        yield server


class Shop:
    """Tools that note what was asked of them."""

    def __init__(self, refund_says: str = "refunded") -> None:
        self.log: list[tuple[str, ...]] = []
        self.tools = [self._get_order(), self._refund(refund_says), self._post_note()]

    def _get_order(self) -> Any:
        @function_tool
        def get_order(order_id: str) -> str:
            self.log.append(("get_order", order_id))
            was_refunded = any(call[0] == "refund" for call in self.log)
            return json.dumps({"order_id": order_id, "amount": 55, "refunded": was_refunded})

        return get_order

    def _refund(self, says: str) -> Any:
        @function_tool
        def refund(order_id: str, amount: int) -> str:
            self.log.append(("refund", order_id, str(amount)))
            return says

        return refund

    def _post_note(self) -> Any:
        @function_tool
        def post_note(order_id: str, text: str) -> str:
            self.log.append(("post_note", order_id, text))
            return "posted"

        return post_note


def model_for(client: AsyncOpenAI, api: str) -> Model:
    if api == "chat":
        return OpenAIChatCompletionsModel(model="loopback", openai_client=client)
    return OpenAIResponsesModel(model="loopback", openai_client=client)


@pytest.mark.anyio
@pytest.mark.parametrize("api", ["responses", "chat"])
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_the_real_runner_refunds_an_order(server: ModelServer, api: str, is_streamed: bool) -> None:
    shop = Shop()
    async with AsyncOpenAI(base_url=server.base_url, api_key="loopback", max_retries=0) as client:
        agent = Agent(name="support", instructions="Help.", tools=shop.tools, model=model_for(client, api))
        pieces: list[str] = []
        if is_streamed:
            streamed = Runner.run_streamed(agent, "Order A-17 arrived broken", run_config=CONFIG)
            raw = [e.data async for e in streamed.stream_events() if e.type == "raw_response_event"]
            pieces = [data.delta for data in raw if isinstance(data, ResponseTextDeltaEvent)]
            output, usage = streamed.final_output, streamed.context_wrapper.usage
        else:
            result = await Runner.run(agent, "Order A-17 arrived broken", run_config=CONFIG)
            output, usage = result.final_output, result.context_wrapper.usage
    assert shop.log == [
        ("get_order", "A-17"),
        ("refund", "A-17", "55"),
        ("post_note", "A-17", "Order A-17: 55 refunded."),
    ]
    assert output == "Order A-17: 55 refunded."
    if is_streamed:
        assert len(pieces) > 1
        assert "".join(pieces) == output
    assert usage.requests == 4
    assert usage.output_tokens > 0
    assert server.model_calls == 4


@pytest.mark.anyio
async def test_a_refund_in_doubt_is_looked_up_and_never_asked_for_again(server: ModelServer) -> None:
    shop = Shop("refund was started before an interruption, may have completed, and was not repeated")
    async with AsyncOpenAI(base_url=server.base_url, api_key="loopback", max_retries=0) as client:
        agent = Agent(name="support", tools=shop.tools, model=model_for(client, "responses"))
        result = await Runner.run(agent, "Order 42 arrived broken", run_config=CONFIG)
    assert [call[0] for call in shop.log] == ["get_order", "refund", "get_order", "post_note"]
    assert "verified" in result.final_output


@pytest.mark.anyio
async def test_the_same_request_gets_the_same_answer(server: ModelServer) -> None:
    async with AsyncOpenAI(base_url=server.base_url, api_key="loopback", max_retries=0) as client:
        one = await client.responses.create(model="loopback", input="Order 7")
        two = await client.responses.create(model="loopback", input="Order 7")
        other = await client.responses.create(model="loopback", input="Order 8")
    assert one == two
    assert one.id != other.id


@pytest.mark.anyio
async def test_a_call_without_its_output_is_refused_as_the_provider_does(server: ModelServer) -> None:
    async with AsyncOpenAI(base_url=server.base_url, api_key="loopback", max_retries=0) as client:
        with pytest.raises(BadRequestError, match="No tool output"):
            await client.responses.create(
                model="loopback",
                input=[
                    {"role": "user", "content": "Order 7"},
                    {"type": "function_call", "call_id": "c", "name": "get_order", "arguments": "{}"},
                ],
            )
    assert server.model_calls == 0


def test_a_held_answer_is_paid_and_the_client_can_be_killed(tmp_path: Path) -> None:
    tally = tmp_path / "model.tally"
    with ModelServer(tally=Tally(tally), hang_on=1) as server:
        script = (
            "from openai import OpenAI; OpenAI(max_retries=0).responses.create(model='m', input='Order 1')"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script], env={**os.environ, **server.environment()}
        ) as client:
            assert server.hold.reached.wait(60)
            assert read_tally(tally) == ["model_calls"]
            client.kill()
        server.hold.release()
        stats = get(server.url, "/stats")
        assert stats["model_calls"] == 1
    assert read_tally(tally) == ["model_calls", "answered"]


def test_a_request_cut_off_in_the_middle_is_not_counted(server: ModelServer) -> None:
    connection = HTTPConnection(urlsplit(server.url).netloc)
    connection.putrequest("POST", "/v1/responses")
    connection.putheader("content-length", "1000")
    connection.endheaders(b'{"model": "m"')
    connection.close()
    assert server.model_calls == 0


def test_refunds_add_up_and_outlive_the_service(tmp_path: Path) -> None:
    tally = tmp_path / "shop.tally"
    with RefundService(tally=Tally(tally)) as shop:
        for _ in range(2):
            assert post(shop.url, "/refunds", {"order_id": "42", "amount": 30})["refunded"] == 30
            post(shop.url, "/notes", {"order_id": "42", "text": "done"})
        assert get(shop.url, "/orders/42")["refunded"] == 60
        assert shop.notes("42") == ["done"]
    with RefundService(tally=Tally(tally)) as shop:
        assert shop.refunds == 2
        assert shop.stats() == {"orders_read": 1, "refunds": 2, "notes_posted": 2}


def test_a_held_refund_took_effect(tmp_path: Path) -> None:
    with RefundService(tally=Tally(tmp_path / "shop.tally"), hang_on=1) as shop:
        answers: list[Any] = []
        order = {"order_id": "42", "amount": 30}
        asker = Thread(target=lambda: answers.append(post(shop.url, "/refunds", order)))
        asker.start()
        assert shop.hold.reached.wait(60)
        assert shop.refunds == 1
        assert not answers
        shop.hold.release()
        asker.join()
        assert answers[0]["receipt"] == "R-1"


def test_a_malformed_refund_is_refused_and_not_counted(tmp_path: Path) -> None:
    with RefundService() as shop:
        assert "amount is needed" in str(post(shop.url, "/refunds", {"order_id": "42"}))
        assert shop.refunds == 0


def test_a_torn_line_of_a_tally_did_not_happen(tmp_path: Path) -> None:
    tally = tmp_path / "tally"
    tally.write_text('{"name": "refunds"}\n{"name": "ref')
    assert read_tally(tally) == ["refunds"]


@pytest.mark.parametrize("module", ["model_server", "refund_service"])
def test_the_servers_run_as_processes_of_their_own(module: str) -> None:
    command = [sys.executable, "-m", f"journal.demo.{module}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        parts = urlsplit(url)
        assert get(f"{parts.scheme}://{parts.netloc}", "/stats")
        process.kill()


def get(url: str, path: str) -> Any:
    with urlopen(url + path) as answer:
        return json.loads(answer.read())


def post(url: str, path: str, body: object) -> Any:
    connection = HTTPConnection(urlsplit(url).netloc)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer

"""FAULTS 44: a service that takes the request and never answers, behind real clients."""

import asyncio
import http.client
import socket
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from journal import DidNotHappen, Journal, Turn, TurnFailed, tool
from journal.core.codec import open_record
from journal.core.records import CallOutcome

pytestmark = pytest.mark.anyio


class Mute:
    """Counts requests, and answers none."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.taken: Counter[str] = Counter()


@pytest.fixture
async def mute() -> AsyncIterator[Mute]:
    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        if line:
            service.taken[line.split()[1].decode()] += 1
        await reader.read()  # until the client gives up
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    service = Mute(server.sockets[0].getsockname()[1])
    async with server:
        yield service


def by_socket(port: int, path: str) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=0.2) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\n\r\n".encode())
        return connection.recv(1)


def by_http_client(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=0.2)
    try:
        connection.request("POST", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def by_urllib(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", data=b"", timeout=0.2) as answer:
        return bytes(answer.read())


def by_requests(port: int, path: str) -> bytes:
    requests = pytest.importorskip("requests")
    return bytes(requests.post(f"http://127.0.0.1:{port}{path}", timeout=0.2).content)


def by_httpx(port: int, path: str) -> bytes:
    httpx = pytest.importorskip("httpx2")
    return bytes(httpx.post(f"http://127.0.0.1:{port}{path}", timeout=0.2, trust_env=False).content)


CLIENTS = [by_socket, by_http_client, by_urllib, by_requests, by_httpx]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
async def test_a_read_timeout_of_a_never_tool_is_unknown(
    url: str, mute: Mute, client: Callable[[int, str], Any]
) -> None:
    journal = Journal(url)

    @tool(replay="never")
    def refund() -> None:
        client(mute.port, "/refund")

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        result = await turn.tool(refund)
        if turn.attempt == 1:
            raise RuntimeError
        return result.status

    async with journal:
        with pytest.raises(TurnFailed, match="RuntimeError"):
            await work.run(None, run_id="r")
        assert await (await journal.retry("r")).settle(10, serve=True) == "unknown"
    assert mute.taken == {"/refund": 1}, "it may have taken effect, and was not sent again"


async def test_what_did_not_happen_is_an_error_that_a_retry_runs_again(url: str) -> None:
    journal, ran = Journal(url), []

    @tool(replay="never")
    async def refund() -> str:
        ran.append(1)
        if len(ran) == 1:
            raise DidNotHappen("refused before it was sent")
        return "refunded"

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        result = await turn.tool(refund)
        return str(result.value)

    async with journal:
        with pytest.raises(TurnFailed, match="DidNotHappen"):
            await work.run(None, run_id="r")
        outcomes = [b for r in await journal.read("r") if isinstance(b := open_record(r), CallOutcome)]
        assert [o.status for o in outcomes] == ["error"]
        assert await (await journal.retry("r")).settle(10, serve=True) == "refunded"
    assert ran == [1, 1]


async def test_broken_off_inside_is_unknown_and_what_came_before_is_none_of_it(tmp_path: Path) -> None:
    """An SDK's task group, an error made of another, and a handler that was handling a timeout itself."""
    said: list[str] = []

    @tool
    async def pay(how: str) -> None:
        async def broken() -> None:
            raise ConnectionResetError

        match how:
            case "group":
                async with asyncio.TaskGroup() as group:
                    group.create_task(broken())
            case "cause":
                try:
                    await broken()
                except ConnectionResetError as error:
                    raise RuntimeError("the payment failed") from error
            case "declined":
                raise ValueError("declined")

    journal = Journal(f"memory:{tmp_path.name}")

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        said.extend([(await turn.tool(pay, how)).status for how in ("group", "cause")])
        try:
            raise TimeoutError("of something else")
        except TimeoutError:
            said.append((await turn.tool(pay, "declined")).status)

    async with journal:
        await work.run(None, run_id="r")
    assert said == ["unknown", "unknown", "error"]

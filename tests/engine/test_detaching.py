"""FAULTS 55: whoever waits for a turn may go away; the turn goes on, and the same call attaches to it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from journal import Journal, Turn
from journal.engine.agent import Agent

uvicorn = pytest.importorskip("uvicorn")
applications = pytest.importorskip("starlette.applications")
requests = pytest.importorskip("starlette.requests")
responses = pytest.importorskip("starlette.responses")
routing = pytest.importorskip("starlette.routing")

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def served(agent: "Agent[str, str]", gone: asyncio.Event) -> AsyncIterator[int]:
    """A web server whose one page waits for a turn, and gives up when its client does."""

    async def page(scope: object, receive: object, send: object) -> None:
        request = requests.Request(scope, receive)
        async with anyio.create_task_group() as group:

            async def until_disconnected() -> None:
                while (await request.receive())["type"] != "http.disconnect":
                    pass
                group.cancel_scope.cancel()
                gone.set()

            group.start_soon(until_disconnected)
            answer = await agent.run("hello", run_id="r")
            await responses.PlainTextResponse(answer)(scope, receive, send)
            group.cancel_scope.cancel()

    app = applications.Starlette(routes=[routing.Mount("/", app=page)])
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="error", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        await serving


async def test_an_http_client_that_disconnects_leaves_the_run_alone(url: str) -> None:
    inside, go, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()
    journal = Journal(url)
    ran: list[str] = []

    async def slow(text: str) -> str:
        ran.append(text)
        inside.set()
        await go.wait()
        return text.upper()

    @journal.agent
    async def work(turn: Turn, text: str) -> str:
        return await turn.step(slow, text)

    asking = b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
    with anyio.fail_after(60):
        async with journal, served(work, gone) as port:
            _, first = await asyncio.open_connection("127.0.0.1", port)
            first.write(asking)
            await inside.wait()
            first.close()
            await gone.wait()
            reader, second = await asyncio.open_connection("127.0.0.1", port)
            second.write(asking)
            await second.drain()
            go.set()
            answer = await reader.read()
            second.close()
            assert answer.startswith(b"HTTP/1.1 200")
            assert answer.endswith(b"HELLO")
            log = [r.type for r in await journal.read("r")]
            assert (log.count("turn.submitted"), log.count("turn.started")) == (1, 1)
    assert ran == ["hello"]

"""FAULTS 55: whoever waits for a turn may go away; the turn goes on, and the same call attaches to it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from journal import Journal, ResultTimeout, Turn
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


async def is_there(journal: Journal, run: str) -> bool:
    return await (await journal.runtime()).world.run(run) is not None


async def until_ended(journal: Journal, run: str, turn: str) -> str:
    """Nobody waits for the turn itself."""
    while (status := await (await journal.handle(run, turn)).status()) in ("pending", "running"):
        await asyncio.sleep(0.02)
    return status


async def test_a_turn_behind_another_goes_on_without_its_awaiter(url: str) -> None:
    """Nor does a time-out stop it: `run` has said that this process works on it."""
    go = asyncio.Event()

    async def wait(number: int) -> int:
        await go.wait()
        return number

    async with Journal(url) as journal:

        @journal.agent
        async def work(turn: Turn, number: int) -> int:
            return await turn.step(wait, number)

        first = asyncio.create_task(work.run(1, run_id="r"))
        second = asyncio.create_task(work.run(2, run_id="r", key="second"))
        while not await is_there(journal, "r") or len(await journal.read("r")) < 3:
            await asyncio.sleep(0.01)
        with pytest.raises(ResultTimeout):
            await work.run(3, run_id="r", key="third", timeout=0.05)
        second.cancel()
        await asyncio.wait([second])
        go.set()
        async with asyncio.timeout(30):
            assert await first == 1
            assert await until_ended(journal, "r", "second") == "succeeded"
            assert await until_ended(journal, "r", "third") == "succeeded"
        assert second.cancelled()


@pytest.mark.parametrize("is_known", [False, True], ids=["new", "submitted before"])
async def test_whoever_goes_while_the_turn_is_being_stored(url: str, is_known: bool) -> None:
    """After so many passes of the loop, wherever that is: it is stored and worked on, by nobody but this process."""
    passes = range(1, 24)
    async with Journal(url) as journal:

        @journal.agent
        async def work(turn: Turn, number: int) -> int:
            return number

        for number in passes:
            if is_known:
                await work.submit(number, run_id=f"r{number}")
            task = asyncio.create_task(work.run(number, run_id=f"r{number}"))
            for _ in range(number):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        async with asyncio.timeout(30):
            for number in passes:
                while not await is_there(journal, f"r{number}"):
                    await asyncio.sleep(0.01)
                assert await until_ended(journal, f"r{number}", "start") == "succeeded"


async def test_whoever_comes_back_hears_of_the_end_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a turn that this process has worked on for nobody, and that another has ended."""
    async with Journal(url) as ours, Journal(url) as theirs:

        @ours.agent(name="work")
        async def work(turn: Turn, what: str) -> str:
            return what

        @theirs.agent(name="work")
        async def work_too(turn: Turn, what: str) -> str:
            return await turn.step(wait, what)

        inside, go = asyncio.Event(), asyncio.Event()

        async def wait(what: str) -> str:
            inside.set()
            await go.wait()
            return what + "!"

        at_work = asyncio.create_task(work_too.run("x", run_id="r"))
        await inside.wait()
        with pytest.raises(ResultTimeout):
            await work.run("x", run_id="r", timeout=0.2)
        asked = 0
        world = (await ours.runtime()).world
        claim = world.claim

        def counted(**how: Any) -> Any:
            nonlocal asked
            asked += 1
            return claim(**how)

        monkeypatch.setattr(world, "claim", counted)
        await asyncio.sleep(5.5)
        assert asked <= 3, "it looks less often than every second, where nobody waits"
        again = asyncio.create_task(work.run("x", run_id="r"))
        await asyncio.sleep(0.1)
        go.set()
        async with asyncio.timeout(5):
            assert await again == "x!"
        assert await at_work == "x!"

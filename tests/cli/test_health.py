"""The health endpoint while the store does not answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from journal import Journal, Turn
from journal.cli.health import serve_health
from journal.core.errors import WorldUnavailable
from journal.core.ports import Claims
from journal.worlds import open_world

pytestmark = pytest.mark.anyio


async def ask(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /health HTTP/1.1\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer


async def test_a_store_that_does_not_answer_is_503_until_it_does() -> None:
    is_away = asyncio.Event()

    class Leaving:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        async def claim(self, **asked: Any) -> Claims:
            if is_away.is_set():
                raise WorldUnavailable("away", world="memory:")
            claims: Claims = await self._inner.claim(**asked)
            return claims

    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        async with open_world("memory:") as world:
            yield Leaving(world)

    journal = Journal(opened)

    @journal.agent
    async def work(turn: Turn, _: None) -> None: ...

    async def until(port: int, status: bytes) -> bytes:
        async with asyncio.timeout(20):
            while not (answer := await ask(port)).startswith(b"HTTP/1.1 " + status):
                await asyncio.sleep(0.02)
        return answer

    async with journal:
        worker = journal.worker(concurrency=1)
        async with worker.running(), serve_health(worker, "memory:", 0) as port:
            await until(port, b"200")
            is_away.set()
            assert b"no answer from the store" in await until(port, b"503")
            is_away.clear()
            await until(port, b"200")

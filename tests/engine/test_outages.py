"""A store that is away for longer than it waits itself, under a turn that has just acted. Real servers."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from journal import Journal, Turn, tool
from journal.core.errors import WorldUnavailable
from journal.core.ports import World
from journal.replay.fold import RunFold
from journal.replay.state import RunState
from journal.testing import servers
from journal.testing.servers import Server
from journal.worlds import open_world
from journal.worlds.postgres import open_postgres
from journal.worlds.postgres.connection import connect_patiently
from journal.worlds.redis import open_redis

pytestmark = pytest.mark.anyio

PATIENCE_SECONDS = 0.5
"""Instead of 15 and 30."""
AWAY_SECONDS = 3.0
Opener = Callable[[], AbstractAsyncContextManager[Any]]


@pytest.fixture(params=["postgres", "redis"])
def store(
    request: pytest.FixtureRequest, postgres_programs: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Server, Opener]]:
    """A server that may be killed, and an impatient world over it."""
    with ExitStack() as stack:
        if request.param == "redis":
            server = stack.enter_context(servers.start_valkey())
            yield server, partial(open_redis, servers.redis_url(server), patience_seconds=PATIENCE_SECONDS)
            return
        server = stack.enter_context(servers.start_postgres(binaries=postgres_programs))
        impatient = partial(connect_patiently, seconds=PATIENCE_SECONDS)
        monkeypatch.setattr("journal.worlds.postgres.link.connect_patiently", impatient)
        monkeypatch.setattr("journal.worlds.postgres.pool.PATIENCE_SECONDS", PATIENCE_SECONDS)
        monkeypatch.setattr("journal.worlds.postgres.link.PATIENCE_SECONDS", PATIENCE_SECONDS)
        yield server, partial(open_postgres, servers.postgres_url(server))


class Shop:
    """A journal whose agent refunds once; the server dies while it does."""

    def __init__(self, store: tuple[Server, Opener], lease_seconds: float) -> None:
        self.server, opener = store
        self.journal = Journal(opener, lease_seconds=lease_seconds)
        self.ran = 0
        self.acted = asyncio.Event()

        @tool(replay="never")
        async def refund() -> str:
            self.ran += 1
            await asyncio.to_thread(self.server.kill)
            self.acted.set()
            return "paid"

        @self.journal.agent
        async def work(turn: Turn, _: None) -> str:
            return (await turn.tool(refund)).text

        self.agent = work

    async def state(self) -> RunState:
        fold = RunFold()
        for record in await self.journal.read("r"):
            fold.add(record)
        return fold.state

    async def come_back(self) -> None:
        await self.acted.wait()
        await asyncio.sleep(AWAY_SECONDS)
        await asyncio.to_thread(self.server.restart)


@pytest.fixture
async def short(store: tuple[Server, Opener]) -> Shop:
    return Shop(store, lease_seconds=1.5)


@pytest.fixture
async def long(store: tuple[Server, Opener]) -> Shop:
    return Shop(store, lease_seconds=60)


async def test_an_outage_shorter_than_the_lease_is_not_noticed(long: Shop) -> None:
    async with long.journal:
        result, _ = await asyncio.gather(long.agent.run(None, run_id="r"), long.come_back())
        assert (result, long.ran) == ("paid", 1)
        assert [attempt.ending for attempt in (await long.state()).turns[0].attempts] == ["finished"]


async def test_the_outcome_is_kept_when_the_outage_outlasts_the_lease(short: Shop) -> None:
    """The handler is cancelled; what it did is not forgotten, and the log says that its worker lived."""
    async with short.journal:
        await short.agent.submit(None, run_id="r")
        async with short.journal.worker(concurrency=1).running():
            await short.come_back()
            handle = await short.journal.handle("r")
            assert await handle.result(30) == "paid"
        assert short.ran == 1
        endings = [attempt.ending for attempt in (await short.state()).turns[0].attempts]
        assert endings == ["lost", "finished"]


async def test_stopping_during_an_outage_is_bounded(long: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("journal.engine.claim.ENDING_SECONDS", 0.5)
    async with long.journal:
        await long.agent.submit(None, run_id="r")
        worker = long.journal.worker(concurrency=1, grace_seconds=1)
        async with asyncio.timeout(20), worker.running():
            await long.acted.wait()
            stopping = time.monotonic()
            worker.stop()
        assert time.monotonic() - stopping < 8


async def test_clients_hear_of_an_outage_within_a_bound(long: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("journal.engine.offering.OFFER_SECONDS", 1.0)
    async with long.journal:
        await long.agent.submit(None, run_id="other")
        await asyncio.to_thread(long.server.kill)
        with pytest.raises(WorldUnavailable):
            async with asyncio.timeout(10):
                await long.agent.submit(None)


async def test_a_value_that_cannot_be_fetched_just_now_is_no_failure_of_the_turn() -> None:
    """The input lies beside the log, and the store is away when the handler begins."""
    refusals = 2

    class Away:
        def __init__(self, inner: World) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        async def get_blob(self, run: str, blob: str) -> bytes:
            nonlocal refusals
            if refusals:
                refusals -= 1
                raise WorldUnavailable("away", world=self._inner.url)
            return await self._inner.get_blob(run, blob)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        async with open_world("memory:") as world:
            yield Away(world)

    journal = Journal(opened)

    @journal.agent
    async def measure(turn: Turn, text: str) -> int:
        return len(text)

    async with journal:
        assert await measure.run("x" * 100_000) == 100_000
        assert refusals == 0

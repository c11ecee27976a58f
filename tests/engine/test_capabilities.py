"""Capabilities, both ways: what a store claims is proven, and what it does not claim is refused at open.

`log.survives_failover` is proven where there are standbys: tests/postgres/test_standbys.py,
tests/redis/test_cluster.py.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from journal import DirectoryWorkspace, Journal, Turn, VirtualWorkspace
from journal.core.clock import SystemClock
from journal.core.errors import MissingCapability, RunGone
from journal.core.ports import Delta, SweepPolicy
from journal.engine.capabilities import PROVIDERS
from journal.worlds import open_world
from tests.contract.harnesses import opening_of
from tests.stores import Store

pytestmark = pytest.mark.anyio
OTHER_PROCESS = """
import asyncio, os, signal, sys
from journal import Journal

async def main():
    await Journal(sys.argv[1]).submit("work", None, run_id="r")
    os.kill(os.getpid(), signal.SIGKILL)  # what was acknowledged is not in its hands any more

asyncio.run(main())
"""


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis", "cluster"])
async def world_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """URL of a fresh store."""
    async with opening_of(request, tmp_path) as harness:
        yield harness.url


class OtherHost(SystemClock):
    """The clocks of a machine that was booted another time, and whose wall clock is a day ahead."""

    def time(self) -> float:
        """See `Clock`."""
        return super().time() + 86_400

    def boottime(self) -> float:
        """See `Clock`."""
        return super().boottime() + 86_400

    def boot_id(self) -> str:
        """See `Clock`."""
        return "another"


async def from_another_process(url: str) -> bool:
    """Whether a process that submitted, and was killed then, left a run for us."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", OTHER_PROCESS, url)
    assert await process.wait() == -9
    async with open_world(url) as world:
        return await world.run("r") is not None


async def from_another_host(url: str) -> bool:
    """Whether a worker there leaves alone what is held here."""
    await Journal(url).submit("work", None, run_id="r")
    async with open_world(url) as here, open_world(url, clock=OtherHost()) as there:
        asked = {"limit": 1, "lease_seconds": 60.0, "agents": {"work"}, "reads": 1}
        assert len((await here.claim(worker="here", **asked)).claimed) == 1  # type: ignore[arg-type]
        return not (await there.claim(worker="there", **asked)).claimed  # type: ignore[arg-type]


async def swept(url: str) -> bool:
    """Whether what is closed for long enough goes, and says so."""
    journal = Journal(url)
    async with journal:
        await journal.submit("work", None, run_id="r")
        await journal.close("r")
        world = (await journal.runtime()).world
        count = await world.sweep(SweepPolicy(closed_older_than_seconds=0))
        with pytest.raises(RunGone):
            await world.read("r")
    return count == 1


async def watched(url: str) -> bool:
    """Whether output is seen while its call goes on."""
    journal, seen = Journal(url), asyncio.Event()

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        turn.emit("piece")
        await asyncio.wait_for(seen.wait(), 30)

    async with journal:
        handle = await work.submit(None, run_id="r")
        working = asyncio.create_task(handle.settle(60, serve=True))
        async for item in (await journal.runtime()).world.follow("r"):
            if isinstance(item, Delta):
                assert item.data == b'"piece"'
                seen.set()
                break
        await working
    return seen.is_set()


PROOFS: dict[str, Callable[[str], Awaitable[bool]]] = {
    "multi_process": from_another_process,
    "multi_host": from_another_host,
    "retention": swept,
    "stream.deltas": watched,
}


@pytest.mark.parametrize("name", PROOFS)
async def test_what_is_claimed_is_so_and_what_is_so_is_claimed(world_url: str, name: str) -> None:
    async with open_world(world_url) as world:
        claimed = name in world.capabilities
        assert await PROOFS[name](world_url) == claimed


async def test_what_is_claimed_can_be_required_and_what_is_not_is_refused(world_url: str) -> None:
    async with open_world(world_url) as world:
        claimed = world.capabilities
    assert claimed <= PROVIDERS.keys()
    async with Journal(world_url, requires=claimed):
        pass
    for name in PROVIDERS.keys() - claimed:
        with pytest.raises(MissingCapability) as caught:
            await Journal(world_url, requires={name, *claimed}).runtime()
        assert caught.value.missing == (name,)
        assert f"{name} (" in str(caught.value)


async def test_a_killed_process_takes_nothing_along(tmp_path: Path) -> None:
    """`log.persistent` of SQLite."""
    url = f"sqlite:{tmp_path / 'j.db'}"
    assert await from_another_process(url)
    async with Journal(url, requires={"log.persistent"}):
        pass


async def test_a_killed_server_takes_nothing_along(own_store: Store) -> None:
    """`log.persistent` of the others: what was acknowledged a moment before."""
    async with Journal(own_store.url, requires={"log.persistent"}) as journal:
        await journal.submit("work", None, run_id="r")
        for server in own_store.servers:
            await asyncio.to_thread(own_store.restart, server)
    async with open_world(own_store.url) as world:
        assert await world.run("r") is not None


async def test_all_that_is_missing_is_named_with_what_would_provide_it() -> None:
    journal = Journal("memory:", requires={"log.persistent", "multi_host", "log.encrypted", "log.persistant"})
    with pytest.raises(MissingCapability) as caught:
        await journal.runtime()
    assert caught.value.missing == ("log.encrypted", "log.persistant", "log.persistent", "multi_host")
    told = str(caught.value)
    assert "log.persistent (it ends with its process; sqlite:path/to/file.db keeps it)" in told
    assert "multi_host (it ends with its process; " in told
    assert "log.persistant (nothing is known by that name; there are log.encrypted, log.persistent" in told


async def test_workspaces_have_capabilities_too(tmp_path: Path) -> None:
    stores = {"memory": "memory:", "sqlite": f"sqlite:{tmp_path / 'j.db'}"}

    async def missing(
        store: str, name: str, *workspaces: VirtualWorkspace | DirectoryWorkspace | None
    ) -> str:
        journal = Journal(stores[store], requires={name})
        for number, workspace in enumerate(workspaces):

            @journal.agent(name=f"agent-{number}", workspace=workspace)
            async def work(turn: Turn, _: None) -> None: ...

        try:
            async with journal:
                return ""
        except MissingCapability as error:
            return str(error) if error.missing == (name,) else f"{error.missing}"

    durable, fleeting = VirtualWorkspace(), VirtualWorkspace(durable=False)
    assert await missing("sqlite", "workspace.persistent", durable, None) == ""
    assert "not of agent-1; a durable" in await missing("sqlite", "workspace.persistent", durable, fleeting)
    assert "no agent has a workspace" in await missing("sqlite", "workspace.persistent", None)
    assert "the log is not log.persistent: it ends" in await missing(
        "memory", "workspace.persistent", durable
    )
    assert await missing("memory", "workspace.quota", durable, fleeting) == ""
    assert "no agent has a workspace" in await missing("sqlite", "workspace.quota")
    directory = DirectoryWorkspace(tmp_path / "files")
    for name in ("workspace.persistent", "workspace.quota", "workspace.directory"):
        assert await missing("sqlite", name, directory) == ""
    assert "not of agent-1; DirectoryWorkspace(root) has it" in await missing(
        "sqlite", "workspace.directory", directory, durable
    )

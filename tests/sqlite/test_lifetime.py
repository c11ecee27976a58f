"""Opening and closing: what is let go when nobody closes properly."""

import subprocess
import sys
from pathlib import Path

import pytest

from journal.core.errors import WorldUnavailable
from journal.core.ports import World
from journal.worlds.contract.harness import begin, claim_all, seqs, watching
from journal.worlds.sqlite import open_sqlite
from tests.sqlite.conftest import ROOT

ABANDONED = """
import asyncio, gc, sys
from journal.worlds.contract.harness import begin
from journal.worlds.sqlite import open_sqlite

async def main():
    opened = open_sqlite(sys.argv[1])
    world = await opened.__aenter__()
    await asyncio.gather(*(begin(world, f"run-{n}") for n in range(3)))  # a group, so the thread runs
    return opened, world

kept = asyncio.run(main())
if sys.argv[2] == "collected":
    del kept
    gc.collect()
print("end")
"""


@pytest.mark.parametrize("how", ["collected", "kept"])
def test_a_loop_that_closed_without_closing_the_world(url: str, how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ABANDONED, url, how],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("end\n", "", 0)


@pytest.mark.anyio
async def test_the_last_to_close_leaves_one_database_file(path: Path, url: str) -> None:
    async with open_sqlite(url) as first:
        async with open_sqlite(url) as second:
            await begin(second, "run")
        assert await seqs(first, "run") == [1, 2]
    assert not Path(f"{path}-wal").exists()
    async with open_sqlite(url) as again:
        assert await seqs(again, "run") == [1, 2]


@pytest.mark.anyio
async def test_two_worlds_of_one_process_do_not_drop_each_others_locks(url: str) -> None:
    async with open_sqlite(url) as first:
        await begin(first, "run")
        assert len(await claim_all(first)) == 1
        async with open_sqlite(url):
            pass
        async with open_sqlite(url) as third:
            assert await claim_all(third) == [], "the first still lives"


@pytest.mark.anyio
async def test_a_closed_world_says_so(url: str) -> None:
    async with open_sqlite(url) as world:
        as_port: World = world
        await begin(world, "run")
        async with watching(world, "run") as watcher:
            await watcher.until_count(2)
            await world.aclose()
            await watcher.until_end()
            assert isinstance(watcher.error, WorldUnavailable)
    with pytest.raises(WorldUnavailable):
        await as_port.read("run")
    with pytest.raises(WorldUnavailable):
        as_port.open_renewer()
    await as_port.wait_for_work(10)


@pytest.mark.anyio
async def test_urls_of_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed = set()
    for written in ("sqlite:a.db", f"sqlite:{tmp_path}/a.db", f"sqlite://{tmp_path}/a.db"):
        async with open_sqlite(written) as world:
            printed.add(world.url)
    assert printed == {f"sqlite:{tmp_path}/a.db"}
    assert (tmp_path / "a.db").exists()

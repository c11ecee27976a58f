"""A run goes from store to store and back, by the commands; whoever exports it anywhere gets the same bytes."""

import asyncio
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from journal import Journal, Turn, TurnFailed, VirtualWorkspace, define_doc, io, tool
from journal.core.errors import WorkspaceError
from journal.engine.bundles import open_bundle
from tests.moving.conftest import Stores

pytestmark = pytest.mark.anyio
LARGE = bytes(range(256)) * 400
Plan = define_doc("plan", 2, list[str])


@tool(replay="safe")
async def work_on(name: str, is_large: bool) -> str:
    io.docs.update(Plan, lambda plan: [*plan, name * (100_000 if is_large else 1)])
    await io.files.write(f"/src/{name}", LARGE if is_large else name, is_executable=is_large)
    if await io.files.exists("/src/gone"):
        await io.files.delete("/src/gone")
    return name * (100_000 if is_large else 1)


async def command(*arguments: str) -> None:
    run = [sys.executable, "-m", "journal.cli", *arguments]
    done = await asyncio.to_thread(subprocess.run, run, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


async def build(url: str) -> None:
    """Several turns, one sent on by a retry; documents and files of calls and of the application; checkpoints."""
    journal = Journal(url)

    @journal.agent(docs=[Plan], workspace=VirtualWorkspace())
    async def work(turn: Turn, names: list[str]) -> int:
        await asyncio.gather(*(turn.tool(work_on, name, name.isupper()) for name in names))
        await turn.checkpoint("so-far", turn.docs.get(Plan))
        await turn.checkpoint("so-far", "shorter", sequence=1)
        if turn.attempt == 1 and "b" in names:
            raise RuntimeError("once")
        return len(names)

    async with journal:
        assert await work.run(["a", "A", "gone"], run_id="r", key="1") == 3
        await journal.docs.update("r", Plan, lambda plan: [*plan, "ours"])
        await journal.files.write("r", "/notes/ä é", LARGE[:5000])
        with pytest.raises(TurnFailed):
            await work.run(["b", "B"], run_id="r", key="2")
        assert await (await journal.retry("r", turn_id="2")).settle(20, serve=True) == 2
        await journal.files.delete("r", "/src/a")
        with pytest.raises(WorkspaceError):
            await journal.files.delete("r", "/src/a")


async def held(url: str, file: Path) -> tuple[object, ...]:
    """What an application reads, which is exported to `file` meanwhile."""
    async with Journal(url) as journal:
        await journal.export("r", file)
        files = {path: await journal.files.read("r", path) for path in await journal.files.glob("r")}
        points = [
            (each, await journal.checkpoints.read("r", each.name, sequence=each.sequence))
            for each in await journal.checkpoints.list("r")
        ]
        return files, await journal.docs.get("r", Plan), points


async def test_every_store_exports_the_same_bytes(stores: Stores, tmp_path: Path) -> None:
    urls = [await stores(kind) for kind in ("sqlite", "postgres", "redis", "cluster", "sqlite")]
    await build(urls[0])
    expected = await held(urls[0], tmp_path / "first")
    with open_bundle(str(tmp_path / "first")) as bundle:
        assert len(bundle.image.turns) == 2
    for source, target in pairwise(urls):
        await command("copy", source, target)
        assert await held(target, tmp_path / "copied") == expected
        assert (tmp_path / "copied").read_bytes() == (tmp_path / "first").read_bytes()
    imported = await stores("postgres")
    await command("--world", imported, "import", str(tmp_path / "copied"))
    assert await held(imported, tmp_path / "imported") == expected
    assert (tmp_path / "imported").read_bytes() == (tmp_path / "first").read_bytes()

"""Random changes by parallel calls and the application, on every world; and files on their way elsewhere."""

import asyncio
import hashlib
import random
import re
from pathlib import Path
from typing import Any

import pytest

from journal import Journal, Turn, VirtualWorkspace, io, tool
from journal.core.clock import SystemClock
from journal.core.codec import open_record
from journal.core.errors import WorkspaceError
from journal.core.records import CallEvidence, CallOutcome, FilesChanged
from journal.engine.bundles import open_bundle
from journal.engine.importing import import_bundle
from journal.engine.moving import Mover
from journal.engine.run_reader import RunReader
from journal.worlds import open_world
from tests.engine.test_claims import usurp

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parent.parent.parent
LARGE = bytes(range(256)) * 300
PATHS = ["/a", "/b", "/d/a", "/d/b", "/d/e/a", "/d/e", "/c"]


@tool(replay="safe")
async def act(seed: int) -> None:
    """A few changes, none of which knows of those of others."""
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 4)):
        path, other = chance.choice(PATHS), chance.choice(PATHS)
        data = chance.randbytes(chance.choice([0, 1, 10, 5000]))
        try:
            match chance.randint(0, 3):
                case 0 | 1:
                    await io.files.write(path, data, is_executable=chance.random() < 0.5)
                case 2:
                    await io.files.delete(path)
                case 3:
                    await io.files.move(path, other)
        except WorkspaceError:
            pass
        await asyncio.sleep(0)
    for path in await io.files.glob("/**"):
        await io.files.read(path)


async def model_of(journal: Journal, run: str) -> dict[str, bytes]:
    """What the log comes to, by the plainest reading of it; and that no change passed one by that it did not know."""
    world = (await journal.runtime()).world
    files: dict[str, bytes] = {}
    digests: dict[str, bytes] = {}
    for record in await world.read(run, limit=10_000):
        body = open_record(record)
        changes = body.files if isinstance(body, CallOutcome) else ()
        changes = body.changes if isinstance(body, FilesChanged) else changes
        moved = {c.source: c.path for c in changes if c.source is not None and c.rejected is None}
        assert not {c.path for c in changes if c.rejected is not None} & {*moved, *moved.values()}
        before = dict(digests)
        for change in changes:
            if change.rejected is not None:
                continue
            assert before.get(change.path) == change.base
            if change.content is None:
                del files[change.path], digests[change.path]
            elif isinstance(change.content, bytes):
                files[change.path] = change.content
            else:
                files[change.path] = await world.get_blob(run, change.content.blob)
            if change.path in files:
                digests[change.path] = _digest(files[change.path])
        for path in files:
            assert not any(other.startswith(f"{path}/") for other in files), "a path leads through a file"
    return files


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


@pytest.mark.parametrize("seed", range(3))
async def test_random_changes_come_to_what_the_log_says(world_url: str, seed: int) -> None:
    journal = Journal(world_url)

    @journal.agent(workspace=VirtualWorkspace(max_files=5, max_bytes=20_000))
    async def work(turn: Turn, _: None) -> None:
        for first in range(100 * seed, 100 * seed + 24, 4):
            for result in await asyncio.gather(*(turn.tool(act, first + n) for n in range(4))):
                result.value  # noqa: B018 - raises what went wrong

    async def application() -> None:
        own = random.Random(seed + 100)
        while not running.done():
            path = own.choice(PATHS)
            try:
                if own.random() < 0.7:
                    await journal.files.write("r", path, own.randbytes(3))
                else:
                    await journal.files.delete("r", path)
            except WorkspaceError:
                pass
            await asyncio.sleep(0.002)

    async with journal:
        await work.submit(None, run_id="r")
        running = asyncio.create_task(work.run(None, run_id="r"))
        await application()
        await running
        expected = await model_of(journal, "r")
        assert {
            path: await journal.files.read("r", path) for path in await journal.files.glob("r")
        } == expected
        assert len(expected) <= 5
        assert sum(map(len, expected.values())) <= 20_000
        reader = RunReader((await journal.runtime()).world, "r")
        await reader.read_on()
        assert reader.folded.workspace.tree.count == len(expected)
        assert reader.folded.workspace.tree.size == sum(map(len, expected.values()))


@pytest.mark.parametrize("is_changed", [False, True])
async def test_a_result_that_came_too_late_brings_its_files(tmp_path: Path, is_changed: bool) -> None:
    """The claim was lost while the tool ran: the next holder takes its outcome, and what of its files still fits."""
    url = f"sqlite:{tmp_path / 'j.db'}"
    inside, go = asyncio.Event(), asyncio.Event()
    long = "x" * 10_000

    def build() -> tuple[Journal, Any]:
        journal = Journal(url, lease_seconds=30)

        @tool(replay="never")
        async def publish() -> str:
            await io.files.write("/a", "mine")
            await io.files.write("/b", long)
            inside.set()
            await asyncio.shield(go.wait())
            return "published"

        @journal.agent(workspace=VirtualWorkspace())
        async def work(turn: Turn, _: None) -> list[str]:
            return list((await turn.tool(publish)).rejected)

        return journal, work

    (one, work), (two, again) = build(), build()
    async with one, two:
        await work.submit(None, run_id="r")
        worker = asyncio.create_task(one.worker(concurrency=1).run())
        await inside.wait()
        (attempt,) = (await one.runtime()).attempts
        await usurp(url, "r", attempt.holding.claim)
        if is_changed:
            await two.files.write("r", "/a", "theirs")
        go.set()
        while not any(r.type == CallEvidence.TYPE for r in await two.read("r")):
            await asyncio.sleep(0.01)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        assert await again.run(None, run_id="r") == (["/a"] if is_changed else [])
        assert await two.files.read("r", "/a") == (b"theirs" if is_changed else b"mine")
        assert await two.files.read("r", "/b") == long.encode()


def test_the_example_in_the_docs_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOURNAL_WORLD", f"sqlite:{tmp_path / 'j.db'}")
    text = (ROOT / "docs" / "workspaces.md").read_text()
    snippet = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(snippet, "docs/workspaces.md", "exec", dont_inherit=True), names)

    async def main() -> bytes:
        async with names["journal"] as journal:
            for text in ("a", "b"):
                assert await names["work"].run(text, run_id="r", key=text) == "noted"
            return bytes(await journal.files.read("r", "/notes.md"))

    assert asyncio.run(main()) == b"a\nb\n"


def test_the_directory_example_in_the_docs_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNAL_WORLD", f"sqlite:{tmp_path / 'j.db'}")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "workspaces.md").read_text()
    snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (snippet,) = (each for each in snippets if "DirectoryWorkspace(" in each)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(snippet, "docs/workspaces.md", "exec", dont_inherit=True), names)

    async def main() -> None:
        async with names["journal"] as journal:
            assert (await names["sorter"].run("b\na\n", run_id="r")).split() == ["2", "a.txt"]
            assert await journal.files.read("r", "/a.txt") == b"a\nb\n"

    asyncio.run(main())


async def test_a_run_that_moves_takes_its_files_along(world_url: str, tmp_path: Path) -> None:
    """By copy and by import, to another store."""
    there = f"sqlite:{tmp_path / 'there.db'}"
    journal = Journal(world_url)

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> None:
        for first in (0, 4):
            await asyncio.gather(*(turn.tool(act, first + n) for n in range(4)))

    async with journal:
        await work.run(None, run_id="r")
        await journal.files.write("r", "/large", LARGE)
        expected = await model_of(journal, "r")
        await journal.export("r", tmp_path / "r.jsonl")
        world = (await journal.runtime()).world
        async with open_world(there) as target:
            await Mover(world, target, clock=SystemClock()).carry("r")
    with open_bundle(str(tmp_path / "r.jsonl")) as bundle:
        async with open_world(f"sqlite:{tmp_path / 'imported.db'}") as target:
            await import_bundle(bundle, target, lambda *_: None)
    for name in ("there", "imported"):
        async with Journal(f"sqlite:{tmp_path / name}.db") as other:
            found = {path: await other.files.read("r", path) for path in await other.files.glob("r")}
            assert found == expected
    assert expected["/large"] == LARGE

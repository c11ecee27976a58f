"""Runs go to a file and from a file to any store: the same run, all of it or nothing."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from journal import Journal, Turn, TurnBlocked, TurnFailed, never, tool
from journal.core.codec import Blob
from journal.core.errors import (
    BundleDamaged,
    BundleError,
    InvalidOptions,
    RunBuilding,
    RunDiffers,
    RunGone,
    RunNotFound,
)
from journal.core.ports import RunImage, SweepPolicy, World
from journal.core.records import Record
from journal.engine.bundles import export_to, open_bundle
from journal.engine.digest import digest
from journal.engine.importing import Imported, import_bundle
from journal.engine.verifying import verify
from journal.worlds import open_world
from journal.worlds.contract.building import worked_on
from journal.worlds.contract.harness import begin, claim_all, close, committed, hold, info_of
from tests.moving.conftest import Stores

pytestmark = pytest.mark.anyio

KINDS = ("sqlite", "postgres", "redis", "cluster")
LARGE = "ü" * 50_000
paid: list[int] = []


@tool(replay="safe")
def look(text: str) -> str:
    return text.upper()


@never
def pay(amount: int) -> int:
    paid.append(amount)
    return amount


def application(url: str) -> Journal:
    """An agent whose runs hold a bit of everything."""
    journal = Journal(url)

    @journal.agent
    async def support(turn: Turn, prompt: str) -> dict[str, Any]:
        text = (await turn.tool(look, prompt)).value
        if prompt == "fail":
            await turn.step(stumble)
        return {"text": text, "paid": (await turn.tool(pay, 3)).value, "odd": [-0.0, 1.5, 2**63, None, "\0"]}

    return journal


def stumble() -> None:
    raise ValueError("no")


async def fill(url: str) -> None:
    """`done`: three turns, blobs. `failed`. `open`: a turn that nobody has worked on."""
    journal = application(url)
    async with journal:
        agent = journal.agents["support"]
        await agent.run("short", run_id="done")
        await agent.run(LARGE, run_id="done", key="second")
        await agent.run("third", run_id="done", key="third/é".replace("é", "e"))
        with pytest.raises(TurnFailed):
            await agent.run("fail", run_id="failed")
        await journal.submit("support", "later", run_id="open", delay=5000.0)


async def bring(file: Path, target: World) -> Imported:
    with open_bundle(file) as bundle:
        return await import_bundle(bundle, target, lambda _: None)


@asynccontextmanager
async def exported(source: str, file: Path, run: str = "done") -> AsyncIterator[World]:
    await fill(source)
    async with open_world(source) as world:
        await export_to(world, run, file)
        yield world


@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_comes_from_a_file_as_it_was(stores: Stores, tmp_path: Path, kind: str) -> None:
    source, target = await stores(kind), await stores("sqlite" if kind == "cluster" else kind)
    await fill(source)
    async with open_world(source) as here, open_world(target) as there:
        for run, held_back in (("done", False), ("failed", False), ("open", True)):
            file, again = tmp_path / f"{run}.jsonl", tmp_path / "again"
            image = await here.image(run)
            done = await export_to(here, run, file)
            assert (done.records, done.blobs) == (image.head, len(image.blobs))
            with open_bundle(file) as bundle:
                assert bundle.image == image
                assert list(bundle.records()) == await here.read(run)
            found = await bring(file, there)
            assert found == Imported(run=run, result="imported", records=image.head, held_back=held_back)
            assert await there.read(run) == await here.read(run)
            assert await digest(there, image) == await digest(here, image)
            for world in (here, there):
                checked = await verify(world, await world.image(run))
                assert (checked.problems, checked.digest) == ((), done.digest)
            assert (await bring(file, there)).result == "present"
            await export_to(there, run, again)
            if not held_back:
                assert again.read_bytes() == file.read_bytes(), (
                    "the same run gives the same file, from any store"
                )
            with open_bundle(again) as bundle:
                assert bundle.header.digest == done.digest
        assert len((await here.image("done")).blobs) >= 2
        assert await claim_all(there) == [], "nothing is done twice"
    held = application(target)
    async with held:
        agent, before = held.agents["support"], len(paid)
        assert (await agent.run(LARGE, run_id="done", key="second"))["text"] == "Ü" * 50_000
        assert len(paid) == before, "answered from the log"
        assert (await agent.run("more", run_id="done", key="fourth"))["text"] == "MORE", "and it goes on"
        with pytest.raises(TurnBlocked, match=r"journal retry( --world \S+)? open"):
            await (await held.handle("open")).result(timeout=5)


async def test_what_went_on_is_present_and_what_lags_is_brought_along(tmp_path: Path) -> None:
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    url, other = f"sqlite:{tmp_path}/a.db", f"sqlite:{tmp_path}/b.db"
    async with exported(url, old) as here:
        async with application(url) as journal:
            await journal.agents["support"].run("more", run_id="done", key="fourth")
        await export_to(here, "done", new)
        before, head = (await bring_in(old)), (await info_of(here, "done")).head
        assert await bring(old, here) == Imported(run="done", result="present", records=head)
        async with open_world(other) as there:
            assert (await bring(old, there)).records == before
            assert await bring(new, there) == Imported(run="done", result="imported", records=head)
            assert await there.read("done", limit=1000) == await here.read("done", limit=1000)
            assert await bring(old, there) == Imported(run="done", result="present", records=head)


async def bring_in(file: Path) -> int:
    """How many records a file has."""
    with open_bundle(file) as bundle:
        return bundle.image.head


async def test_another_run_of_that_id_is_refused(tmp_path: Path) -> None:
    file, longer, url = tmp_path / "run.jsonl", tmp_path / "longer.jsonl", f"sqlite:{tmp_path}/b.db"
    await fill(url)  # the same inputs, and another run all the same
    async with exported(f"sqlite:{tmp_path}/a.db", file) as here, open_world(url) as there:
        async with application(f"sqlite:{tmp_path}/a.db") as journal:
            await journal.agents["support"].run("more", run_id="done", key="fourth")
        await export_to(here, "done", longer)
        before = await there.image("done"), await there.read("done", limit=1000)
        for path in (file, longer):
            with pytest.raises(RunDiffers, match="in its records or blobs up to seq"):
                await bring(path, there)
        assert (await there.image("done"), await there.read("done", limit=1000)) == before


async def test_what_went_another_way_is_refused(tmp_path: Path) -> None:
    file, url = tmp_path / "open.jsonl", f"sqlite:{tmp_path}/b.db"
    source = f"sqlite:{tmp_path}/a.db"
    async with exported(source, file, "open") as here, open_world(url) as there:
        await bring(file, there)
        async with application(url) as journal:
            await journal.retry("open")
        async with application(source) as journal:
            await journal.submit("support", "more", run_id="open", key="second")
        await export_to(here, "open", file)
        with pytest.raises(RunDiffers):
            await bring(file, there)
        assert (await info_of(there, "open")).status == "pending"


async def test_a_closed_or_swept_run_keeps_its_id(tmp_path: Path) -> None:
    file, closed = tmp_path / "run.jsonl", tmp_path / "closed.jsonl"
    async with (
        exported(f"sqlite:{tmp_path}/a.db", file) as here,
        open_world(f"sqlite:{tmp_path}/b.db") as there,
    ):
        committed(await here.append(close("done")))
        await export_to(here, "done", closed)
        await bring(closed, there)
        assert (await info_of(there, "done")).closed
        assert (await bring(closed, there)).result == "present"
        assert await there.sweep(SweepPolicy(closed_older_than_seconds=-5.0)) == 1
        with pytest.raises(RunGone):
            await bring(closed, there)


async def test_an_import_that_died_is_finished_by_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.jsonl"
    async with exported(f"sqlite:{tmp_path}/a.db", file), open_world(f"sqlite:{tmp_path}/b.db") as there:
        real, left = type(there).build, [0]

        async def build(world: Any, image: RunImage, records: Sequence[Record], blobs: Sequence[Blob]) -> int:
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            return await real(world, image, records, blobs)

        # Before anything; after the records; after the blobs: what is there is not written again.
        for attempt, step in enumerate((1, 2, 2)):
            left[0] = step
            with monkeypatch.context() as patched:
                patched.setattr(type(there), "build", build)
                with pytest.raises(KeyboardInterrupt):
                    await bring(file, there)
            info = await there.run("done")
            assert info is None if attempt == 0 else info is not None and info.building
        assert await claim_all(there) == []
        assert (await bring(file, there)).result == "imported"
        assert not (await info_of(there, "done")).building


@pytest.mark.parametrize("kind", KINDS)
async def test_two_that_import_the_same_file_at_once(stores: Stores, tmp_path: Path, kind: str) -> None:
    file, target = tmp_path / "run.jsonl", await stores(kind)
    async with exported(f"sqlite:{tmp_path}/a.db", file) as here:
        found: list[Imported] = []

        async def one() -> None:
            async with open_world(target) as there:
                found.append(await bring(file, there))

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(one)
        assert {one.records for one in found} == {(await info_of(here, "done")).head}
        async with open_world(target) as there:
            assert await there.read("done", limit=1000) == await here.read("done", limit=1000)
            assert not (await info_of(there, "done")).building


# What is refused ---------------------------------------------------------------------------------------


async def test_a_file_of_another_namespace_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    async with (
        exported(f"sqlite:{tmp_path}/a.db", file),
        open_world(f"sqlite:{tmp_path}/b.db", namespace="eu") as there,
    ):
        with pytest.raises(InvalidOptions, match="give --namespace default"):
            await bring(file, there)
        assert await there.run("done") is None


async def test_a_file_that_is_consistent_and_no_log_is_refused(tmp_path: Path) -> None:
    """Made by the contract's harness: blobs that are named as no engine names them."""
    file = tmp_path / "run.jsonl"
    async with open_world("memory:") as here, open_world(f"sqlite:{tmp_path}/b.db") as there:
        await worked_on(here, "odd")
        await export_to(here, "odd", file)
        with open_bundle(file) as bundle:
            assert list(bundle.records()) == await here.read("odd"), "whatever is in it comes back"
            assert bundle.blob("b1") == b"\x00a blob"
        with pytest.raises(BundleDamaged, match=r"line \d+: .*nothing was written"):
            await bring(file, there)
        assert await there.run("odd") is None


async def test_what_is_on_its_way_is_not_exported(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    async with open_world("memory:") as here, open_world("memory:") as there:
        await begin(here, "r")
        image = await here.image("r")
        await there.build(image, await here.read("r"), ())
        with pytest.raises(RunBuilding):
            await export_to(there, "r", file)
        with pytest.raises(RunNotFound):
            await export_to(here, "none", file)
    assert list(tmp_path.iterdir()) == []


async def test_an_export_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text("what was there")
    async with open_world("memory:") as here:
        await begin(here, "r")
        await (await hold(here, "r")).finish()
        real, reads = type(here).read, [0]

        async def read(world: Any, run: str, **asked: Any) -> list[Record]:
            reads[0] += 1
            if reads[0] == 2:
                raise KeyboardInterrupt  # the digest is made, the file begun
            return await real(world, run, **asked)

        with monkeypatch.context() as patched:
            patched.setattr(type(here), "read", read)
            with pytest.raises(KeyboardInterrupt):
                await export_to(here, "r", file)
        assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]
        assert file.read_text() == "what was there"
        with pytest.raises(BundleError, match=r"nowhere/run\.jsonl: it cannot be written"):
            await export_to(here, "r", tmp_path / "nowhere" / "run.jsonl")
        await export_to(here, "r", file)
        assert file.stat().st_mode & 0o777 == 0o600, "what users said is for its owner"
        with open_bundle(file) as bundle:
            assert bundle.run == "r"


async def test_the_journal_exports(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/a.db"
    await fill(url)
    async with application(url) as journal:
        await journal.export("done", tmp_path / "done.jsonl")
        assert await bring_in(tmp_path / "done.jsonl") == (await journal.get("done")).head
        with pytest.raises(RunNotFound):
            await journal.export("none", tmp_path / "none.jsonl")


@pytest.mark.parametrize("what", ["missing", "a directory", "a pipe"])
def test_what_is_no_file_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "x"
    if what == "a directory":
        path.mkdir()
    if what == "a pipe":
        os.mkfifo(path)  # whoever opens it would wait for ever
    words = "check its name" if what == "missing" else "it is no file"
    with pytest.raises(BundleError, match=words), open_bundle(path):
        pass

"""The lifecycle of a directory workspace: keys, states, errors by name, retention, the sweep."""

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from journal import DirectoryWorkspace, Journal, Turn, TurnBlocked, io, tool
from journal.core.errors import (
    CleanupPending,
    IdempotencyConflict,
    InvalidOptions,
    InvalidReference,
    QuotaExceeded,
    SnapshotMissing,
    WorkspaceAborted,
    WorkspaceError,
    WorkspaceExpired,
    WorkspaceFailed,
    WorkspaceNotFound,
)
from journal.tools.retention import Retention
from journal.tools.working_tree import remove_tree

pytestmark = pytest.mark.anyio


@tool(replay="safe")
async def write(path: str, text: str) -> None:
    await io.files.write(path, text)


def put(workspace: DirectoryWorkspace, run: str, name: str, text: str) -> None:
    Path(workspace.directory(run).path, name).write_text(text)


def found(workspace: DirectoryWorkspace, run: str) -> dict[str, str]:
    return {path.name: path.read_text() for path in Path(workspace.directory(run).path).iterdir()}


async def test_by_hand_from_start_to_cleanup(tmp_path: Path) -> None:
    """A second object over the same root is a process after the first one has died."""
    one, two = DirectoryWorkspace(tmp_path), DirectoryWorkspace(tmp_path)
    started = await one.start("r", key="s")
    assert (started.state, started.epoch) == ("active", 1)
    put(one, "r", "a", "1")
    first = await one.snapshot("r", key="1")
    put(one, "r", "a", "2")
    put(one, "r", "b", "2")
    second = await one.snapshot("r", key="2")
    put(one, "r", "half", "x")
    assert (first.files, second.files) == (1, 2)
    assert await two.start("r", key="s") == started
    assert await two.snapshot("r", key="1") == first
    resumed = await two.resume("r", key="r")
    assert (resumed.epoch, resumed.snapshot) == (2, second.id)
    assert found(two, "r") == {"a": "2", "b": "2"}
    for act in (one.snapshot("r", key="3"), two.start("r", key="other"), two.snapshot("r", key="s")):
        with pytest.raises((InvalidReference, IdempotencyConflict)):
            await act
    assert await two.resume("r", key="back", snapshot=first.id)
    assert found(two, "r") == {"a": "1"}
    three = DirectoryWorkspace(tmp_path)
    again = await three.resume("r", key="back", snapshot=first.id)
    assert (again.epoch, found(three, "r")) == (3, {"a": "1"})
    with pytest.raises(IdempotencyConflict) as conflict:
        await three.resume("r", key="back")
    assert (conflict.value.before, conflict.value.reason) == ("resume", "idempotency_conflict")
    with pytest.raises(CleanupPending) as pending:
        await three.cleanup("r", key="c")
    assert (pending.value.reason, pending.value.is_retriable) == ("cleanup_pending", True)
    assert (await three.cleanup("r", key="c")).state == "cleaned"
    assert (await two.cleanup("r", key="c")).state == "cleaned"
    with pytest.raises(WorkspaceExpired):
        await three.resume("r", key="late", snapshot=first.id)
    assert not os.path.exists(three.directory("r").path)


async def test_a_directory_of_before_is_gone_once_somebody_else_resumed(tmp_path: Path) -> None:
    """Whoever is still at work in it writes into nothing that counts, and is told."""
    one, two = DirectoryWorkspace(tmp_path), DirectoryWorkspace(tmp_path)
    await one.start("r", key="s")
    put(one, "r", "a", "1")
    await one.snapshot("r", key="1")
    place = one.directory("r").path
    handle = os.open(place, os.O_RDONLY)
    await two.resume("r", key="r")
    assert not os.path.exists(place)
    try:
        with pytest.raises(FileNotFoundError):
            os.open("late", os.O_WRONLY | os.O_CREAT, dir_fd=handle)
    finally:
        os.close(handle)
    with pytest.raises(InvalidReference, match="somebody else"):
        await one.snapshot("r", key="2")
    assert found(two, "r") == {"a": "1"}


async def test_errors_by_name(tmp_path: Path) -> None:
    workspace = DirectoryWorkspace(tmp_path / "root", max_bytes=3)
    other = DirectoryWorkspace(tmp_path / "root")
    with pytest.raises(WorkspaceNotFound):
        await workspace.inspect("r")
    cases: list[tuple[Any, type[WorkspaceError], str]] = [
        (workspace.abort("r", key="k"), WorkspaceNotFound, "not_found"),
        (workspace.resume("r", key="k"), WorkspaceNotFound, "not_found"),
        (workspace.snapshot("r", key="k"), WorkspaceNotFound, "not_found"),
    ]
    for act, kind, reason in cases:
        with pytest.raises(kind) as caught:
            await act
        assert caught.value.reason == reason
    await workspace.start("r", key="s")
    await other.start("o", key="s")
    put(other, "o", "a", "x")
    foreign = await other.snapshot("o", key="1")
    put(workspace, "r", "a", "1234")
    with pytest.raises(QuotaExceeded) as quota:
        await workspace.snapshot("r", key="1")
    assert (quota.value.quota, quota.value.limit, quota.value.actual) == ("max_bytes", 3, 4)
    with pytest.raises(InvalidReference) as reference:
        await workspace.resume("r", key="f", snapshot=foreign.id)
    assert reference.value.reason == "invalid_reference"
    for name in ("0" * 32, "../../../etc/passwd"):
        with pytest.raises(SnapshotMissing) as missing:
            await workspace.resume("r", key="m", snapshot=name)
        assert missing.value.reason == "missing_snapshot"
    assert (await workspace.abort("r", key="a")).state == "aborted"
    assert (await other.abort("r", key="a")).state == "aborted"
    with pytest.raises(WorkspaceAborted) as aborted:
        await workspace.resume("r", key="x")
    assert aborted.value.reason == "aborted"
    assert (await workspace.inspect("r")).state == "aborted"
    (tmp_path / "file").write_text("x")
    with pytest.raises(WorkspaceFailed) as failed:
        await DirectoryWorkspace(tmp_path / "file").start("r", key="s")
    assert (failed.value.reason, failed.value.is_retriable) == ("backend_failure", True)
    for make in (
        lambda: Retention(paused=-1),
        lambda: DirectoryWorkspace(tmp_path, max_bytes=-1),
        lambda: DirectoryWorkspace(tmp_path, cleanup="never"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidOptions):
            make()


async def test_a_workspace_that_is_aborted_within_a_turn(tmp_path: Path) -> None:
    """What the call changes then is rejected and told; the next turn is blocked."""
    workspace = DirectoryWorkspace(tmp_path / "root")
    journal = Journal("memory:")

    @tool(replay="safe")
    async def give_up() -> None:
        await io.files.write("/late", "x")
        await workspace.abort("r", key="a")

    @journal.agent(workspace=workspace)
    async def work(turn: Turn, _: None) -> Any:
        await turn.tool(write, "/a", "x")
        result = await turn.tool(give_up)
        return [list(result.rejected), "aborted" in result.text]

    async with journal:
        assert await work.run(None, run_id="r", key="1") == [["/late"], True]
        assert await journal.files.glob("r") == ["/a"]
        with pytest.raises(TurnBlocked, match="was aborted"):
            await work.run(None, run_id="r", key="2")


async def test_a_workspace_that_is_cleaned_up_within_a_turn_is_gone_when_it_ends(tmp_path: Path) -> None:
    workspace = DirectoryWorkspace(tmp_path / "root")
    journal = Journal("memory:")

    @tool(replay="safe")
    async def give_up() -> str:
        with pytest.raises(CleanupPending):
            await workspace.cleanup("r", key="c")
        return (await workspace.inspect("r")).state

    @journal.agent(workspace=workspace)
    async def work(turn: Turn, _: None) -> str:
        await turn.tool(write, "/a", "x")
        return (await turn.tool(give_up)).value

    async with journal:
        assert await work.run(None, run_id="r", key="1") == "cleanup_pending"
        while (await workspace.inspect("r")).state != "cleaned":
            await asyncio.sleep(0.01)
        with pytest.raises(TurnBlocked, match="kept no more"):
            await work.run(None, run_id="r", key="2")


def age(root: Path, seconds: float) -> None:
    """Let all that is there have been there for so long."""
    for place, directories, names in os.walk(root):
        for name in directories + names:
            try:
                when = os.lstat(os.path.join(place, name)).st_mtime - seconds
                os.utime(os.path.join(place, name), (when, when), follow_symlinks=False)
            except FileNotFoundError:
                pass  # it was swept


async def test_a_sweep_removes_what_nobody_refers_to_and_nothing_else(tmp_path: Path) -> None:
    workspace = DirectoryWorkspace(tmp_path / "root", cleanup="manual", retention=Retention(orphan=1000))
    journal = Journal("memory:")

    @journal.agent(workspace=workspace)
    async def work(turn: Turn, text: str) -> None:
        await turn.tool(write, "/shared", "shared")
        await turn.tool(write, "/own", text)

    async with journal:
        for run in ("r", "o"):
            await work.run(run, run_id=run)
            while (await workspace.inspect(run)).state != "paused":
                await asyncio.sleep(0.01)
        await workspace.cleanup("o", key="c")
        assert (await workspace.sweep()).contents == 0  # too young
        age(tmp_path / "root", 2000)
        swept = await workspace.sweep()
        assert (swept.snapshots, swept.contents, swept.freed) == (1, 1, 1)
        assert await journal.files.read("r", "/shared") == b"shared"
        assert await journal.files.read("r", "/own") == b"r"
        with pytest.raises(SnapshotMissing):
            await journal.files.read("o", "/own")
        place = Path(workspace.snapshots.root, "snapshots", (await workspace.inspect("r")).snapshot or "")
        place.write_bytes(b"damaged")
        age(tmp_path / "root", 2000)
        swept = await workspace.sweep()
        assert (swept.contents, len(swept.damaged)) == (0, 1)


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        ("succeeded", Retention(succeeded=0)),
        ("failed", Retention(failed=0)),
        ("active", Retention(active=0)),
        ("aborted", Retention(aborted=0)),
        ("paused", Retention(paused=0)),
        ("maximum", Retention(maximum=0)),
    ],
)
async def test_each_kind_of_retention_is_enforced(tmp_path: Path, state: str, kept: Retention) -> None:
    """And concerns no other kind."""
    workspace = DirectoryWorkspace(tmp_path, cleanup="manual")
    for name in ("succeeded", "failed", "active", "aborted", "paused"):
        await workspace.start(name, key="s")
        put(workspace, name, "a", name)
        snapshot = await workspace.snapshot(name, key="1")
        if name == "aborted":
            await workspace.abort(name, key="a")
        elif name != "active":
            ended: Any = None if name == "paused" else name
            workspace.lifecycle.end(workspace.lifecycle.find(name), 1, ended, snapshot.id)
    await asyncio.sleep(0.01)
    swept = await DirectoryWorkspace(tmp_path, retention=kept).sweep()
    gone = [
        name
        for name in ("succeeded", "failed", "active", "aborted", "paused")
        if (await workspace.inspect(name)).state == "cleaned"
    ]
    assert gone == ([state] if state != "maximum" else ["succeeded", "failed", "active", "aborted", "paused"])
    assert swept.workspaces == len(gone)
    for name in gone:
        with pytest.raises(WorkspaceExpired):
            await workspace.resume(name, key="r", snapshot=(await workspace.snapshot(name, key="1")).id)


async def test_it_is_swept_by_the_way(tmp_path: Path) -> None:
    """At the end of a turn, by whoever comes to it first within the hour."""
    workspace = DirectoryWorkspace(tmp_path / "root", retention=Retention(succeeded=0))
    journal = Journal("memory:")

    @journal.agent(workspace=workspace)
    async def work(turn: Turn, _: None) -> None:
        await turn.tool(write, "/a", "x")

    async with journal:
        await work.run(None, run_id="one")
        while not (tmp_path / "root" / "swept").exists():
            await asyncio.sleep(0.01)
        await work.run(None, run_id="two")
        while (await workspace.inspect("two")).state != "paused":
            await asyncio.sleep(0.01)
        age(tmp_path / "root", 4000)
        await work.run(None, run_id="three")
        while (await workspace.inspect("two")).state != "cleaned":
            await asyncio.sleep(0.01)


async def clean_up(workspace: DirectoryWorkspace, run: str, days: int) -> Path:
    """The place of a run that was cleaned up so many days ago."""
    await workspace.start(run, key="s")
    await workspace.abort(run, key="a")
    await workspace.cleanup(run, key="c")
    place = Path(workspace.lifecycle.find(run))
    info = workspace.lifecycle.read(str(place))
    assert info is not None
    info = msgspec.structs.replace(info, since=info.since - days * 86_400)
    (place / "state").write_bytes(msgspec.json.encode(info))
    return place


async def test_what_was_cleaned_up_long_ago_is_forgotten(tmp_path: Path) -> None:
    """Its keys too; until then they have their answers."""
    workspace = DirectoryWorkspace(tmp_path)
    await clean_up(workspace, "old", days=31)
    await clean_up(workspace, "new", days=0)
    await workspace.sweep()
    with pytest.raises(WorkspaceNotFound):
        await workspace.inspect("old")
    assert (await workspace.cleanup("new", key="c")).state == "cleaned"


async def test_who_takes_up_what_is_being_forgotten_keeps_it(tmp_path: Path) -> None:
    """Whoever comes first: the sweep looks again under the lock, and nobody goes on with a lock that was forgotten."""
    workspace = DirectoryWorkspace(tmp_path)
    for run in ("first", "last"):
        place = await clean_up(workspace, run, days=31)
        with workspace.lifecycle.locked(str(place)):
            if run == "first":
                waiting: asyncio.Task[Any] = asyncio.create_task(workspace.sweep())
            else:
                waiting = asyncio.create_task(
                    asyncio.to_thread(workspace.lifecycle.begin, run, str(place), 9, ())
                )
            await asyncio.sleep(0.1)
            assert not waiting.done()
            if run == "first":
                workspace.lifecycle.take_up(run, str(place), None)
            else:
                remove_tree(str(place))
        await waiting
        assert (await workspace.inspect(run)).state == "active"


async def test_a_sweep_keeps_out_of_the_way_of_snapshots(tmp_path: Path) -> None:
    """However old a content is that a snapshot takes into use again, and whoever has a directory, while it is swept."""
    workspace = DirectoryWorkspace(tmp_path / "root", retention=Retention(orphan=1000))
    await workspace.start("r", key="s")

    async def sweeping() -> None:
        while True:
            await workspace.sweep()

    task = asyncio.create_task(sweeping())
    try:
        for number in range(30):
            # Two contents come and go: one is old, and named by no snapshot of the run, when it is written again.
            put(workspace, "r", "a", str(number % 2))
            put(workspace, "r", "b", str(number))
            snapshot = await workspace.snapshot("r", key=str(number))
            tree = workspace.snapshots.load(snapshot.id).tree
            for path in tree.paths():
                file = tree.get(path)
                assert file is not None
                workspace.snapshots.objects.read(file.digest)
            refs = Path(workspace.lifecycle.find("r"), "refs")
            for ref in refs.iterdir():
                ref.unlink()
            age(tmp_path / "root", 2000)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

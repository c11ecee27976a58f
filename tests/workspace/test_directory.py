"""Directory workspaces: SEMANTICS 7, FAULTS 31 and 32."""

import asyncio
import os
import random
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from journal import (
    DirectoryWorkspace,
    Journal,
    Retry,
    Turn,
    TurnBlocked,
    TurnFailed,
    VirtualWorkspace,
    io,
    step,
    tool,
)
from journal.core.codec import open_record
from journal.core.errors import InvalidOptions, NotInTurn, PathRefused, QuotaExceeded
from journal.core.records import CallEvidence, CallOutcome, FileChange
from journal.engine.offline import replay
from journal.engine.reading import read_file
from journal.tools.exec import HostCommands
from journal.tools.manifest import Manifest
from journal.tools.snapshots import Snapshots
from journal.tools.working_tree import WorkingTree
from journal.tools.workspace import Quotas
from tests.disks import enlarge, small_disk
from tests.engine.test_claims import usurp

pytestmark = pytest.mark.anyio


@tool(replay="safe")
async def write(path: str, text: str) -> None:
    await io.files.write(path, text)


@tool(replay="safe")
async def read(path: str) -> str:
    return await io.files.read_text(path)


@tool(replay="safe")
async def build(name: str, text: str) -> list[str]:
    """What a program would do."""
    async with io.files.directory() as directory:
        there = sorted(str(p.relative_to(directory.path)) for p in Path(directory.path).rglob("*"))
        path = Path(directory.path) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return there


class Again(RuntimeError):
    """Ends the first attempt."""


async def changes_of(journal: Journal, run: str) -> list[FileChange]:
    bodies = map(open_record, await journal.read(run))
    return [change for body in bodies if isinstance(body, CallOutcome) for change in body.files]


async def test_calls_see_what_programs_wrote_and_the_other_way_round(tmp_path: Path) -> None:
    """Also after the turn was sent on, and in the next turn; a call that fails leaves nothing."""
    workspace = DirectoryWorkspace(tmp_path / "root")
    journal = Journal(f"sqlite:{tmp_path / 'j.db'}")

    @tool(replay="safe")
    async def fail() -> None:
        async with io.files.directory() as directory:
            Path(directory.path, "d", "b").write_text("half")
            Path(directory.path, "torn").write_text("half")
            raise ValueError("no")

    @journal.agent(workspace=workspace)
    async def work(turn: Turn, _: None) -> Any:
        if turn.id == "2":
            return (await turn.tool(build, "d/c", "three")).value
        await turn.tool(write, "/a", "one")
        found: list[Any] = [(await turn.tool(build, "d/b", "two")).value, (await turn.tool(fail)).status]
        if turn.attempt == 1:
            raise Again
        found.append((await turn.tool(read, "/d/b")).value)
        found.append((await turn.tool(build, "d/b", "TWO")).value)
        return [*found, (await turn.tool(read, "/d/b")).value]

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r", key="1")
        found = await (await journal.retry("r", turn_id="1")).settle(20, serve=True)
        assert found == [["a"], "error", "two", ["a", "d", "d/b"], "TWO"]
        assert await work.run(None, run_id="r", key="2") == ["a", "d", "d/b"]
        named = [c.snapshot for c in await changes_of(journal, "r")]
        assert [(s.files, s.size) for s in named if s is not None] == [(1, 3), (2, 6), (2, 6), (3, 11)]
    info = await workspace.inspect("r")
    assert (info.state, info.ended, info.snapshot) == ("paused", "succeeded", named[-1] and named[-1].id)
    assert os.listdir(Path(workspace.lifecycle.find("r"), "trees")) == []


async def test_commands_run_in_the_directory_and_their_changes_are_in_the_snapshot(tmp_path: Path) -> None:
    """Links are kept as they are, and never followed; empty directories are kept."""
    run = HostCommands(cwd="workspace", allow=["sh", "git"]).tool()
    journal = Journal(f"sqlite:{tmp_path / 'j.db'}")
    inside = "printf new > made/b; cat a; rm c; ln -s /etc/passwd out; ln -s nowhere made/gone; mkdir -p e/f; >$HOME/h"

    @journal.agent(workspace=DirectoryWorkspace(tmp_path / "root"))
    async def work(turn: Turn, _: None) -> Any:
        for path in ("/a", "/c", "/made/x"):
            await turn.tool(write, path, path)
        result = (await turn.tool(run, ["sh", "-c", inside])).value
        assert (await turn.tool(run, ["sh", "-c", "exit 3"])).value.returncode == 3
        if turn.attempt == 1:
            raise Again
        listed = (await turn.tool(run, ["sh", "-c", "ls -A . made e; readlink out"])).value.stdout
        for path in ("/out", "/made/gone", "/out/x"):
            assert "symbolic link" in (await turn.tool(read, path)).text or path == "/out/x"
            assert "refused" in (await turn.tool(write, path, "x")).text
        return [result.stdout, listed.split(), (await turn.tool(read, "/made/b")).value]

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        stdout, listed, text = await (await journal.retry("r")).settle(20, serve=True)
        assert (stdout, text) == ("/a", "new")
        assert listed == [".:", "a", "e", "made", "out", "e:", "f", "made:", "b", "gone", "x", "/etc/passwd"]
        assert await journal.files.glob("r") == ["/a", "/made/b", "/made/gone", "/made/x", "/out"]
        with pytest.raises(PathRefused, match="symbolic link"):
            await journal.files.read("r", "/out")


async def test_what_is_no_file_is_left_out_and_told(tmp_path: Path) -> None:
    """Pipes, sockets, devices, names that are no text; the directory is without them from then on."""
    journal = Journal("memory:")

    @tool(replay="safe")
    async def make() -> None:
        async with io.files.directory() as directory:
            os.mkfifo(f"{directory.path}/pipe")
            with socket.socket(socket.AF_UNIX) as unix:
                handle = os.open(directory.path, os.O_RDONLY)
                unix.bind(f"/proc/self/fd/{handle}/socket")  # a socket's own path is a short one
                os.close(handle)
            if os.geteuid() == 0:
                os.mknod(f"{directory.path}/zero", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
            Path(os.fsdecode(b"%s/\xff" % directory.path.encode())).write_text("x")
            Path(directory.path, "kept").write_text("x")

    @journal.agent(workspace=DirectoryWorkspace(tmp_path / "root"))
    async def work(turn: Turn, _: None) -> Any:
        result = await turn.tool(make)
        assert "/pipe: it is a pipe" in result.text
        return [list(result.rejected), (await turn.tool(build, "b", "x")).value]

    async with journal:
        rejected, there = await work.run(None, run_id="r")
    expected = {"/pipe", "/socket", "/?"} | ({"/zero"} if os.geteuid() == 0 else set())
    assert set(rejected) == expected
    assert there == ["kept"]


async def test_what_is_no_file_is_told_also_if_the_call_goes_back_into_its_directory(tmp_path: Path) -> None:
    """There it is gone by then, and what has taken its place since is kept, and not complained of."""
    journal = Journal("memory:")

    @tool(replay="safe")
    async def make() -> list[str]:
        async with io.files.directory() as directory:
            os.mkfifo(f"{directory.path}/pipe")
            os.mkfifo(f"{directory.path}/other")
        async with io.files.directory() as directory:
            there = os.listdir(directory.path)
            Path(directory.path, "other").write_text("x")
        return there

    @journal.agent(workspace=DirectoryWorkspace(tmp_path / "root"))
    async def work(turn: Turn, _: None) -> Any:
        result = await turn.tool(make)
        return [result.value, list(result.rejected)]

    async with journal:
        assert await work.run(None, run_id="r") == [[], ["/pipe"]]
        assert await journal.files.glob("r") == ["/other"]


async def test_a_call_changes_files_in_its_directory_or_by_io_but_not_both_at_once(tmp_path: Path) -> None:
    """What `io.files` wrote meanwhile would be gone when the directory is read back."""
    journal = Journal("memory:")

    @tool(replay="safe")
    async def both() -> None:
        async with io.files.directory() as directory:
            for change in (
                io.files.write("/lost", "x"),
                io.files.delete("/old"),
                io.files.move("/old", "/new"),
            ):
                with pytest.raises(InvalidOptions, match="do it there, or after the block"):
                    await change
            assert await io.files.read_text("/old") == "old"
            Path(directory.path, "kept").write_text("x")
        await io.files.move("/old", "/new")

    @journal.agent(workspace=DirectoryWorkspace(tmp_path / "root"))
    async def work(turn: Turn, _: None) -> None:
        await turn.tool(write, "/old", "old")
        (await turn.tool(both)).value  # noqa: B018 - raises what went wrong

    async with journal:
        await work.run(None, run_id="r")
        assert await journal.files.glob("r") == ["/kept", "/new"]


async def test_a_hard_link_out_of_the_directory_is_not_written_through(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")

    @tool(replay="safe")
    async def link() -> None:
        async with io.files.directory() as directory:
            os.link(outside, f"{directory.path}/in")

    journal = Journal("memory:")

    @journal.agent(workspace=DirectoryWorkspace(tmp_path / "root"))
    async def work(turn: Turn, _: None) -> Any:
        await turn.tool(link)
        await turn.tool(write, "/in", "changed")
        return (await turn.tool(build, "b", "x")).value

    async with journal:
        assert await work.run(None, run_id="r") == ["in"]
        assert await journal.files.read("r", "/in") == b"changed"
    assert outside.read_text() == "mine"


@pytest.mark.parametrize(
    ("quota", "options", "fits", "limit", "actual"),
    [
        ("max_file_bytes", Quotas(max_file_bytes=3), "xyz", 3, 4),
        ("max_bytes", Quotas(max_bytes=4), "xyz", 4, 5),
        ("max_files", Quotas(max_files=2), "xyz", 2, 3),
    ],
)
async def test_quotas_of_what_programs_write(
    tmp_path: Path, quota: str, options: Quotas, fits: str, limit: int, actual: int
) -> None:
    """At the limit it is kept; one more and nothing is, neither in the log nor in the store of contents."""
    workspace = DirectoryWorkspace(
        tmp_path / "root",
        max_bytes=options.max_bytes,
        max_files=options.max_files,
        max_file_bytes=options.max_file_bytes,
    )
    journal = Journal("memory:")

    @tool(replay="safe")
    async def make(files: dict[str, str]) -> list[Any]:
        try:
            async with io.files.directory() as directory:
                for name, text in files.items():
                    Path(directory.path, name).write_text(text)
        except QuotaExceeded as error:
            return [error.quota, error.limit, error.actual, error.reason]
        return []

    @journal.agent(workspace=workspace)
    async def work(turn: Turn, _: None) -> list[Any]:
        more = {"max_files": {"c": ""}, "max_bytes": {"b": "22"}, "max_file_bytes": {"a": "1234"}}[quota]
        fitting = (await turn.tool(make, {"a": fits, "b": "1" if quota != "max_file_bytes" else ""})).value
        return [fitting, (await turn.tool(make, more)).value, (await turn.tool(make, {})).value]

    async with journal:
        assert await work.run(None, run_id="r") == [[], [quota, limit, actual, "quota_exceeded"], []]
        assert await journal.files.glob("r") == ["/a", "/b"]
        assert await journal.files.read("r", "/a") == b"xyz"
    assert len([1 for place, _, names in os.walk(tmp_path / "root" / "objects") for _ in names]) == 2
    assert os.listdir(tmp_path / "root" / "staging") == []


async def test_only_what_changed_is_read(tmp_path: Path) -> None:
    """And what is read is what changed, within a tick of the file system's clock and with its times set back too."""
    snapshots = Snapshots(str(tmp_path / "root"))
    snapshots.prepare(snapshots.place_of("r", b""))
    working = WorkingTree(snapshots.objects, f"{snapshots.place_of('r', b'')}/trees/1-a", Quotas())
    working.bring(Manifest())
    for number in range(50):
        Path(working.path, str(number)).write_text(f"{number:04}")
    before = working.scan()
    assert before.read == 50
    working.bring(before.manifest)
    while working.scan().read:  # those written within the tick of the first look, and no others
        working.bring(before.manifest)
    for turn in range(20):
        path = Path(working.path, "7")
        found = path.stat()
        path.write_text(f"x{turn:03}")  # as long as before
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
        after = working.scan()
        assert after.read <= 1
        file = after.manifest.tree.get("/7")
        assert file is not None
        assert snapshots.objects.read(file.digest) == b"x%03d" % turn
        working.bring(after.manifest)


async def test_a_call_that_has_the_directory_is_waited_for(tmp_path: Path) -> None:
    inside, at_work = [], []

    @tool(replay="safe")
    async def alone(name: str) -> None:
        async with io.files.directory() as directory:
            at_work.append(name)
            inside.append(len(at_work))
            await asyncio.sleep(0.01)
            Path(directory.path, name).write_text(name)
            at_work.remove(name)

    journal = Journal("memory:")

    @journal.agent(workspace=DirectoryWorkspace(tmp_path / "root"))
    async def work(turn: Turn, _: None) -> None:
        calls = [turn.tool(alone, f"a{n}") for n in range(4)] + [
            turn.tool(write, f"/w{n}", "w") for n in range(4)
        ]
        for result in await asyncio.gather(*calls):
            result.value  # noqa: B018 - raises what went wrong

    async with journal:
        await work.run(None, run_id="r")
        assert await journal.files.glob("r") == sorted(
            [f"/a{n}" for n in range(4)] + [f"/w{n}" for n in range(4)]
        )
    assert inside == [1, 1, 1, 1]


async def test_of_empty_directories_a_call_changes_those_that_it_changed(tmp_path: Path) -> None:
    """Also one that looked before another left some: it has a file where they are by now."""
    journal = Journal("memory:")
    looked, emptied = asyncio.Event(), asyncio.Event()

    @tool(replay="safe")
    async def late() -> None:
        await io.files.write("/c", "c")
        looked.set()
        await emptied.wait()
        async with io.files.directory() as directory:
            assert os.path.exists(f"{directory.path}/d/file")
            os.mkdir(f"{directory.path}/e")

    @tool(replay="safe")
    async def empty() -> None:
        await looked.wait()
        async with io.files.directory() as directory:
            os.unlink(f"{directory.path}/d/file")

    @tool(replay="safe")
    async def look() -> list[str]:
        async with io.files.directory() as directory:
            return sorted(str(path.relative_to(directory.path)) for path in Path(directory.path).rglob("*"))

    @journal.agent(workspace=DirectoryWorkspace(tmp_path / "root"))
    async def work(turn: Turn, _: None) -> Any:
        await turn.tool(write, "/d/file", "x")
        waiting = asyncio.ensure_future(turn.tool(late))
        (await turn.tool(empty)).value  # noqa: B018 - raises what went wrong
        emptied.set()
        (await waiting).value  # noqa: B018 - as above
        return (await turn.tool(look)).value

    async with journal:
        assert await work.run(None, run_id="r") == ["c", "d", "e"]


async def test_the_application_changes_files_while_a_call_has_the_directory(
    world_url: str, tmp_path: Path
) -> None:
    """What both changed is the application's, and the call is told; the rest is kept of both."""
    inside, go = asyncio.Event(), asyncio.Event()

    @tool(replay="safe")
    async def slow() -> None:
        async with io.files.directory() as directory:
            Path(directory.path, "both").write_text("call")
            Path(directory.path, "call").write_text("call")
            inside.set()
            await go.wait()

    journal = Journal(world_url)

    @journal.agent(workspace=DirectoryWorkspace(tmp_path / "root"))
    async def work(turn: Turn, _: None) -> Any:
        result = await turn.tool(slow)
        return [list(result.rejected), (await turn.tool(build, "b", "x")).value]

    async with journal:
        await work.submit(None, run_id="r")
        await journal.files.write("r", "/first", "x")
        running = asyncio.create_task(work.run(None, run_id="r"))
        await inside.wait()
        await journal.files.write("r", "/both", "application", is_executable=True)
        await journal.files.write("r", "/application", "application")
        await journal.files.delete("r", "/first")
        go.set()
        assert await running == [["/both"], ["application", "both", "call"]]
        assert await journal.files.read("r", "/both") == b"application"


async def test_forks_and_the_command_line_go_by_the_log(tmp_path: Path) -> None:
    """Each call's snapshot is named by its record; a fork has its own reference, and outlives its origin."""
    url = f"sqlite:{tmp_path / 'j.db'}"
    workspace = DirectoryWorkspace(tmp_path / "root")
    journal = Journal(url)

    @journal.agent(workspace=workspace)
    async def work(turn: Turn, _: None) -> Any:
        await turn.tool(write, "/a", "a" * 10_000)
        await turn.tool(build, "b", "b")
        return (await turn.tool(build, "c", "c")).value

    async with journal:
        await work.run(None, run_id="r")
        forked = await journal.fork("r", at=2, new_id="f")
        assert await journal.files.glob("f") == ["/a"]
        assert await forked.settle(20, serve=True) == ["a", "b"]
        await journal.files.delete("f", "/a")
        assert await journal.files.glob("r") == ["/a", "/b", "/c"]
        await journal.export("r", tmp_path / "r.jsonl")
        await workspace.cleanup("r", key="k")
        assert await journal.files.read("f", "/b") == b"b"

    def files(*arguments: str, code: int = 0) -> bytes:
        command = [sys.executable, "-m", "journal.cli", "files", *arguments, "--world", url]
        done = subprocess.run(command, capture_output=True, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    for name in ("r", str(tmp_path / "r.jsonl")):
        assert [line.split()[-1] for line in (await asyncio.to_thread(files, name)).splitlines()] == [
            b"/a",
            b"/b",
            b"/c",
        ]
        listed = await asyncio.to_thread(files, name, "--at", "2")
        assert listed.split() == [b"10,000", b"/a"]
        assert await asyncio.to_thread(files, name, "/b") == b"b"
    (tmp_path / "root").rename(tmp_path / "elsewhere")
    assert b"cannot be read" in await asyncio.to_thread(lambda: files("r", code=6))
    assert await asyncio.to_thread(files, "r", "/b", "--root", str(tmp_path / "elsewhere")) == b"b"


async def test_a_snapshot_that_is_not_there_blocks_the_turn_until_it_is(tmp_path: Path) -> None:
    journal = Journal("memory:")

    @journal.agent(workspace=DirectoryWorkspace(tmp_path / "root"))
    async def work(turn: Turn, _: None) -> Any:
        await turn.tool(write, f"/{turn.id}", "x")
        return (await turn.tool(build, f"b{turn.id}", "x")).value

    async with journal:
        await work.run(None, run_id="r", key="1")
        (tmp_path / "root").rename(tmp_path / "away")
        with pytest.raises(TurnBlocked, match="cannot be read under") as caught:
            await work.run(None, run_id="r", key="2")
        assert caught.value.reason == "workspace"
        shutil.rmtree(tmp_path / "root")
        (tmp_path / "away").rename(tmp_path / "root")
        handle = await journal.retry("r", turn_id="2")
        assert await handle.settle(20, serve=True) == ["1", "2", "b1"]


async def test_an_agent_that_changes_its_kind_of_workspace_is_told(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'j.db'}"
    kinds: list[VirtualWorkspace | DirectoryWorkspace] = [
        VirtualWorkspace(),
        DirectoryWorkspace(tmp_path / "root"),
    ]
    for number, pair in enumerate((kinds, kinds[::-1])):
        for key, kind in enumerate(pair):
            journal = Journal(url)

            @journal.agent(workspace=kind)
            async def work(turn: Turn, _: None) -> None:
                await turn.tool(write, "/a", "x")

            async with journal:
                if key == 0:
                    await work.run(None, run_id=f"r{number}", key="0")
                else:
                    with pytest.raises(TurnBlocked, match="it began with a"):
                        await work.run(None, run_id=f"r{number}", key="1")


@pytest.mark.parametrize("is_changed", [False, True])
async def test_a_result_that_came_too_late_brings_its_snapshot(tmp_path: Path, is_changed: bool) -> None:
    """The claim was lost while the tool ran: the next holder takes its outcome, and its files if it found the same."""
    url = f"sqlite:{tmp_path / 'j.db'}"
    inside, go = asyncio.Event(), asyncio.Event()

    def build_journal() -> tuple[Journal, Any]:
        journal = Journal(url, lease_seconds=30)

        @tool(replay="never")
        async def publish() -> str:
            async with io.files.directory() as directory:
                Path(directory.path, "a").write_text("mine")
                inside.set()
                await asyncio.shield(go.wait())
            return "published"

        @journal.agent(workspace=DirectoryWorkspace(tmp_path / "root"))
        async def work(turn: Turn, _: None) -> list[Any]:
            result = await turn.tool(publish)
            return [list(result.rejected), (await turn.tool(build, "b", "x")).value]

        return journal, work

    (one, work), (two, again) = build_journal(), build_journal()
    async with one, two:
        await work.submit(None, run_id="r")
        worker = asyncio.create_task(one.worker(concurrency=1).run())
        await inside.wait()
        (attempt,) = (await one.runtime()).attempts
        await usurp(url, "r", attempt.holding.claim)
        if is_changed:
            await two.files.write("r", "/a", "theirs")
        go.set()
        while not any(record.type == CallEvidence.TYPE for record in await two.read("r")):
            await asyncio.sleep(0.01)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        assert await again.run(None, run_id="r") == [["/"] if is_changed else [], ["a"]]
        assert await two.files.read("r", "/a") == (b"theirs" if is_changed else b"mine")
        named = {c.snapshot.id for c in await changes_of(two, "r") if c.snapshot is not None}
    workspace = DirectoryWorkspace(tmp_path / "root")
    assert named <= workspace.snapshots.referred(workspace.lifecycle.find("r"))


async def test_a_run_replays_offline_and_exported_without_its_root(tmp_path: Path) -> None:
    journal = Journal("memory:")

    @journal.agent(workspace=DirectoryWorkspace(tmp_path / "root"))
    async def work(turn: Turn, _: None) -> Any:
        await turn.tool(write, "/a", "x")
        return (await turn.tool(build, "b", "x")).value

    async with journal:
        await work.run(None, run_id="r")
        await journal.export("r", tmp_path / "r.jsonl")
    shutil.rmtree(tmp_path / "root")
    replayed = await replay(work, await read_file(tmp_path / "r.jsonl"))
    assert replayed.verdict == "same", replayed.detail
    assert not (tmp_path / "root").exists()


async def test_a_call_that_leaves_something_at_work_in_its_directory(tmp_path: Path) -> None:
    """What it writes after its call is in nobody's directory."""
    ended, left = asyncio.Event(), list[asyncio.Task[None]]()

    async def linger(files: Any) -> None:
        async with files.directory() as directory:
            handle = os.open(directory.path, os.O_RDONLY)
            ended.set()
            await asyncio.sleep(0.2)
            try:
                os.close(os.open("late", os.O_WRONLY | os.O_CREAT, dir_fd=handle))
            except FileNotFoundError:
                pass  # it is gone already
            os.close(handle)

    @tool(replay="safe")
    async def leave() -> None:
        left.append(asyncio.create_task(linger(io.files)))
        await ended.wait()

    journal = Journal("memory:")

    @journal.agent(workspace=DirectoryWorkspace(tmp_path / "root"))
    async def work(turn: Turn, _: None) -> Any:
        await turn.tool(leave)
        found = [(await turn.tool(build, "a", "x")).value]
        await asyncio.wait(left)
        return [*found, (await turn.tool(build, "b", "x")).value]

    async with journal:
        assert await work.run(None, run_id="r") == [[], ["a"]]
    assert isinstance(left[0].exception(), NotInTurn)


async def test_a_full_disk_costs_the_changes_and_not_the_outcome(tmp_path: Path) -> None:
    """The call is told, what was there before stays, and there is a way on once there is room."""
    journal = Journal("memory:")
    with small_disk(tmp_path / "root", "1m") as root:

        @journal.agent(workspace=DirectoryWorkspace(root))
        async def work(turn: Turn, _: None) -> Any:
            await turn.tool(write, "/a", "small")
            result = await turn.tool(write, "/big", "x" * 2_000_000)
            assert "No space left" in result.text
            found = [result.status, list(result.rejected), (await turn.tool(read, "/a")).value]
            await asyncio.to_thread(enlarge, root, "20m")
            again = await turn.tool(write, "/big", "x" * 2_000_000)
            return [*found, list(again.rejected), (await turn.tool(build, "b", "x")).value]

        async with journal:
            assert await work.run(None, run_id="r") == ["ok", ["/big"], "small", [], ["a", "big"]]
        assert os.listdir(root / "staging") == []


async def test_of_a_step_that_is_tried_again_only_the_last_try_counts(tmp_path: Path) -> None:
    tries: list[list[str]] = []

    @step(retry=Retry(tries=3, min_delay=0.0, max_delay=0.0))
    async def flaky() -> None:
        await io.files.write(f"/try-{len(tries)}", "x")
        async with io.files.directory() as directory:
            tries.append(sorted(os.listdir(directory.path)))
            Path(directory.path, f"made-{len(tries)}").write_text("x")
        if len(tries) < 3:
            raise ConnectionError("again")

    journal = Journal("memory:")

    @journal.agent(workspace=DirectoryWorkspace(tmp_path / "root"))
    async def work(turn: Turn, _: None) -> Any:
        await turn.step(flaky)
        return (await turn.tool(build, "b", "x")).value

    async with journal:
        assert await work.run(None, run_id="r") == ["made-3", "try-2"]
    assert tries == [["try-0"], ["try-1"], ["try-2"]]


@pytest.mark.parametrize("seed", range(3))
async def test_random_work_comes_to_what_a_dictionary_says(tmp_path: Path, seed: int) -> None:
    """By calls, by programs, by the application, across turns; some of it fails."""
    chance = random.Random(seed)
    model: dict[str, bytes] = {}
    paths = ["a", "b", "d/a", "d/e/b", "x/y"]
    journal = Journal("memory:")
    acts: list[Any] = []

    @tool(replay="safe")
    async def act(number: int) -> None:
        await acts[number](io.files)

    @journal.agent(workspace=DirectoryWorkspace(tmp_path / "root"))
    async def work(turn: Turn, numbers: list[int]) -> list[str]:
        return [(await turn.tool(act, number)).status for number in numbers]

    def planned() -> tuple[Any, bool]:
        """A call, and whether it fails; the model is changed as it will change the files, if it does not."""
        edits = [(chance.choice(paths), chance.choice([None, chance.randbytes(chance.choice([0, 5, 9000]))]))]
        edits.append((chance.choice(paths), chance.randbytes(4)))
        fails, by_program = chance.random() < 0.2, chance.random() < 0.6

        async def call(files: Any) -> None:
            if by_program:
                async with files.directory() as directory:
                    for name, data in edits:
                        path = Path(directory.path, name)
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.unlink(missing_ok=True)
                        if data is not None:
                            path.write_bytes(data)
                    if fails:
                        raise ValueError
            else:
                for name, data in edits:
                    if data is not None:
                        await files.write(f"/{name}", data)
                    elif await files.exists(f"/{name}"):
                        await files.delete(f"/{name}")
                if fails:
                    raise ValueError

        if not fails:
            for name, data in edits:
                model.pop(f"/{name}", None)
                if data is not None:
                    model[f"/{name}"] = data
        return call, fails

    async with journal:
        for turn in range(6):
            plans = [planned() for _ in range(4)]
            numbers = [*range(len(acts), len(acts) + 4)]
            acts += [call for call, _ in plans]
            statuses = await work.run(numbers, run_id="r", key=str(turn))
            assert statuses == ["error" if fails else "ok" for _, fails in plans]
            assert {
                path: await journal.files.read("r", path) for path in await journal.files.glob("r")
            } == model
            path = f"/{chance.choice(paths)}"
            model[path] = chance.randbytes(3)
            await journal.files.write("r", path, model[path])

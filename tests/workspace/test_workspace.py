"""Virtual workspaces: SEMANTICS 7, FAULTS 32."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from journal import Journal, Retry, Turn, TurnFailed, VirtualWorkspace, io, step, tool
from journal.core.codec import open_record
from journal.core.errors import (
    FileMissing,
    FileNotText,
    InvalidOptions,
    NotInTurn,
    PathRefused,
    QuotaExceeded,
    WorkspaceError,
)
from journal.core.records import CallOutcome, FileChange, FilesChanged
from journal.engine.offline import replay
from journal.engine.reading import read_file
from journal.engine.run_reader import RunReader

pytestmark = pytest.mark.anyio
BINARY = bytes(range(256))


@tool(replay="safe")
async def write(path: str, text: str) -> None:
    await io.files.write(path, text)


@tool(replay="safe")
async def read(path: str) -> str:
    return await io.files.read_text(path)


@tool(replay="safe")
async def delete(path: str) -> None:
    await io.files.delete(path)


class Again(RuntimeError):
    """Ends the first attempt."""


async def changes_of(journal: Journal, run: str) -> list[FileChange]:
    found: list[FileChange] = []
    for record in await journal.read(run):
        body = open_record(record)
        if isinstance(body, CallOutcome):
            found += body.files
        elif isinstance(body, FilesChanged):
            found += body.changes
    return found


async def contents_of(journal: Journal, run: str) -> dict[str, bytes]:
    return {path: await journal.files.read(run, path) for path in await journal.files.glob(run)}


async def test_one_tool_writes_and_another_reads(world_url: str) -> None:
    """Also after the turn was sent on, and in the next turn."""
    journal = Journal(world_url)

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> str:
        if turn.id == "2":
            return (await turn.tool(read, "/notes/a.txt")).value
        assert (await turn.tool(write, "/notes/a.txt", "tea")).status == "ok"
        found = (await turn.tool(read, "/notes/a.txt")).value
        if turn.attempt == 1:
            raise Again
        return found + (await turn.tool(read, "/notes/a.txt")).value

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r", key="1")
        assert await (await journal.retry("r", turn_id="1")).settle(20, serve=True) == "teatea"
        assert await work.run(None, run_id="r", key="2") == "tea"
        assert await journal.files.read("r", "/notes/a.txt") == b"tea"


async def test_everything_a_call_can_do(world_url: str) -> None:
    large = BINARY * 400

    @tool(replay="safe")
    async def everything() -> list[Any]:
        files = io.files
        await files.write("/a", BINARY)
        await files.write("/d/large", large, is_executable=True)
        await files.write("/d/empty", b"")
        await files.write("/d/e/text", "ä\0\r\n")
        await files.move("/d/large", "/moved")
        assert await files.read("/a") == BINARY
        assert await files.read("/moved") == large
        assert await files.read_text("/d/e/text") == "ä\0\r\n"
        assert (await files.exists("/d/large"), await files.exists("/d"), await files.exists("/a")) == (
            False,
            False,
            True,
        )
        await files.write("/gone", "x")
        await files.delete("/gone")
        with pytest.raises(FileNotText):
            await files.read_text("/a")
        for act in (files.read, files.delete):
            with pytest.raises(FileMissing):
                await act("/gone")
            with pytest.raises(PathRefused, match="directory"):
                await act("/d")
        return [
            [(each.path, each.is_directory, each.size) for each in await files.list()],
            [(each.path, each.is_directory, each.size) for each in await files.list("/d")],
            await files.glob("/**/e*"),
        ]

    @tool(replay="safe")
    async def afterwards() -> list[Any]:
        files = io.files
        await files.move("/moved", "/d/back")
        return [
            await files.read("/d/back") == large,
            await files.read("/a") == BINARY,
            await files.glob("/d/*"),
        ]

    journal = Journal(world_url)

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> list[Any]:
        return [(await turn.tool(everything)).value, (await turn.tool(afterwards)).value]

    async with journal:
        first, second = await work.run(None, run_id="r")
        assert first == [
            [["/a", False, 256], ["/d", True, 5], ["/moved", False, 102_400]],
            [["/d/e", True, 5], ["/d/empty", False, 0]],
            ["/d/empty"],
        ]
        assert second == [True, True, ["/d/back", "/d/empty"]]
        assert await contents_of(journal, "r") == {
            "/a": BINARY,
            "/d/back": large,
            "/d/empty": b"",
            "/d/e/text": "ä\0\r\n".encode(),
        }
        moved = [change for change in await changes_of(journal, "r") if change.path == "/d/back"]
        assert [(change.source, change.is_executable) for change in moved] == [("/moved", True)]


async def test_changes_vanish_with_the_call_that_raised_and_with_each_try(world_url: str) -> None:
    tries: list[int] = []

    @tool(replay="safe")
    async def breaks() -> None:
        await io.files.write("/lost", "x")
        raise ValueError

    @step(retry=Retry(tries=3, min_delay=0.0, max_delay=0.0))
    async def flaky() -> None:
        tries.append(1)
        assert await io.files.glob("/**") == []
        await io.files.write(f"/try-{len(tries)}", "x")
        if len(tries) < 3:
            raise ConnectionError

    journal = Journal(world_url)

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> None:
        assert (await turn.tool(breaks)).status == "error"
        await turn.step(flaky)

    async with journal:
        await work.run(None, run_id="r")
        assert await journal.files.glob("r") == ["/try-3"]


async def test_of_two_calls_that_change_one_path_the_later_is_rejected_there(world_url: str) -> None:
    """Its other files stand, and the model is told; a move counts as a whole or not at all."""
    inside, go_on = asyncio.Event(), asyncio.Event()

    @tool(replay="safe")
    async def slow() -> str:
        await io.files.write("/a", "mine")
        await io.files.write("/only/mine", "x")
        await io.files.move("/b", "/c")
        await io.files.delete("/d")
        inside.set()
        await go_on.wait()
        return "done"

    @tool(replay="safe")
    async def quick() -> None:
        for path in ("/a", "/c", "/d"):
            await io.files.write(path, "theirs")

    journal = Journal(world_url)

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> Any:
        for path in ("/a", "/b", "/d"):
            await turn.tool(write, path, "old")
        running = asyncio.create_task(turn.tool(slow))
        await inside.wait()
        assert not (await turn.tool(quick)).rejected
        go_on.set()
        result = await running
        if turn.attempt == 1:
            raise Again
        return [result.value, sorted(result.rejected), result.text]

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        assert await contents_of(journal, "r") == {
            "/a": b"theirs",
            "/b": b"old",
            "/c": b"theirs",
            "/d": b"theirs",
            "/only/mine": b"x",
        }
        rejected = {c.path: c.rejected for c in await changes_of(journal, "r") if c.rejected is not None}
        meanwhile = "it was changed meanwhile"
        assert rejected == {
            "/a": meanwhile,
            "/b": "it was to be moved together with '/c'",
            "/c": meanwhile,
            "/d": meanwhile,
        }
        value, paths, text = await (await journal.retry("r")).settle(20, serve=True)
        assert (value, paths) == ("done", ["/a", "/b", "/c", "/d"])
        assert text.partition("\n")[2] == (
            "(Not saved: /a, /c, /d changed meanwhile. Read again before editing again.)\n"
            "(Not saved: /b: it was to be moved together with '/c'.)"
        )


async def test_halves_of_a_move_go_together_only_while_they_are_halves(world_url: str) -> None:
    """Not once there is another file where it came from; and what the call itself made came from nowhere."""

    @tool(replay="safe")
    async def shuffle() -> None:
        await io.files.move("/a", "/b")
        await io.files.write("/a", "new")
        await io.files.write("/made", "x")
        await io.files.move("/made", "/named")
        await io.files.move("/c", "/d")
        await io.files.move("/d", "/e")
        await io.files.move("/f", "/g")
        await io.files.delete("/g")

    journal = Journal(world_url)

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> None:
        for path in ("/a", "/c", "/f"):
            await turn.tool(write, path, path)
        assert (await turn.tool(shuffle)).status == "ok"

    async with journal:
        await work.run(None, run_id="r")
        changes = (await changes_of(journal, "r"))[3:]
        assert {change.path: change.source for change in changes} == {
            "/a": None,
            "/b": None,
            "/named": None,
            "/c": None,
            "/e": "/c",
            "/f": None,
        }
        assert await contents_of(journal, "r") == {"/a": b"new", "/b": b"/a", "/named": b"x", "/e": b"/c"}


async def test_the_application_changes_files_under_a_running_call(world_url: str) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    @tool(replay="safe")
    async def slow() -> None:
        await io.files.write("/a", "mine")
        await io.files.write("/b", "mine")
        inside.set()
        await go_on.wait()
        assert not await io.files.exists("/c"), "a call sees the tree as it was when it first looked"

    journal = Journal(world_url)

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> Any:
        result = await turn.tool(slow)
        return [list(result.rejected), (await turn.tool(read, "/c")).value]

    async with journal:
        running = asyncio.create_task(work.run(None, run_id="r"))
        await inside.wait()
        await journal.files.write("r", "/a", "theirs")
        await journal.files.write("r", "/c", b"x" * 10_000)
        go_on.set()
        assert await running == [["/a"], "x" * 10_000]
        assert await journal.files.read("r", "/a") == b"theirs"
        assert await journal.files.read("r", "/b") == b"mine"
        await journal.files.delete("r", "/a")
        with pytest.raises(FileMissing):
            await journal.files.delete("r", "/a")
        assert [each.path for each in await journal.files.list("r")] == ["/b", "/c"]


async def test_calls_in_parallel_all_write(world_url: str) -> None:
    journal = Journal(world_url)

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> None:
        await asyncio.gather(*(turn.tool(write, f"/{n}", str(n)) for n in range(20)))

    async with journal:
        await work.run(None, run_id="r")
        assert await contents_of(journal, "r") == {f"/{n}": str(n).encode() for n in range(20)}


async def test_a_file_and_a_directory_of_one_name_made_at_once(world_url: str) -> None:
    """The tree never has both: whichever comes second is rejected."""
    both = asyncio.Barrier(2)

    @tool(replay="safe")
    async def make(path: str) -> None:
        await io.files.write(path, "x")
        await both.wait()

    journal = Journal(world_url)

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> list[list[str]]:
        found = await asyncio.gather(turn.tool(make, "/a"), turn.tool(make, "/a/b"))
        return [list(each.rejected) for each in found]

    async with journal:
        rejected = await work.run(None, run_id="r")
        there = await journal.files.glob("r")
        assert sorted([*there, *(path for each in rejected for path in each)]) == ["/a", "/a/b"]
        assert len(there) == 1


# Paths and quotas ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("a", "relative"),
        ("", "relative"),
        ("./a", "relative"),
        ("/", "root"),
        ("/a/../b", r"\.\."),
        ("/..", r"\.\."),
        ("/./a", r"\. or"),
        ("/a//b", "empty name"),
        ("//a", "empty name"),
        ("/a/", "empty name"),
        ("/a\0b", "NUL"),
        ("/\ud800", "Unicode"),
        ("/" + "x" * 1024, "1,025 bytes"),
        ("/file/x", "passes through the file '/file'"),
        ("/file/x/y", "passes through the file '/file'"),
        ("/dir", "directory"),
    ],
)
async def test_paths_that_are_none_are_refused_by_name(path: str, why: str) -> None:
    @tool(replay="safe")
    async def attempt(which: int) -> None:
        await io.files.write("/file", "x")
        await io.files.write("/dir/x", "x")
        with pytest.raises(PathRefused, match=why):
            await io.files.write(path, "x")
        with pytest.raises(PathRefused, match=why):
            await io.files.move("/file" if which == 0 and path.startswith("/dir") else "/dir/x", path)
        assert await io.files.glob("/**") == ["/dir/x", "/file"]

    journal = Journal("memory:")

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> None:
        (await turn.tool(attempt, 0)).value  # noqa: B018 - raises what went wrong

    async with journal:
        await work.run(None, run_id="r")
        with pytest.raises(PathRefused, match=why):
            await journal.files.write("r", path, "x")


def test_reasons_are_words() -> None:
    reasons = {
        PathRefused(path="/", why="").reason,
        FileMissing(path="/").reason,
        QuotaExceeded(quota="max_files", limit=1, actual=2).reason,
    }
    assert reasons == {"invalid_reference", "not_found", "quota_exceeded"}
    assert all(issubclass(each, WorkspaceError) for each in (PathRefused, FileMissing, QuotaExceeded))


@pytest.mark.parametrize(
    ("quota", "limits", "fits", "limit", "actual"),
    [
        ("max_file_bytes", VirtualWorkspace(max_file_bytes=3), "xyz", 3, 4),
        ("max_bytes", VirtualWorkspace(max_bytes=4), "xyz", 4, 5),
        ("max_files", VirtualWorkspace(max_files=2), "xyz", 2, 3),
    ],
)
async def test_quotas_hold_at_the_limit(
    quota: str, limits: VirtualWorkspace, fits: str, limit: int, actual: int
) -> None:
    """What fits exactly is taken; one more is an error that says how much, and rebuilt on replay."""

    @tool(replay="safe")
    async def fill() -> None:
        await io.files.write("/one", fits)
        if quota != "max_file_bytes":
            await io.files.write("/two", "x")
        before = [await io.files.read(path) for path in await io.files.glob("/**")]
        with pytest.raises(QuotaExceeded):
            await io.files.write("/one" if quota != "max_files" else "/three", fits + "x")
        assert [await io.files.read(path) for path in await io.files.glob("/**")] == before
        await io.files.write("/one", fits[::-1])

    @tool(replay="safe")
    async def over() -> None:
        await io.files.write("/one" if quota != "max_files" else "/three", fits + "x")

    journal = Journal("memory:")

    @journal.agent(workspace=limits)
    async def work(turn: Turn, _: None) -> list[Any]:
        (await turn.tool(fill)).value  # noqa: B018 - raises what went wrong
        failure = (await turn.tool(over)).failure
        assert isinstance(failure, QuotaExceeded)
        if turn.attempt == 1:
            raise Again
        return [failure.quota, failure.limit, failure.actual]

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        assert await (await journal.retry("r")).settle(20, serve=True) == [quota, limit, actual]
        assert await journal.files.read("r", "/one") == b"zyx"
        with pytest.raises(QuotaExceeded):
            await journal.files.write("r", "/one" if quota != "max_files" else "/three", fits + "x")


async def test_quotas_are_measured_again_where_changes_come_together(world_url: str) -> None:
    """Each of the two calls would fit alone."""
    both = asyncio.Barrier(2)

    @tool(replay="safe")
    async def make(path: str) -> None:
        await io.files.write(path, "xxx")
        await both.wait()

    journal = Journal(world_url)

    @journal.agent(workspace=VirtualWorkspace(max_bytes=5))
    async def work(turn: Turn, _: None) -> None:
        await asyncio.gather(turn.tool(make, "/a"), turn.tool(make, "/b"))

    async with journal:
        await work.run(None, run_id="r")
        assert len(await journal.files.glob("r")) == 1
        rejected = [change.rejected for change in await changes_of(journal, "r") if change.rejected]
        assert rejected == ["max_bytes=5 would be exceeded: 6"]


# Elsewhere -----------------------------------------------------------------------------------------


async def test_without_a_workspace_there_are_no_files(world_url: str) -> None:
    journal = Journal(world_url)

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        return str((await turn.tool(write, "/a", "x")).failure)

    async with journal:
        assert "workspace=VirtualWorkspace()" in await work.run(None, run_id="r")
        with pytest.raises(InvalidOptions, match="no durable workspace"):
            await journal.files.write("r", "/a", "x")


async def test_files_of_a_call_are_dead_after_it() -> None:
    kept: list[Any] = []

    @tool(replay="safe")
    async def keep() -> None:
        kept.append(io.files)

    journal = Journal("memory:")

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> None:
        await turn.tool(keep)

    async with journal:
        await work.run(None, run_id="r")
    for act in (kept[0].write("/a", "x"), kept[0].read("/a"), kept[0].glob("/**"), kept[0].exists("/a")):
        with pytest.raises(NotInTurn, match="has ended"):
            await act


async def test_files_that_are_not_durable_live_as_long_as_the_turn(world_url: str) -> None:
    journal = Journal(world_url)

    @journal.agent(workspace=VirtualWorkspace(durable=False))
    async def work(turn: Turn, _: None) -> list[Any]:
        before = (await turn.tool(read, "/a")).status
        await turn.tool(write, "/a", "x" * 5000)
        await turn.tool(write, "/b", "y")
        await turn.tool(delete, "/b")
        return [before, (await turn.tool(read, "/a")).value, (await turn.tool(read, "/b")).status]

    async with journal:
        for key in ("1", "2"):
            assert await work.run(None, run_id="r", key=key) == ["error", "x" * 5000, "error"]
        assert await changes_of(journal, "r") == []
        with pytest.raises(InvalidOptions, match="no durable workspace"):
            await journal.files.glob("r")


async def test_a_fork_has_the_files_as_the_call_found_them(world_url: str) -> None:
    """Changes of the application too; the origin's stay as they are."""
    journal = Journal(world_url)
    gate, inside = asyncio.Event(), asyncio.Event()

    @tool(replay="safe")
    async def wait() -> None:
        inside.set()
        await gate.wait()

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> None:
        await turn.tool(write, "/a", "a" * 100_000)
        await turn.tool(wait)
        await turn.tool(write, "/c", "c")
        await turn.tool(delete, "/a")

    async with journal:
        running = asyncio.create_task(work.run(None, run_id="r"))
        await inside.wait()
        await journal.files.write("r", "/b", b"b" * 100_000)
        gate.set()
        await running
        forked = await journal.fork("r", at=4, new_id="f")
        assert await contents_of(journal, "f") == {"/a": b"a" * 100_000, "/b": b"b" * 100_000, "/c": b"c"}
        await forked.settle(20, serve=True)
        await journal.files.write("f", "/b", "only here")
        assert await contents_of(journal, "r") == {"/b": b"b" * 100_000, "/c": b"c"}
        assert await contents_of(journal, "f") == {"/b": b"only here", "/c": b"c"}


async def test_an_exported_run_has_its_files_and_replays(world_url: str, tmp_path: Path) -> None:
    journal = Journal(world_url)

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> list[str]:
        for path, text in (("/a", "a"), ("/b", "b" * 100_000)):
            await turn.tool(write, path, text)
        return [(await turn.tool(read, path)).value for path in ("/a", "/b")]

    async with journal:
        await work.run(None, run_id="r")
        await journal.export("r", tmp_path / "r.jsonl")
    replayed = await replay(work, await read_file(tmp_path / "r.jsonl"))
    assert replayed.verdict == "same", replayed.detail
    for arguments, expected in ((["/b"], b"b" * 100_000), (["/a"], b"a"), ([], b"/b")):
        command = [sys.executable, "-m", "journal.cli", "files", str(tmp_path / "r.jsonl"), *arguments]
        found = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
        assert expected in found.stdout if not arguments else found.stdout == expected
    command = [sys.executable, "-m", "journal.cli", "files", str(tmp_path / "r.jsonl"), "--at", "2", "--json"]
    found = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
    assert b'"/a"' in found.stdout
    assert b'"/b"' not in found.stdout


async def test_calls_that_a_retry_set_aside_changed_nothing(world_url: str) -> None:
    journal = Journal(world_url)

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> list[str]:
        await turn.tool(write, "/a", "1")
        await turn.tool(write, "/a", "2")
        await turn.tool(write, "/b", "2")
        if turn.attempt < 3:
            raise Again
        return [(await turn.tool(read, path)).value for path in ("/a", "/b")]

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        handle = await journal.retry("r", from_call=2)
        assert await contents_of(journal, "r") == {"/a": b"1"}
        with pytest.raises(TurnFailed):
            await handle.settle(20, serve=True)
        assert await contents_of(journal, "r") == {"/a": b"2", "/b": b"2"}
        handle = await journal.retry("r", from_call=4)  # the second one, made again
        assert await contents_of(journal, "r") == {"/a": b"1"}
        assert await handle.settle(20, serve=True) == ["2", "2"]


async def test_a_call_that_failed_first_is_known_by_its_later_try(world_url: str) -> None:
    """Its error was set aside, then it wrote, then it is set aside whole."""
    lives: list[int] = []

    @step
    async def flaky() -> None:
        lives.append(1)
        if len(lives) == 1:
            raise ValueError("once")
        await io.files.write("/a", str(len(lives)))

    journal = Journal(world_url)

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> str:
        await turn.tool(write, "/before", "x")
        await turn.step(flaky)
        if turn.attempt == 2:
            raise Again
        return (await turn.tool(read, "/a")).value

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        with pytest.raises(TurnFailed):
            await (await journal.retry("r")).settle(20, serve=True)
        assert await contents_of(journal, "r") == {"/before": b"x", "/a": b"2"}
        handle = await journal.retry("r", from_call=3)
        assert await contents_of(journal, "r") == {"/before": b"x"}
        assert await handle.settle(20, serve=True) == "3"


async def test_a_crash_between_change_and_outcome_leaves_nothing(tmp_path: Path) -> None:
    """The first attempt is lost within the call; the second writes once."""
    url = f"sqlite:{tmp_path / 'j.db'}"
    hanging = asyncio.Event()
    lives: list[int] = []

    @tool(replay="safe")
    async def slow() -> list[str]:
        lives.append(1)
        there = await io.files.glob("/**")
        await io.files.write(f"/life-{len(lives)}", "x")
        if len(lives) == 1:
            hanging.set()
            await asyncio.Event().wait()
        return there

    def build() -> tuple[Journal, Any]:
        journal = Journal(url)

        @journal.agent(workspace=VirtualWorkspace())
        async def work(turn: Turn, _: None) -> list[str]:
            await turn.tool(write, "/before", "x")
            return (await turn.tool(slow)).value

        return journal, work

    journal, work = build()
    running = asyncio.create_task(work.run(None, run_id="r"))
    await hanging.wait()
    await journal.aclose()
    await asyncio.wait({running})
    journal, work = build()
    async with journal:
        assert await work.run(None, run_id="r") == ["/before"]
        assert await journal.files.glob("r") == ["/before", "/life-2"]
        reader = RunReader((await journal.runtime()).world, "r")
        await reader.read_on()
        assert (reader.folded.workspace.tree.count, reader.folded.workspace.tree.size) == (2, 2)

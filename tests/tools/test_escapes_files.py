"""An hour of trying to get out of a workspace by its paths, and to bring down the worker by its tools. FAULTS 32.

Every attempt stands here by name. What must hold: a path means one file of the workspace, spelled in one way, or is
refused; nothing of the host is touched; no tool takes long, or much memory, or floods the model.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from journal import Journal, Turn, VirtualWorkspace, io, tool
from journal.core.errors import InvalidValue, PathRefused, WorkspaceError
from journal.replay.workspace import File, Tree
from journal.tools.files import (
    delete_file,
    edit_file,
    glob_files,
    grep_files,
    list_files,
    move_file,
    read_file,
    write_file,
)
from journal.tools.workspace import matching

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

# {host} is a file of the host.
SPELLINGS = {
    "relative": "own",
    "empty": "",
    "a host path, from the root by dots": "/../..{host}",
    "dots at the end": "/own/..",
    "dots in the middle": "/a/../own",
    "a dot": "/./own",
    "only dots": "/..",
    "doubled slash": "//own",
    "doubled in the middle": "/dir//x",
    "trailing slash": "/own/",
    "the root": "/",
    "home": "~/own",
    "a drive": "C:\\own",
    "backslashes": "..\\..\\own",
    "a URL": "file://{host}",
    "NUL at the end": "/own\0",
    "NUL in the middle": "/own\0.txt",
    "a line break": "/own\n",
    "a carriage return": "/own\r",
    "an escape sequence": "/\x1b[2Jown",
    "a bell": "/own\x07",
    "DEL": "/own\x7f",
    "a C1 control": "/own\x9b",
    "a line separator": "/own\u2028/x",
    "a leading blank": " /own",
    "a byte order mark": "\ufeff/own",
    "through a file": "/own/x",
    "deep through a file": "/own/x/y/z",
    "a directory": "/dir",
    "1,025 bytes": "/" + "x" * 1024,
    "1,025 bytes of few characters": "/" + "\u20ac" * 341 + "xx",
    "65 names": "/x" * 65,
    "a thousand dots": "/" + "../" * 1000 + "own",
    "a hundred thousand characters": "/" + "x" * 100_000,
    "fullwidth dots and slash": "\uff0f\uff0e\uff0e\uff0fown",
    "percent signs, relative": "%2fown",
}
Attempt = Callable[[str], Awaitable[Any]]
WRITING: dict[str, Attempt] = {
    "write": lambda path: io.files.write(path, b"x"),
    "write nothing": lambda path: io.files.write(path, b""),
    "move to": lambda path: io.files.move("/dir/x", path),
    "write_file": lambda path: write_file(path, "x"),
    "move_file to": lambda path: move_file("/dir/x", path),
}
READING: dict[str, Attempt] = {
    "read": lambda path: io.files.read(path),
    "stat": lambda path: io.files.stat(path),
    "delete": lambda path: io.files.delete(path),
    "move": lambda path: io.files.move(path, "/moved"),
    "read_file": lambda path: read_file(path),
    "edit_file": lambda path: edit_file(path, "own", "x"),
    "delete_file": lambda path: delete_file(path),
    "move_file": lambda path: move_file(path, "/moved"),
}


async def in_a_call(attempt: Callable[[], Awaitable[Any]], workspace: VirtualWorkspace | None = None) -> Any:
    """What `attempt` comes to, inside a call whose workspace has `/own` and `/dir/x`."""

    @tool(replay="safe")
    async def call() -> Any:
        await io.files.write("/own", "own")
        await io.files.write("/dir/x", "x")
        await io.files.write("/dir/y", "y")
        return await attempt()

    journal = Journal("memory:")

    @journal.agent(workspace=workspace or VirtualWorkspace())
    async def work(turn: Turn, _: None) -> Any:
        return (await turn.tool(call)).value

    async with journal:
        return await work.run(None)


@pytest.mark.parametrize("name", SPELLINGS)
async def test_a_spelling_that_is_no_path_is_refused_by_everything(name: str, tmp_path: Path) -> None:
    host = tmp_path / "own"
    host.write_text("of the host")
    path = SPELLINGS[name].format(host=host)

    async def attempt() -> list[str]:
        passed = []
        for how, act in (WRITING | READING).items():
            try:
                await act(path)
            except WorkspaceError:
                continue
            passed.append(how)
        assert await io.files.glob("/**") == ["/dir/x", "/dir/y", "/own"]
        assert [await io.files.read(each) for each in ("/dir/x", "/own")] == [b"x", b"own"]
        return passed

    assert await in_a_call(attempt) == []
    assert [each.name for each in tmp_path.iterdir()] == ["own"]
    assert host.read_text() == "of the host"


@pytest.mark.parametrize("name", SPELLINGS)
async def test_the_application_is_refused_it_too(name: str, tmp_path: Path) -> None:
    path = SPELLINGS[name].format(host=tmp_path / "own")
    journal = Journal("memory:")

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> None:
        await turn.tool(write_file, "/own", "own")
        await turn.tool(write_file, "/dir/x", "x")

    async with journal:
        await work.run(None, run_id="r")
        for attempt in (
            lambda: journal.files.write("r", path, b"x"),
            lambda: journal.files.read("r", path),
            lambda: journal.files.delete("r", path),
        ):
            with pytest.raises(WorkspaceError):
                await attempt()
        assert await journal.files.glob("r") == ["/dir/x", "/own"]


OTHERS = {
    "upper case": "/OWN",
    "composed": "/caf\u00e9",
    "decomposed": "/cafe\u0301",
    "compatibility form": "/\uff4f\uff57\uff4e",
    "Greek omicron": "/\u03bfwn",
    "percent signs": "/%2e%2e%2fown",
    "a zero-width character": "/own\u200b",
    "right to left": "/own\u202etxt",
    "a trailing dot": "/own.",
    "a trailing blank": "/own ",
    "a colon": "/own:stream",
    "three dots": "/...",
    "a backslash": "/..\\own",
    "a device of another system": "/NUL",
    "of the host's tree": "/etc/passwd",
    "of the process": "/proc/self/environ",
    "a dash": "/-rf",
    "a pattern": "/[o]wn*?",
    "with a dollar": "/$HOME/`id`",
    "1,024 bytes": "/" + "x" * 1023,
    "64 names": "/x" * 64,
    "a plane beyond the first": "/\U0001f40d",
}


async def test_every_other_spelling_is_another_file() -> None:
    """Nothing is folded: neither case nor Unicode forms; and nothing has a meaning beside being a name."""

    async def attempt() -> bool:
        for name, path in OTHERS.items():
            await write_file(path, name)
        paths = sorted([*OTHERS.values(), "/own", "/dir/x", "/dir/y"])
        assert await io.files.glob("/**") == paths
        for name, path in OTHERS.items():
            assert await io.files.read_text(path) == name
            assert path in (await grep_files(name))
            await delete_file(path)
        assert await io.files.read_text("/own") == "own"
        return await io.files.glob("/**") == ["/dir/x", "/dir/y", "/own"]

    assert await in_a_call(attempt)


@pytest.mark.parametrize("path", ["/\ud800", "/own\udcff"])
async def test_half_a_character_is_no_path_and_no_text(path: str) -> None:
    async def attempt() -> list[str]:
        told = []
        for act in (*WRITING.values(), *READING.values()):
            with pytest.raises(PathRefused) as caught:
                await act(path)
            told.append(str(caught.value).encode().decode())
        return told

    assert all("no Unicode text" in each for each in await in_a_call(attempt))
    journal = Journal("memory:")

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> None:
        with pytest.raises(InvalidValue):
            await turn.tool(write_file, "/own", path)

    async with journal:
        await work.run(None)


MEBI = 1024 * 1024
HEAVY: dict[str, Callable[[], Awaitable[str]]] = {
    "an edit of a million places": lambda: edit_file("/own", "a", "x" * MEBI, replace_all=True),
    "an edit that is not there, of a million lines": lambda: edit_file("/lines", "a\n" * MEBI + "b", "x"),
    "an edit of white space alone": lambda: edit_file("/lines", "\n \n" * 100_000, "x"),
    "an edit over a file of line breaks": lambda: edit_file("/breaks", "\n\n\tx", "y"),
    "an edit that tells of a million places": lambda: edit_file("/own", "a", "b"),
    "a read of one line without end": lambda: read_file("/own"),
    "a read of a million lines": lambda: read_file("/lines", 1, 2**63 - 1),
    "a read from far behind": lambda: read_file("/lines", 2**63 - 1, 2**63 - 1),
    "a read from before": lambda: read_file("/lines", -(2**63), -(2**63)),
    "a search with hits in every line": lambda: grep_files("a"),
    "a search for a line break": lambda: grep_files("\n"),
    "a search for what looks like a regular expression": lambda: grep_files("(a+)+$"),
    "a search that folds case": lambda: grep_files("A" * 1000, ignore_case=True),
    "a list of long names": lambda: list_files("/many"),
    "a glob of long names": lambda: glob_files("/many/*"),
    "a search in long names": lambda: grep_files("needle", "/many/*"),
    "a glob of all": lambda: glob_files("/**"),
    "a glob of many stars": lambda: glob_files("/many/" + "*x" * 400 + "y"),
    "a glob of many directories": lambda: glob_files("/" + "**/?*/" * 100 + "z"),
    "a glob of nothing but directories": lambda: glob_files("/" + "**/" * 300),
    "a glob without end": lambda: glob_files("/" + "*" * 100_000),
    "a glob of brackets": lambda: glob_files("/" + "[" * 500 + "]" * 500),
    "a glob of odd brackets": lambda: glob_files("/[z-a]/[]-a]/[!]/[a-]/[\\]"),
    "a glob with NUL": lambda: glob_files("/\0*"),
    "a relative glob": lambda: glob_files("../**"),
}


@pytest.mark.parametrize("name", HEAVY)
async def test_no_tool_takes_long_or_much_or_says_too_much(name: str) -> None:
    """Without their bounds some of these run for days, or ask for terabytes; the time limit of the test tells."""

    async def attempt() -> int:
        await io.files.write("/own", "a" * 8 * MEBI)
        await io.files.write("/lines", "a\n" * 4 * MEBI)
        await io.files.write("/breaks", "\n" * 8 * MEBI)
        for number in range(300):
            await io.files.write(f"/many/{'x' * 1000}{number}", "needle")
        try:
            return len(await HEAVY[name]())
        except WorkspaceError as error:
            return len(str(error))

    assert await in_a_call(attempt) < 70_000


def test_a_glob_that_would_take_minutes_says_so() -> None:
    """Ten thousand files, each as deep as may be, against a pattern in which every place is alive at every name."""
    paths = [f"/{number}" + "/x" * 63 for number in range(10_000)]
    with pytest.raises(PathRefused, match="takes too long"):
        matching("/" + "**/?*/" * 150 + "z", paths)
    assert len(matching("/**", paths)) == 10_000
    common = [f"/src/a/b/c/d/e/f/{number}.py" for number in range(10_000)]
    assert len(matching("/**/d/**/*.py", common)) == 10_000


def test_the_directories_of_the_deepest_files_fit_in_memory() -> None:
    """What a tree keeps of directories is bounded by names a path, not by bytes a path."""
    tree = Tree()
    for number in range(100):
        tree.put(f"/{number}" + "/x" * 63, File(b"", 0, 0, True))
    assert len(tree.directories) == 100 * 63 + 1


async def test_thousands_of_files_within_the_quota() -> None:
    async def attempt() -> list[str]:
        for number in range(4997):
            await io.files.write(f"/d{number % 50}/{number}", b"")
        with pytest.raises(WorkspaceError, match="max_files=5,000"):
            await io.files.write("/one-more", b"")
        return [await list_files(), await glob_files("/**"), await list_files("/d0")]

    root, everything, one = await in_a_call(attempt, VirtualWorkspace(max_files=5000))
    assert len(root.splitlines()) == 52
    assert everything.endswith("(paths 1 to 1000 of 5,000; go on with offset=1001)")
    assert len(one.splitlines()) == 100

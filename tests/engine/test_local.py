"""`Journal.local`: one directory, of its user alone; closed by SIGTERM; host commands only where switched on."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from journal import Journal, Turn, VirtualWorkspace, io
from journal.core.codec import open_record
from journal.core.errors import InvalidOptions, QuotaExceeded, WorldReadOnly
from journal.core.records import TurnStarted
from journal.worlds import open_world

pytestmark = pytest.mark.anyio
PROCESS = Path(__file__).parent / "local_process.py"


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """New files are everybody's, unless somebody sees to it."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def write() -> None:
    await io.files.write("/a", "x")


async def used(journal: Journal) -> None:
    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        await turn.step(write)

    async with journal:
        await work.run(None, run_id="r")
        assert await journal.files.read("r", "/a") == b"x"


async def test_everything_is_in_one_directory_that_nobody_else_may_read(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "root"
    journal = Journal.local(root)
    assert not root.parent.exists(), "nothing is made before it is needed"
    other = open_world(f"sqlite:{root / 'journal.db'}")
    async with journal:
        await used(Journal.local(root))
        assert mode(root) == 0o700
        files = list(root.rglob("*"))
        assert {path.name for path in files} > {"journal.db", "journal.db-wal", "journal.db-shm"}
        assert {path.name for path in files if mode(path) != 0o600} == set()
        async with other as world:  # it is a store like any other
            assert await world.run("r") is not None
    assert sorted(path.name for path in root.parent.iterdir()) == ["root"]
    assert (root / ".gitignore").read_text() == "*\n"


async def test_a_store_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    root = tmp_path / ".journal"
    root.mkdir(0o755)
    async with Journal(f"sqlite:{root / 'journal.db'}"):
        pass
    (root / "journal.db").chmod(0o644)
    await used(Journal.local(root))
    assert mode(root) == 0o700
    assert {mode(path) for path in root.iterdir()} == {0o600}


async def test_a_directory_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "paper.txt").write_text("mine")
    tmp_path.chmod(0o755)
    with pytest.raises(InvalidOptions, match=r"mode 755\) and holds 'paper.txt'.*chmod 700"):
        await used(Journal.local(tmp_path))
    assert mode(tmp_path) == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["paper.txt"]
    tmp_path.chmod(0o700)
    await used(Journal.local(tmp_path))


async def test_where_no_directory_can_be_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorldReadOnly, match=r"cannot be made.*give another root"):
        await used(Journal.local(tmp_path / "file" / "root"))


async def test_which_files_agents_have_is_a_parameter(tmp_path: Path) -> None:
    given: list[Path] = []

    def small(place: Path) -> VirtualWorkspace:
        given.append(place)
        return VirtualWorkspace(max_file_bytes=0)

    journal = Journal.local(tmp_path / "root", workspace=small)
    assert given == [tmp_path / "root" / "workspaces"]

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        try:
            await turn.step(write)
        except QuotaExceeded as error:
            return error.quota
        return "written"

    other = journal.agent(work.handler, name="other", workspace=VirtualWorkspace())
    without = Journal.local(tmp_path / "other", workspace=None)
    async with journal:
        assert (await work.run(None), await other.run(None)) == ("max_file_bytes", "written")
    assert without.agent(work.handler).workspace is None


async def test_programs_of_the_host_run_only_where_that_is_switched_on(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with pytest.raises(InvalidOptions, match=r"are off: Journal.local\(exec=True\).*no isolation"):
        _ = Journal.local(root).commands
    with pytest.raises(InvalidOptions, match="list of names"):
        Journal.local(root, exec="ls")
    listed = Journal.local(root, exec=["pwd"])
    run = listed.commands.tool()

    @listed.agent
    async def work(turn: Turn, command: str) -> str:
        return (await turn.tool(run, command)).text

    async with listed:
        assert str(root / "commands") in await work.run("pwd")
        assert "'ls' is not allowed" in await work.run("ls")
    assert mode(root / "commands") == 0o700
    assert Journal.local(root, exec=True).commands.allow is None


def process(root: Path, what: str) -> "subprocess.Popen[str]":
    command = [sys.executable, str(PROCESS), str(root), what]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def test_a_sigterm_gives_back_what_is_worked_on_and_ends_the_process(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with process(root, "wait") as first:
        assert first.stdout is not None
        lines = [first.stdout.readline(), first.stdout.readline()]
        assert "inside\n" in lines
        first.send_signal(signal.SIGTERM)
        rest, complaints = first.communicate(timeout=60)
    assert first.returncode == -signal.SIGTERM, "its parent sees what ended it"
    assert "kept until the end" in "".join(lines) + rest
    assert "Traceback" not in complaints
    async with open_world(f"sqlite:{root / 'journal.db'}") as world:
        info = await world.run("r")
        assert info is not None
        assert (info.status, info.takeovers) == ("pending", 0)
    with process(root, "go on") as second:
        said, complaints = second.communicate(timeout=60)
    assert said.splitlines()[-1] == "2", complaints
    async with open_world(f"sqlite:{root / 'journal.db'}") as world:
        started = [
            body for record in await world.read("r") if isinstance(body := open_record(record), TurnStarted)
        ]
    assert [body.taken_over for body in started] == [False, False]


async def test_whoever_listens_to_sigterm_already_goes_on_doing_so(tmp_path: Path) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        async with Journal.local(tmp_path / "root"):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM] * 2


async def test_once_it_is_closed_a_sigterm_is_what_it_was(tmp_path: Path) -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    async with Journal.local(tmp_path / "root") as journal:
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        await journal.runs()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

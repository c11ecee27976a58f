"""The shell over a workspace: what it sees, what of its changes counts, and how it ends. FAULTS 31, 32, 49."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from journal import Journal, Turn, TurnCancelled, TurnFailed, VirtualWorkspace, io, tool
from journal.core.codec import open_record
from journal.core.errors import InvalidOptions, MissingExtra, NotInTurn, ShellStopped
from journal.core.records import CallOutcome, FileChange
from journal.engine.offline import replay
from journal.engine.reading import read_run
from journal.testing import Crash, crash_everywhere
from journal.tools.files import read_file, write_file
from journal.tools.shell import Shell, shell
from tests.workspace import shell_agent
from tests.workspace.scripts import begun, fill, interpreters, ran, said

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]
BINARY = bytes(range(256)) * 20
STOPPED = "shell failed: ShellStopped: the script was stopped, and nothing that it changed was saved: "


def test_what_a_model_is_shown() -> None:
    assert (shell.name, shell.policy) == ("shell", "safe")
    assert shell.schema["required"] == ["command"]
    assert shell.schema["properties"]["command"]["description"].startswith("A bash script")
    described = Shell(timeout=7, max_commands=1234).tool("bash")
    assert described.name == "bash"
    assert "after 7 s or 1,234 commands" in described.description
    assert "/dev and the empty /tmp are always there" in described.description


async def test_a_script_works_on_the_files_that_other_tools_see() -> None:
    files = {"/src/a.py": b"print('a')  # TODO\n", "/src/b.py": b"", "/run.sh": b"#!/bin/bash\necho ran $1\n"}
    results, after = await ran(
        "grep -rn TODO /src; cd src; ls",
        "sed -i s/TODO/DONE/ src/a.py; echo 'x = 1' >> /src/b.py; mkdir -p lib/deep; echo new > lib/deep/c; rm run.sh",
        "cat src/*.py lib/deep/c; pwd; echo $USER $HOME; cat nothing",
        "true",
        files=files,
    )
    assert [result.text for result in results] == [
        "/src/a.py:1:print('a')  # TODO\na.py\nb.py",
        "(exit code 0, no output)",
        "print('a')  # DONE\nx = 1\nnew\n/\nagent /\nstderr:\ncat: nothing: No such file or directory\n(exit code 1)",
        "(exit code 0, no output)",
    ]
    assert after == {"/src/a.py": b"print('a')  # DONE\n", "/src/b.py": b"x = 1\n", "/lib/deep/c": b"new\n"}


async def test_whatever_its_exit_code_its_changes_count() -> None:
    results, after = await ran("echo kept > /a; exit 7", "false", "set -e; echo b > /b; false; echo c > /c")
    assert [result.text for result in results] == [
        "(exit code 7, no output)",
        "(exit code 1, no output)",
        "(exit code 1, no output)",
    ]
    assert after == {"/a": b"kept\n", "/b": b"b\n"}


async def test_a_call_leaves_files_and_nothing_else_to_the_next() -> None:
    told = await said(
        "export A=1; f() { echo f; }; cd /; mkdir empty; ln -s /x /link; mkfifo /pipe; echo x > /x; alias y=z",
        'echo "[$A]"; f; ls; cat /link',
    )
    assert told[0] == (
        "(exit code 0, no output)\n(Not kept, since the workspace has only files: '/empty/', '/link', '/pipe'.)"
    )
    assert told[1].startswith("[]\ndev\ntmp\nx\nstderr:\n")
    assert "f: command not found" in told[1]


async def test_empty_directories_are_told_but_not_those_that_it_emptied() -> None:
    told = await said(
        "mkdir -p /emptyd /a/b /full; echo x > /full/x; rm /old/x", "ls", files={"/old/x": b"x"}
    )
    assert told == [
        "(exit code 0, no output)\n(Not kept, since the workspace has only files: '/a/b/', '/emptyd/'.)",
        "dev\nfull\ntmp",
    ]


DAMAGED = (
    "(Probably damaged: {}. Tools for text put U+FFFD in place of bytes that are not UTF-8; "
    "cp, mv, cat, head, tail, dd, tar and gzip keep them.)"
)


@pytest.mark.parametrize(
    ("script", "paths"),
    [
        ("split -b 4000 /b /part", "'/partaa', '/partab', '/partac'"),
        ("sort /b > /c; mv /c /b", "'/b'"),
        ("cp /b /c; mv /b /d; tar czf t.tgz /c; cp /replaced /copy; echo more >> /replaced", None),
    ],
)
async def test_bytes_that_a_tool_for_text_replaced_are_told(script: str, paths: str | None) -> None:
    (told,) = await said(script, files={"/b": BINARY, "/replaced": "was \ufffd here\n".encode()})
    assert ("damaged" in told) == (paths is not None)
    assert paths is None or DAMAGED.format(paths) in told


async def test_damage_is_told_where_no_file_was_binary() -> None:
    (told,) = await said("echo 4oKs/w== | base64 -d | sed s/a/b/ > /c")
    assert DAMAGED.format("'/c'") in told


async def test_a_replacement_that_was_there_or_is_written_on_purpose_is_no_damage() -> None:
    files = {"/a": "was \ufffd here\n".encode()}
    assert await said("sed 's/was/is/p' /a > /b", files=files) == ["(exit code 0, no output)"]
    assert await said("echo '\ufffd' > /b") == ["(exit code 0, no output)"]


async def test_devices_that_end_early_are_told() -> None:
    told = await said(
        "head -c 20000000 /dev/zero | wc -c",
        "head -c 3000000 < /dev/urandom | wc -c",
        "dd if=/dev/urandom bs=1000 count=3000 of=/r; dd if=/dev/zero bs=1M count=7 of=/z; wc -c < /r; wc -c < /z",
        "echo > /dev/null",
    )
    short = (
        "(Here /dev/zero ends after 1,048,576 bytes, /dev/random and /dev/urandom after 8,192; "
        "dd with bs= and count= gives as many as it is told.)"
    )
    assert told[0] == f"1048576\n{short}"
    assert told[1] == f"8192\n{short}"
    assert told[2].startswith("3000000\n7340032\nstderr:\n")
    assert told[3] == "(exit code 0, no output)"


async def test_bytes_are_kept_as_they_are() -> None:
    """What a script copies, moves or packs, and above all what it leaves alone."""
    commands = (
        "cp /b /copy; cat /b > /cat; mkdir d; cp b d/b; tar czf t.tgz d; rm -r d; tar xzf t.tgz; gzip -k b"
    )
    results, after = await ran(
        commands, "gunzip -c b.gz > u; rm b.gz t.tgz", files={"/b": BINARY, "/z": b"\0\0"}
    )
    assert [result.status for result in results] == ["ok", "ok"]
    assert after == dict.fromkeys(["/b", "/copy", "/cat", "/d/b", "/u"], BINARY) | {"/z": b"\0\0"}


async def test_modes_go_in_and_out() -> None:
    results, after = await ran(
        "./run.sh; ./plain",
        "chmod +x plain; chmod -x run.sh; cp -p plain copy.sh",
        "./plain; ./run.sh",
        files={"/run.sh": b"echo ran\n", "/plain": b"echo plain\n"},
    )
    assert results[0].text == "ran\nstderr:\nbash: line 1: ./plain: Permission denied\n(exit code 126)"
    assert results[2].text == "plain\nstderr:\nbash: line 1: ./run.sh: Permission denied\n(exit code 126)"
    assert sorted(after) == ["/copy.sh", "/plain", "/run.sh"]


async def changes_of(journal: Journal, run: str) -> list[FileChange]:
    """Those of the last call."""
    bodies = [open_record(record) for record in await journal.read(run)]
    return [list(body.files) for body in bodies if isinstance(body, CallOutcome)][-1]


@pytest.mark.parametrize(
    ("script", "moves"),
    [
        ("mv /a/x /b", {"/b": "/a/x"}),
        ("mv /a/x /t; rmdir /a; mv /t /a", {"/a": "/a/x"}),
        ("mv /f /t; mkdir /f; mv /t /f/f", {"/f/f": "/f"}),
        ("mv /f /f2; echo more >> /f2", {}),
        ("cp /f /f2; rm /f; cp /f2 /f", {}),
    ],
)
async def test_what_is_moved_is_recorded_as_moved(script: str, moves: dict[str, str]) -> None:
    journal = Journal("memory:")

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> None:
        await turn.tool(fill, {"/a/x": "x" * 10_000, "/f": "f"})
        assert (await turn.tool(shell, script)).status == "ok"

    async with journal:
        await work.run(None, run_id="r")
        changes = await changes_of(journal, "r")
        paths = await journal.files.glob("r")
        after = {path: await journal.files.read("r", path) for path in paths}
    assert {change.path: change.source for change in changes if change.source is not None} == moves
    files = {"/a/x": b"x" * 10_000, "/f": b"f"}
    for to, path in moves.items():
        assert after[to] == files[path]


async def test_two_moves_in_each_others_way_are_made_all_the_same() -> None:
    """`/a` goes to `/b/x` and `/b` to `/a/x`: as moves, one after the other, neither can be first."""
    script = "mv a t; mv b u; mkdir a b; mv t b/x; mv u a/x"
    (result,), after = await ran(script, files={"/a": b"was a", "/b": b"was b"})
    assert result.status == "ok"
    assert after == {"/a/x": b"was b", "/b/x": b"was a"}


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("while :; do echo x >> /a; done", "maximum command count exceeded (300)"),
        ("echo x > /a; sleep 100", "execution timeout (1s)"),
        ("echo x > /a; a=aaaaaaaa; while :; do a=$a$a; done", "variable byte limit"),
        ("echo x > /a; f() { f; }; f", "maximum function depth exceeded"),
    ],
)
async def test_of_a_script_that_is_stopped_nothing_counts(script: str, why: str) -> None:
    (result,), after = await ran(f"echo begun; {script}", shell=Shell(timeout=1, max_commands=300))
    assert result.text.startswith(STOPPED)
    assert why in result.text
    assert after == {}
    assert isinstance(result.failure, ShellStopped)
    assert result.failure.reason == "backend_failure"


@pytest.mark.parametrize(
    ("script", "limits", "why"),
    [
        ("echo 1 > a; echo 2 > b; echo 3 > c", {"max_files": 3}, "max_files=3, and this would make it 4"),
        ("echo 12345678 > a; echo 1 > b", {"max_bytes": 11}, "max_bytes=11, and this would make it 12"),
        ("echo 12345 > a; echo 1 > b", {"max_file_bytes": 5}, "max_file_bytes=5, and this would make it 6"),
        (
            f"mkdir -p {'d' * 250}/{'d' * 250}/{'d' * 250}/{'d' * 250}; cd d*/d*/d*/d*; echo 1 > {'d' * 50}",
            {},
            "1,055",
        ),
    ],
)
async def test_of_what_has_no_place_nothing_counts(script: str, limits: dict[str, Any], why: str) -> None:
    (result,), after = await ran(script, files={"/0": b"0"}, workspace=VirtualWorkspace(**limits))
    assert result.status == "error"
    assert why in result.text
    assert after == {"/0": b"0"}


@pytest.mark.parametrize(
    ("script", "limits"),
    [
        ("rm 0; echo 1 > a", {"max_files": 1}),
        ("echo 12345678 > a; : > 0", {"max_bytes": 9}),
        ("mv 0 1", {"max_files": 1, "max_bytes": 1}),
        ("cp 0 00; rm 0; mkdir 0; mv 00 0", {"max_files": 1, "max_bytes": 1}),
    ],
)
async def test_what_makes_room_counts_first(script: str, limits: dict[str, Any]) -> None:
    (result,), after = await ran(script, files={"/0": b"0"}, workspace=VirtualWorkspace(**limits))
    assert result.status == "ok"
    assert len(after) <= 2


async def test_long_output_is_cut_in_its_middle() -> None:
    first, second = await said(
        "seq 1 90000; echo wrong >&2", "yes | head -c 3000000 > big; cat big big", shell=Shell(max_output=100)
    )
    assert first.startswith("1\n2\n")
    assert "bytes left out" in first
    assert first.endswith("\n90000\nstderr:\nwrong")
    assert len(first) < 250
    assert len(second) < 250
    assert len((await said("seq 1 90000"))[0]) < 33_000


async def test_of_two_that_write_one_path_the_later_is_told(world_url: str) -> None:
    """A script and the application, at once: what the script changed elsewhere stands."""
    journal = Journal(world_url)

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> tuple[str, tuple[str, ...]]:
        await turn.tool(write_file, "/a", "first")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(meanwhile)
            result = await turn.tool(shell, "cp a b; echo mine > a; sleep 1; cat a")
        return result.text, result.rejected

    async def meanwhile() -> None:
        await begun()
        await journal.files.write("r", "/a", "theirs")

    async with journal:
        text, rejected = await work.run(None, run_id="r")
        assert text == "mine\n(Not saved: /a changed meanwhile. Read again before editing again.)"
        assert tuple(rejected) == ("/a",)
        assert await journal.files.read("r", "/a") == b"theirs"
        assert await journal.files.read("r", "/b") == b"first"
        assert (await replay(work, await read_run((await journal.runtime()).world, "r"))).differences == []


def same(crash: Crash) -> None:
    """`safe`: it ran again, or it is on record; there is no third thing."""
    assert not crash.unknown


def test_a_shell_survives_a_kill_at_every_point() -> None:
    report = crash_everywhere(shell_agent.work, "src", check=same)
    assert len(report.crashes) > 6


@pytest.mark.parametrize("is_stopped", [False, True], ids=["running", "hanging"])
async def test_a_cancelled_turn_ends_its_interpreter(is_stopped: bool) -> None:
    """A stopped process stands for one that hangs in native code: it hears no request, and is killed."""
    journal = Journal("memory:")

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> None:
        await turn.tool(shell, "echo x > /x; sleep 25")

    async with journal:
        handle = await work.submit(None, run_id="r")
        async with journal.worker().running():
            child = await begun()
            if is_stopped:
                os.kill(child, signal.SIGSTOP)
            await handle.cancel()
            with pytest.raises(TurnCancelled):
                await handle.result(60)
            assert child not in interpreters()
        assert await journal.files.glob("r") == []


async def test_a_timeout_of_the_call_ends_its_interpreter() -> None:
    journal = Journal("memory:")

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> str:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop)
            result = await turn.tool(shell.options(timeout=1.5), "echo x > /x; sleep 25")
        return result.text

    async def stop() -> None:
        os.kill(await begun(), signal.SIGSTOP)

    async with journal:
        assert "CallTimeout" in await work.run(None, run_id="r")
        assert interpreters() == []
        assert await journal.files.glob("r") == []


async def test_an_interpreter_that_dies_takes_nobody_along() -> None:
    journal = Journal("memory:")

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> tuple[str, str]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kill)
            died = await turn.tool(shell, "echo x > /x; sleep 25")
        return died.text, (await turn.tool(shell, "ls /; echo after")).text

    async def kill() -> None:
        os.kill(await begun(), signal.SIGSEGV)

    async with journal:
        died, after = await work.run(None)
    assert died.startswith(f"{STOPPED}the interpreter was ended by SIGSEGV")
    assert after == "dev\ntmp\nafter"


async def test_its_worker_dies_and_it_goes_too(tmp_path: Path) -> None:
    program = """
import asyncio
from tests.workspace.scripts import said
asyncio.run(said("sleep 25"))
"""
    worker = subprocess.Popen([sys.executable, "-c", program])
    try:
        while not (found := interpreters(worker.pid)):
            assert worker.poll() is None
            await anyio.sleep(0.01)
    finally:
        worker.kill()
        worker.wait()
    while os.path.exists(f"/proc/{found[0]}"):
        await anyio.sleep(0.01)


async def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bashkit", None)  # as Python itself marks what cannot be imported
    (result,), _ = await ran("ls")
    assert isinstance(result.failure, MissingExtra)
    assert str(result.failure) == (
        "the shell needs bashkit, which is not installed: pip install 'durable-journal[shell]'"
    )


def test_it_is_imported_by_whoever_runs_it() -> None:
    program = "import sys, journal.tools.shell; sys.exit('bashkit' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


async def test_it_needs_a_workspace_and_a_call() -> None:
    with pytest.raises(NotInTurn):
        await Shell().run("ls")
    journal = Journal("memory:")

    @journal.agent
    async def work(turn: Turn, _: None) -> Any:
        return await turn.step(Shell().run, "ls")

    async with journal:
        with pytest.raises(TurnFailed, match="has no workspace"):
            await work.run(None)


async def test_in_a_tool_of_ones_own() -> None:
    journal = Journal("memory:")

    @tool(replay="safe")
    async def count(pattern: str) -> int:
        await io.files.write("/pattern", pattern)
        result = await Shell().run("grep -c -f /pattern /text; rm /pattern; exit 3")
        assert result.changed == ["/pattern"]
        return result.exit_code * 100 + int(result.stdout)

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> tuple[int, str]:
        await turn.tool(write_file, "/text", "a\nb\na\n")
        return (await turn.tool(count, "a")).value, (await turn.tool(read_file, "/pattern")).text

    async with journal:
        counted, missing = await work.run(None)
    assert counted == 302
    assert "FileMissing" in missing


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"max_commands": 0},
        {"max_memory": 0},
        {"max_memory": 16 * 1024 * 1024 - 1},
        {"max_output": 512 * 1024 + 1},
    ],
)
def test_limits_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptions, match=next(iter(options))):
        Shell(**options)


async def test_hundreds_of_files_in_one_outcome(world_url: str) -> None:
    """More than fit in the record: the others lie beside it, and all are moved and read again."""
    journal = Journal(world_url)
    making = "mkdir d; for i in {1..400}; do printf '%0300d' $i > d/$i; done"

    @journal.agent(workspace=VirtualWorkspace())
    async def work(turn: Turn, _: None) -> list[str]:
        return [(await turn.tool(shell, script)).text for script in (making, "mv d e", "cat e/* | wc -c")]

    async with journal:
        assert await work.run(None, run_id="r") == ["(exit code 0, no output)"] * 2 + ["120000"]
        assert len(await journal.files.glob("r", "/e/*")) == 400
        assert await journal.files.read("r", "/e/7") == b"0" * 299 + b"7"


async def test_with_the_least_memory_a_script_runs() -> None:
    assert await said("seq 1 20000 | sort -r | tail -n 1", shell=Shell(max_memory=16 * 1024 * 1024)) == ["1"]

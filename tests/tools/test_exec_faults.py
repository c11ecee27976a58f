"""Host commands that do not behave (fault 33): whatever they do, they end, and nothing of their group is left."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from journal.core.errors import CommandNotStarted, CommandRefused
from journal.tools import child, guard
from journal.tools.exec import CommandResult, HostCommands
from tests.beat import Beat

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

LONG = 600.0
"""Seconds that no test waits for."""


@pytest.fixture
def beat(tmp_path: Path) -> Iterator[Beat]:
    made = Beat(tmp_path)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """No thread, no descriptor, no process object that is still waited for."""
    threads, files = threading.active_count(), set(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    assert threading.active_count() == threads
    assert set(os.listdir("/proc/self/fd")) - files == set()


def shell(cwd: Path, *, grace: float = LONG, timeout: float = LONG, max_output: int = 1000) -> HostCommands:
    return HostCommands(cwd=cwd, allow=["sh"], grace=grace, timeout=timeout, max_output=max_output)


async def run(commands: HostCommands, script: str, stdin: bytes = b"") -> CommandResult:
    return await commands.run(["sh", "-c", script], stdin=stdin)


async def release(directory: Path, beat: Beat) -> None:
    """Let a program go that waits for a byte from the pipe named so."""
    assert not beat.is_over
    fd = os.open(directory / "release", os.O_RDWR)
    os.write(fd, b"\n")
    await beat.over()
    os.close(fd)


async def run_out(cwd: Path, script: str, grace: float = LONG) -> tuple[float, CommandResult]:
    """A timeout, and what became of a command whose time was up when it had printed something."""
    for timeout in (0.3, 1.0, 5.0, 20.0):  # on a slow machine, a shell takes its time to begin
        found = await run(shell(cwd, timeout=timeout, grace=grace), script)
        assert found.timed_out
        if found.stdout:
            return timeout, found
    raise AssertionError("it never began")


STUBBORN = "trap '' TERM; exec 3>beat; echo >&3; echo started; sleep 100"
FORKS = "for i in 1 2 3; do sh -c 'exec 3>beat; echo >&3; sleep 100' & done; wait"


async def test_one_that_forks_is_ended_with_its_children(tmp_path: Path, beat: Beat) -> None:
    found = await run(shell(tmp_path, timeout=0.5), FORKS)
    assert (found.timed_out, found.returncode, found.signal) == (True, None, "SIGTERM")
    assert found.seconds >= 0.5
    assert beat.is_over
    assert not found.left_running


async def test_one_that_ignores_sigterm_is_killed_after_grace(tmp_path: Path, beat: Beat) -> None:
    timeout, found = await run_out(tmp_path, STUBBORN, grace=0.2)
    assert (found.returncode, found.signal) == (None, "SIGKILL")
    assert found.seconds >= timeout + 0.2
    assert beat.is_over


async def test_one_that_cleans_up_on_sigterm_has_the_time(tmp_path: Path) -> None:
    script = "trap 'echo cleaned; exit 9' TERM; echo started; while :; do sleep 0.01; done"
    _, found = await run_out(tmp_path, script)
    assert (found.returncode, found.stdout) == (9, "started\ncleaned\n")


async def test_one_that_prints_a_gigabyte_is_not_blocked(tmp_path: Path) -> None:
    script = "head -c 1073741824 /dev/zero; echo the end; echo aside >&2"
    found = await run(shell(tmp_path), script)
    assert found.returncode == 0
    assert found.stdout.startswith("\0" * 500 + "\n[... 1,073,740,832 bytes left out ...]\n\0")
    assert found.stdout.endswith("\0the end\n")
    assert (found.stdout_truncated, found.stderr_truncated) == (True, False)
    assert found.stderr == "aside\n"


async def test_both_streams_at_once(tmp_path: Path) -> None:
    script = "head -c 3000000 /dev/zero & head -c 3000000 /dev/zero >&2; wait"
    found = await run(shell(tmp_path, max_output=4_000_000), script)
    assert (len(found.stdout), len(found.stderr)) == (3_000_000, 3_000_000)


async def test_one_that_closes_its_output_goes_on(tmp_path: Path) -> None:
    found = await run(shell(tmp_path), "echo first; exec >&- 2>&-; echo done > file; exit 4")
    assert (found.stdout, found.returncode, found.left_running) == ("first\n", 4, False)
    assert (tmp_path / "file").read_text() == "done\n"


async def test_one_that_reads_finds_the_end_or_what_it_is_given(tmp_path: Path) -> None:
    commands = shell(tmp_path)
    assert (await run(commands, "cat; echo end")).stdout == "end\n"
    given = bytes(range(256)) * 20_000
    assert (await run(commands, "wc -c; cat", given)).stdout == f"{len(given)}\n"
    assert (await run(commands, "head -c 3", given)).stdout == "\0\1\2"
    assert (await run(commands, "exit 3", given)).returncode == 3
    assert (await commands.run("sh -c cat", stdin="é")).stdout == "é"


async def test_bytes_that_are_no_text_stay_visible(tmp_path: Path) -> None:
    assert (await run(shell(tmp_path), r"printf 'a\377\0b'")).stdout == "a\\xff\0b"


@pytest.mark.parametrize("ignores", ["", "trap '' TERM;"])
async def test_a_grandchild_that_would_outlive_it(tmp_path: Path, beat: Beat, ignores: str) -> None:
    script = (
        f"({ignores} exec 3>beat >/dev/null 2>&1; echo >&3; : > begun; sleep 100) & "
        "while [ ! -e begun ]; do sleep 0.01; done; exit 4"
    )
    found = await run(shell(tmp_path, grace=0.2 if ignores else LONG), script)
    assert (found.returncode, found.timed_out, found.left_running) == (4, False, False)
    assert beat.is_over


async def test_one_that_leaves_the_group_is_told(tmp_path: Path, beat: Beat) -> None:
    os.mkfifo(tmp_path / "release")
    script = (
        "setsid sh -c 'exec 3>beat; : > begun; exec timeout 100 head -c 1 <>release' & "
        "while [ ! -e begun ]; do sleep 0.01; done; echo left"
    )
    found = await run(shell(tmp_path), script)
    assert (found.stdout, found.returncode, found.left_running) == ("left\n", 0, True)
    await release(tmp_path, beat)


FOSTERS = """
import os, signal, time
if not os.fork():
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    if not os.fork():
        time.sleep(100)  # stays in the group
    signal.alarm(100)
    os.setpgid(0, 0)  # its parent does not, and does not reap it
    beat = open("beat", "w")
    open("begun", "w").close()
    os.read(os.open("release", os.O_RDWR), 1)
    os._exit(0)
while not os.path.exists("begun"):
    time.sleep(0.01)
"""


async def test_a_zombie_that_nobody_reaps_is_not_waited_for(tmp_path: Path, beat: Beat) -> None:
    os.mkfifo(tmp_path / "release")
    commands = HostCommands(cwd=tmp_path, allow=[sys.executable], grace=LONG)
    found = await commands.run([sys.executable, "-c", FOSTERS])
    assert (found.stderr, found.returncode, found.left_running) == ("", 0, False)
    await release(tmp_path, beat)


async def test_a_signal_that_it_sends_itself(tmp_path: Path) -> None:
    found = await run(shell(tmp_path), "kill -SEGV $$")
    assert (found.returncode, found.signal, found.timed_out) == (None, "SIGSEGV", False)


async def test_the_shorter_timeout_counts(tmp_path: Path) -> None:
    script = ["sh", "-c", "sleep 100"]
    assert (await shell(tmp_path, timeout=0.05).run(script, timeout=LONG)).timed_out
    assert (await shell(tmp_path).run(script, timeout=0.05)).timed_out


@pytest.mark.parametrize(("script", "lines"), [(FORKS, 3), (STUBBORN, 1)], ids=["forks", "stubborn"])
async def test_cancelled_nothing_of_it_is_left(tmp_path: Path, beat: Beat, script: str, lines: int) -> None:
    commands = shell(tmp_path, grace=0.2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, commands, script)
        await beat.begun(lines)
        tasks.cancel_scope.cancel()
    assert beat.is_over


async def test_cancelled_again_and_again_it_has_its_grace(tmp_path: Path, beat: Beat) -> None:
    script = "trap 'sleep 0.3; echo cleaned; : > file; exit' TERM; exec 3>beat; echo >&3; while :; do sleep 0.01; done"
    task = asyncio.create_task(run(shell(tmp_path), script))
    await beat.begun()
    while not task.done():
        task.cancel()
        await anyio.sleep(0.02)
    assert task.cancelled()
    assert beat.is_over
    assert (tmp_path / "file").exists()


async def test_cancelled_before_it_began_nothing_starts(tmp_path: Path) -> None:
    task = asyncio.create_task(run(shell(tmp_path), ": > file"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with anyio.CancelScope() as scope:
        scope.cancel()
        await run(shell(tmp_path), ": > file")
    assert os.listdir(tmp_path) == []


def test_a_loop_that_is_thrown_away_takes_it_along(tmp_path: Path) -> None:
    beat = Beat(tmp_path)
    loop = asyncio.new_event_loop()
    task = loop.create_task(run(shell(tmp_path), STUBBORN))
    loop.run_until_complete(asyncio.wait_for(beat.begun(), 60))
    loop.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # what asyncio says of it is not the matter here
    del task
    gc.collect()  # kills the group, and cannot wait for all of it
    asyncio.run(asyncio.wait_for(beat.over(), 60))
    beat.close()


async def test_on_a_system_that_has_no_pidfd(
    tmp_path: Path, beat: Beat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_pidfd", lambda pid: None)
    monkeypatch.setattr(child, "_HAS_PROC", False)
    assert (await run(shell(tmp_path), "echo x; exit 3")).returncode == 3
    _, found = await run_out(tmp_path, STUBBORN, grace=0.2)
    assert found.signal == "SIGKILL"
    assert beat.is_over


@pytest.mark.parametrize("is_open", [False, True])
async def test_what_is_still_in_the_pipe_at_the_end_is_read(is_open: bool) -> None:
    reading, writing = os.pipe()
    drain = child._Drain(os.fdopen(reading, "rb", buffering=0), 100_000)
    os.write(writing, bytes(60_000))
    if not is_open:
        os.close(writing)
    drain.close()  # the loop has had no turn
    assert (drain.output.text(), drain.is_at_end) == ("\0" * 60_000, not is_open)
    if is_open:
        os.close(writing)


async def test_one_that_somebody_else_has_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_until_over, stolen = guard.Exit.wait, list[tuple[int, int]]()

    async def wait(self: guard.Exit, seconds: float) -> bool:
        is_over = await wait_until_over(self, seconds)
        if is_over and self._process.args == ["sh", "-c", "exit 3"] and not stolen:
            stolen.append(os.waitpid(self._process.pid, 0))
        return is_over

    monkeypatch.setattr(guard.Exit, "wait", wait)
    found = await run(shell(tmp_path), "exit 3")
    assert (found.returncode, found.signal) == (None, None)


async def test_where_nobody_would_know_how_it_ends(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(CommandNotStarted, match="ignores SIGCHLD"):
            await run(shell(tmp_path), ": > file")
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert os.listdir(tmp_path) == []


async def test_input_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(CommandRefused, match="stdin holds a lone surrogate"):
        await shell(tmp_path).run("sh", stdin="\ud800")


async def test_twenty_at_once(tmp_path: Path) -> None:
    commands, found = shell(tmp_path), {}

    async def one(number: int) -> None:
        found[number] = await run(commands, f"cat; exit {number}", f"in {number}".encode())

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(one, number)
    assert {n: (r.returncode, r.stdout) for n, r in found.items()} == {n: (n, f"in {n}") for n in range(20)}


WORKER = """
import asyncio, sys
from journal.tools.exec import HostCommands
asyncio.run(HostCommands(cwd=sys.argv[1], allow=["sh"]).run(["sh", "-c", sys.argv[2]]))
"""


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM])
async def test_its_worker_dies_and_it_goes_too(tmp_path: Path, beat: Beat, death: signal.Signals) -> None:

    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path), f"trap '' TERM; {FORKS}"])
    try:
        await beat.begun(3)
    finally:
        worker.send_signal(death)
        worker.wait()
    await beat.over()

"""One program of the host, from its start to the end of its whole process group.

Promised: when `run_child` returns, or is cancelled, nothing of the group runs any more; the same soon after this
process has died, by whatever death. On Linux the same of other groups of its session (job control, `timeout`), where
the child was ended by us, or they have its output open. A child is never blocked by output that nobody wants. No
thread is started. Not promised: anything about a descendant that left the session (setsid); it is told (`has_escaped`).

The group is signalled only while it is certainly ours: before its leader was reaped, and after that only where
members of it were just seen, since a process id is not given out again as long as a group or a session has it.
"""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import IO, TypeVar

import anyio
import anyio.lowlevel
import msgspec

from journal.core.errors import CommandNotStarted
from journal.tools.guard import Exit, Guard
from journal.tools.output import Output

T = TypeVar("T", "Exit", "_Drain")

_CHUNK = 64 * 1024
_PIPE = 1024 * 1024
"""What a pipe holds at most, unless root has raised it: so much may still be in it when its writers are gone."""
_POLL_SECONDS, _LONGEST_POLL_SECONDS = 0.02, 0.2
_GONE_SECONDS = 5.0
"""After SIGKILL: longer takes only what hangs in the kernel."""


class Ended(msgspec.Struct, frozen=True):
    """How a child ended. `status`: its exit code, or a negative signal number.

    None where nobody knows: SIGKILL did not end it, or somebody else in this process waited for it.
    """

    status: int | None
    stdout: Output
    stderr: Output
    seconds: float
    is_timed_out: bool
    has_escaped: bool
    """Something that is not of its group (any more) still holds its output open, or could not be ended."""


async def run_child(
    program: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    stdin: bytes,
    timeout: float,
    grace: float,
    max_output: int,
) -> Ended:
    """Run `program`; times in seconds, `max_output` in bytes a stream. Raises `CommandNotStarted`."""
    await anyio.lowlevel.checkpoint()  # who is cancelled already starts nothing
    child = _Child(program, argv, env=env, cwd=cwd, stdin=stdin, max_output=max_output)
    interruption: asyncio.CancelledError | None = None
    is_timed_out = False
    try:
        try:
            is_timed_out = not await child.exited(timeout)
        except asyncio.CancelledError as error:
            interruption = error
        with anyio.CancelScope(shield=True):
            while True:
                try:
                    await child.end(grace)
                    break
                except asyncio.CancelledError as error:  # the loop's own kind goes through shields
                    interruption = error
    finally:
        child.close()
    if interruption is not None:
        raise interruption
    return child.ended(is_timed_out=is_timed_out)


class _Child:
    def __init__(
        self,
        program: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        stdin: bytes,
        max_output: int,
    ) -> None:
        self._started = monotonic()
        self._seconds = 0.0
        self._until: float | None = None
        self._has_members = False
        self._is_interrupted = False
        """It did not exit by itself."""
        self._is_ended = False
        self._is_status_known = True
        self._parts: list[Exit | _Drain] = []
        self._guard, self._process = _start(program, argv, env=env, cwd=cwd, stdin=stdin)
        self._group = self._process.pid
        self._guard.watch(self._group)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        try:
            self._exit = self._with(Exit(self._process))
            self._stdout = self._with(_Drain(self._process.stdout, max_output))
            self._stderr = self._with(_Drain(self._process.stderr, max_output))
        except BaseException:  # it has started: never CommandNotStarted
            self.close()
            raise

    def _with(self, part: T) -> T:
        self._parts.append(part)
        return part

    async def exited(self, timeout: float) -> bool:
        """Whether the child itself has exited within `timeout`. It is not reaped yet: its group's id is still taken."""
        is_over = await self._exit.wait(timeout)
        self._seconds = monotonic() - self._started
        return is_over

    async def end(self, grace: float) -> None:
        """End the group: SIGTERM, `grace` seconds, SIGKILL. May be called again after it was interrupted."""
        if self._until is None:
            self._until = monotonic() + grace
            self._is_interrupted = not self._exit.is_over
            for output in (self._stdout, self._stderr):
                output.catch_up()  # so that it does not depend on the loop's order whether they are at their end
            self._signal(signal.SIGTERM)  # also where the child has exited: to what it left behind
        if self._process.returncode is None:
            was_running = not self._exit.is_over
            if not await self._exit.wait(self._until - monotonic()):
                self._signal(signal.SIGKILL)
                await self._exit.wait(_GONE_SECONDS)
            if was_running:
                self._seconds = monotonic() - self._started
            if self._exit.is_over:
                self._is_status_known = self._process.returncode is not None or self._can_be_waited_for()
                self._process.wait()  # from here on the group's id is taken only as long as it has members
        pause = _POLL_SECONDS
        while self._find_members() and monotonic() < self._until + _GONE_SECONDS:
            if monotonic() > self._until:
                self._signal(signal.SIGKILL)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_POLL_SECONDS)
        self._is_ended = True
        await self._guard.dismiss()

    def close(self) -> None:
        """Read what is left of the output, and let go of everything. What was not ended is killed at once."""
        if not self._is_ended and (self._process.returncode is None or self._find_members()):
            self._signal(signal.SIGKILL)
            self._process.wait()
        for part in self._parts:
            part.close()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        self._guard.close()

    def ended(self, *, is_timed_out: bool) -> Ended:
        return Ended(
            status=self._process.returncode if self._is_status_known else None,
            stdout=self._stdout.output,
            stderr=self._stderr.output,
            seconds=self._seconds,
            is_timed_out=is_timed_out,
            has_escaped=self._has_members or not (self._stdout.is_at_end and self._stderr.is_at_end),
        )

    def _can_be_waited_for(self) -> bool:
        """False where SIGCHLD is ignored, or all children are waited for by somebody; Popen would say 0 then."""
        if sys.platform != "linux":
            return True
        try:
            os.waitid(os.P_PID, self._group, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:
            return False
        return True

    def _find_members(self) -> bool:
        """Whether anything that it started still runs, as far as that can be told."""
        try:
            os.killpg(self._group, 0)
            is_there = True  # perhaps as a zombie, which process 1 may reap late or never
        except ProcessLookupError:  # the usual case: the child was alone, and is reaped
            is_there = False
        except PermissionError:
            self._has_members = True  # they run as somebody else
            return True
        if not _HAS_PROC:
            self._has_members = is_there
        elif is_there or self._looks_further:
            groups = _members(self._group).values()
            self._has_members = any(group == self._group or self._looks_further for group in groups)
        else:
            self._has_members = False
        return self._has_members

    @property
    def _looks_further(self) -> bool:
        """Whether to look for members in groups of their own, which means reading of every process there is.

        Not where the child exited by itself and nobody has its output open any more.
        """
        return _HAS_PROC and (self._is_interrupted or not (self._stdout.is_at_end and self._stderr.is_at_end))

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._group, number)
        except (ProcessLookupError, PermissionError):
            pass  # gone meanwhile; or somebody else's, which `has_escaped` tells
        if self._looks_further:
            for pid, group in _members(self._group).items():
                if group != self._group:
                    _signal_apart(pid, self._group, number)


def _start(
    program: str, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, stdin: bytes
) -> "tuple[Guard, subprocess.Popen[bytes]]":
    """The program in a session of its own, and its guard, which is there first."""
    guard = None
    if (
        signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    ):  # the system would reap it, and free its group's id
        raise CommandNotStarted(
            program=program, reason="this process ignores SIGCHLD, and would not know how it ends"
        )
    try:
        guard = Guard()
        # Input lies in a file: a child that does not read it holds up nobody.
        with tempfile.TemporaryFile() if stdin else open(os.devnull, "rb") as given:
            if stdin:
                given.write(stdin)
                given.seek(0)
            return guard, subprocess.Popen(  # noqa: S603 - what this module is for; there is no shell
                list(argv),
                executable=program,
                cwd=cwd,
                env=dict(env),
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
    except BaseException as error:
        if guard is not None:
            guard.close()
        if isinstance(error, OSError):
            raise CommandNotStarted(program=program, reason=_told(error, cwd)) from error
        raise


_ADVICE = {
    errno.E2BIG: "its arguments are too long; give it input by stdin",
    errno.ENOENT: "it, or the interpreter that its first line (#!) names, is missing",
    errno.ENOEXEC: "it is no program for this machine; a script needs a first line (#!)",
    errno.EACCES: "it, or a directory on the way to it, is not for us to execute",
}


def _told(error: OSError, cwd: str) -> str:
    if error.filename == cwd:
        return f"its working directory {cwd} cannot be used ({error.strerror}); make it first"
    if error.filename == Guard.SHELL:
        return f"{Guard.SHELL}, which guards it, cannot be started ({error.strerror})"
    return _ADVICE.get(error.errno or 0, f"{error.strerror}; try again when the host has room")


class _Drain:
    """Reads one stream of a child for as long as it gives something."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self.output = Output(limit)
        self.is_at_end = False
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        os.set_blocking(stream.fileno(), False)
        self._loop.add_reader(stream.fileno(), self._read)

    def catch_up(self) -> None:
        """Take what is in the pipe."""
        for _ in range(_PIPE // _CHUNK + 1):
            if self.is_at_end or not self._read():
                break

    def close(self) -> None:
        """Take what is still in the pipe. Whoever goes on writing is left with a broken pipe."""
        self.catch_up()
        self._leave()

    def _read(self) -> bool:
        """Whether something came."""
        try:
            data = os.read(self._stream.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        self.output.add(data)
        if not data:
            self.is_at_end = True
            self._leave()
        return bool(data)

    def _leave(self) -> None:
        if not self._stream.closed:
            self._loop.remove_reader(self._stream.fileno())
            self._stream.close()


_HAS_PROC = sys.platform == "linux" and os.path.exists("/proc/self/stat")


def _members(session: int) -> dict[int, int]:
    """What runs in the session, zombies left out: the group of each, by process id."""
    found: dict[int, int] = {}
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        if (place := _place(int(pid))) is not None and place[1] == session:
            found[int(pid)] = place[0]
    return found


def _place(pid: int) -> tuple[int, int] | None:
    """The group and the session of a process that runs."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name, in brackets, may hold anything; behind it: state, parent, group, session.
            state, _, group, session = file.read().rpartition(b")")[2].split()[:4]
    except (OSError, ValueError):
        return None  # gone meanwhile
    return None if state in (b"Z", b"X") else (int(group), int(session))


def _signal_apart(pid: int, session: int, number: signal.Signals) -> None:
    """Signal a process of the session that has left its group: that one, not another that got its id meanwhile."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if (place := _place(pid)) is not None and place[0] != session == place[1]:
            signal.pidfd_send_signal(fd, number)
    except (ProcessLookupError, PermissionError):
        pass
    finally:
        os.close(fd)


def signal_name(number: int) -> str:
    """``"SIGKILL"``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"  # a real-time signal

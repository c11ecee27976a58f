"""`HostCommands`: programs of the host, for agents that need more than a virtual shell. **No isolation.**

A command runs as the user that the worker runs as, with all that this user may do: to the disk, the network, other
processes. The allow-list says which programs may be started, not what they may do; `docs/host-commands.md` says what
that leaves open. Off unless switched on: nobody runs anything before somebody makes one of these with `allow=`.
Never a shell. Next: `command_line.py` (text to words), `child.py` (a process group, from start to end).
"""

import errno
import os
import re
import stat
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from journal.core.errors import CommandRefused, InvalidOptions
from journal.tools.awaiting import awaited
from journal.tools.child import Ended, run_child, signal_name
from journal.tools.command_line import split
from journal.tools.io import io
from journal.tools.limits import checked_bytes, checked_seconds, is_utf8
from journal.tools.tool import Tool, tool

DEFAULT_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
TIMEOUT_SECONDS = 120.0
GRACE_SECONDS = 5.0
MAX_OUTPUT_BYTES = 10 * 1024 * 1024
TOOL_OUTPUT_BYTES = 64 * 1024
_MOST_TOOL_OUTPUT = 512 * 1024
"""JSON may take six bytes for one, there are two streams, and a value has at most 8 MiB."""
_MOST_COMMAND = 128 * 1024
_MOST_LINKS = 40
WORKSPACE = "workspace"
"""In place of a path: the directory of the call."""


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a command. Bytes of its output that are not UTF-8 stand as ``\\xff``."""

    argv: list[str]
    program: str
    """What ran: the path behind the first of `argv`, without symlinks."""
    returncode: int | None = None
    """None where it was ended by a signal; without a signal, too, nobody knows how it ended."""
    signal: str | None = None
    """The signal that ended it, ``"SIGKILL"``."""
    stdout: str = ""
    stderr: str = ""
    stdout_truncated: bool = False
    """A line within tells where, and how much is missing; the end is always there."""
    stderr_truncated: bool = False
    seconds: float = 0.0
    timed_out: bool = False
    """It took too long and was ended; what it did until then is done."""
    left_running: bool = False
    """Something that it started went out of its process group, could not be ended, and may still run."""


class HostCommands:
    """Runs programs of the host: see the module. Does nothing until `run` is awaited.

    `cwd`: where they run, an absolute path; or ``"workspace"``, the directory of the call, of an agent that has a
    `DirectoryWorkspace`: what they change there, the call has changed. `allow`: the names that may be started, found
    on `path`, or absolute paths; ``"any"`` for every program; nothing unless given. `path`: absolute directories; it
    is their PATH, too.
    `env`: their environment besides PATH and HOME (`cwd`, unless given): nothing is inherited. `timeout`, and `grace`
    between SIGTERM and SIGKILL, in seconds. `max_output`: bytes kept of each stream. Raises `InvalidOptions`.
    """

    def __init__(
        self,
        *,
        cwd: str | os.PathLike[str],
        allow: Iterable[str] | Literal["any"] = (),
        path: str | Iterable[str] = DEFAULT_PATH,
        env: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT_SECONDS,
        max_output: int = MAX_OUTPUT_BYTES,
        grace: float = GRACE_SECONDS,
    ) -> None:
        self.cwd = cwd if cwd == WORKSPACE else _absolute(os.fspath(cwd), "cwd")
        self.allow = _checked_names(allow)
        self.path = tuple(
            _absolute(part, "path") for part in (path.split(":") if isinstance(path, str) else path)
        )
        if any(":" in part for part in self.path):
            raise InvalidOptions(f"path={path!r}: a directory with a colon in its name cannot be on a path")
        self.env = {
            **({} if self.cwd == WORKSPACE else {"HOME": self.cwd}),
            **_checked_env(env or {}),
            "PATH": ":".join(self.path),
        }
        self.timeout = checked_seconds(timeout, "timeout", least=0.001)
        self.grace = checked_seconds(grace, "grace", least=0.0)
        self.max_output = checked_bytes(max_output, "max_output")

    def __repr__(self) -> str:
        return f"<HostCommands {self.listed} in {self.cwd}>"

    @property
    def listed(self) -> str:
        """What may be run, in words."""
        if self.allow is None:
            return "any program"
        return ", ".join(sorted(self.allow)) or "nothing"

    @awaited("HostCommands.run")
    async def run(
        self, command: str | Sequence[str], *, stdin: str | bytes = b"", timeout: float | None = None
    ) -> CommandResult:
        """Run a program to its end, and the end of all that it started in its process group.

        `command`: the program and its arguments; as text it is split as a shell would, and nothing of it expanded.
        `stdin`: what it reads, else nothing. `timeout` in seconds, at most that of the object. Raises
        `CommandRefused`, `CommandNotStarted`; that it failed is told by the result.
        """
        return await self._run(command, stdin, timeout, self.max_output)

    def check(self, command: str | Sequence[str]) -> tuple[str, list[str]]:
        """What `run` would start: the program's path without symlinks, and its arguments. Raises `CommandRefused`."""
        if not isinstance(command, str | list | tuple):
            raise CommandRefused(reason=f"it is {repr(command)[:80]}; give text, or a list of texts")
        if len(command) > _MOST_COMMAND:
            raise _too_long()
        argv = split(command) if isinstance(command, str) else list(command)
        if not argv or not argv[0]:
            raise CommandRefused(reason="it is empty; give a program and its arguments")
        for place, word in enumerate(argv):
            if not isinstance(word, str):
                raise CommandRefused(reason=f"argument {place} is {word!r}, and arguments are text")
            if "\0" in word or not is_utf8(word):
                raise CommandRefused(reason=f"argument {place} holds NUL or a lone surrogate: leave that out")
        if sum(map(len, argv)) > _MOST_COMMAND:
            raise _too_long()
        return self._find(argv[0]), argv

    def tool(
        self, name: str = "run", *, max_output: int = TOOL_OUTPUT_BYTES
    ) -> Tool[..., Awaitable[CommandResult]]:
        """A tool that runs commands for a model: `never`, since nobody knows what a command does.

        `max_output`: bytes of each stream that the model is shown, and the log keeps. Raises `InvalidOptions`.
        """
        if checked_bytes(max_output, "max_output") > _MOST_TOOL_OUTPUT:
            raise InvalidOptions(
                f"max_output={max_output}: of a tool it is at most {_MOST_TOOL_OUTPUT:,} bytes"
            )

        async def run(
            command: Annotated[
                str | list[str],
                "A program and its arguments: as a list, or as text with quotes where a shell would need them.",
            ],
            stdin: Annotated[str, "What the program reads from its standard input."] = "",
        ) -> CommandResult:
            return await self._run(command, stdin, None, min(max_output, self.max_output))

        description = (
            "Run one program on this machine and wait for its end. There is no shell: no pipes, redirections, "
            f"variables, globs or `&&`. Programs: {self.listed}. {self._where} "
            f"Ended after {self.timeout:g} s, with all that it started."
        )
        return tool(run, replay="never", name=name, description=description)

    @property
    def _where(self) -> str:
        if self.cwd == WORKSPACE:
            return "It begins in the directory of the workspace, whose /a/b is a/b there."
        return f"Working directory: {self.cwd}."

    async def _run(
        self, command: str | Sequence[str], stdin: str | bytes, timeout: float | None, max_output: int
    ) -> CommandResult:
        program, argv = self.check(command)
        if isinstance(stdin, str) and not is_utf8(stdin):
            raise CommandRefused(reason="stdin holds a lone surrogate: leave that out, or give bytes")
        limit = self.timeout if timeout is None else checked_seconds(timeout, "timeout", least=0.001)

        async def run_in(cwd: str, env: dict[str, str]) -> CommandResult:
            ended = await run_child(
                program,
                argv,
                env=env,
                cwd=cwd,
                stdin=stdin.encode() if isinstance(stdin, str) else stdin,
                timeout=min(limit, self.timeout),
                grace=self.grace,
                max_output=max_output,
            )
            return _result(program, argv, ended)

        if self.cwd != WORKSPACE:
            return await run_in(self.cwd, self.env)
        async with io.files.directory() as directory:
            return await run_in(directory.path, {"HOME": directory.home, **self.env})

    def _find(self, name: str) -> str:
        """The file that `name` stands for, if it may run. What is returned is what is executed."""
        if self.allow is not None and name not in self.allow:
            raise CommandRefused(reason=self._why_not(name))
        if "/" in name:
            if not name.startswith("/"):
                raise CommandRefused(
                    reason=f"{_shown(name)} is a relative path; give an absolute one, or a bare name"
                )
            if (found := _executable(name)) is None:
                raise CommandRefused(reason=f"{_shown(name)} is no file that we may execute")
            return found
        for directory in self.path:
            if found := _executable(f"{directory}/{name}"):
                return found
        raise CommandRefused(
            reason=f"there is no program {_shown(name)} on the path ({self.env['PATH']}); install it there, "
            "or name its directory in path="
        )

    def _why_not(self, name: str) -> str:
        if not self.allow:
            return (
                "no program is allowed here; whoever runs the worker lists them in HostCommands(allow=[...])"
            )
        reason = f"{_shown(name)} is not allowed; what is: {self.listed}"
        if re.match(r"[A-Za-z_]\w*=", name):
            return f"{reason}. Variables are not set by a command: HostCommands(env=...) has them"
        if "/" in name and os.path.basename(name) in self.allow:
            return f"{reason}. Call it by its bare name, {os.path.basename(name)}"
        return reason


def _result(program: str, argv: list[str], ended: Ended) -> CommandResult:
    status = ended.status
    return CommandResult(
        argv=argv,
        program=program,
        returncode=status if status is not None and status >= 0 else None,
        signal=signal_name(-status) if status is not None and status < 0 else None,
        stdout=ended.stdout.text(),
        stderr=ended.stderr.text(),
        stdout_truncated=ended.stdout.is_cut,
        stderr_truncated=ended.stderr.is_cut,
        # So fine that it differs from run to run: `crash_everywhere` leaves out what two runs do not agree on.
        seconds=round(ended.seconds, 6),
        timed_out=ended.is_timed_out,
        left_running=ended.has_escaped,
    )


def _too_long() -> CommandRefused:
    return CommandRefused(reason=f"it has more than {_MOST_COMMAND:,} characters; give long input by stdin")


def _executable(path: str) -> str | None:
    """The file behind `path`, without symlinks, if we may execute it; None where there is none.

    Raises `CommandRefused` for one that anybody on the host could have put there.
    """
    try:
        found = _resolved(path)
        mode = os.lstat(found).st_mode
        directory = os.lstat(os.path.dirname(found)).st_mode
    except OSError:
        return None
    if not stat.S_ISREG(mode) or not os.access(found, os.X_OK):
        return None
    if (mode | directory) & stat.S_IWOTH:
        raise CommandRefused(reason=f"everybody may write {found}, or its directory; take that right away")
    return found


def _resolved(path: str) -> str:
    """`path` without symlinks. Raises `OSError`, and `CommandRefused` where anybody could have led us elsewhere."""
    at, names, links = "/", path.split("/"), 0
    while names:
        name = names.pop(0)
        if name in ("", "."):
            continue
        if name == "..":
            at = os.path.dirname(at)
            continue
        entry = f"{at.rstrip('/')}/{name}"
        found = os.lstat(entry)
        if _is_anybodys(found, os.lstat(at)):
            raise CommandRefused(
                reason=f"everybody may put another {name!r} into {at}, which {path} leads through; take that right away"
            )
        if not stat.S_ISLNK(found.st_mode):
            at = entry
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink(entry)
        at = "/" if target.startswith("/") else at
        names = [*target.split("/"), *names]
    return at


def _is_anybodys(entry: os.stat_result, directory: os.stat_result) -> bool:
    """Whether somebody else may have made the entry, or may replace it: as in /tmp, all but its owner's own."""
    if not directory.st_mode & stat.S_IWOTH:
        return False
    return not directory.st_mode & stat.S_ISVTX or entry.st_uid not in (0, os.geteuid())


def _checked_names(allow: Iterable[str] | Literal["any"]) -> frozenset[str] | None:
    if isinstance(allow, str):
        if allow != "any":
            raise InvalidOptions(f"allow={allow!r}: give a list of programs, or 'any'")
        return None
    names = frozenset(allow)
    for name in sorted(names, key=str):
        if not isinstance(name, str) or not name or re.search(r"[\s*?\0]", name):
            raise InvalidOptions(f"allow: {name!r} is no program's name; names are exact, without arguments")
        if "/" in name:
            _absolute(name, "allow")
    return names


def _checked_env(env: Mapping[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidOptions(f"env: {name!r} and what it is set to must be text")
        if not name or "=" in name or "\0" in name + value or not is_utf8(name + value):
            raise InvalidOptions(f"env: {name!r} cannot be set")
        if name == "PATH":
            raise InvalidOptions("env: PATH is what path= says; give it there")
    return dict(env)


def _absolute(path: str, what: str) -> str:
    """`path`, if it means the same from everywhere."""
    if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise InvalidOptions(f"{what}: {path!r} must be an absolute path, without ..")
    return path


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:79]}…")

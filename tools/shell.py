"""A shell over the workspace: ``turn.tool(shell, command="grep -rn TODO /src")``. Needs the extra `shell` (bashkit).

Scripts see the files of the workspace and nothing else: no host, no network, no programs. What they change counts with
the outcome of the call, like everything that is done by `io.files`; so it is `safe`. Each script is interpreted in a
process of its own, which is killed when its time is up or its call ends. Next: `shell_child.py`, that process.
"""

import os
import re
import sys
from codecs import getincrementaldecoder
from collections.abc import Awaitable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import msgspec

from journal.core.errors import InvalidOptions, MissingExtra, PathRefused, ShellStopped
from journal.tools.awaiting import awaited
from journal.tools.child import Ended, run_child, signal_name
from journal.tools.io import io
from journal.tools.limits import checked_bytes, checked_seconds, is_utf8
from journal.tools.output import Output
from journal.tools.policy import safe
from journal.tools.tool import Tool, tool

TIMEOUT_SECONDS = 30.0
MAX_COMMANDS = 10_000
MAX_MEMORY_BYTES = 512 * 1024 * 1024
MAX_OUTPUT_BYTES = 32 * 1024
MAX_FILES, MAX_BYTES, MAX_FILE_BYTES = 9_900, 100_000_000, 10_000_000
"""What bashkit's file system in memory takes, its own entries left out."""
_MOST_OUTPUT = 512 * 1024
"""As of a host command: JSON may take six bytes for one, and there are two streams."""
_MOST_SCRIPT = 256 * 1024
_MARGIN_SECONDS = 30.0
"""For loading the files (10,000 take ten seconds), and for what bashkit does not break off by itself."""
_ANSWER_BYTES = 4 * MAX_BYTES
"""More than an answer can have; nothing of it may be cut."""
_CHILD = Path(__file__).with_name("shell_child.py")
_SHOWN = 5
_LEAST_MEMORY = 16 * 1024 * 1024
"""With less the interpreter dies of small scripts, or before it begins."""
_REPLACEMENT = "\ufffd".encode()
"""What tools for text write in place of bytes that are not UTF-8."""
_CONTINUATION = bytes(range(0x80, 0xC0))
_SHORT_DEVICE = re.compile(r"/dev/(?:zero|u?random)\b")
_SHORT_DEVICES = (
    "(Here /dev/zero ends after 1,048,576 bytes, /dev/random and /dev/urandom after 8,192; "
    "dd with bs= and count= gives as many as it is told.)"
)


class ShellFile(msgspec.Struct, frozen=True):
    """A file before or after the script."""

    path: str
    data: bytes
    is_executable: bool


class Job(msgspec.Struct, frozen=True):
    """What the child is given."""

    script: str
    files: list[ShellFile]
    limits: dict[str, float]


class Answer(msgspec.Struct, frozen=True):
    """What the child says came of it."""

    exit_code: int
    stdout: str
    stderr: str
    is_stdout_cut: bool
    """Bashkit itself left out something."""
    is_stderr_cut: bool
    stopped: str | None
    """Why the script was not carried out to its end."""
    written: list[ShellFile]
    deleted: list[str]
    left_out: list[str]
    hidden: list[str]


class ShellResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a script came to."""

    exit_code: int
    stdout: str
    """At most `max_output` bytes; a line within tells where how much is missing."""
    stderr: str
    changed: list[str]
    """Paths that it wrote, deleted or moved."""
    left_out: list[str] = []
    """Links, empty directories (with a / at the end) and the like that it made: the workspace has only files."""
    hidden: list[str] = []
    """Files that it could not see, since a shell cannot have their names."""
    damaged: list[str] = []
    """Files that it changed, in which U+FFFD seems to stand for bytes that are not UTF-8."""
    has_short_devices: bool = False
    """The script names /dev/zero or /dev/urandom, which end early here."""

    @property
    def text(self) -> str:
        """What a model should read."""
        parts = [self.stdout]
        if self.stderr:
            parts.append(f"stderr:\n{self.stderr}" if self.stdout else self.stderr)
        if self.exit_code or not (self.stdout or self.stderr):
            parts.append(f"(exit code {self.exit_code}{'' if self.stdout or self.stderr else ', no output'})")
        if self.left_out:
            parts.append(f"(Not kept, since the workspace has only files: {_listed(self.left_out)}.)")
        if self.hidden:
            parts.append(f"(Not seen by the shell, for their names: {_listed(self.hidden)}.)")
        if self.damaged:
            parts.append(
                f"(Probably damaged: {_listed(self.damaged)}. Tools for text put U+FFFD in place of bytes that are "
                "not UTF-8; cp, mv, cat, head, tail, dd, tar and gzip keep them.)"
            )
        if self.has_short_devices:
            parts.append(_SHORT_DEVICES)
        return "\n".join(part.removesuffix("\n") for part in parts if part)


class Shell:
    """A bash over the workspace, within limits. Does nothing until `run` is awaited.

    `timeout` in seconds; `max_commands` of one script, loops included; `max_memory` in bytes, 16 MiB or more, beside
    the files that are there; `max_output` in bytes of each stream that the result has. Raises `InvalidOptions`.
    """

    def __init__(
        self,
        *,
        timeout: float = TIMEOUT_SECONDS,
        max_commands: int = MAX_COMMANDS,
        max_memory: int = MAX_MEMORY_BYTES,
        max_output: int = MAX_OUTPUT_BYTES,
    ) -> None:
        self.timeout = checked_seconds(timeout, "timeout", least=0.001)
        if type(max_commands) is not int or max_commands < 1:
            raise InvalidOptions(f"max_commands={max_commands!r}: a number above 0 is needed")
        self.max_commands = max_commands
        self.max_memory = checked_bytes(max_memory, "max_memory")
        if self.max_memory < _LEAST_MEMORY:
            raise InvalidOptions(f"max_memory={max_memory}: at least {_LEAST_MEMORY:,} bytes")
        self.max_output = checked_bytes(max_output, "max_output")
        if self.max_output > _MOST_OUTPUT:
            raise InvalidOptions(f"max_output={max_output}: at most {_MOST_OUTPUT:,} bytes")

    @awaited("shell.run")
    async def run(self, command: str) -> ShellResult:
        """Run a script, inside a tool or a step. That it failed is told by the result.

        Raises `ShellStopped` where it was not carried out to its end, and `WorkspaceError` where what it made has no
        place in the workspace; then nothing of it counts. Raises `MissingExtra`.
        """
        library = _library()
        if not is_utf8(command) or len(command) > _MOST_SCRIPT:
            raise ShellStopped(why=f"a script is Unicode text of at most {_MOST_SCRIPT:,} characters")
        before = await _files()
        answer = await self._answer(command, before, library)
        if answer.stopped is not None:
            raise ShellStopped(why=answer.stopped)  # bashkit gives no output then
        await _apply(answer, {file.path: file for file in before})
        return ShellResult(
            exit_code=answer.exit_code,
            stdout=self._cut(answer.stdout, answer.is_stdout_cut),
            stderr=self._cut(answer.stderr, answer.is_stderr_cut),
            changed=sorted([*(file.path for file in answer.written), *answer.deleted]),
            left_out=sorted(answer.left_out),
            hidden=sorted(answer.hidden),
            damaged=_damaged(answer.written, before, command),
            has_short_devices=_SHORT_DEVICE.search(command) is not None,
        )

    def tool(self, name: str = "shell") -> Tool[..., Awaitable[str]]:
        """A tool that runs scripts for a model; `safe`, since a script has no effect but on the workspace."""

        @safe
        async def shell(
            command: Annotated[
                str, "A bash script, one line or many; it begins in / with an empty environment"
            ],
        ) -> str:
            return (await self.run(command)).text

        description = (
            "Run a bash script over the files of the workspace, with pipes, loops and the usual tools (grep, sed, awk, "
            "find, sort, diff, jq, tar, ...). There is no network, no host and no other program (no python, no git). "
            "Paths are those of the other file tools. Each call is a new shell in /: only files stay, no variables, "
            "links or empty directories; /dev and the empty /tmp are always there and no part of the workspace. "
            "What the script changes is saved when it ends, whatever its exit code; "
            f"nothing is if it is stopped, after {self.timeout:g} s or {self.max_commands:,} commands. "
            "Long output is cut in its middle: write it to a file and read that by pages."
        )
        return tool(shell, name=name, description=description)

    async def _answer(self, command: str, files: list[ShellFile], library: str) -> Answer:
        limits = {name: getattr(self, name) for name in ("timeout", "max_commands", "max_memory")}
        ended = await run_child(
            sys.executable,
            [sys.executable, "-I", "-S", str(_CHILD), library],
            env={name: os.environ[name] for name in _LOADER if name in os.environ},
            cwd="/",
            stdin=msgspec.json.encode(Job(command, files, limits)),
            timeout=self.timeout + _MARGIN_SECONDS,
            grace=0.0,
            max_output=_ANSWER_BYTES,
        )
        try:
            if ended.status == 0:
                return msgspec.json.decode(ended.stdout.data, type=Answer)
        except msgspec.DecodeError:
            pass
        raise ShellStopped(why=self._why(ended))

    def _why(self, ended: Ended) -> str:
        if ended.is_timed_out:
            return f"it did not end within {self.timeout:g} s"
        how = "" if ended.status is None or ended.status >= 0 else f" by {signal_name(-ended.status)}"
        return f"the interpreter was ended{how}: it may have needed more than max_memory={self.max_memory:,} bytes"

    def _cut(self, text: str, is_cut: bool) -> str:
        output = Output(self.max_output)
        output.add(text.encode())
        return f"{output.text()}\n[... more was left out ...]" if is_cut else output.text()


shell = Shell().tool()
"""With the limits that `Shell` has by default."""

_LOADER = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH")
"""Without which some Pythons do not start."""


def _library() -> str:
    """The directory that the child finds bashkit in; it is not imported here. Raises `MissingExtra`."""
    spec = find_spec("bashkit")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(what="the shell", package="bashkit", extra="shell")
    return os.path.dirname(next(iter(spec.submodule_search_locations)))


async def _files() -> list[ShellFile]:
    """All files of the workspace. Raises `ShellStopped` where they are more than the shell can hold."""
    infos = [await io.files.stat(path) for path in await io.files.glob("/**")]
    sizes = [info.size for info in infos]
    if len(sizes) > MAX_FILES or sum(sizes) > MAX_BYTES or max(sizes, default=0) > MAX_FILE_BYTES:
        raise ShellStopped(
            why=f"the workspace is too large for a shell: {MAX_FILES:,} files and {MAX_BYTES:,} bytes in all, "
            f"{MAX_FILE_BYTES:,} bytes a file are the most"
        )
    return [ShellFile(info.path, await io.files.read(info.path), info.is_executable) for info in infos]


async def _apply(answer: Answer, before: dict[str, ShellFile]) -> None:
    """Make the script's changes to the workspace: what makes room first, and moved files as such."""
    moves = _moves(answer, before)
    for path in set(answer.deleted).difference(moves.values()):
        await io.files.delete(path)
    moved = await _move(moves)

    def growth(file: ShellFile) -> int:
        return len(file.data) - (len(before[file.path].data) if file.path in before else 0)

    for file in sorted(answer.written, key=growth):
        old = before.get(moved.get(file.path, file.path))
        is_same_mode = old is not None and old.is_executable == file.is_executable
        if not (is_same_mode and file.path in moved):
            mode = None if is_same_mode else file.is_executable
            await io.files.write(file.path, file.data, is_executable=mode)


def _moves(answer: Answer, before: dict[str, ShellFile]) -> dict[str, str]:
    """Where files were before that are now elsewhere, by where they are."""
    gone = {before[path].data: path for path in reversed(answer.deleted)}
    return {
        file.path: gone.pop(file.data)
        for file in answer.written
        if file.path not in before and file.data in gone
    }


async def _move(moves: dict[str, str]) -> dict[str, str]:
    """Those of `moves` that were made; of the others, which stand in each other's way, the old file is deleted."""
    waiting = dict(moves)
    while waiting:
        still = {to: path for to, path in waiting.items() if not await _has_moved(path, to)}
        if len(still) == len(waiting):
            break
        waiting = still
    for path in waiting.values():
        await io.files.delete(path)
    return {to: path for to, path in moves.items() if to not in waiting}


async def _has_moved(path: str, to: str) -> bool:
    try:
        await io.files.move(path, to)
    except PathRefused:
        return False
    return True


def _damaged(written: list[ShellFile], before: list[ShellFile], script: str) -> list[str]:
    """Paths of those that have U+FFFD now, where it most likely stands for other bytes."""
    old = {file.path: file.data for file in before}
    replaced = [
        file.path
        for file in written
        if file.data.count(_REPLACEMENT) > old.get(file.path, b"").count(_REPLACEMENT)
        and file.data not in old.values()  # moved or copied
        and _is_text(file.data)  # an archive may have these three bytes by chance
    ]
    if not replaced or (
        all(map(_is_text, old.values()))
        and ("\ufffd" in script or any(_REPLACEMENT in data for data in old.values()))
    ):
        return []
    return sorted(replaced)


def _is_text(data: bytes) -> bool:
    """Whether it is UTF-8, but for characters that are cut at its ends, as `split` and `head` cut them."""
    try:
        getincrementaldecoder("utf-8")().decode(data.lstrip(_CONTINUATION))
    except UnicodeDecodeError:
        return False
    return True


def _listed(paths: list[str]) -> str:
    more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
    return ", ".join(map(repr, paths[:_SHOWN])) + more

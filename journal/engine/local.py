"""`Journal.local`: a journal whose store, workspaces and commands lie in one directory that is its user's alone.

Made for one person's machine: the runs' agents have files without being asked, a SIGTERM gives back what is being
worked on before it ends the process, and programs of the host run if that is switched on. Next: `tools/exec.py`.
"""

import asyncio
import os
import signal
import stat
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypedDict

from journal.core.clock import Clock
from journal.core.errors import InvalidOptions, WorldReadOnly
from journal.core.ports import World
from journal.core.records import Policy
from journal.engine.agent import checked_workspace
from journal.engine.journal import Journal
from journal.engine.runtime import Runtime
from journal.tools.directory import DirectoryWorkspace
from journal.tools.exec import HostCommands
from journal.tools.workspace import VirtualWorkspace

STORE, WORKSPACES, COMMANDS = "journal.db", "workspaces", "commands"
_OURS = {".gitignore", WORKSPACES, COMMANDS}

_Workspace = VirtualWorkspace | DirectoryWorkspace
LocalWorkspace = _Workspace | Callable[[Path], _Workspace] | None
"""What files agents have that do not say; a function is given the directory for them. None: none."""


class Options(TypedDict, total=False):
    """Those of `Journal` that a local one has as well."""

    namespace: str
    resources: Callable[[], AbstractAsyncContextManager[Any]] | None
    tools: Mapping[str, Policy] | None
    version: str | None
    requires: Iterable[str]
    lease_seconds: float
    clock: Clock | None


class LocalJournal(Journal):
    """See `Journal.local`, which makes it."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        programs: bool | Iterable[str],
        workspace: LocalWorkspace,
        options: Options,
    ) -> None:
        self.root = Path(os.path.abspath(_checked_root(root).expanduser()))
        super().__init__(f"sqlite:{self.root / STORE}", **options)
        self._store = self.url
        given: object = workspace
        if callable(workspace) and given is not VirtualWorkspace:
            given = workspace(self.root / WORKSPACES)
        self.workspace = checked_workspace(given, "Journal.local")
        self._commands = self._allowed(programs)
        self._listens: asyncio.AbstractEventLoop | None = None
        """In which a SIGTERM closes us."""
        self._closing: asyncio.Future[None] | None = None
        """Since one has come."""

    def _allowed(self, names: bool | Iterable[str]) -> HostCommands | None:
        if names is False:
            return None
        if isinstance(names, str):
            raise InvalidOptions(f"exec={names!r}: give True for every program, or a list of names")
        return HostCommands(cwd=self.root / COMMANDS, allow="any" if names is True else names)

    @property
    def commands(self) -> HostCommands:
        """Programs of this machine, run in a directory of `root`. Raises `InvalidOptions` unless switched on."""
        if self._commands is None:
            raise InvalidOptions(
                "host commands are off: Journal.local(exec=True) lets agents run any program as you, exec=[names] "
                "those programs. It is no isolation: read docs/host-commands.md first"
            )
        return self._commands

    # Opening and closing -----------------------------------------------------------------------------

    @asynccontextmanager
    async def open_world(self) -> AsyncIterator[World]:
        """Open the store, in a directory that is made for it."""
        if self.url == self._store:
            _prepare(self.root, has_commands=self._commands is not None)
        async with super().open_world() as world:
            yield world

    async def runtime(self) -> Runtime:
        """See `Journal`; from then on a SIGTERM closes it, unless somebody listens to that already."""
        runtime, loop = await super().runtime(), asyncio.get_running_loop()
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and self._listens is not loop and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            loop.add_signal_handler(signal.SIGTERM, self._terminate, loop, runtime)
            self._listens = loop
        return runtime

    def _terminate(self, loop: asyncio.AbstractEventLoop, runtime: Runtime) -> None:
        """Close, then end as the signal would have. A second one ends it at once."""
        loop.remove_signal_handler(signal.SIGTERM)
        self._closing = asyncio.ensure_future(runtime.close())

    def forget(self, runtime: Runtime) -> None:
        """The runtime has closed."""
        super().forget(runtime)
        if self._listens is asyncio.get_running_loop():
            self._listens.remove_signal_handler(signal.SIGTERM)
            self._listens = None
            if self._closing is not None:
                sys.stdout.flush()
                sys.stderr.flush()
                os.kill(os.getpid(), signal.SIGTERM)


def _checked_root(root: str | os.PathLike[str]) -> Path:
    try:
        return Path(root)
    except TypeError:
        raise InvalidOptions(f"Journal.local({root!r}): give a directory, as text or a path") from None


def _prepare(root: Path, *, has_commands: bool) -> None:
    """Make the directory, readable for its user alone; one that is there already is made so if it is a journal's."""
    try:
        try:
            root.mkdir(mode=0o700, parents=True)
            (root / ".gitignore").touch(0o600)
            (root / ".gitignore").write_text("*\n")
        except FileExistsError:
            _tighten(root)
        if has_commands:
            (root / COMMANDS).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        why = f"its directory {root} cannot be made, or closed to others ({error.strerror})"
        raise WorldReadOnly(f"{why}: give another root", world=f"sqlite:{root / STORE}") from error


def _tighten(root: Path) -> None:
    mode = stat.S_IMODE(root.stat().st_mode)
    if not mode & 0o077:
        return
    others = sorted(
        path.name for path in root.iterdir() if path.name not in _OURS and not path.name.startswith(STORE)
    )
    if others:
        raise InvalidOptions(
            f"{root} is open to others (mode {mode:o}) and holds {others[0]!r}, which is no journal's: chmod 700 it, "
            "or give a directory of its own"
        )
    root.chmod(0o700)
    for path in root.glob(f"{STORE}*"):
        path.chmod(0o600)

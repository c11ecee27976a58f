"""What the suite needs of whoever runs it: calls that work on files, holders that die, and the application."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol
from unittest import SkipTest

import msgspec

from journal.core.records import FileSnapshot
from journal.tools.directory import Directory
from journal.tools.io import CallFiles
from journal.tools.lifecycle import WorkspaceInfo
from journal.tools.workspace import Paths, Quotas

Act = Callable[[CallFiles], Awaitable[Any]]
"""What a call does with its files. Its result must be JSON. It may run again if its holder dies within it."""


class Done(msgspec.Struct, frozen=True):
    """How a call ended."""

    is_ok: bool
    value: Any = None
    rejected: tuple[str, ...] = ()
    """Paths that it changed in vain."""


class RunFiles(Protocol):
    """The files of the run, for the application."""

    async def read(self, path: str) -> bytes:
        """The file's bytes."""
        ...

    async def glob(self, pattern: str = "/**") -> Paths:
        """The paths that match."""
        ...

    async def write(self, path: str, data: bytes | str, *, is_executable: bool | None = None) -> None:
        """Let `data` be the whole file."""
        ...

    async def delete(self, path: str) -> None:
        """Let the file go."""
        ...


class ByHand(Protocol):
    """The lifecycle, as one process has it."""

    async def start(self, run_id: str, *, key: str) -> WorkspaceInfo:
        """Begin an empty one."""
        ...

    async def snapshot(self, run_id: str, *, key: str) -> FileSnapshot:
        """Keep what is in the directory."""
        ...

    async def resume(self, run_id: str, *, key: str, snapshot: str | None = None) -> WorkspaceInfo:
        """Go on from a snapshot."""
        ...

    async def abort(self, run_id: str, *, key: str) -> WorkspaceInfo:
        """Give it up."""
        ...

    async def cleanup(self, run_id: str, *, key: str) -> WorkspaceInfo:
        """Let its files go."""
        ...

    async def inspect(self, run_id: str) -> WorkspaceInfo:
        """How it stands."""
        ...

    def directory(self, run_id: str) -> Directory:
        """Where its files are."""
        ...


class WorkspaceHarness(Protocol):
    """A fresh run with a workspace, nobody at work on it."""

    capabilities: frozenset[str]
    """Of ``workspace.persistent`` (files outlive the holder), ``workspace.directory``, ``workspace.lifecycle``."""
    limits: Quotas
    """Small: 100 files or fewer, 100 KB in all or less, and less than that of one file."""

    @property
    def files(self) -> RunFiles:
        """The application's side."""
        ...

    async def call(self, act: Act) -> Done:
        """Let a call do that, and end."""
        ...

    async def together(self, *acts: Act) -> list[Done]:
        """Let several calls of one holder do that at once."""
        ...

    async def interrupt(self, act: Act) -> None:
        """Let a call do that; then its holder is gone before the call could end, and another is there in its place."""
        ...

    async def reopen(self) -> None:
        """Another holder takes the run up, in another process or as if it were."""
        ...

    async def fork(self) -> "WorkspaceHarness":
        """Another run, with the files as they stand."""
        ...

    def by_hand(self) -> ByHand:
        """The lifecycle as one more process has it; only asked for with ``workspace.lifecycle``."""
        ...


WorkspaceHarnessFactory = Callable[[], AbstractAsyncContextManager[WorkspaceHarness]]
"""Gives a harness over a fresh run, and cleans it up."""


class WorkspaceCases:
    """What all cases share."""


def need(harness: WorkspaceHarness, capability: str) -> None:
    """Leave the case out where the workspace does not say that it can do that."""
    if capability not in harness.capabilities:
        raise SkipTest(f"the workspace does not have {capability}")


async def contents(harness: WorkspaceHarness) -> dict[str, bytes]:
    """All files, as the application reads them."""
    return {path: await harness.files.read(path) for path in await harness.files.glob()}


def writing(path: str, data: bytes | str) -> Act:
    """A call that writes just that."""

    async def act(files: CallFiles) -> None:
        await files.write(path, data)

    return act

"""`DirectoryWorkspace`: files in a directory of the host, for programs that need one; snapshots under a root.

Its calls see and change files by `io.files` as those of a `VirtualWorkspace` do, and in addition get a directory:
``async with io.files.directory() as directory``. Next: `working_tree.py` (that directory), `snapshots.py` (what is
kept of it), `lifecycle.py` (its states), `engine/snapshots.py` (how a snapshot gets into the log).
"""

import asyncio
import os

import msgspec

from journal.core.errors import InvalidOptions, WorkspaceNotFound
from journal.core.ids import check_id
from journal.tools.lifecycle import Lifecycle, WorkspaceInfo
from journal.tools.snapshots import Snapshots
from journal.tools.workspace import Quotas

_MIB = 1024 * 1024


class Directory(msgspec.Struct, frozen=True):
    """The directory of a call, on this host; another call may get another."""

    path: str
    """Where the workspace's files are."""
    home: str
    """A directory beside it, for what programs keep in their home; nothing of it is kept."""


class DirectoryWorkspace:
    """Files under `root`, a directory of the host: ``@journal.agent(workspace=DirectoryWorkspace("/srv/agents"))``.

    The log holds the ids of snapshots; their contents lie under the root, which every process that works on a run, or
    reads its files, must have. Whoever shares a root shares its disk, and may read all of it. `max_bytes`, `max_files`,
    `max_file_bytes`: quotas of each run. Raises `InvalidOptions`.
    """

    durable = True

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        max_bytes: int = 1024 * _MIB,
        max_files: int = 50_000,
        max_file_bytes: int = 256 * _MIB,
    ) -> None:
        self.root = os.path.abspath(os.fspath(root))
        if "\0" in self.root:
            raise InvalidOptions("DirectoryWorkspace(root): a path holds no NUL")
        self.quotas = Quotas(max_bytes=max_bytes, max_files=max_files, max_file_bytes=max_file_bytes)
        self.snapshots = Snapshots(self.root)
        self.lifecycle = Lifecycle(self.snapshots)

    async def inspect(self, run_id: str) -> WorkspaceInfo:
        """How the run's workspace stands. Raises `WorkspaceNotFound`, `WorkspaceFailed`."""
        run = check_id(run_id, "run id")

        def look() -> WorkspaceInfo:
            info = self.lifecycle.read(self.lifecycle.find(run))
            if info is None:
                raise WorkspaceNotFound(run_id=run)
            return info

        return await asyncio.to_thread(look)

    async def abort(self, run_id: str, *, key: str) -> WorkspaceInfo:
        """Nothing more is kept of what is done in it: a holder's changes are rejected, the next turn is blocked.

        The same `key` has the same answer, also after a restart. Raises `WorkspaceNotFound`, `WorkspaceExpired`,
        `CleanupPending`, `IdempotencyConflict`.
        """
        return await self._keyed(run_id, key, "abort")

    async def cleanup(self, run_id: str, *, key: str) -> WorkspaceInfo:
        """Let its files go; the contents go with the next sweep, if nobody else has them.

        Raises `CleanupPending` while a holder may be at work, which then does it in the end; asked again it goes ahead.
        And as `abort` does.
        """
        return await self._keyed(run_id, key, "cleanup")

    async def _keyed(self, run_id: str, key: str, asked: str) -> WorkspaceInfo:
        run = check_id(run_id, "run id")
        act = self.lifecycle.abort if asked == "abort" else self.lifecycle.cleanup

        def ask() -> WorkspaceInfo:
            place = self.lifecycle.find(run)
            return self.lifecycle.keyed(run, place, key, asked, b"", lambda: act(place), WorkspaceInfo)

        return await asyncio.to_thread(ask)

    def __repr__(self) -> str:
        return f"DirectoryWorkspace({self.root!r})"

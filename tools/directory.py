"""`DirectoryWorkspace`: files in a directory of the host, for programs that need one; snapshots under a root.

Its calls see and change files by `io.files` as those of a `VirtualWorkspace` do, and in addition get a directory:
``async with io.files.directory() as directory``. A harness without a journal uses its lifecycle by hand: `start`,
`snapshot`, `resume`. Next: `working_tree.py` (that directory), `snapshots.py` (what is kept of it), `lifecycle.py` (its
states), `retention.py` (for how long), `engine/directories.py` (how a snapshot gets into the log).
"""

import asyncio
import os
from collections.abc import Callable
from typing import Literal, TypeVar

import msgspec

from journal.core.errors import InvalidOptions, InvalidReference, WorkspaceNotFound
from journal.core.ids import check_id
from journal.core.records import FileSnapshot, TurnStatus
from journal.tools.lifecycle import Lifecycle, WorkspaceInfo
from journal.tools.manifest import Manifest
from journal.tools.retention import Retention, Swept, is_due, sweep
from journal.tools.snapshots import Snapshots
from journal.tools.working_tree import WorkingTree
from journal.tools.workspace import Quotas

A = TypeVar("A")
_MIB = 1024 * 1024
SWEEP_SECONDS = 3600.0
"""How often an automatic sweep is made, by whichever process comes to it."""


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
    `max_file_bytes`: quotas of each run. `retention`: for how long files are kept; `cleanup`: ``"automatic"`` sweeps by
    the way, at most once an hour, ``"manual"`` only by `sweep`. Raises `InvalidOptions`.
    """

    durable = True
    capabilities = frozenset({"workspace.directory", "workspace.persistent", "workspace.quota"})
    """What it offers, as far as the log that names its snapshots is kept."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        max_bytes: int = 1024 * _MIB,
        max_files: int = 50_000,
        max_file_bytes: int = 256 * _MIB,
        retention: Retention | None = None,
        cleanup: Literal["automatic", "manual"] = "automatic",
    ) -> None:
        self.root = os.path.abspath(os.fspath(root))
        if "\0" in self.root:
            raise InvalidOptions("DirectoryWorkspace(root): a path holds no NUL")
        if cleanup not in ("automatic", "manual"):
            raise InvalidOptions(f"cleanup is 'automatic' or 'manual', not {cleanup!r}")
        self.quotas = Quotas(max_bytes=max_bytes, max_files=max_files, max_file_bytes=max_file_bytes)
        self.retention = retention or Retention()
        self.snapshots = Snapshots(self.root)
        self.lifecycle = Lifecycle(self.snapshots)
        self._cleanup = cleanup
        self._open: dict[str, tuple[int, WorkingTree]] = {}
        """Directories that this process has by hand: of which epoch, by run."""

    # Of any run --------------------------------------------------------------------------------------

    async def inspect(self, run_id: str) -> WorkspaceInfo:
        """How the run's workspace stands. Raises `WorkspaceNotFound`, `WorkspaceFailed`."""
        run = check_id(run_id, "run id")

        def look() -> WorkspaceInfo:
            info = self.lifecycle.read(self.lifecycle.find(run))
            assert info is not None
            return info

        return await asyncio.to_thread(look)

    async def abort(self, run_id: str, *, key: str) -> WorkspaceInfo:
        """Nothing more is kept of what is done in it: a holder's changes are rejected, the next turn is blocked.

        The same `key` has the same answer, also after a restart. Raises `WorkspaceNotFound`, `WorkspaceExpired`,
        `CleanupPending`, `IdempotencyConflict`.
        """
        return await self._keyed(run_id, key, "abort", self.lifecycle.abort)

    async def cleanup(self, run_id: str, *, key: str) -> WorkspaceInfo:
        """Let its files go; the contents go with a later sweep, if nobody else has them.

        Raises `CleanupPending` while a holder may be at work, which then does it in the end; asked again it goes ahead.
        And as `abort` does.
        """
        return await self._keyed(run_id, key, "cleanup", self.lifecycle.cleanup)

    async def _keyed(
        self, run_id: str, key: str, asked: str, act: Callable[[str], WorkspaceInfo]
    ) -> WorkspaceInfo:
        run = check_id(run_id, "run id")

        def ask() -> WorkspaceInfo:
            place = self.lifecycle.find(run)
            return self.lifecycle.keyed(run, place, key, asked, b"", lambda: act(place), WorkspaceInfo)

        return await asyncio.to_thread(ask)

    async def sweep(self) -> Swept:
        """Remove what `retention` keeps no longer, and what nobody refers to. Raises `WorkspaceFailed`."""
        return await asyncio.to_thread(sweep, self.snapshots, self.lifecycle, self.retention)

    # By hand -----------------------------------------------------------------------------------------

    async def start(self, run_id: str, *, key: str) -> WorkspaceInfo:
        """Begin an empty workspace, for a harness that has no journal; `directory` is where.

        The same `key` has the same answer, also after a restart; then `resume` it. Raises `InvalidReference` if it was
        started under another key, `WorkspaceAborted`, `CleanupPending`, `IdempotencyConflict`.
        """
        run = check_id(run_id, "run id")

        def begin(place: str) -> WorkspaceInfo:
            info = self.lifecycle.read(place)
            if info is not None and info.state != "cleaned":
                raise InvalidReference(what=run, why="its workspace was started before: resume it")
            return self._take_up(run, place, None)

        return await self._by_hand(run, key, "start", b"", begin, WorkspaceInfo)

    async def snapshot(self, run_id: str, *, key: str) -> FileSnapshot:
        """Keep what is in the directory. Programs must not write meanwhile.

        Raises `QuotaExceeded`, `InvalidReference` if this process does not have it open, or somebody else resumed it
        since, and as `start` does.
        """
        run = check_id(run_id, "run id")

        def take(place: str) -> FileSnapshot:
            epoch, working = self._opened(run)
            info = self.lifecycle.read(place)
            if info is None or info.epoch != epoch:
                raise InvalidReference(what=run, why="somebody else has resumed its workspace")
            scan = working.scan()
            snapshot = self.lifecycle.save(place, scan.manifest)
            self.lifecycle.note(place, snapshot.id)
            return snapshot

        return await self._by_hand(run, key, "snapshot", b"", take, FileSnapshot)

    async def resume(self, run_id: str, *, key: str, snapshot: str | None = None) -> WorkspaceInfo:
        """Go on from `snapshot`, or from the last one, in a new directory; who had one before has it no more.

        Raises `WorkspaceNotFound`, `SnapshotMissing`, `InvalidReference` for a snapshot of another run, and as `start`
        does.
        """
        run = check_id(run_id, "run id")

        def go_on(place: str) -> WorkspaceInfo:
            info = self.lifecycle.read(place)
            if info is None:
                raise WorkspaceNotFound(run_id=run)
            self.lifecycle.check(info)
            wanted = snapshot or info.snapshot
            if wanted is not None:
                self.snapshots.load(wanted)
                if wanted not in self.snapshots.referred(place):
                    raise InvalidReference(what=wanted, why="it is a snapshot of another run")
            return self._take_up(run, place, wanted)

        info = await self._by_hand(run, key, "resume", (snapshot or "").encode(), go_on, WorkspaceInfo)
        await asyncio.to_thread(self._have_open, run, info)
        return info

    def directory(self, run_id: str) -> Directory:
        """Where the files are that were started or resumed by hand in this process. Raises `InvalidReference`."""
        _, working = self._opened(check_id(run_id, "run id"))
        return Directory(working.path, working.home)

    def _opened(self, run: str) -> tuple[int, WorkingTree]:
        if run not in self._open:
            raise InvalidReference(what=run, why="its workspace is not open in this process: resume it")
        return self._open[run]

    def _take_up(self, run: str, place: str, snapshot: str | None) -> WorkspaceInfo:
        info = self.lifecycle.take_up(run, place, snapshot)
        self._make(run, place, info)
        return info

    def _have_open(self, run: str, info: WorkspaceInfo) -> None:
        """Asked again under the same key after a restart, there is no directory yet."""
        if self._open.get(run, (0, None))[0] != info.epoch:
            place = self.snapshots.place_of(run, b"")
            now = self.lifecycle.read(place)
            if now is None or now.epoch != info.epoch:
                raise InvalidReference(what=run, why="somebody else has resumed its workspace")
            self._make(run, place, info)

    def _make(self, run: str, place: str, info: WorkspaceInfo) -> None:
        working = WorkingTree(
            self.snapshots.objects,
            f"{place}/trees/{info.epoch:012d}-{os.urandom(4).hex()}",
            self.quotas,
        )
        working.bring(Manifest() if info.snapshot is None else self.snapshots.load(info.snapshot))
        self._open[run] = (info.epoch, working)

    async def _by_hand(
        self, run: str, key: str, asked: str, request: bytes, act: Callable[[str], A], kind: type[A]
    ) -> A:
        place = self.snapshots.place_of(run, b"")

        def ask() -> A:
            if asked != "start" and self.lifecycle.read(place) is None:
                raise WorkspaceNotFound(run_id=run)
            return self.lifecycle.keyed(run, place, key, asked, request, lambda: act(place), kind)

        return await asyncio.to_thread(ask)

    # For the engine ----------------------------------------------------------------------------------

    def end(self, place: str, epoch: int, ended: TurnStatus | None, snapshot: str | None) -> None:
        """A turn is over here; blocks. Raises `WorkspaceFailed`."""
        self.lifecycle.end(place, epoch, ended, snapshot)
        if self._cleanup == "automatic" and is_due(self.root, SWEEP_SECONDS):
            sweep(self.snapshots, self.lifecycle, self.retention)

    def __repr__(self) -> str:
        return f"DirectoryWorkspace({self.root!r})"

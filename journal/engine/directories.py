"""A directory workspace in a turn: the directory of a call, and the snapshot that its outcome names.

Calls read the last snapshot, which nobody changes. One call at a time has the directory, or makes a snapshot: from then
until its outcome has landed. The snapshot is durable before the record that names it; a call that fails, or is
interrupted, leaves a directory that is made anew. Next: `files.py` (what a call sees), `editing.py` (its outcome).
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import msgspec
from msgspec.structs import replace

from journal.core.errors import HandlerAborted, WorkspaceError
from journal.core.records import FileChange, FileSnapshot, Record, TurnStatus
from journal.replay.workspace import File, Tree, resting
from journal.tools.manifest import Manifest
from journal.tools.working_tree import WorkingTree
from journal.tools.workspace import settled

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt
    from journal.tools.directory import DirectoryWorkspace

T = TypeVar("T")
_MOST_REFUSED = 20
"""Paths that an outcome names of those that cannot be kept."""


async def outlasted(work: Callable[[], T]) -> T:
    """What `work` gives, on a thread; who is cancelled meanwhile hears of it once the thread is done with it."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True):
            while not task.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # it is looked at
        raise


async def finished(work: Coroutine[Any, Any, T]) -> tuple[T, asyncio.CancelledError | None]:
    """What `work` gives, whoever is cancelled meanwhile; and that cancellation, to be delivered afterwards."""
    task = asyncio.ensure_future(work)
    interruption = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            interruption = error
    return task.result(), interruption


class AttemptDirectory:
    """The directory workspace of the run as one attempt has it."""

    def __init__(self, attempt: "Attempt", workspace: "DirectoryWorkspace") -> None:
        self._attempt = attempt
        self.run = attempt.holding.run
        self.place = workspace.snapshots.place_of(self.run, attempt.nonce)
        self.workspace = workspace
        self.snapshots = workspace.snapshots
        self.manifest = Manifest()
        """The files that count."""
        self.snapshot: str | None = None
        """Of these; None: there are none yet."""
        self._lock = asyncio.Lock()
        self._known: dict[str, Manifest] = {}
        """Lists that were read ahead, since whoever wants them cannot wait."""
        self._working: WorkingTree | None = None
        self._is_open = False

    async def open(self) -> None:
        """Take up the files where the log leaves them. Raises `WorkspaceError`."""
        attempt, folded = self._attempt, self._attempt.files.workspace
        run, epoch = self.run, attempt.holding.claim.epoch
        named, last = set(folded.named), folded.snapshot
        place = f"{epoch:012d}-{os.urandom(4).hex()}"

        def take_up() -> Manifest:
            self.workspace.lifecycle.begin(run, self.place, epoch, named)
            return Manifest() if last is None else self.snapshots.load(last.id)

        self._hold(await outlasted(take_up), last)
        directory = f"{self.place}/trees/{place}"
        self._working = WorkingTree(self.snapshots.objects, directory, self.workspace.quotas)
        self._is_open = True

    async def close(self, ended: TurnStatus | None) -> None:
        """Let the directory go; `ended` says how the turn did. What fails here is a matter for later cleaning."""
        if not self._is_open:
            return
        working = self._working
        epoch, snapshot = self._attempt.holding.claim.epoch, self.snapshot

        def let_go() -> None:
            if working is not None:
                working.remove()
            self.workspace.end(self.place, epoch, ended, snapshot)

        try:
            await outlasted(let_go)
        except (WorkspaceError, OSError) as error:
            self._attempt.log.warning("workspace not cleaned up", error=type(error).__qualname__)

    def _hold(self, manifest: Manifest, snapshot: FileSnapshot | None) -> None:
        self.manifest, self.snapshot = manifest, None if snapshot is None else snapshot.id
        self._attempt.files.workspace.hold(manifest.tree)

    async def read(self, digest: bytes) -> bytes:
        """A content. Raises `SnapshotMissing`."""
        return await outlasted(lambda: self.snapshots.objects.read(digest))

    async def tree_of(self, snapshot: str) -> Tree:
        """All files of that snapshot. Raises `SnapshotMissing`."""
        if snapshot == self.snapshot:
            return self.manifest.tree
        return (await outlasted(lambda: self.snapshots.load(snapshot))).tree

    async def fetch(self, changes: tuple[FileChange, ...]) -> None:
        """Make ready the snapshot that `changes`, of evidence, name; one that cannot be read will not count."""
        for change in changes:
            if change.snapshot is not None:
                name = change.snapshot.id
                with suppress(WorkspaceError):
                    self._known[name] = await outlasted(partial(self.snapshots.keep, self.place, name))

    async def follow(self, record: Record) -> None:
        """Somebody else changed files, as `record` says, which the fold knows already."""
        snapshot = self._attempt.files.workspace.snapshot
        if snapshot is None or snapshot.id == self.snapshot:
            return
        try:
            self._hold(await outlasted(lambda: self.snapshots.load(snapshot.id)), snapshot)
        except WorkspaceError as error:
            self._attempt.holding.lose(HandlerAborted(run_id=record.run, cause=error))

    # The directory of a call ---------------------------------------------------------------------------

    async def acquire(self) -> None:
        """Wait until nobody else is changing anything."""
        await self._lock.acquire()

    def spoil(self) -> None:
        """What is in the directory does not count."""
        if self._working is not None:
            self._working.spoil()

    def release(self) -> None:
        """Let others go on."""
        self._lock.release()

    async def bring(
        self, view: Tree, directories: frozenset[str] | None, written: Mapping[bytes, bytes]
    ) -> tuple[WorkingTree, frozenset[str]]:
        """The directory, with the files of `view` in it, and its empty ones.

        `directories`: these; None: those that count. `written`: bytes that may be in no snapshot yet.
        """
        working = self._working
        assert working is not None
        base = self.manifest.directories if directories is None else directories

        def make() -> frozenset[str]:
            with self.snapshots.objects.staging() as staging:
                for data in written.values():
                    staging.put(data)
            manifest = Manifest(None, base).with_tree(view.flat())
            working.bring(manifest)
            return manifest.directories

        return working, await outlasted(make)

    # The outcome ---------------------------------------------------------------------------------------

    def combined(self, changes: "CallChanges") -> tuple[tuple[FileChange, ...], Manifest | None]:
        """Which changes are rejected, and the files with those that are not; None: nothing is changed by them."""
        base = self.manifest
        every = settled(changes.changes, base.tree, self.workspace.quotas)
        rejected = [change for change in every if change.rejected is not None]
        rejected += [
            FileChange(path=path, rejected=why) for path, why in list(changes.refused.items())[:_MOST_REFUSED]
        ]
        tree = base.tree.copy()
        for change in every:
            if change.rejected is None:
                tree.put(change.path, changes.files[change.path])
        directories = base.directories
        if changes.directories is not None:
            directories = changes.directories.done_to(directories)
        combined = Manifest(None, directories).with_tree(tree)
        is_changed = (
            len(rejected) - len(changes.refused) < len(every) or combined.directories != base.directories
        )
        return tuple(rejected), combined if is_changed else None

    def save(self, manifest: Manifest, contents: Iterable[bytes]) -> FileSnapshot:
        """Make a snapshot durable. Blocks. Raises `WorkspaceError`."""
        return self.workspace.lifecycle.save(self.place, manifest, contents)

    def known(self, snapshot: FileSnapshot) -> Manifest | None:
        """The files of a snapshot that was made ready, if they are there."""
        return self._known.get(snapshot.id)

    def landed(self, manifest: Manifest, snapshot: FileSnapshot) -> None:
        """That snapshot is named by a durable record."""
        self._known.clear()
        self._hold(manifest, snapshot)


class EmptyDirectories(msgspec.Struct, frozen=True):
    """Directories in which there is nothing, as a call found and as it left them."""

    found: frozenset[str]
    left: frozenset[str]

    def done_to(self, directories: frozenset[str]) -> frozenset[str]:
        """What the call changed, changed in `directories`: others may have made some since it found them."""
        return (directories - (self.found - self.left)) | (self.left - self.found)


class CallChanges:
    """What a call changed, and the snapshot of it that its outcome names."""

    def __init__(
        self,
        directory: AttemptDirectory,
        changes: tuple[FileChange, ...],
        files: Mapping[str, File | None],
        contents: Mapping[bytes, bytes],
        directories: EmptyDirectories | None,
        refused: Mapping[str, str],
    ) -> None:
        self.changes = changes
        self.files = files
        self.directories = directories
        self.refused = refused
        self._directory = directory
        self._contents = contents
        self._base: Manifest | None = None
        """What the snapshot was made on."""
        self._taken: tuple[FileChange, ...] = ()
        self._manifest: Manifest | None = None

    async def take(self) -> None:
        """Make the snapshot, on a thread. A disk that fails costs the changes, never the outcome."""
        base, before = self._directory.manifest, self._directory.snapshot
        rejected, manifest = self._directory.combined(self)
        self._set(base, *await outlasted(lambda: self._save(before, rejected, manifest)))

    def recorded(self) -> tuple[FileChange, ...]:
        """What the outcome says of files, on those that are there now: made anew if somebody else came first."""
        base = self._directory.manifest
        if self._base is not base:
            rejected, manifest = self._directory.combined(self)
            self._set(base, *self._save(self._directory.snapshot, rejected, manifest))
        return self._taken

    def landed(self) -> None:
        """The outcome is durable."""
        if self._manifest is not None:
            snapshot = self._taken[0].snapshot
            assert snapshot is not None
            self._directory.landed(self._manifest, snapshot)

    def _save(
        self, before: str | None, rejected: tuple[FileChange, ...], manifest: Manifest | None
    ) -> tuple[tuple[FileChange, ...], Manifest | None]:
        if manifest is None:
            return rejected, None
        try:
            snapshot = self._directory.save(manifest, self._contents.values())
        except (WorkspaceError, OSError) as error:
            lost = (
                FileChange(path=c.path, base=c.base, rejected=str(error))
                for c in self.changes[:_MOST_REFUSED]
            )
            return (*lost, *rejected), None
        base = None if before is None else bytes.fromhex(before)
        return (FileChange(path="/", base=base, snapshot=snapshot), *rejected), manifest

    def _set(self, base: Manifest, taken: tuple[FileChange, ...], manifest: Manifest | None) -> None:
        self._base, self._taken, self._manifest = base, taken, manifest


class LeftChanges:
    """The snapshot of a result that came after its holder had lost the claim: it counts on what it was made on."""

    def __init__(self, directory: AttemptDirectory, changes: tuple[FileChange, ...]) -> None:
        self._directory = directory
        self._changes = changes

    def recorded(self) -> tuple[FileChange, ...]:
        """What the outcome says of files, on those that are there now."""
        return tuple(map(self._settled, self._changes))

    def _settled(self, change: FileChange) -> FileChange:
        change = resting(change, self._directory.snapshot)
        if change.snapshot is None or self._directory.known(change.snapshot) is not None:
            return change
        return replace(change, snapshot=None, rejected="its snapshot is not there")

    def landed(self) -> None:
        """The outcome is durable."""
        for change in self.recorded():
            if change.snapshot is not None:
                manifest = self._directory.known(change.snapshot)
                assert manifest is not None
                self._directory.landed(manifest, change.snapshot)
                return

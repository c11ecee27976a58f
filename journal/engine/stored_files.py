"""The files of a run as its log leaves them, for whoever reads it: in the log, or in a snapshot under a root."""

import asyncio

from journal.core.errors import FileMissing, PathRefused
from journal.engine.attempt_files import read_content
from journal.engine.digest import Source
from journal.replay.workspace import Tree, Workspace
from journal.tools.snapshots import Snapshots


class StoredFiles:
    """Which files there are, and their bytes."""

    def __init__(self, source: Source, run: str, tree: Tree, snapshots: Snapshots | None) -> None:
        self.tree = tree
        self._source = source
        self._run = run
        self._snapshots = snapshots

    async def read(self, path: str) -> bytes:
        """The file's bytes. Raises `FileMissing`, `PathRefused`, `CorruptRecord` and `SnapshotMissing`."""
        file = self.tree.get(path)
        if file is None:
            raise FileMissing(path=path)
        if file.is_link:
            raise PathRefused(path=path, why="it is a symbolic link, and none is followed")
        if self._snapshots is None:
            return await read_content(self._source, self._run, path, file)
        return await asyncio.to_thread(self._snapshots.objects.read, file.digest)


async def stored_files(source: Source, run: str, folded: Workspace, root: str | None = None) -> StoredFiles:
    """The files that `folded` comes to; `root`: where its snapshots are, if not where their writer had them.

    Raises `SnapshotMissing`.
    """
    snapshot = folded.snapshot
    if snapshot is None:
        return StoredFiles(source, run, folded.tree, None)
    snapshots = Snapshots(root or snapshot.root)
    manifest = await asyncio.to_thread(snapshots.load, snapshot.id)
    return StoredFiles(source, run, manifest.tree, snapshots)

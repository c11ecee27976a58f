"""Snapshots of directory workspaces under a root, and which run refers to which.

A snapshot is durable, and marked as referred to, before a record may name it; one that no record came to name is an
orphan, which the next holder of the run lets go. All methods block.

    root/objects/ab/cdef…     contents by digest, shared by all runs
    root/snapshots/<id>       lists of files (`manifest.py`)
    root/runs/<digest>/<nonce>/   a run: state, keys/, refs/<snapshot>, trees/<epoch>-<chance>/
"""

import os
from collections.abc import Iterable

from journal.core import values
from journal.core.errors import SnapshotMissing
from journal.core.records import FileSnapshot
from journal.tools.manifest import Manifest, decode_manifest
from journal.tools.objects import Objects, failing, sync_directory, write_whole


class Snapshots:
    """The snapshots under a root."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.objects = Objects(root)

    def place_of(self, run: str, nonce: bytes) -> str:
        """Where the run's own things are. Runs of one id in other stores and namespaces have other nonces."""
        return f"{self.places_of(run)}/{nonce.hex() or 'none'}"

    def places_of(self, run: str) -> str:
        """Where those of all runs with that id are; named by digest, since ids may hold anything."""
        return f"{self.root}/runs/{values.digest(run.encode()).hex()}"

    def prepare(self, place: str) -> None:
        """Make the directories of the root and of the run. Raises `WorkspaceFailed`."""
        self.objects.prepare()
        with failing(self.root):
            for name in ("refs", "keys", "trees"):
                os.makedirs(f"{place}/{name}", mode=0o700, exist_ok=True)

    def save(self, place: str, manifest: Manifest, contents: Iterable[bytes] = ()) -> FileSnapshot:
        """Make a snapshot durable; `contents` are those that may not be in the store yet. Raises `WorkspaceFailed`."""
        data = manifest.encode()
        name = values.digest(data).hex()
        # Whoever removes what nobody names is kept out from the first content that we rely on to the name.
        with self.objects.locked(), failing(self.root):
            with self.objects.staging() as staging:
                for content in contents:
                    staging.put(content)
            path = self._path(name)
            if not os.path.exists(path):
                write_whole(path, data)
            self._refer(place, name)
        tree = manifest.tree
        return FileSnapshot(id=name, files=tree.count, size=tree.size, root=self.root)

    def load(self, snapshot: str) -> Manifest:
        """The files of that snapshot. Raises `SnapshotMissing`."""
        try:
            if not snapshot.isalnum():
                raise FileNotFoundError
            with open(self._path(snapshot), "rb") as file:
                data = file.read()
        except FileNotFoundError:
            raise SnapshotMissing(snapshot=snapshot, root=self.root) from None
        except OSError as error:
            raise SnapshotMissing(snapshot=snapshot, root=self.root, why=error.strerror or "") from error
        return decode_manifest(data, snapshot, self.root)

    def keep(self, place: str, snapshot: str) -> Manifest:
        """`load`, and let the run refer to it: a record is about to name it, or has. Raises also `WorkspaceFailed`."""
        with self.objects.locked(), failing(self.root):
            manifest = self.load(snapshot)
            self._refer(place, snapshot)
        return manifest

    def refer(self, place: str, named: Iterable[str]) -> list[str]:
        """Let the run refer to the snapshots that its log names, and to no others; those are the orphans it had.

        What is not there is left out: it may be named by what was set aside long ago.
        """
        with self.objects.locked(), failing(self.root):
            wanted = set(named)
            directory = f"{place}/refs"
            there = set(os.listdir(directory))
            for name in wanted - there:
                if os.path.exists(self._path(name)):
                    self._refer(place, name)
            orphans = sorted(there - wanted)
            for name in orphans:
                os.unlink(f"{directory}/{name}")
        return orphans

    def referred(self, place: str) -> set[str]:
        """The snapshots that the run refers to."""
        with failing(self.root):
            return set(os.listdir(f"{place}/refs"))

    def _path(self, snapshot: str) -> str:
        return f"{self.root}/snapshots/{snapshot}"

    def _refer(self, place: str, snapshot: str) -> None:
        directory = f"{place}/refs"
        path = f"{directory}/{snapshot}"
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            return
        sync_directory(directory)

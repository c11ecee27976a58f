"""Contents of files by their digest, under a root: what the snapshots of directory workspaces name.

`staged` bytes are on the disk before anything is told of them, and are put in place whole, so that what has a name is
never half written. The same bytes lie there once, for all runs of the root. Next: `manifest.py` (which path has which
content), `retention.py` (what nobody names any more).
"""

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_SH, LOCK_UN, flock
from hashlib import blake2b
from typing import BinaryIO

from journal.core.errors import QuotaExceeded, SnapshotMissing, WorkspaceFailed

_PIECE = 1024 * 1024
_SYNC_EACH = 8
"""From how many new files on one sync of the file system is cheaper than one of each."""
_libc = ctypes.CDLL(None, use_errno=True)


class Objects:
    """A store of contents. All methods block; none is bound to a thread."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._objects = f"{root}/objects"
        self._staging = f"{root}/staging"

    def prepare(self) -> None:
        """Make the directories. Raises `WorkspaceFailed`."""
        with failing(self.root):
            for path in (
                self.root,
                self._objects,
                self._staging,
                f"{self.root}/snapshots",
                f"{self.root}/runs",
            ):
                os.makedirs(path, mode=0o700, exist_ok=True)

    def path(self, digest: bytes) -> str:
        """Where the content is, or would be."""
        name = digest.hex()
        return f"{self._objects}/{name[:2]}/{name[2:]}"

    def read(self, digest: bytes) -> bytes:
        """The content. Raises `SnapshotMissing`, also where it is another than its name says."""
        try:
            with open(self.path(digest), "rb") as file:
                data = file.read()
        except OSError as error:
            raise self.missing(digest, error) from error
        if blake2b(data, digest_size=16).digest() != digest:
            raise SnapshotMissing(
                snapshot=digest.hex(), root=self.root, why="it has other bytes than it names"
            )
        return data

    def missing(self, digest: bytes, error: OSError) -> SnapshotMissing:
        """What is said of a content that cannot be read."""
        return SnapshotMissing(
            snapshot=digest.hex(), root=self.root, why=error.strerror or type(error).__name__
        )

    @contextmanager
    def staging(self) -> Iterator["Staging"]:
        """What is put there is durable, under its digest, once the block has ended well; else it leaves no trace."""
        staged = Staging(self, self._staging)
        try:
            with self.locked(), failing(self.root):
                yield staged
                staged.commit()
        finally:
            staged.discard()

    @contextmanager
    def locked(self, *, alone: bool = False) -> Iterator[None]:
        """Keep whoever removes what nobody names (`alone`) apart from those who are naming something."""
        with failing(self.root):
            handle = os.open(f"{self.root}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                flock(handle, LOCK_EX if alone else LOCK_SH)
                yield
            finally:
                flock(handle, LOCK_UN)
                os.close(handle)


class Staging:
    """Contents on their way in."""

    def __init__(self, objects: Objects, directory: str) -> None:
        self._objects = objects
        self._directory = directory
        self._new: dict[bytes, str] = {}
        """Where each lies meanwhile, by digest."""

    def put(self, data: bytes) -> bytes:
        """Take `data` in; its digest."""
        digest = blake2b(data, digest_size=16).digest()
        if not self._is_known(digest):
            with self._beside() as (file, path):
                file.write(data)
            self._new[digest] = path
        return digest

    def take(self, handle: int, limit: int) -> tuple[bytes, int]:
        """Take in what `handle` reads; its digest, and how many bytes. Raises `QuotaExceeded` above `limit` bytes."""
        hasher, size = blake2b(digest_size=16), 0
        with self._beside() as (file, path):
            while piece := os.read(handle, _PIECE):
                size += len(piece)
                if size > limit:
                    raise QuotaExceeded(quota="max_file_bytes", limit=limit, actual=size)
                hasher.update(piece)
                file.write(piece)
        digest = hasher.digest()
        if self._is_known(digest):
            os.unlink(path)
        else:
            self._new[digest] = path
        return digest, size

    @contextmanager
    def _beside(self) -> Iterator[tuple[BinaryIO, str]]:
        """A file to write to, which is gone if that fails."""
        handle, path = tempfile.mkstemp(dir=self._directory)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file, path
        except BaseException:
            os.unlink(path)
            raise

    def _is_known(self, digest: bytes) -> bool:
        """One that is there already is made young again, so that nobody removes it meanwhile."""
        if digest in self._new:
            return True
        try:
            os.utime(self._objects.path(digest))
        except FileNotFoundError:
            return False
        return True

    def commit(self) -> None:
        """Make all of them durable."""
        if not self._new:
            return
        sync(list(self._new.values()), self._directory)
        directories = set()
        for digest, path in self._new.items():
            place = self._objects.path(digest)
            directory = os.path.dirname(place)
            if directory not in directories and not os.path.isdir(directory):
                os.makedirs(directory, exist_ok=True)
                directories.add(os.path.dirname(directory))
            os.rename(path, place)
            directories.add(directory)
        self._new = {}
        for directory in directories:
            sync_directory(directory)

    def discard(self) -> None:
        """Leave nothing of what was not committed."""
        for path in self._new.values():
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass  # it was put in place
        self._new = {}


@contextmanager
def failing(root: str) -> Iterator[None]:
    """Say `WorkspaceFailed` of what the disk refuses."""
    try:
        yield
    except OSError as error:
        raise WorkspaceFailed(root=root, why=error.strerror or type(error).__name__) from error


def write_whole(path: str, data: bytes) -> None:
    """Let `path` hold `data`, durably, and at no moment a part of it."""
    handle, beside = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)
        os.rename(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
    sync_directory(os.path.dirname(path))


def sync(paths: list[str], directory: str) -> None:
    """Wait until the files `paths`, all in the file system of `directory`, are on the disk."""
    if len(paths) >= _SYNC_EACH and hasattr(_libc, "syncfs"):
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _libc.syncfs(handle) == 0:
                return
        finally:
            os.close(handle)
    for path in paths:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_directory(path: str) -> None:
    """Wait until what was put into the directory is on the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

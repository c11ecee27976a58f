"""The directory that programs work in: made from a snapshot, changed by them, and read back into the next.

Only what changed is read: a file whose size, times, inode and mode are those of our last look has the content of then.
That holds if the file system's clock has ticked since, so it is waited for where we wrote, and what changed within the
tick in which we looked is looked at again. A directory belongs to one holder in one process, is never taken over, and
so needs no fsync: after a power failure nobody trusts it.
"""

import os
import shutil
import stat
import time
from collections.abc import Mapping

import msgspec

from journal.core.errors import PathRefused, QuotaExceeded, WorkspaceFailed
from journal.replay.workspace import File, Tree, above
from journal.tools.jail import Jail, Seen
from journal.tools.manifest import Manifest
from journal.tools.objects import Objects, Staging, failing
from journal.tools.workspace import Quotas

_TICK_SECONDS = 3.0
"""How long the clock of a file system is waited for."""
_LOOKS = 3
"""How often a file is read that changes while it is."""
_PIECE = 16 * 1024 * 1024


class _Known(msgspec.Struct, frozen=True, gc=False):
    sign: tuple[int, ...]
    file: File
    is_settled: bool = True
    """Whether any change since would show in the sign."""


class Scan(msgspec.Struct, frozen=True):
    """What a directory holds; its contents are in the store."""

    manifest: Manifest
    refused: Mapping[str, str]
    """Paths that cannot be kept, and why."""
    read: int
    """Files that were read for it."""


class WorkingTree:
    """A directory under `place`. All methods block, one at a time."""

    def __init__(self, objects: Objects, place: str, quotas: Quotas) -> None:
        self._objects = objects
        self._place = place
        self._quotas = quotas
        self.path = f"{place}/tree"
        """Where programs work."""
        self.home = f"{place}/home"
        """What they may take for their home; nothing of it is kept."""
        self._known: dict[str, _Known] = {}
        self._there: Manifest | None = None
        """What the directory holds; None: nobody knows."""

    def spoil(self) -> None:
        """Something was at work whose changes do not count: the directory is to be made anew."""
        self._there = None

    def bring(self, wanted: Manifest) -> None:
        """Let the directory hold just that. Raises `WorkspaceFailed` and `SnapshotMissing`."""
        there, self._there = self._there, None
        with failing(self._objects.root):
            if there is None:
                self._restore(wanted)
            else:
                self._change(there, wanted)
            self._settle()
        self._there = wanted

    def scan(self) -> Scan:
        """Read what was changed into the store. Raises `QuotaExceeded` and `WorkspaceFailed`, and is then spoilt."""
        there, self._there = self._there, None
        with failing(self._objects.root):
            now = self._clock()
            jail = Jail(self.path)
            try:
                scan = self._scan(jail, jail.walk(), now, there)
                if not jail.is_at(self.path):
                    raise WorkspaceFailed(root=self._objects.root, why=f"{self.path} was removed meanwhile")
            finally:
                jail.close()
        if not scan.refused:
            self._there = scan.manifest
        return scan

    def remove(self) -> None:
        """Let all of it go."""
        self._there, self._known = None, {}
        remove_tree(self._place)

    # Making ------------------------------------------------------------------------------------------

    def _restore(self, wanted: Manifest) -> None:
        """Beside, and then in its place: a tree that is half there has another name."""
        beside = f"{self._place}/new"
        remove_tree(beside)
        os.makedirs(beside, mode=0o700)
        os.makedirs(self.home, mode=0o700, exist_ok=True)
        self._known = {}
        jail = Jail(beside)
        try:
            for path in sorted(wanted.tree.paths()):
                self._put(jail, path, wanted.tree)
            for path in wanted.directories:
                jail.make_directory(path)
        finally:
            jail.close()
        remove_tree(self.path)
        os.rename(beside, self.path)

    def _change(self, there: Manifest, wanted: Manifest) -> None:
        differing = [
            path for path in wanted.tree.paths() if not _is_same(wanted.tree.get(path), there.tree.get(path))
        ]
        gone = [path for path in there.tree.paths() if wanted.tree.get(path) is None]
        if not differing and not gone and there.directories == wanted.directories:
            return
        jail = Jail(self.path)
        try:
            for path in gone:
                jail.remove(path)
                self._known.pop(path, None)
            self._prune(jail, gone, there, wanted)
            for path in sorted(differing):
                jail.remove(path)
                self._put(jail, path, wanted.tree)
            for path in wanted.directories:
                jail.make_directory(path)
        finally:
            jail.close()

    def _prune(self, jail: Jail, gone: list[str], there: Manifest, wanted: Manifest) -> None:
        """Directories are there while files are in them, unless they are listed."""
        empty = {each for path in gone for each in above(path) if each != "/"}
        empty |= there.directories | {
            each for path in there.directories for each in above(path) if each != "/"
        }
        for path in sorted(empty, key=len, reverse=True):
            if path not in wanted.directories and not wanted.tree.below_directory(path):
                jail.remove_directory(path)

    def _put(self, jail: Jail, path: str, tree: Tree) -> None:
        file = tree.get(path)
        assert file is not None
        is_link = file.is_link
        found = jail.link(path, self._objects.read(file.digest)) if is_link else self._copy(jail, path, file)
        self._known[path] = _Known(_sign(found), file)

    def _copy(self, jail: Jail, path: str, file: File) -> os.stat_result:
        try:
            source = os.open(self._objects.path(file.digest), os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise self._objects.missing(file.digest, error) from error
        try:
            target = jail.create(path, 0o777 if file.is_executable else 0o666)
            try:
                copied = _copy_all(source, target, file.size)
                found = os.fstat(target)
            finally:
                os.close(target)
        finally:
            os.close(source)
        if copied != file.size or found.st_size != file.size:
            short = OSError(0, f"it has {copied:,} bytes instead of {file.size:,}")
            raise self._objects.missing(file.digest, short)
        return found

    def _settle(self) -> None:
        """Wait until whoever writes from now on does so at a later time than we did."""
        newest = max((known.sign[2] for known in self._known.values()), default=0)
        until = time.monotonic() + _TICK_SECONDS
        while (now := self._clock()) <= newest:
            if time.monotonic() > until:
                self._distrust(now)
                return
            time.sleep(0.001)

    def _distrust(self, now: int) -> None:
        self._known = {
            path: msgspec.structs.replace(known, is_settled=False) if known.sign[2] >= now else known
            for path, known in self._known.items()
        }

    def _clock(self) -> int:
        """What the file system says the time is, in nanoseconds."""
        handle = os.open(f"{self._place}/clock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.utime(handle)
            return os.fstat(handle).st_ctime_ns
        finally:
            os.close(handle)

    # Reading -----------------------------------------------------------------------------------------

    def _scan(self, jail: Jail, seen: Seen, now: int, there: Manifest | None) -> Scan:
        tree, changed = Tree(), []
        for path, found in seen.files.items():
            known = self._known.get(path)
            sign = _sign(found)
            if known is not None and known.is_settled and known.sign == sign:
                tree.put(path, known.file)
            else:
                changed.append(path)
                tree.put(path, File(b"", found.st_size, 0, False))
                if found.st_size > self._quotas.max_file_bytes:
                    raise QuotaExceeded(
                        quota="max_file_bytes", limit=self._quotas.max_file_bytes, actual=found.st_size
                    )
        self._quotas.check_all(tree, Tree() if there is None else there.tree)
        refused = dict(seen.refused)
        looked: dict[str, _Known] = {path: self._known[path] for path in seen.files if path in self._known}
        with self._objects.staging() as staging:
            for path in sorted(changed):
                try:
                    looked[path] = self._look(jail, path, staging, now)
                    tree.put(path, looked[path].file)
                except FileNotFoundError:
                    tree.put(path, None)
                    looked.pop(path, None)
                except (OSError, PathRefused) as error:
                    refused[path] = (
                        error.why
                        if isinstance(error, PathRefused)
                        else f"it cannot be read: {error.strerror}"
                    )
                    tree.put(path, None)
                    looked.pop(path, None)
        self._known = looked
        self._quotas.check_all(tree, Tree() if there is None else there.tree)
        return Scan(Manifest(tree, seen.directories), refused, len(changed))

    def _look(self, jail: Jail, path: str, staging: Staging, now: int) -> _Known:
        for _ in range(_LOOKS):
            try:
                with jail.reading(path) as (handle, before):
                    digest, size = staging.take(handle, self._quotas.max_file_bytes)
                    after = os.fstat(handle)
            except OSError as error:
                target = self._target(jail, path, error)
                file = File(staging.put(target), len(target), 0, False, is_link=True)
                return _Known(_LINK_SIGN, file, is_settled=False)
            if _sign(before) == _sign(after) and size == after.st_size:
                file = File(digest, size, 0, False, bool(after.st_mode & stat.S_IXUSR))
                return _Known(_sign(after), file, is_settled=after.st_ctime_ns < now)
        raise PathRefused(path=path, why="it was written to while it was read, again and again")

    def _target(self, jail: Jail, path: str, error: OSError) -> bytes:
        """Of the link that is there, if one is; a link costs next to nothing, and is looked at each time."""
        try:
            return jail.target(path)
        except OSError:
            raise error from None


_LINK_SIGN = (0, 0, 0, 0, 0)


def _sign(found: os.stat_result) -> tuple[int, ...]:
    """What changes whenever the file does, if its clock has ticked in between: mtime can be set, ctime cannot."""
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_mode)


def _is_same(file: File | None, other: File | None) -> bool:
    if file is None or other is None:
        return file is other
    return (file.digest, file.is_executable, file.is_link) == (
        other.digest,
        other.is_executable,
        other.is_link,
    )


def _copy_all(source: int, target: int, size: int) -> int:
    """Bytes copied; the file system shares them where it can."""
    copied = 0
    if hasattr(os, "copy_file_range"):
        try:
            while copied < size and (piece := os.copy_file_range(source, target, min(_PIECE, size - copied))):
                copied += piece
            return copied
        except OSError:
            if copied:
                raise
    while data := os.pread(source, _PIECE, copied):
        copied += os.write(target, data)
    return copied


def remove_tree(path: str) -> None:
    """Remove a directory and all below. First of all it has another name: who works in it still may notice."""
    try:
        gone = f"{os.path.dirname(path)}/gone-{os.urandom(8).hex()}"
        os.rename(path, gone)
    except FileNotFoundError:
        return
    shutil.rmtree(gone, ignore_errors=True)  # somebody else may be at it, too
    if os.path.exists(gone):
        for directory, _, _ in os.walk(gone):  # a program took our rights away
            os.chmod(directory, 0o700)
        shutil.rmtree(gone, ignore_errors=True)

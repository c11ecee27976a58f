"""The files of a run's workspace: a tree that lives in its log. A pure fold of the changes, which never fails on one.

A change carries the whole file, so the last one that counts is the file; changes of calls that a retry set aside count
no more. The fold knows where the contents are, not what they are. Next: `tools/workspace.py` (paths, quotas, which
changes count), `engine/files.py` (how changes get in).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from journal.core import values
from journal.core.codec import open_record
from journal.core.records import (
    BlobRef,
    CallOutcome,
    FileChange,
    FilesChanged,
    FileSnapshot,
    Record,
    RunCreated,
    TurnRetried,
)
from journal.replay.versions import insert, set_aside, version_at, without

READ_MARK = "@files"
"""What the keys of a handler's looks at files begin with."""
MEANWHILE = "it was changed meanwhile"
"""Why a change is rejected whose path is not what it was when the change was made."""
_HAS_FILES = b"\xa5files"
"""The field's name in msgpack: an outcome without these bytes changes no file."""


class File(msgspec.Struct, frozen=True, gc=False):
    """A file, and where its bytes are."""

    digest: bytes
    size: int
    """Bytes."""
    seq: int
    """The record that changed it; 0: none has yet."""
    is_inline: bool
    """Whether the bytes are in that record; else in the blob that the digest names."""
    is_executable: bool = False
    is_link: bool = False
    """Whether it is a symbolic link, whose target are the bytes; nobody follows it."""
    data: bytes | None = None
    """The bytes themselves, of a file that is in no log."""


def file_of(change: FileChange, seq: int) -> File | None:
    """What that change of record `seq` makes of its path; None: nothing is there."""
    content = change.content
    if content is None:
        return None
    if isinstance(content, BlobRef):
        return File(bytes.fromhex(content.blob), content.size, seq, False, change.is_executable)
    return File(values.digest(content), len(content), seq, True, change.is_executable)


def digest_of(file: File | None) -> bytes | None:
    """Of the file's bytes; None where there is none."""
    return None if file is None else file.digest


def above(path: str) -> Iterator[str]:
    """The directories that `path` lies in, the nearest first; the root has the name ``/``."""
    at = path.rfind("/")
    while at > 0:
        yield path[:at]
        at = path.rfind("/", 0, at)
    yield "/"


class Tree:
    """Files by path; directories are there while files are in them. May lie over another, which it leaves alone."""

    def __init__(self, below: "Tree | None" = None) -> None:
        self.below = below
        self.files: dict[str, File | None] = {}
        """None hides what lies below."""
        self.directories: dict[str, int] = {}
        """How many more files than below each has, in directories of it too."""
        self.size: int = 0 if below is None else below.size
        """Bytes of all files."""
        self.count: int = 0 if below is None else below.count
        """Files."""

    def flat(self) -> "Tree":
        """The same files, over no other tree."""
        if self.below is None:
            return self.copy()
        flat = self.below.flat()
        for path, file in self.files.items():
            flat.put(path, file)
        return flat

    def copy(self) -> "Tree":
        """Another tree of the same files, over the same one."""
        other = Tree(self.below)
        other.files, other.directories = self.files.copy(), self.directories.copy()
        other.size, other.count = self.size, self.count
        return other

    def get(self, path: str) -> File | None:
        """The file there."""
        if path in self.files:
            return self.files[path]
        return None if self.below is None else self.below.get(path)

    def below_directory(self, path: str) -> int:
        """How many files lie under it."""
        return self.directories.get(path, 0) + (0 if self.below is None else self.below.below_directory(path))

    def put(self, path: str, file: File | None) -> None:
        """Let that be at `path`."""
        before = self.get(path)
        more = (file is not None) - (before is not None)
        self.size += (0 if file is None else file.size) - (0 if before is None else before.size)
        self.count += more
        if more:
            for directory in above(path):
                left = self.directories.get(directory, 0) + more
                if left:
                    self.directories[directory] = left
                else:
                    del self.directories[directory]
        if file is None and self.below is None:
            self.files.pop(path, None)
        else:
            self.files[path] = file

    def fill(self, files: Iterable[tuple[str, File]]) -> None:
        """Put all of them into a tree that is empty, and lies over none."""
        self.files = dict(files)
        self.count = len(self.files)
        self.size = sum(file.size for file in self.files.values() if file is not None)
        parents = Counter(path.rpartition("/")[0] for path in self.files)
        for parent, count in parents.items():
            for directory in above(f"{parent}/"):
                self.directories[directory] = self.directories.get(directory, 0) + count

    def take(self, changes: Iterable[FileChange], seq: int = 0) -> None:
        """Put all `changes` that count."""
        for change in changes:
            if change.rejected is None:
                self.put(change.path, file_of(change, seq))

    def paths(self) -> Iterator[str]:
        """Of all files, in no order."""
        yield from (path for path, file in self.files.items() if file is not None)
        if self.below is not None:
            yield from (path for path in self.below.paths() if path not in self.files)

    def under(self, directory: str) -> list[str]:
        """The paths of all files in the directory and in those below it, sorted."""
        prefix = directory if directory == "/" else f"{directory}/"
        return sorted(path for path in self.paths() if path.startswith(prefix))


class _FileVersion(msgspec.Struct, frozen=True, gc=False):
    seq: int
    file: File | None


class SnapshotVersion(msgspec.Struct, frozen=True, gc=False):
    """A snapshot of a directory workspace that counted from record `seq` on, which named it."""

    seq: int
    snapshot: FileSnapshot


class Workspace:
    """Feed it all records of a run in order; `tree` is what they come to.

    Of a directory workspace they name snapshots, and it is for others to read the last one, and to `hold` its tree.
    """

    def __init__(self) -> None:
        self._tree = Tree()
        self._readers = 0
        """Who needs the tree to stay as it is."""
        self._versions: dict[str, list[_FileVersion]] = {}
        """Everything that counted, oldest first, by path; of files that were restored nothing until they change."""
        self._snapshots: list[SnapshotVersion] = []
        self.nonce = b""
        """Of the run."""
        self.named: set[str] = set()
        """All snapshots that any record names, whether they count or not."""

    @property
    def tree(self) -> Tree:
        """The files as they stand; it goes on changing with `add`."""
        return self._tree

    @property
    def snapshot(self) -> FileSnapshot | None:
        """The last one that counts."""
        return self._snapshots[-1].snapshot if self._snapshots else None

    @property
    def count(self) -> int:
        """How many files there are."""
        return self._tree.count if self.snapshot is None else self.snapshot.files

    @property
    def snapshot_seq(self) -> int:
        """Of the record that named it; 0: there is none."""
        return self._snapshots[-1].seq if self._snapshots else 0

    def snapshot_at(self, seq: int) -> SnapshotVersion | None:
        """The one that counted behind record `seq`."""
        return version_at(self._snapshots, seq)

    def hold(self, tree: Tree) -> None:
        """Let `tree`, of a snapshot, be the files as they stand."""
        self._tree, self._readers = tree, 0

    def view(self) -> Tree:
        """The files as they stand, which stay so until `release`."""
        self._readers += 1
        return self._tree

    def release(self, view: Tree) -> None:
        """It is needed no more. One that is never given back costs a copy of the tree."""
        if view is self._tree:
            self._readers -= 1

    def file_at(self, path: str, seq: int) -> File | None:
        """The file there, as it stood behind record `seq`."""
        version = version_at(self._versions.get(path, []), seq)
        return None if version is None else version.file

    def at(self, seq: int) -> Tree:
        """All files as they stood behind record `seq`."""
        tree = Tree()
        for path, versions in self._versions.items():
            version = version_at(versions, seq)
            if version is not None and version.file is not None:
                tree.put(path, version.file)
        return tree

    def add(self, record: Record) -> None:
        """Take in the next record."""
        if record.type == CallOutcome.TYPE:
            if _HAS_FILES in record.body:
                body = open_record(record)
                assert isinstance(body, CallOutcome)
                self.apply(body.files, record.seq)
        elif record.type == FilesChanged.TYPE:
            body = open_record(record)
            assert isinstance(body, FilesChanged)
            self.apply(body.changes, record.seq)
        elif record.type == TurnRetried.TYPE:
            self._set_aside(set_aside(record))
        elif record.type == RunCreated.TYPE:
            body = open_record(record)
            assert isinstance(body, RunCreated)
            self.nonce = body.nonce

    def apply(self, changes: Iterable[FileChange], seq: int) -> None:
        """Let `changes` of record `seq` count."""
        for change in changes:
            if change.snapshot is not None:
                self.named.add(change.snapshot.id)
            if change.rejected is not None:
                continue
            if change.snapshot is not None:
                insert(self._snapshots, SnapshotVersion(seq, change.snapshot))
                continue
            versions = self._versions_of(change.path)
            insert(versions, _FileVersion(seq, file_of(change, seq)))
            self._put(change.path, versions)

    def restore(self, files: Iterable[tuple[str, File]]) -> None:
        """Begin with these files, by path; what was before them is not known."""
        self._tree.fill(files)

    def restore_snapshot(self, seq: int, snapshot: FileSnapshot) -> None:
        """Begin with this one, which record `seq` named."""
        self._snapshots = [SnapshotVersion(seq, snapshot)]

    def _versions_of(self, path: str) -> list[_FileVersion]:
        versions = self._versions.get(path)
        if versions is None:
            file = self._tree.get(path)
            versions = self._versions[path] = [] if file is None else [_FileVersion(file.seq, file)]
        return versions

    def keep(self, changes: Iterable[FileChange], contents: Mapping[bytes, bytes]) -> None:
        """Let `changes` count that are in no record; `contents` are the bytes of what they write, by digest."""
        for change in changes:
            if change.rejected is None:
                file = file_of(change, 0)
                before = self._tree.get(change.path if change.source is None else change.source)
                if file is not None:
                    data = contents.get(file.digest) or (None if before is None else before.data) or b""
                    file = replace(file, data=data)
                self._own().put(change.path, file)

    def _set_aside(self, gone: set[int]) -> None:
        if not gone:
            return
        self._snapshots = without(self._snapshots, gone)
        for path, versions in self._versions.items():
            left = without(versions, gone)
            if len(left) < len(versions):
                self._versions[path] = left
                self._put(path, left)

    def _put(self, path: str, versions: list[_FileVersion]) -> None:
        self._own().put(path, versions[-1].file if versions else None)

    def _own(self) -> Tree:
        """The tree, to be changed."""
        if self._readers:
            self._tree, self._readers = self._tree.copy(), 0
        return self._tree


# Which changes count ---------------------------------------------------------------------------------


def obstacle(path: str, tree: Tree) -> str | None:
    """Why no file can be written at `path` in `tree`."""
    if tree.below_directory(path):
        return "it is a directory"
    through = next((each for each in above(path) if tree.get(each) is not None), None)
    return None if through is None else f"it passes through the file {through!r}"


def standing(
    changes: Iterable[FileChange], tree: Tree, too_much: Callable[[str, File, Tree], str | None] | None = None
) -> tuple[FileChange, ...]:
    """`changes`, with those rejected that cannot be made to `tree`; the others stand.

    A path must be what it was when the change was made. Both halves of a move count, or neither. What makes the tree
    smaller comes first, so that quotas are those of what comes of it: `too_much` says where one is exceeded.
    """
    every = list(changes)
    refused = {change.path: change.rejected for change in every if change.rejected is not None}
    for change in every:
        if change.path not in refused and digest_of(tree.get(change.path)) != change.base:
            refused[change.path] = MEANWHILE
    files = {change.path: file_of(change, 0) for change in every}
    growth = sorted(files, key=lambda path: _growth(files[path], tree.get(path)))
    while True:
        over = Tree(tree)
        for path in growth:
            if path not in refused:
                why = _refusal(path, files[path], over, too_much)
                if why is None:
                    over.put(path, files[path])
                else:
                    refused[path] = why
        torn = {
            path: other
            for change in every
            if change.source is not None
            for path, other in ((change.path, change.source), (change.source, change.path))
            if other in refused and path not in refused
        }
        if not torn:
            break
        refused |= {path: f"it was to be moved together with {other!r}" for path, other in torn.items()}
    return tuple(
        replace(change, content=None, is_executable=False, rejected=refused[change.path])
        if change.path in refused
        else change
        for change in every
    )


def resting(change: FileChange, snapshot: str | None) -> FileChange:
    """`change`, rejected if it names a snapshot that was not made on `snapshot`, the files as they are."""
    base = None if snapshot is None else bytes.fromhex(snapshot)
    if change.rejected is not None or change.snapshot is None or change.base == base:
        return change
    return replace(change, snapshot=None, rejected=MEANWHILE)


def _growth(file: File | None, before: File | None) -> tuple[int, int]:
    size = 0 if file is None else file.size
    return (0 if file is None else 1), size - (0 if before is None else before.size)


def _refusal(
    path: str, file: File | None, tree: Tree, too_much: Callable[[str, File, Tree], str | None] | None
) -> str | None:
    if file is None:
        return None
    if (why := obstacle(path, tree)) is not None:
        return why
    return None if too_much is None else too_much(path, file, tree)

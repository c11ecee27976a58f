"""The list of all files of a directory workspace: a snapshot is one of these, and its id is the list's digest."""

from collections.abc import Iterable

import msgspec

from journal.core import values
from journal.core.errors import SnapshotMissing
from journal.replay.workspace import File, Tree, above
from journal.tools.workspace import why_refused

_VERSION = 1
_EXECUTABLE, _LINK = 1, 2


class _Listed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    path: str
    digest: bytes
    size: int
    mode: int = 0


class _Written(msgspec.Struct, frozen=True, array_like=True):
    version: int
    files: tuple[_Listed, ...]
    directories: tuple[str, ...]


class Manifest:
    """Files, and directories in which there are none."""

    def __init__(self, tree: Tree | None = None, directories: Iterable[str] = ()) -> None:
        self.tree = tree or Tree()
        self.directories = frozenset(directories)

    def with_tree(self, tree: Tree) -> "Manifest":
        """Other files, and those of its empty directories that still are some."""
        holding = {each for path in self.directories for each in above(path)}
        return Manifest(tree, (path for path in self.directories - holding if _is_free(path, tree)))

    def encode(self) -> bytes:
        """Its bytes, the same for the same files."""
        listed = []
        for path in sorted(self.tree.paths()):
            file = self.tree.get(path)
            assert file is not None
            mode = _EXECUTABLE * file.is_executable | _LINK * file.is_link
            listed.append(_Listed(path, file.digest, file.size, mode))
        return msgspec.msgpack.encode(_Written(_VERSION, tuple(listed), tuple(sorted(self.directories))))


def decode_manifest(data: bytes, snapshot: str, root: str) -> Manifest:
    """What the bytes of that snapshot say. Raises `SnapshotMissing` where they are others."""
    if values.digest(data).hex() != snapshot:
        raise SnapshotMissing(snapshot=snapshot, root=root, why="its list is damaged")
    try:
        written = msgspec.msgpack.decode(data, type=_Written)
    except msgspec.MsgspecError as error:
        raise SnapshotMissing(snapshot=snapshot, root=root, why=f"its list cannot be read: {error}") from None
    if written.version > _VERSION:
        raise SnapshotMissing(snapshot=snapshot, root=root, why="a newer version of us wrote it")
    tree = Tree()
    for each in written.files:
        # What lies under the root may have been written by anybody: no path of it leads anywhere else.
        if why_refused(each.path) is not None or len(each.digest) != 16:
            raise SnapshotMissing(snapshot=snapshot, root=root, why="its list names what cannot be")
        tree.put(
            each.path,
            File(each.digest, each.size, 0, False, bool(each.mode & _EXECUTABLE), bool(each.mode & _LINK)),
        )
    if any(why_refused(path) is not None for path in written.directories):
        raise SnapshotMissing(snapshot=snapshot, root=root, why="its list names what cannot be")
    return Manifest(tree, written.directories)


def _is_free(path: str, tree: Tree) -> bool:
    """Whether an empty directory can be there."""
    if tree.get(path) is not None or tree.below_directory(path):
        return False
    return all(tree.get(each) is None for each in above(path))

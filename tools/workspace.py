"""`VirtualWorkspace`: files that live in a run's log; which paths there may be, how much, and which changes count.

Pure. A tool reads and changes the files through `io.files`, the application through `journal.files`. Next:
`replay/workspace.py` (the tree), `engine/files.py` (how changes get in), `files.py` (tools for a model).
"""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

import msgspec
from msgspec.structs import replace

from journal.core.errors import FileMissing, InvalidOptions, PathRefused, QuotaExceeded
from journal.core.records import FileChange
from journal.replay.workspace import File, Tree, above, digest_of, file_of

Paths = list[str]
MEANWHILE = "it was changed meanwhile"
"""Why a change is rejected whose path is not what it was when the change was made."""
_MIB = 1024 * 1024
_PATH_BYTES = 1024


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """How much a workspace may hold."""

    max_bytes: int = 256 * _MIB
    """Of all files."""
    max_files: int = 10_000
    max_file_bytes: int = 8 * _MIB
    """Of each file."""

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_files", "max_file_bytes"):
            if getattr(self, name) < 0:
                raise InvalidOptions(f"{type(self).__name__}({name}=...): a number from 0 on is needed")

    def check(self, path: str, size: int, tree: Tree) -> None:
        """Raise `QuotaExceeded` if a file of `size` bytes at `path` would be too much for `tree`."""
        before = tree.get(path)
        grown = size - (0 if before is None else before.size)
        if size > self.max_file_bytes:
            raise QuotaExceeded(quota="max_file_bytes", limit=self.max_file_bytes, actual=size)
        if before is None and tree.count >= self.max_files:
            raise QuotaExceeded(quota="max_files", limit=self.max_files, actual=tree.count + 1)
        if grown > 0 and tree.size + grown > self.max_bytes:
            raise QuotaExceeded(quota="max_bytes", limit=self.max_bytes, actual=tree.size + grown)

    def check_all(self, tree: Tree, before: Tree) -> None:
        """Raise `QuotaExceeded` if `tree`, which was `before`, has grown beyond what is allowed."""
        if tree.count > max(self.max_files, before.count):
            raise QuotaExceeded(quota="max_files", limit=self.max_files, actual=tree.count)
        if tree.size > max(self.max_bytes, before.size):
            raise QuotaExceeded(quota="max_bytes", limit=self.max_bytes, actual=tree.size)


class VirtualWorkspace(Quotas, frozen=True, kw_only=True):
    """A tree of files in the log of each run: ``@journal.agent(workspace=VirtualWorkspace())``.

    `durable`: False keeps the files in memory only, and nothing in the log; they are gone when the turn ends, and after
    a crash within it.
    """

    durable: bool = True


class FileInfo(msgspec.Struct, frozen=True):
    """What a directory lists."""

    path: str
    is_directory: bool
    size: int
    """Bytes; of a directory, of all files in it."""


def checked(path: str, *, is_directory: bool = False) -> str:
    """`path`, if a file can be there. Raises `PathRefused`."""
    why = why_refused(path) if path != "/" or not is_directory else None
    if why is not None:
        raise PathRefused(path=str(path).encode(errors="replace").decode(), why=why)
    return path


def why_refused(path: object) -> str | None:
    """Why no file can be at `path`; None: one can."""
    if not isinstance(path, str):
        return "a path is text"
    if "\0" in path:
        return "it holds a NUL"
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "it is no Unicode text"
    if not path.startswith("/"):
        return f"it is relative: give it from the root, as in {'/' + path[:100]!r}"
    if path == "/":
        return "it is the root directory"
    if size > _PATH_BYTES:
        return f"it takes {size:,} bytes, {_PATH_BYTES:,} are allowed"
    names = path[1:].split("/")
    if ".." in names or "." in names:
        return "its names may not be . or .."
    if "" in names:
        return "it has an empty name: leave out doubled and trailing slashes"
    return None


def obstacle(path: str, tree: Tree) -> str | None:
    """Why no file can be written at `path` in `tree`."""
    if tree.below_directory(path):
        return "it is a directory"
    through = next((each for each in above(path) if tree.get(each) is not None), None)
    return None if through is None else f"it passes through the file {through!r}"


def listed(path: str, tree: Tree) -> list[FileInfo]:
    """What is in the directory itself, by name. Raises `FileMissing`, and `PathRefused` for a file."""
    if path != "/" and not tree.below_directory(path):
        if tree.get(path) is not None:
            raise PathRefused(path=path, why="it is a file, not a directory")
        raise FileMissing(path=path)
    prefix = path if path == "/" else f"{path}/"
    found: dict[str, FileInfo] = {}
    for each in tree.under(path):
        name, slash, _ = each[len(prefix) :].partition("/")
        file = tree.get(each)
        assert file is not None
        known = found.get(name)
        is_directory = bool(slash) or (known is not None and known.is_directory)
        found[name] = FileInfo(
            f"{prefix}{name}", is_directory, file.size + (0 if known is None else known.size)
        )
    return [found[name] for name in sorted(found)]


def matching(pattern: str, paths: Iterable[str]) -> Paths:
    """Those of `paths` that match: ``*`` and ``?`` within a name, ``[...]``, and ``**`` for any directories."""
    if not pattern.startswith("/"):
        raise PathRefused(path=pattern, why=f"patterns begin at the root, as in {'/**/' + pattern[:100]!r}")
    wanted = pattern[1:].split("/")
    if wanted[-1] == "**":
        wanted.append("*")  # files in the directory and below, not one of its name
    return sorted(path for path in paths if _matches(path[1:].split("/"), wanted))


def _matches(names: list[str], wanted: list[str]) -> bool:
    """All ways at once, so that no pattern takes long."""
    states = set(_reached(0, wanted))
    for name in names:
        states = {
            then
            for at in states
            if at < len(wanted)
            for then in (
                _reached(at, wanted)
                if wanted[at] == "**"
                else _reached(at + 1, wanted)
                if fnmatchcase(name, wanted[at])
                else ()
            )
        }
    return len(wanted) in states


def _reached(at: int, wanted: list[str]) -> Iterator[int]:
    """That place of the pattern, and those behind a ``**`` that stands for nothing."""
    yield at
    while at < len(wanted) and wanted[at] == "**":
        at += 1
        yield at


# Which changes count ---------------------------------------------------------------------------------


def settled(changes: Iterable[FileChange], tree: Tree, limits: Quotas) -> tuple[FileChange, ...]:
    """`changes`, with those rejected that cannot be made to `tree`; the others stand.

    A path must be what it was when the change was made. Both halves of a move count, or neither. What makes the tree
    smaller comes first, so that quotas are those of what comes of it.
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
                why = _refusal(path, files[path], over, limits)
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


def _growth(file: File | None, before: File | None) -> tuple[int, int]:
    size = 0 if file is None else file.size
    return (0 if file is None else 1), size - (0 if before is None else before.size)


def _refusal(path: str, file: File | None, tree: Tree, limits: Quotas) -> str | None:
    if file is None:
        return None
    if (why := obstacle(path, tree)) is not None:
        return why
    try:
        limits.check(path, file.size, tree)
    except QuotaExceeded as error:
        return f"{error.quota}={error.limit:,} would be exceeded: {error.actual:,}"
    return None

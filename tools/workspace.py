"""`VirtualWorkspace`: files that live in a run's log; which paths there may be, how much, and which changes count.

Pure. A tool reads and changes the files through `io.files`, the application through `journal.files`. Next:
`replay/workspace.py` (the tree), `engine/files.py` (how changes get in), `files.py` (tools for a model).
"""

import re
from collections.abc import Iterable, Iterator
from fnmatch import translate

import msgspec

from journal.core.errors import FileMissing, InvalidOptions, PathRefused, QuotaExceeded
from journal.core.records import FileChange
from journal.replay.workspace import File, Tree, standing

Paths = list[str]
_MIB = 1024 * 1024
_PATH_BYTES, _PATH_NAMES = 1024, 64
"""Each directory of a path costs memory: ten thousand files at the deepest take some 300 MB of it."""
_HINT = 100
"""Characters of a path that an error proposes."""
_CONTROL = re.compile(r"[\x01-\x1f\x7f-\x9f\u2028\u2029]")
"""Lists of files are read by lines, and names like these are mistakes or worse."""
_MATCH_STEPS = 1_000_000
"""Names compared with a part of a pattern, about one second's worth. Ten thousand files take a tenth of it."""


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """How much a workspace may hold."""

    max_bytes: int = 256 * _MIB
    """Of all files."""
    max_files: int = 10_000
    max_file_bytes: int = 8 * _MIB
    """Of each file."""

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_files", "max_file_bytes"):
            given = getattr(self, name)
            if not isinstance(given, int) or isinstance(given, bool) or given < 0:
                raise InvalidOptions(
                    f"{type(self).__name__}({name}={given!r}): a whole number from 0 on is needed"
                )

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

    @property
    def capabilities(self) -> frozenset[str]:
        """What it offers, as far as the log that it lies in is kept."""
        always = frozenset({"workspace.quota"})
        return always | {"workspace.persistent"} if self.durable else always


class FileInfo(msgspec.Struct, frozen=True):
    """What a directory lists."""

    path: str
    is_directory: bool
    size: int
    """Bytes; of a directory, of all files in it."""
    is_executable: bool = False


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
    if _CONTROL.search(path):
        return "it holds a control character, or a line break"
    if not path.startswith("/"):
        absolute = "/" + path.removeprefix("./").rstrip("/")
        if len(absolute) > _HINT or why_refused(absolute) is not None:
            return "it is relative: paths begin at the root, with a /"
        return f"it is relative: give it from the root, as in {absolute!r}"
    if path == "/":
        return "it is the root directory"
    if size > _PATH_BYTES:
        return f"it takes {size:,} bytes, {_PATH_BYTES:,} are allowed"
    names = path[1:].split("/")
    if ".." in names or "." in names:
        return "its names may not be . or .."
    if "" in names:
        return "it has an empty name: leave out doubled and trailing slashes"
    if len(names) > _PATH_NAMES:
        return f"it has {len(names):,} names, {_PATH_NAMES} are allowed"
    return None


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
            f"{prefix}{name}",
            is_directory,
            file.size + (0 if known is None else known.size),
            file.is_executable and not is_directory,
        )
    return [found[name] for name in sorted(found)]


def matching(pattern: str, paths: Iterable[str]) -> Paths:
    """Those of `paths` that match: ``*`` and ``?`` within a name, ``[...]``, and ``**`` for any directories.

    Raises `PathRefused` for what is no pattern, or takes too long.
    """
    if not isinstance(pattern, str):
        raise PathRefused(path=str(pattern), why="a pattern is text")
    if not pattern.startswith("/"):
        raise PathRefused(path=pattern, why=f"patterns begin at the root, {_rooted(pattern)}")
    if len(pattern) > _PATH_BYTES:
        raise PathRefused(path=pattern, why=f"patterns have at most {_PATH_BYTES:,} characters")
    parts = pattern[1:].split("/")
    wanted = [part for part, before in zip(parts, ["", *parts], strict=False) if not part == before == "**"]
    if wanted[-1] == "**":
        wanted.append("*")  # files in the directory and below, not one of its name
    return sorted(paths) if wanted == ["**", "*"] else _Glob(pattern, wanted).matching(paths)


def _rooted(pattern: str) -> str:
    """What to write instead of a pattern that is relative."""
    names = pattern.removeprefix("./").rstrip("/").split("/")
    absolute = "/".join(["", *names] if len(names) > 1 or names == ["**"] else ["", "**", *names])
    return "with a /" if len(absolute) > _HINT or {"", ".", ".."} & {*names} else f"as in {absolute!r}"


class _Glob:
    """Tries all ways at once, so that no path takes long; and says so when all of them together do."""

    def __init__(self, pattern: str, wanted: list[str]) -> None:
        self._pattern = pattern
        # Not fnmatch itself, which keeps each pattern that it ever saw. None: any directories.
        self._parts = [None if part == "**" else re.compile(translate(part)).match for part in wanted]
        self._steps = 0

    def matching(self, paths: Iterable[str]) -> Paths:
        return sorted(path for path in paths if self._matches(path[1:].split("/")))

    def _matches(self, names: list[str]) -> bool:
        states = set(self._reached(0))
        for name in names:
            self._steps += len(states)
            if self._steps > _MATCH_STEPS:
                raise PathRefused(
                    path=self._pattern,
                    why="it takes too long over so many files: give fewer ** or a directory",
                )
            states = {then for at in states for then in self._after(at, name)}
        return len(self._parts) in states

    def _after(self, at: int, name: str) -> Iterator[int]:
        """The places of the pattern that come next when `name` stands at `at`."""
        if at == len(self._parts):
            return
        matches = self._parts[at]
        if matches is None:
            yield from self._reached(at)
        elif matches(name):
            yield from self._reached(at + 1)

    def _reached(self, at: int) -> Iterator[int]:
        """That place of the pattern, and the one behind a ``**`` that stands for nothing."""
        yield at
        if at < len(self._parts) and self._parts[at] is None:
            yield at + 1


# Which changes count ---------------------------------------------------------------------------------


def settled(changes: Iterable[FileChange], tree: Tree, limits: Quotas) -> tuple[FileChange, ...]:
    """`changes`, with those rejected that cannot be made to `tree` within `limits`; the others stand."""

    def too_much(path: str, file: File, over: Tree) -> str | None:
        try:
            limits.check(path, file.size, over)
        except QuotaExceeded as error:
            return f"{error.quota}={error.limit:,} would be exceeded: {error.actual:,}"
        return None

    return standing(changes, tree, too_much)

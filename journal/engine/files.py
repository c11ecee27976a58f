"""Files in a call: what it reads and changes, and what of it lies in its outcome.

A call works on the tree as it was when it first looked, with its own changes over it; they lie in its outcome, so they
are durable with it or not at all. Contents are fetched when they are read. Next: `editing.py` (the outcome),
`directories.py` (where the files are in a directory). Long since what a call reads, changes and leaves is one state.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from journal.core import values
from journal.core.codec import Blob
from journal.core.errors import (
    FileMissing,
    FileNotText,
    InvalidOptions,
    NotInTurn,
    PathRefused,
)
from journal.core.records import (
    BlobRef,
    FileChange,
    Value,
)
from journal.engine.directories import AttemptDirectory, CallChanges, EmptyDirectories, outlasted
from journal.replay.workspace import File, Tree, digest_of, obstacle
from journal.tools.awaiting import awaited
from journal.tools.directory import Directory
from journal.tools.workspace import FileInfo, Paths, checked, listed, matching

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt
    from journal.engine.attempt_files import AttemptFiles

INLINE_BYTES = 4096
"""Of a file that lies in its record."""
INLINE_BYTES_A_RECORD = 64 * 1024
"""Of all of them in one record."""


def as_bytes(data: bytes | str) -> bytes:
    """What a file is to hold. Raises `InvalidOptions` for what is neither bytes nor text."""
    try:
        return data.encode() if isinstance(data, str) else memoryview(data).tobytes()
    except TypeError:
        raise InvalidOptions(f"a file holds bytes or text, not {type(data).__name__}") from None


class CallFiles:
    """`io.files`: the workspace as the running call sees it, its own changes included."""

    def __init__(self, files: "AttemptFiles") -> None:
        self._files = files
        self._tree = Tree(files.workspace.view())
        self._written: dict[bytes, bytes] = {}
        """Bytes of what the call wrote, by digest."""
        self._sources: dict[str, str] = {}
        """Where files that the call moved were before, by where they are."""
        self._directories: EmptyDirectories | None = None
        """None: no program was at work."""
        self._refused: dict[str, str] = {}
        """Paths that programs left and that cannot be kept, and why."""
        self._is_alone = False
        """Whether everybody else who changes files waits for us."""
        self._is_inside = False
        self._is_over = False

    @awaited("io.files.read")
    async def read(self, path: str) -> bytes:
        """The file's bytes. Raises `FileMissing` and `PathRefused`."""
        return await self._content(path, self._file(path))

    @awaited("io.files.read_text")
    async def read_text(self, path: str) -> str:
        """The file's text. Raises also `FileNotText`."""
        try:
            return (await self.read(path)).decode()
        except UnicodeDecodeError:
            raise FileNotText(path=path) from None

    @awaited("io.files.write")
    async def write(self, path: str, data: bytes | str, *, is_executable: bool | None = None) -> None:
        """Let `data` be the whole file; text as UTF-8. `is_executable`: None leaves it as it is.

        Others see it once the call has ended well; if it raises, or is interrupted, nothing was written. Raises
        `PathRefused` and `QuotaExceeded`.
        """
        self._check_outside("write")
        content = as_bytes(data)
        before = self._tree.get(checked(path))
        if before is not None and before.is_link:
            raise PathRefused(path=path, why="it is a symbolic link, and none is followed")
        executable = (before is not None and before.is_executable) if is_executable is None else is_executable
        self._refuse(path, len(content))
        digest = values.digest(content)
        self._written[digest] = content
        self._tree.put(path, File(digest, len(content), 0, True, executable))

    @awaited("io.files.delete")
    async def delete(self, path: str) -> None:
        """Let the file go. Raises `FileMissing` and `PathRefused`."""
        self._check_outside("delete")
        if (file := self._tree.get(checked(path))) is None or not file.is_link:
            self._file(path)
        self._tree.put(path, None)
        self._sources.pop(path, None)

    @awaited("io.files.exists")
    async def exists(self, path: str) -> bool:
        """Whether a file is there. Raises `PathRefused` for what is no path."""
        self._check()
        return self._tree.get(checked(path)) is not None

    @awaited("io.files.stat")
    async def stat(self, path: str) -> FileInfo:
        """How large the file is, and whether it is executable. Raises `FileMissing` and `PathRefused`."""
        file = self._file(path)
        return FileInfo(path, False, file.size, file.is_executable)

    @awaited("io.files.list")
    async def list(self, path: str = "/") -> list[FileInfo]:
        """What is in the directory itself, by name. Raises `FileMissing` and `PathRefused`."""
        self._check()
        return listed(checked(path, is_directory=True), self._tree)

    @awaited("io.files.glob")
    async def glob(self, pattern: str) -> Paths:
        """The paths that match, sorted: ``*`` and ``?`` within a name, ``[...]``, ``**`` for any directories."""
        self._check()
        return matching(pattern, self._tree.paths())

    @awaited("io.files.move")
    async def move(self, path: str, to: str) -> None:
        """Rename a file; what is at `to` is replaced. Raises `FileMissing`, `PathRefused`, `QuotaExceeded`."""
        self._check_outside("move")
        file = self._file(path)
        if checked(to) == path:
            return
        if file.is_inline and file.digest not in self._written:
            self._written[file.digest] = await self._content(path, file)
        self._tree.put(path, None)
        try:
            self._refuse(to, file.size)
        except BaseException:
            self._tree.put(path, file)
            raise
        self._tree.put(to, file)
        self._sources[to] = self._sources.pop(path, path)

    @asynccontextmanager
    async def directory(self) -> AsyncIterator[Directory]:
        """A directory of the host with all files in it, for programs to work in; only of a `DirectoryWorkspace`.

        No other call has it meanwhile, nor changes files until this one has ended. What is in the directory at the end
        of the block is what the call changed; if the block raises, nothing. `io.files` reads in it what was there
        before, and changes nothing. Raises `QuotaExceeded` for what became too
        much, then too nothing was changed; `InvalidOptions` where there is no directory.
        """
        self._check()
        mine = self._files.directory
        if mine is None:
            raise InvalidOptions(
                "a VirtualWorkspace has no directory: say @journal.agent(workspace=DirectoryWorkspace(root))"
            )
        if self._is_inside:
            raise InvalidOptions("io.files.directory(): this call is in it already")
        self._is_inside = True
        try:
            await self._alone(mine)
            self._files.check_trust()  # it may have been a long wait
            if not self.has_changes:
                self.forget()  # whoever was waited for has changed something
            view = self._tree
            brought = self._directories
            working, found = await mine.bring(view, None if brought is None else brought.left, self._written)
            yield Directory(working.path, working.home)
            self._check()
            scan = await outlasted(working.scan)
            for path, file in await outlasted(lambda: differing(view, scan.manifest.tree)):
                view.put(path, file)
                self._sources.pop(path, None)
            self._directories = EmptyDirectories(
                found if brought is None else brought.found, scan.manifest.directories
            )
            # What is refused is in no later directory of the call; it is told all the same.
            every = {**self._refused, **scan.refused}
            self._refused = {path: why for path, why in every.items() if view.get(path) is None}
        except BaseException:
            if self._is_alone:
                mine.spoil()
            raise
        finally:
            self._is_inside = False

    async def _alone(self, mine: AttemptDirectory) -> None:
        if not self._is_alone:
            await mine.acquire()
            self._is_alone = True

    def _file(self, path: str) -> File:
        self._check()
        file = self._tree.get(checked(path))
        if file is not None and file.is_link:
            raise PathRefused(path=path, why="it is a symbolic link, and none is followed")
        if file is None:
            if self._tree.below_directory(path):
                raise PathRefused(path=path, why="it is a directory")
            raise FileMissing(path=path)
        return file

    async def _content(self, path: str, file: File) -> bytes:
        data = self._written.get(file.digest)
        return await self._files.content(self._sources.get(path, path), file) if data is None else data

    def _refuse(self, path: str, size: int) -> None:
        if (why := obstacle(path, self._tree)) is not None:
            raise PathRefused(path=path, why=why)
        self._files.limits.check(path, size, self._tree)

    def _check(self) -> None:
        if self._is_over:
            raise NotInTurn(what="io.files of a call that has ended", where="a call")

    def _check_outside(self, what: str) -> None:
        self._check()
        if self._is_inside:  # the directory is what counts in the end
            raise InvalidOptions(
                f"io.files.{what}(): this call is in its directory: do it there, or after the block"
            )

    # For the engine ----------------------------------------------------------------------------------

    @property
    def has_changes(self) -> bool:
        """Whether anything was written or deleted."""
        return bool(self._tree.files or self._refused) or self._directories is not None

    def forget(self) -> None:
        """The act is tried again: what it changed counts for nothing."""
        self._release()
        self._tree = Tree(self._files.workspace.view())
        self._written, self._sources, self._directories, self._refused = {}, {}, None, {}

    def close(self) -> None:
        """The act has ended."""
        self._is_over = True
        if not self.has_changes:
            self._release()

    async def snapshot(self) -> CallChanges:
        """Once, for an outcome, where files are in a directory: what was changed, its snapshot taken."""
        mine = self._files.directory
        assert mine is not None
        await self._alone(mine)
        changes, _, contents = self.changes()
        files = {change.path: self._tree.get(change.path) for change in changes}
        taken = CallChanges(mine, changes, files, contents, self._directories, self._refused)
        await taken.take()
        return taken

    def let_go(self) -> None:
        """The call is over, whatever became of it."""
        if self._is_alone:
            self._is_alone = False
            assert self._files.directory is not None
            if self._is_inside:  # something of the call is still at work there
                self._files.directory.spoil()
            self._files.directory.release()

    def _release(self) -> None:
        if self._tree.below is not None:
            self._files.workspace.release(self._tree.below)

    def changes(self) -> tuple[tuple[FileChange, ...], tuple[Blob, ...], dict[bytes, bytes]]:
        """Once: what was changed, what of it lies in blobs, and the bytes of all that was written."""
        found: list[FileChange] = []
        blobs: dict[str, Blob] = {}
        contents: dict[bytes, bytes] = {}
        room = INLINE_BYTES_A_RECORD
        below = self._tree.below
        assert below is not None
        for path, file in self._tree.files.items():
            base = below.get(path)
            if file == base or (file is not None and base is not None and _is_same(file, base)):
                continue
            content: Value | None = None
            if file is not None:
                data = self._written.get(file.digest)
                if data is not None and len(data) <= min(INLINE_BYTES, room):
                    content = data
                    room -= len(data)
                else:
                    content = BlobRef(file.digest.hex(), file.size)
                    if data is not None:
                        blobs[content.blob] = Blob(content.blob, data)
                if data is not None:
                    contents[file.digest] = data
            source = self._sources.get(path)
            if source is not None and (below.get(source) is None or self._tree.get(source) is not None):
                source = None  # it was made by this call, or there is another file by now
            found.append(
                FileChange(
                    path=path,
                    base=digest_of(base),
                    content=content,
                    is_executable=file is not None and file.is_executable,
                    source=source,
                )
            )
        self._release()
        return tuple(found), tuple(blobs.values()), contents


def differing(tree: Tree, other: Tree) -> list[tuple[str, File | None]]:
    """What is to be put into `tree` to make it `other`."""
    gone: list[tuple[str, File | None]] = [(path, None) for path in tree.paths() if other.get(path) is None]
    for path in other.paths():
        file, before = other.get(path), tree.get(path)
        assert file is not None
        if before is None or not _is_same(file, before):
            gone.append((path, file))
    return gone


def _is_same(file: File, other: File) -> bool:
    return (file.digest, file.is_executable, file.is_link) == (
        other.digest,
        other.is_executable,
        other.is_link,
    )


def files_of(attempt: "Attempt") -> CallFiles:
    """For a new call. Raises `InvalidOptions` where the agent has no workspace."""
    agent = attempt.agent
    if agent.workspace is None:
        raise InvalidOptions(
            f"agent {agent.name!r} has no workspace: say @journal.agent(workspace=VirtualWorkspace())"
        )
    return CallFiles(attempt.files)

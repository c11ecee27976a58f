"""`turn.files`: the workspace of the run as the handler sees it.

Each look is a record, and sees what the log comes to just there: a replay, which finds the record at the same place,
sees the same. It is handed out in the order of the log, as outcomes are, since reading may have to wait for the store.
"""

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from journal.core import values
from journal.core.codec import Blob, seal
from journal.core.errors import FileMissing, FileNotText, InvalidOptions, PathRefused
from journal.core.records import NewRecord, Observed
from journal.engine import outside
from journal.engine.cancelling import in_its_place
from journal.engine.claim import Late
from journal.replay.workspace import READ_MARK, File, Tree
from journal.tools.awaiting import awaited
from journal.tools.workspace import FileInfo, Paths, checked, listed, matching

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt
    from journal.engine.attempt_files import AttemptFiles

_NOW = sys.maxsize


class TurnFiles:
    """The files as the calls that have ended left them. To change them is a call's: `io.files`, in a step or a tool."""

    def __init__(self, attempt: "Attempt") -> None:
        if not attempt.agent.has_files:
            raise InvalidOptions(
                f"agent {attempt.agent.name!r} has no files that a replay could read again: "
                "say @journal.agent(workspace=VirtualWorkspace()), durable as it is by default"
            )
        self._attempt = attempt

    @awaited("turn.files.read")
    async def read(self, path: str) -> bytes:
        """The file's bytes. Raises `FileMissing` and `PathRefused`."""
        checked(path)
        files, fetched = _Files(self._attempt.files), dict[File, bytes]()

        async def fetch(seq: int) -> File | None:
            file = await files.file_at(path, seq)
            if file is not None and not file.is_link and file not in fetched:
                fetched[file] = await self._attempt.files.content(path, file)
            return file

        seq = await self._look("read", path, fetch)
        file = await fetch(seq)  # it is there, unless somebody changed the file in just that moment
        if file is None:
            if (await files.at(seq)).below_directory(path):
                raise PathRefused(path=path, why="it is a directory")
            raise FileMissing(path=path)
        if file.is_link:
            raise PathRefused(path=path, why="it is a symbolic link, and none is followed")
        return fetched[file]

    @awaited("turn.files.read_text")
    async def read_text(self, path: str) -> str:
        """The file's text. Raises also `FileNotText`."""
        try:
            return (await self.read(path)).decode()
        except UnicodeDecodeError:
            raise FileNotText(path=path) from None

    @awaited("turn.files.exists")
    async def exists(self, path: str) -> bool:
        """Whether a file is there. Raises `PathRefused` for what is no path."""
        files = _Files(self._attempt.files)
        seq = await self._look("exists", checked(path), files.ready)
        return await files.file_at(path, seq) is not None

    @awaited("turn.files.list")
    async def list(self, path: str = "/") -> list[FileInfo]:
        """What is in the directory itself, by name. Raises `FileMissing` and `PathRefused`."""
        files = _Files(self._attempt.files)
        seq = await self._look("list", checked(path, is_directory=True), files.ready)
        return listed(path, await files.at(seq))

    @awaited("turn.files.glob")
    async def glob(self, pattern: str = "/**") -> Paths:
        """The paths that match, sorted: as `io.files.glob` does."""
        matching(pattern, ())
        files = _Files(self._attempt.files)
        seq = await self._look("glob", pattern, files.ready)
        return matching(pattern, (await files.at(seq)).paths())

    async def _look(self, verb: str, what: str, fetch: Callable[[int], Awaitable[object]]) -> int:
        """The seq at which the handler stands, once it is its turn. `fetch`: whatever that takes, done before."""
        attempt = self._attempt
        key = outside.scope_of(attempt, f"turn.files.{verb}").next_key(READ_MARK)
        known = attempt.history.observed_at.get(key)
        if known is not None:
            await fetch(known[0])
            await attempt.order.released(key)
            return known[0]
        await attempt.order.drained()
        await fetch(_NOW)
        body = Observed(value=values.encode({verb: what}))
        seqs: list[int] = []

        def make(is_first: bool) -> tuple[NewRecord, tuple[Blob, ...]]:
            if is_first:
                attempt.docs.begin_batch()
                attempt.files.begin_batch()
            return seal(attempt.holding.run, body, turn=attempt.turn_id, key=key), ()

        await in_its_place(attempt, attempt.holding.commit_late(Late(make, seqs.append)))
        return seqs[-1]


class _Files:
    """The files for one look: a snapshot's list is read once, and not again where nobody may wait any more."""

    def __init__(self, files: "AttemptFiles") -> None:
        self._files = files
        self._trees: dict[str, Tree] = {}

    async def ready(self, seq: int) -> None:
        """Let `at` have nothing to wait for."""
        if self._files.directory is not None:
            await self.at(seq)

    async def at(self, seq: int) -> Tree:
        """All files as they stood behind record `seq`."""
        version = self._files.workspace.snapshot_at(seq)
        if version is None:
            return self._files.workspace.at(seq)
        name = version.snapshot.id
        if name not in self._trees:
            self._trees[name] = await self._files.tree_of(version)
        return self._trees[name]

    async def file_at(self, path: str, seq: int) -> File | None:
        """The file there, as it stood behind record `seq`."""
        if self._files.directory is None:
            return self._files.workspace.file_at(path, seq)
        return (await self.at(seq)).get(path)

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
from journal.engine.claim import Late
from journal.replay.workspace import READ_MARK, File, Workspace
from journal.tools.workspace import FileInfo, Paths, checked, listed, matching

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt

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

    @property
    def _workspace(self) -> Workspace:
        return self._attempt.files.workspace

    async def read(self, path: str) -> bytes:
        """The file's bytes. Raises `FileMissing` and `PathRefused`."""
        checked(path)
        fetched: dict[File, bytes] = {}

        async def fetch(seq: int) -> None:
            file = self._workspace.file_at(path, seq)
            if file is not None and file not in fetched:
                fetched[file] = await self._attempt.files.content(path, file)

        seq = await self._look("read", path, fetch)
        await fetch(seq)  # it is there, unless somebody changed the file in just that moment
        file = self._workspace.file_at(path, seq)
        if file is not None:
            return fetched[file]
        if self._workspace.at(seq).below_directory(path):
            raise PathRefused(path=path, why="it is a directory")
        raise FileMissing(path=path)

    async def read_text(self, path: str) -> str:
        """The file's text. Raises also `FileNotText`."""
        try:
            return (await self.read(path)).decode()
        except UnicodeDecodeError:
            raise FileNotText(path=path) from None

    async def exists(self, path: str) -> bool:
        """Whether a file is there. Raises `PathRefused` for what is no path."""
        seq = await self._look("exists", checked(path))
        return self._workspace.file_at(path, seq) is not None

    async def list(self, path: str = "/") -> list[FileInfo]:
        """What is in the directory itself, by name. Raises `FileMissing` and `PathRefused`."""
        seq = await self._look("list", checked(path, is_directory=True))
        return listed(path, self._workspace.at(seq))

    async def glob(self, pattern: str = "/**") -> Paths:
        """The paths that match, sorted: as `io.files.glob` does."""
        matching(pattern, ())
        return matching(pattern, self._workspace.at(await self._look("glob", pattern)).paths())

    async def _look(self, verb: str, what: str, fetch: Callable[[int], Awaitable[None]] | None = None) -> int:
        """The seq at which the handler stands, once it is its turn. `fetch`: whatever that takes, done before."""
        attempt = self._attempt
        key = outside.scope_of(attempt, f"turn.files.{verb}").next_key(READ_MARK)
        known = attempt.history.observed_at.get(key)
        if known is not None:
            if fetch is not None:
                await fetch(known[0])
            await attempt.order.released(key)
            return known[0]
        await attempt.order.drained()
        if fetch is not None:
            await fetch(_NOW)
        body = Observed(value=values.encode({verb: what}))
        seqs: list[int] = []

        def make(is_first: bool) -> tuple[NewRecord, tuple[Blob, ...]]:
            if is_first:
                attempt.docs.begin_batch()
                attempt.files.begin_batch()
            return seal(attempt.holding.run, body, turn=attempt.turn_id, key=key), ()

        landing = await attempt.holding.commit_late(Late(make, seqs.append))
        if not attempt.order.is_clear():
            await attempt.order.live(landing)
        return seqs[-1]

"""The files of a run as one attempt at a turn knows them: where the log leaves them, and what has landed since.

Next: `files.py` (what a call sees and changes), `directories.py` (where they are in a directory), `turn_files.py`.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING

from journal.core import values
from journal.core.codec import open_record
from journal.core.errors import CorruptRecord, InvalidReference, LogError, LogUnreadable, SnapshotMissing
from journal.core.records import CallOutcome, FileChange, FilesChanged, Record, TurnStatus
from journal.engine.digest import Source
from journal.engine.directories import AttemptDirectory
from journal.replay.workspace import File, SnapshotVersion, Tree, Workspace
from journal.tools.directory import DirectoryWorkspace
from journal.tools.workspace import VirtualWorkspace

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt

CACHE_BYTES = 16 * 1024 * 1024


class Contents:
    """Bytes of files by digest; those not read for longest are let go."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, bytes] = OrderedDict()
        self._size = 0

    def get(self, digest: bytes) -> bytes | None:
        """The bytes, if they are here."""
        data = self._known.get(digest)
        if data is not None:
            self._known.move_to_end(digest)
        return data

    def put(self, digest: bytes, data: bytes) -> None:
        """Keep them for a while."""
        if digest not in self._known:
            self._known[digest] = data
            self._size += len(data)
        while self._size > CACHE_BYTES:
            self._size -= len(self._known.popitem(last=False)[1])


async def read_content(source: Source, run: str, path: str, file: File) -> bytes:
    """The bytes of the file, from where the log says that they are. Raises `CorruptRecord`."""
    if not file.is_inline:
        return await source.get_blob(run, file.digest.hex())
    for record in await source.read(run, after=file.seq - 1, limit=1):
        for change in changes_in(record):
            if change.path == path and isinstance(change.content, bytes):
                return change.content
    raise CorruptRecord(run_id=run, seq=file.seq, reason=f"the file {path!r} is not in it")


def changes_in(record: Record) -> tuple[FileChange, ...]:
    """The changes of files that the record holds."""
    body = open_record(record)
    if isinstance(body, CallOutcome):
        return body.files
    return body.changes if isinstance(body, FilesChanged) else ()


class AttemptFiles:
    """The workspace of the run as one attempt knows it."""

    def __init__(self, attempt: "Attempt") -> None:
        self._attempt = attempt
        folded = attempt.history.folded
        self.workspace: Workspace = (
            Workspace() if folded is None or not attempt.agent.has_files else folded.workspace
        )
        workspace = attempt.agent.workspace or VirtualWorkspace()
        self.durable = workspace.durable
        self.directory: AttemptDirectory | None = None
        """Where the files are in a directory."""
        if isinstance(workspace, DirectoryWorkspace):
            self.limits = workspace.quotas
            self.directory = AttemptDirectory(attempt, workspace)
        else:
            self.limits = workspace
        self._contents = Contents()
        self._ahead: Tree | None = None
        self._not_taken: list[tuple[FileChange, ...]] = []
        """What changes that are packed into one batch make of the tree, before it has landed."""

    def check_trust(self) -> None:
        """Raise `ClaimLost` if the claim may have run out."""
        self._attempt.holding.check_trust()

    async def open(self) -> None:
        """Take the files up where the log leaves them. Raises `WorkspaceError`."""
        if self.directory is not None:
            if self.workspace.tree.count:
                raise InvalidReference(
                    what=self._attempt.holding.run,
                    why="its files are in its log: it began with a VirtualWorkspace",
                )
            await self.directory.open()
        elif self.workspace.snapshot is not None:
            raise InvalidReference(
                what=self._attempt.holding.run,
                why=f"its files are under {self.workspace.snapshot.root}: it began with a DirectoryWorkspace",
            )

    async def close(self, ended: TurnStatus | None) -> None:
        """The turn is over here, in that way."""
        if self.directory is not None:
            await self.directory.close(ended)

    async def add(self, record: Record) -> None:
        """Somebody else changed files."""
        self.workspace.add(record)
        if self.directory is not None:
            await self.directory.follow(record)

    async def fetch(self, changes: tuple[FileChange, ...]) -> None:
        """Make ready what `changes`, of evidence, name."""
        if self.directory is not None:
            await self.directory.fetch(changes)

    def landed(self, changes: tuple[FileChange, ...], contents: dict[bytes, bytes], seq: int) -> None:
        """Changes of ours are durable, as record `seq`."""
        self.begin_batch()
        if not self.durable:
            self.workspace.keep(changes, contents)
            return
        for digest, data in contents.items():
            self._contents.put(digest, data)
        self.workspace.apply(changes, seq)

    def begin_batch(self) -> None:
        """What is made next rests on the log alone."""
        self._ahead = None
        self._not_taken.clear()

    def ahead(self, changes: tuple[FileChange, ...]) -> None:
        """What is made next in the same batch rests on these changes too."""
        self._not_taken.append(changes)

    def base(self) -> Tree:
        """What a change that is made now is made on."""
        if self._not_taken:  # seldom: most batches hold one outcome that changes files
            self._ahead = self._ahead or Tree(self.workspace.tree)
            for changes in self._not_taken:
                self._ahead.take(changes)
            self._not_taken.clear()
        return self._ahead or self.workspace.tree

    async def tree_of(self, version: SnapshotVersion) -> Tree:
        """All files of a snapshot that the log names. Raises `LogUnreadable` where it is not there."""
        assert self.directory is not None
        try:
            return await self.directory.tree_of(version.snapshot.id)
        except SnapshotMissing as error:
            raise self._unreadable(str(error), version.seq) from error

    async def content(self, path: str, file: File) -> bytes:
        """The bytes of a file of the log. Raises `LogUnreadable` where there are none, or others."""
        data = self._contents.get(file.digest) if file.data is None else file.data
        if data is None and self.directory is not None:
            data = await self._read(self.directory, path, file)
        if data is None:
            data = await self._fetched(path, file)
            self._contents.put(file.digest, data)
        return data

    async def _read(self, directory: AttemptDirectory, path: str, file: File) -> bytes:
        try:
            return await directory.read(file.digest)
        except SnapshotMissing as error:
            reason = f"{path!r} of its files: {error}"
            raise self._unreadable(reason, self.workspace.snapshot_seq) from error

    def _unreadable(self, reason: str, seq: int) -> LogUnreadable:
        run = self._attempt.holding.run
        return LogUnreadable(run_id=run, cause=CorruptRecord(run_id=run, seq=seq, reason=reason))

    async def _fetched(self, path: str, file: File) -> bytes:
        attempt, holding = self._attempt, self._attempt.holding
        try:
            data = await attempt.outlasting(lambda: read_content(holding.world, holding.run, path, file))
            if values.digest(data) != file.digest:
                raise CorruptRecord(
                    run_id=holding.run, seq=file.seq, reason=f"{path!r} has other bytes than it names"
                )
        except LogError as error:
            raise LogUnreadable(run_id=holding.run, cause=error) from error
        return data

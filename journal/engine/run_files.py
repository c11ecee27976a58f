"""`journal.files`: the files of a run, read and changed by the application."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from journal.core.codec import Blob, pack
from journal.core.errors import FileMissing, FilesBusy, InvalidOptions, PathRefused
from journal.core.ids import check_id
from journal.core.records import Body, FileChange, FilesChanged, Value
from journal.engine.files import INLINE_BYTES, as_bytes
from journal.engine.run_reader import UPDATE_SECONDS, reader_of
from journal.engine.stored_files import StoredFiles, stored_files
from journal.replay.workspace import Workspace, digest_of, file_of, obstacle
from journal.tools.directory import DirectoryWorkspace
from journal.tools.manifest import Manifest
from journal.tools.workspace import FileInfo, Paths, VirtualWorkspace, checked, listed, matching

if TYPE_CHECKING:
    from journal.engine.journal import Journal


class RunFiles:
    """Files by run id. Made by the journal. Raises `RunNotFound`, and `WorkspaceError` about a file.

    What is read is as it stands, or as it stood behind record `upto` of the log.
    """

    def __init__(self, journal: "Journal") -> None:
        self._journal = journal

    async def read(self, run_id: str, path: str, *, upto: int | None = None) -> bytes:
        """The file's bytes. Raises `FileMissing` and `PathRefused`."""
        checked(path)
        return await (await self._read(run_id, upto)).read(path)

    async def glob(self, run_id: str, pattern: str = "/**", *, upto: int | None = None) -> Paths:
        """The paths that match, sorted; as `io.files.glob` does."""
        return matching(pattern, (await self._read(run_id, upto)).tree.paths())

    async def write(
        self, run_id: str, path: str, data: bytes | str, *, is_executable: bool | None = None
    ) -> None:
        """Let `data` be the whole file, whatever is there; text as UTF-8. `is_executable`: None leaves it as it is.

        Whoever works on the run sees it from then on. Quotas are those of the run's agent, if it is registered here.
        Raises `PathRefused`, `QuotaExceeded`, and `FilesBusy` if the run keeps changing.
        """
        await self._change(run_id, path, as_bytes(data), is_executable)

    async def delete(self, run_id: str, path: str) -> None:
        """Let the file go. Raises `FileMissing`, `PathRefused` and `FilesBusy`."""
        await self._change(run_id, path, None, None)

    async def _change(
        self, run_id: str, path: str, content: bytes | None, is_executable: bool | None
    ) -> None:
        checked(path)
        workspace = await self._workspace(run_id)
        limits = workspace.quotas if isinstance(workspace, DirectoryWorkspace) else workspace
        reader = await reader_of(self._journal, check_id(run_id, "run id"))
        saved: list[Callable[[], object]] = []

        async def make() -> tuple[Body, tuple[Blob, ...]]:
            folded = reader.folded.workspace
            directory = _kept_in(workspace, folded)
            manifest = Manifest(folded.tree if directory is None else None)
            if directory is not None and folded.snapshot is not None:
                manifest = await asyncio.to_thread(directory.snapshots.load, folded.snapshot.id)
            tree = manifest.tree
            before = tree.get(path)
            value: Value | None = None
            blob: Blob | None = None
            if content is None and before is None:
                raise FileMissing(path=path)
            if before is not None and before.is_link and content is not None:
                raise PathRefused(path=path, why="it is a symbolic link, and none is followed")
            if content is not None:
                if (why := obstacle(path, tree)) is not None:
                    raise PathRefused(path=path, why=why)
                if limits is not None:
                    limits.check(path, len(content), tree)
                value, blob = pack(content, INLINE_BYTES)
            executable = (
                before is not None and before.is_executable if is_executable is None else is_executable
            )
            change = FileChange(
                path=path,
                base=digest_of(before),
                content=value,
                is_executable=executable and content is not None,
            )
            if directory is None:
                return FilesChanged(changes=(change,)), () if blob is None else (blob,)
            tree.put(path, file_of(change, 0))
            after = manifest.with_tree(tree)
            data = () if content is None else (content,)
            place = directory.snapshots.place_of(run_id, folded.nonce)
            snapshot = await asyncio.to_thread(directory.lifecycle.save, place, after, data)
            base = None if folded.snapshot is None else bytes.fromhex(folded.snapshot.id)
            change = FileChange(path="/", base=base, snapshot=snapshot)
            saved.append(partial(directory.snapshots.keep, place, snapshot.id))
            return FilesChanged(changes=(change,), v=2), ()

        def busy() -> Exception:
            return FilesBusy(run_id=run_id, path=path, seconds=UPDATE_SECONDS)

        await reader.append("files", make, self._journal.clock, busy)
        if saved:
            # Who took the run up meanwhile knew of no record that names it, and let it go.
            await asyncio.to_thread(saved[-1])

    async def _read(self, run_id: str, upto: int | None) -> StoredFiles:
        reader = await reader_of(self._journal, check_id(run_id, "run id"))
        await reader.read_on(upto)
        folded, root = reader.folded.workspace, None
        if folded.snapshot is not None or not folded.tree.count:
            workspace = await self._workspace(run_id)  # which refuses where no log ever holds files
            root = workspace.root if isinstance(workspace, DirectoryWorkspace) else None
        return await stored_files(reader.world, reader.run, folded, root)

    async def _workspace(self, run_id: str) -> VirtualWorkspace | DirectoryWorkspace | None:
        """None: its agent is not known here."""
        agent = self._journal.agents.get((await self._journal.get(run_id)).agent)
        if agent is not None and not agent.has_files:
            raise InvalidOptions(
                f"agent {agent.name!r} of run {run_id!r} has no durable workspace: "
                "say @journal.agent(workspace=VirtualWorkspace())"
            )
        return None if agent is None else agent.workspace

    async def list(self, run_id: str, path: str = "/", *, upto: int | None = None) -> list[FileInfo]:
        """What is in the directory itself, by name. Raises `FileMissing` and `PathRefused`."""
        checked(path, is_directory=True)
        return listed(path, (await self._read(run_id, upto)).tree)


def _kept_in(
    workspace: VirtualWorkspace | DirectoryWorkspace | None, folded: Workspace
) -> DirectoryWorkspace | None:
    """Where a change is kept; None: in the log. Raises `InvalidOptions` where nobody here knows."""
    if isinstance(workspace, DirectoryWorkspace):
        if folded.tree.count:
            raise InvalidOptions("the files are in the log of the run: it began with a VirtualWorkspace")
        return workspace
    if folded.snapshot is not None:
        raise InvalidOptions(
            f"the files are under {folded.snapshot.root}: register the agent with its DirectoryWorkspace to change them"
        )
    return None

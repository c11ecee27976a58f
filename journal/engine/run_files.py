"""`journal.files`: the files of a run, read and changed by the application."""

from typing import TYPE_CHECKING

from journal.core.codec import Blob, pack
from journal.core.errors import FileMissing, FilesBusy, InvalidOptions, PathRefused
from journal.core.ids import check_id
from journal.core.records import Body, FileChange, FilesChanged, Value
from journal.engine.files import INLINE_BYTES, as_bytes, read_content
from journal.engine.run_reader import UPDATE_SECONDS, RunReader, reader_of
from journal.replay.workspace import Workspace, digest_of
from journal.tools.workspace import FileInfo, Paths, VirtualWorkspace, checked, listed, matching, obstacle

if TYPE_CHECKING:
    from journal.engine.journal import Journal


class RunFiles:
    """Files by run id. Made by the journal. Raises `RunNotFound`, and `WorkspaceError` about a file."""

    def __init__(self, journal: "Journal") -> None:
        self._journal = journal

    async def read(self, run_id: str, path: str) -> bytes:
        """The file's bytes as it stands. Raises `FileMissing` and `PathRefused`."""
        checked(path)
        reader = await self._read(run_id)
        file = reader.fold.tree.get(path)
        if file is None:
            raise FileMissing(path=path)
        return await read_content(reader.world, reader.run, path, file)

    async def glob(self, run_id: str, pattern: str = "/**") -> Paths:
        """The paths that match, sorted; as `io.files.glob` does."""
        return matching(pattern, (await self._read(run_id)).fold.tree.paths())

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
        limits = await self._limits(run_id)
        reader = await reader_of(self._journal, check_id(run_id, "run id"), Workspace())

        async def make() -> tuple[Body, tuple[Blob, ...]]:
            tree = reader.fold.tree
            before = tree.get(path)
            value: Value | None = None
            blob: Blob | None = None
            if content is None and before is None:
                raise FileMissing(path=path)
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
            return FilesChanged(changes=(change,)), () if blob is None else (blob,)

        def busy() -> Exception:
            return FilesBusy(run_id=run_id, path=path, seconds=UPDATE_SECONDS)

        await reader.append("files", make, self._journal.clock, busy)

    async def _read(self, run_id: str) -> RunReader[Workspace]:
        reader = await reader_of(self._journal, check_id(run_id, "run id"), Workspace())
        await reader.read_on()
        return reader

    async def _limits(self, run_id: str) -> VirtualWorkspace | None:
        """None: its agent is not known here."""
        # TODO
        agent = self._journal.agents.get((await self._journal.get(run_id)).agent)
        if agent is not None and not agent.has_files:
            raise InvalidOptions(
                f"agent {agent.name!r} of run {run_id!r} has no durable workspace: "
                "say @journal.agent(workspace=VirtualWorkspace())"
            )
        return None if agent is None else agent.workspace

    async def list(self, run_id: str, path: str = "/") -> list[FileInfo]:
        """What is in the directory itself, by name. Raises `FileMissing` and `PathRefused`."""
        checked(path, is_directory=True)
        return listed(path, (await self._read(run_id)).fold.tree)

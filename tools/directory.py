"""`DirectoryWorkspace`: files in a directory of the host, for programs that need one; snapshots under a root.

Its calls see and change the same files by `io.files` as those of a `VirtualWorkspace`, and in addition get a directory:
``async with io.files.directory() as directory``. Next: `working_tree.py` (that directory), `snapshots.py` (what is
kept of it), `engine/snapshots.py` (how a snapshot gets into the log).
"""

import os

import msgspec

from journal.core.errors import InvalidOptions
from journal.tools.snapshots import Snapshots
from journal.tools.workspace import Quotas

_MIB = 1024 * 1024


class Directory(msgspec.Struct, frozen=True):
    """The directory of a call, on this host; another call gets another."""

    path: str
    """Where the workspace's files are."""
    home: str
    """A directory beside it, for what programs keep in their home; nothing of it is kept."""


class DirectoryWorkspace:
    """Files under `root`, a directory of the host: ``@journal.agent(workspace=DirectoryWorkspace("/srv/agents"))``.

    The log holds the ids of snapshots; their contents lie under the root, which every process that works on a run, or
    reads its files, must have. Whoever shares a root shares its disk, and may read all of it. `max_bytes`, `max_files`,
    `max_file_bytes`: quotas of each run. Raises `InvalidOptions`.
    """

    durable = True

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        max_bytes: int = 1024 * _MIB,
        max_files: int = 50_000,
        max_file_bytes: int = 256 * _MIB,
    ) -> None:
        self.root = os.path.abspath(os.fspath(root))
        if "\0" in self.root:
            raise InvalidOptions("DirectoryWorkspace(root): a path holds no NUL")
        self.quotas = Quotas(max_bytes=max_bytes, max_files=max_files, max_file_bytes=max_file_bytes)
        self.snapshots = Snapshots(self.root)

    def __repr__(self) -> str:
        return f"DirectoryWorkspace({self.root!r})"

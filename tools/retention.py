"""How long files of directory workspaces are kept, and the sweep that removes what is kept no longer. Blocks.

What a run refers to stays. What nobody refers to goes once it is old enough for nobody to be about to: a content that
is taken into use again is made young first, and while a snapshot is made nothing is removed.
"""

import os
import shutil
import time
from collections.abc import Iterator

import msgspec

from journal.core.errors import InvalidOptions, SnapshotMissing
from journal.tools.lifecycle import Lifecycle, WorkspaceInfo
from journal.tools.objects import failing
from journal.tools.snapshots import Snapshots

DAY_SECONDS = 86_400.0
_LEAST_SECONDS = 60.0
"""What is younger may be about to be named: a content is there before the list that names it."""
FORGET_SECONDS = 30 * DAY_SECONDS
"""How long one that was cleaned up is known, and its keys have their answers."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """For how many seconds files are kept, by how their workspace stands; None: for ever. Enforced by `sweep`.

    Counted from when it came to stand so; `maximum` from when it began, whatever became of it. A holder that works on
    longer than `active` finds its workspace gone.
    """

    active: float | None = None
    paused: float | None = None
    """No turn has ended, or the last one was cancelled, or blocked."""
    succeeded: float | None = None
    failed: float | None = None
    aborted: float | None = None
    orphan: float = DAY_SECONDS
    """What nobody refers to: snapshots whose record was never written, contents, directories of dead holders."""
    maximum: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and value < 0:
                raise InvalidOptions(f"Retention({name}=...): seconds from 0 on are needed, or None")

    def is_over(self, info: WorkspaceInfo, now: float) -> bool:
        """Whether it is not to be kept any longer."""
        if self.maximum is not None and now - info.began > self.maximum:
            return True
        kept: float | None = None
        match info.state, info.ended:
            case "paused", "succeeded":
                kept = self.succeeded
            case "paused", "failed":
                kept = self.failed
            case "paused", _:
                kept = self.paused
            case "active", _:
                kept = self.active
            case "aborted", _:
                kept = self.aborted
            case "cleanup_pending", _:
                kept = self.orphan  # somebody died in the middle of it
        return kept is not None and now - info.since > kept


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep removed."""

    workspaces: int = 0
    snapshots: int = 0
    contents: int = 0
    freed: int = 0
    """Bytes of those contents."""
    directories: int = 0
    damaged: tuple[str, ...] = ()
    """Snapshots that are referred to and cannot be read: while there are any, no content is removed."""


def sweep(snapshots: Snapshots, lifecycle: Lifecycle, retention: Retention) -> Swept:
    """Remove what is kept no longer. Raises `WorkspaceFailed`."""
    snapshots.objects.prepare()
    now = time.time()
    oldest = now - max(retention.orphan, _LEAST_SECONDS)
    workspaces = directories = 0
    with failing(snapshots.root):
        for place in _places(snapshots):
            info = lifecycle.read(place)
            if info is not None and info.state == "cleaned" and now - info.since > FORGET_SECONDS:
                lifecycle.forget(place, info)
                continue
            if info is not None and info.state != "cleaned" and retention.is_over(info, now):
                workspaces += lifecycle.expire(place, info)
            at_work = f"{info.epoch:012d}-" if info is not None and info.state == "active" else None
            directories += _clear(f"{place}/trees", oldest, at_work)
        _clear(f"{snapshots.root}/staging", oldest)
        swept = _Contents(snapshots, oldest).sweep()
    return msgspec.structs.replace(swept, workspaces=workspaces, directories=directories)


class _Contents:
    """Which snapshots and contents nobody refers to. Most of it is found out while others go on."""

    def __init__(self, snapshots: Snapshots, oldest: float) -> None:
        self._snapshots = snapshots
        self._oldest = oldest
        self._seen: set[str] = set()
        self._kept: set[bytes] = set()
        self._damaged: set[str] = set()

    def sweep(self) -> Swept:
        root = self._snapshots.root
        self._mark(self._named())
        candidates = [entry for entry in _entries(f"{root}/objects") if self._is_loose(entry)]
        with self._snapshots.objects.locked(alone=True):
            named = self._named()
            removed = 0
            for name in self._unnamed(named):
                os.unlink(f"{root}/snapshots/{name}")
                removed += 1
            self._mark({entry.name for entry in os.scandir(f"{root}/snapshots")} | named)
            contents = freed = 0
            for entry in () if self._damaged else candidates:
                found = os.stat(entry.path, follow_symlinks=False)
                if self._is_loose(entry) and found.st_mtime < self._oldest:
                    os.unlink(entry.path)
                    contents, freed = contents + 1, freed + found.st_size
        return Swept(snapshots=removed, contents=contents, freed=freed, damaged=tuple(sorted(self._damaged)))

    def _named(self) -> set[str]:
        return {name for place in _places(self._snapshots) for name in os.listdir(f"{place}/refs")}

    def _unnamed(self, named: set[str]) -> list[str]:
        entries = list(os.scandir(f"{self._snapshots.root}/snapshots"))
        return [e.name for e in entries if e.name not in named and e.stat().st_mtime < self._oldest]

    def _mark(self, names: set[str]) -> None:
        for name in names - self._seen:
            self._seen.add(name)
            try:
                tree = self._snapshots.load(name).tree
            except SnapshotMissing:
                self._damaged.add(name)
                continue
            self._kept |= {file.digest for path in tree.paths() if (file := tree.get(path)) is not None}

    def _is_loose(self, entry: os.DirEntry[str]) -> bool:
        return bytes.fromhex(os.path.basename(os.path.dirname(entry.path)) + entry.name) not in self._kept


def _places(snapshots: Snapshots) -> Iterator[str]:
    for entry in list(os.scandir(f"{snapshots.root}/runs")):
        for below in list(os.scandir(entry.path)):
            if os.path.isdir(f"{below.path}/refs"):
                yield below.path


def _entries(directory: str) -> Iterator[os.DirEntry[str]]:
    for entry in list(os.scandir(directory)):
        yield from list(os.scandir(entry.path))


def _clear(directory: str, oldest: float, at_work: str | None = None) -> int:
    """Remove what nobody has used since, but for what begins with `at_work`."""
    removed = 0
    for entry in list(os.scandir(directory)):
        if at_work is not None and entry.name.startswith(at_work):
            continue
        used = entry.stat(follow_symlinks=False).st_mtime
        try:
            used = max(used, os.stat(f"{entry.path}/clock").st_mtime)
        except OSError:
            pass
        if used < oldest:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)
            removed += 1
    return removed


def is_due(root: str, every: float) -> bool:
    """Whether nobody has swept for so long; and then that we are about to."""
    path = f"{root}/swept"
    try:
        if time.time() - os.stat(path).st_mtime < every:
            return False
    except OSError:
        pass
    try:
        with open(path, "wb"):
            os.utime(path)
    except OSError:
        return False
    return True

"""What becomes of a run's directory workspace: active, paused, aborted, cleanup_pending, cleaned. All functions block.

Each change is one small file, replaced whole under the run's lock, so that a process that dies leaves the state before
or after. A key names what was asked for, for as long as the run is known here: asked again, it has the same answer.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from fcntl import LOCK_EX, flock
from typing import Literal, TypeVar

import msgspec
from msgspec.structs import replace

from journal.core import values
from journal.core.errors import (
    CleanupPending,
    IdempotencyConflict,
    WorkspaceAborted,
    WorkspaceExpired,
    WorkspaceFailed,
    WorkspaceNotFound,
)
from journal.core.records import FileSnapshot, TurnStatus
from journal.tools.manifest import Manifest
from journal.tools.objects import failing, write_whole
from journal.tools.snapshots import Snapshots
from journal.tools.working_tree import remove_tree

WorkspaceState = Literal["active", "paused", "aborted", "cleanup_pending", "cleaned"]
A = TypeVar("A")


class WorkspaceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How a run's workspace stands."""

    run_id: str
    state: WorkspaceState
    epoch: int = 0
    """Of the claim that last took it up; 0: none did."""
    ended: TurnStatus | None = None
    """How the last turn ended; None: it has not, or there was none."""
    snapshot: str | None = None
    """The last one that is known here."""
    began: float
    since: float
    """When it began, and when this was last written; seconds since the Unix epoch."""


class _Answer(msgspec.Struct, frozen=True):
    asked: str
    request: bytes
    answer: bytes


class Lifecycle:
    """The workspaces of all runs under a root."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots

    def find(self, run: str) -> str:
        """The place of the run of that id; of several, the one that was at work last. Raises `WorkspaceNotFound`."""
        places = self._snapshots.places_of(run)
        try:
            names = os.listdir(places)
        except FileNotFoundError:
            names = []
        known = [(info.since, place) for name in names if (info := self.read(place := f"{places}/{name}"))]
        if not known:
            raise WorkspaceNotFound(run_id=run)
        return max(known)[1]

    def read(self, place: str) -> WorkspaceInfo | None:
        """How it stands; None: it was never started here."""
        try:
            with failing(self._snapshots.root), open(f"{place}/state", "rb") as file:
                return msgspec.json.decode(file.read(), type=WorkspaceInfo)
        except WorkspaceFailed as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        except msgspec.MsgspecError as error:
            raise WorkspaceFailed(root=self._snapshots.root, why=f"{place}/state is damaged") from error

    @contextmanager
    def locked(self, place: str) -> Iterator[None]:
        """Keep all others from changing the state of the run."""
        with failing(self._snapshots.root):
            while (handle := self._lock(place)) is None:
                pass
            try:
                yield
            finally:
                os.close(handle)

    def _lock(self, place: str) -> int | None:
        """The lock of the run, held; None: `forget` took its file away meanwhile."""
        self._snapshots.prepare(place)
        path = f"{place}/lock"
        with suppress(FileNotFoundError), ExitStack() as undo:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            undo.callback(os.close, handle)
            flock(handle, LOCK_EX)
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                undo.pop_all()
                return handle
        return None

    def _write(self, place: str, info: WorkspaceInfo) -> WorkspaceInfo:
        with failing(self._snapshots.root):
            write_whole(f"{place}/state", msgspec.json.encode(info))
        return info

    # Its holder --------------------------------------------------------------------------------------

    def begin(self, run: str, place: str, epoch: int, named: Iterable[str]) -> WorkspaceInfo:
        """Somebody takes it up, and knows of no snapshots but those `named`; what others left goes.

        Raises `WorkspaceAborted`, `WorkspaceExpired`, `CleanupPending`.
        """
        wanted = set(named)
        with self.locked(place):
            info = self.read(place)
            now = time.time()
            if info is None or (info.state == "cleaned" and not wanted):
                info = WorkspaceInfo(run_id=run, state="active", epoch=epoch, began=now, since=now)
            self.check(info)
            if info.epoch > epoch:
                return info  # we are late: whatever we do will be refused at the log
            self._snapshots.refer(place, wanted)
            self._clear_trees(place, epoch)
            return self._write(place, replace(info, state="active", epoch=epoch, ended=None, since=now))

    def take_up(self, run: str, place: str, snapshot: str | None) -> WorkspaceInfo:
        """Somebody takes it up by hand; the caller has locked it. Raises as `begin` does."""
        before = self.read(place)
        now = time.time()
        info = before or WorkspaceInfo(run_id=run, state="active", began=now, since=now)
        if info.state == "cleaned" and snapshot is None:
            info = replace(info, state="active", began=now)
        self.check(info)
        info = replace(info, state="active", epoch=info.epoch + 1, ended=None, snapshot=snapshot, since=now)
        self._clear_trees(place, info.epoch)
        return self._write(place, info)

    def note(self, place: str, snapshot: str) -> None:
        """That is the last snapshot; the caller has locked it."""
        self._write(place, replace(self._found(place), snapshot=snapshot, since=time.time()))

    def save(self, place: str, manifest: Manifest, contents: Iterable[bytes] = ()) -> FileSnapshot:
        """Make a snapshot, unless the workspace was given up. Raises as `begin` does."""
        info = self.read(place)
        if info is None:  # no turn has begun yet
            self._snapshots.prepare(place)
        else:
            self.check(info)
        return self._snapshots.save(place, manifest, contents)

    def end(self, place: str, epoch: int, ended: TurnStatus | None, snapshot: str | None) -> None:
        """Its holder is done with it, for now."""
        with self.locked(place):
            info = self.read(place)
            if info is None or info.epoch != epoch:
                return  # somebody else has taken it up
            if info.state == "cleanup_pending":
                self._clean(place, info)
            elif info.state == "active":
                self._write(
                    place, replace(info, state="paused", ended=ended, snapshot=snapshot, since=time.time())
                )

    def check(self, info: WorkspaceInfo) -> None:
        """Raise what keeps it from being used."""
        match info.state:
            case "aborted":
                raise WorkspaceAborted(run_id=info.run_id)
            case "cleaned":
                raise WorkspaceExpired(run_id=info.run_id)
            case "cleanup_pending":
                raise CleanupPending(run_id=info.run_id)

    def _clear_trees(self, place: str, epoch: int) -> None:
        """Directories of holders before. One of them may be a zombie's, who will notice that it is gone."""
        trees = f"{place}/trees"
        with failing(self._snapshots.root):
            for name in os.listdir(trees):
                number = name.partition("-")[0]
                if not number.isdigit() or int(number) < epoch:
                    remove_tree(f"{trees}/{name}")

    # Whoever asks ------------------------------------------------------------------------------------

    def abort(self, place: str) -> WorkspaceInfo:
        """Nothing more is done in it. Raises what `begin` does but for `WorkspaceAborted`."""
        info = self._found(place)
        if info.state != "aborted":
            self.check(info)
            info = self._write(place, replace(info, state="aborted", since=time.time()))
        return info

    def cleanup(self, place: str) -> WorkspaceInfo:
        """Let its files go. Raises `CleanupPending` while a holder may be at work; asked again it goes ahead."""
        info = self._found(place)
        if info.state == "active":
            self._write(place, replace(info, state="cleanup_pending", since=time.time()))
            raise CleanupPending(run_id=info.run_id)
        return info if info.state == "cleaned" else self._clean(place, info)

    def forget(self, place: str, before: WorkspaceInfo) -> None:
        """Let even the memory of it go, and of its keys, if it still stands as `before`."""
        with self.locked(place):
            if self.read(place) == before:
                remove_tree(place)

    def expire(self, place: str, before: WorkspaceInfo) -> bool:
        """Let the files go of a workspace that is kept no longer; whether it still stood as `before`."""
        with self.locked(place):
            info = self.read(place)
            if info != before:
                return False
            self._clean(place, before)
        return True

    def _clean(self, place: str, info: WorkspaceInfo) -> WorkspaceInfo:
        # First that it is under way, last that it is done: whoever dies in between leaves it to the next.
        info = self._write(place, replace(info, state="cleanup_pending"))
        with failing(self._snapshots.root):
            for name in os.listdir(f"{place}/trees"):
                remove_tree(f"{place}/trees/{name}")
            for name in os.listdir(f"{place}/refs"):
                os.unlink(f"{place}/refs/{name}")
        return self._write(place, replace(info, state="cleaned", snapshot=None, since=time.time()))

    def _found(self, place: str) -> WorkspaceInfo:
        info = self.read(place)
        assert info is not None
        return info

    def keyed(
        self, run: str, place: str, key: str, asked: str, request: bytes, act: Callable[[], A], type_: type[A]
    ) -> A:
        """The answer to what is asked under `key`, now or before. Raises `IdempotencyConflict`, and as `act` does."""
        path = f"{place}/keys/{values.digest(key.encode()).hex()}"
        with self.locked(place):
            with failing(self._snapshots.root):
                if os.path.exists(path):
                    with open(path, "rb") as file:
                        before = msgspec.json.decode(file.read(), type=_Answer)
                    if (before.asked, before.request) != (asked, request):
                        raise IdempotencyConflict(run_id=run, key=key, before=before.asked)
                    return msgspec.json.decode(before.answer, type=type_)
            answer = act()
            with failing(self._snapshots.root):
                write_whole(path, msgspec.json.encode(_Answer(asked, request, msgspec.json.encode(answer))))
            return answer

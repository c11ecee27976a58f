"""Locks between processes: the turnstile before every write, and the bytes that show which holders live.

SQLite's own write lock is unfair: whoever polls at the right moment gets it, and a process may wait for seconds.
The turnstile is two file locks; waiters queue up in the kernel, and each takes its turn. A holder's byte is a POSIX
record lock: the kernel drops it with the process, however it dies, and a forked child does not inherit it.
"""

import fcntl
import os
import random
import struct
import sys
import threading
import weakref
from fcntl import LOCK_UN, flock
from pathlib import Path

_TRY = fcntl.LOCK_EX | fcntl.LOCK_NB
_guard = threading.Lock()


class Turnstile:
    """Lock `next`, lock `main`, release `next`; whoever holds `main` may write. Not for two threads at once."""

    _next = _main = -1

    def __init__(self, path: Path) -> None:
        self._next = os.open(f"{path}-next", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._main = os.open(f"{path}-main", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _turnstiles.add(self)

    def enter(self) -> None:
        """Wait for the turn, however long it takes."""
        fcntl.flock(self._next, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._main, fcntl.LOCK_EX)
        finally:
            fcntl.flock(self._next, fcntl.LOCK_UN)

    def try_enter(self) -> bool:
        """Take the turn if nobody has it and nobody waits."""
        try:
            flock(self._next, _TRY)
        except BlockingIOError:
            return False
        try:
            flock(self._main, _TRY)
        except BlockingIOError:
            return False
        finally:
            flock(self._next, LOCK_UN)
        return True

    def enter_within(self, seconds: float) -> bool:
        """Wait for the turn, but not longer than that. After False this turnstile is used up.

        A wait in the kernel has no timeout, so a thread waits in our place; if it comes too late, it leaves again.
        """
        if self.try_enter():
            return True
        is_in, too_late, lock = threading.Event(), threading.Event(), threading.Lock()

        def wait() -> None:
            self.enter()
            with lock:
                if not too_late.is_set():
                    is_in.set()
                    return
            self.close()

        threading.Thread(target=wait, name="journal-sqlite-turnstile", daemon=True).start()
        is_in.wait(seconds)
        with lock:
            if not is_in.is_set():
                too_late.set()
        return is_in.is_set()

    def leave(self) -> None:
        """Let the next one in."""
        flock(self._main, LOCK_UN)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Let the files go, and the turn with them. Without effect the second time."""
        for fd in (self._next, self._main):
            if fd >= 0:
                os.close(fd)
        self._next = self._main = -1


class _HolderFile:
    """The one descriptor of a lock file in this process: closing any other would drop every byte we hold."""

    def __init__(self, fd: int, inode: int) -> None:
        self.fd = fd
        self.inode = inode
        self.bytes: set[int] = set()


class Holder:
    """One open world: as long as it lives, its byte of the lock file is locked."""

    def __init__(self, path: Path) -> None:
        self._pid = os.getpid()
        # 62 bits: two holders never meet, and the offset stays positive for the kernel and for SQLite.
        self.byte = random.SystemRandom().getrandbits(62)
        with _guard:
            self._key, self._file = _open_holder_file(Path(f"{path}-holders"))
            fcntl.lockf(self._file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self.byte)
            self._file.bytes.add(self.byte)
        self.file = self._file.inode

    def is_dead(self, byte: int, file: int) -> bool:
        """Whether the holder of that byte is known to be gone. False where that cannot be known."""
        if file != self._file.inode or not _CAN_ASK:
            return False
        with _guard:
            if byte in self._file.bytes:
                return False
        return not _is_locked(self._file.fd, byte)

    def close(self) -> None:
        """The holder is gone from now on. Without effect the second time, and in a forked child."""
        with _guard:
            if os.getpid() != self._pid or self.byte not in self._file.bytes:
                return
            self._file.bytes.discard(self.byte)
            if self._file.bytes:
                fcntl.lockf(self._file.fd, fcntl.LOCK_UN, 1, self.byte)
            else:
                del _holder_files[self._key]
                os.close(self._file.fd)


_Key = tuple[int, int]
_holder_files: dict[_Key, _HolderFile] = {}
"""By device and inode: two names of one file must share a descriptor."""
_turnstiles: weakref.WeakSet[Turnstile] = weakref.WeakSet()

_FLOCK = struct.Struct("@hhqqi4x")
"""`struct flock` of 64-bit Linux: type, whence, start, length, pid."""
_CAN_ASK = sys.platform == "linux" and struct.calcsize("P") == 8


def _open_holder_file(path: Path) -> tuple[_Key, _HolderFile]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        pass
    else:
        key = (found.st_dev, found.st_ino)
        if key in _holder_files:
            return key, _holder_files[key]
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    found = os.fstat(fd)
    key = (found.st_dev, found.st_ino)
    # Put there between stat and open by a rename: then `fd` is never closed, see _HolderFile.
    return key, _holder_files.setdefault(key, _HolderFile(fd, found.st_ino))


def _is_locked(fd: int, byte: int) -> bool:
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    kind: int = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))[0]
    return kind != fcntl.F_UNLCK


def _after_fork_in_child() -> None:
    """A child holds nothing. Its copies of the turnstile's descriptors must go: with them open, the parent's turn
    would outlive the parent. Closing is enough; unlocking would take the turn away from the parent."""
    global _guard
    _guard = threading.Lock()
    for file in _holder_files.values():
        os.close(file.fd)
    _holder_files.clear()
    for turnstile in tuple(_turnstiles):
        turnstile.close()


os.register_at_fork(after_in_child=_after_fork_in_child)

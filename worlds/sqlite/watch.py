"""A watch on the files of a store: the kernel says that one of them is not where or what it was, and a commit asks.

Asking costs a tenth of three calls of `stat`, in the loop, before every commit. Linux only (inotify), and only on file
systems of this host: of a shared one, what others do is not heard. Everywhere else `connection.py` uses `stat` alone.
"""

import os
import select
import sys
import time
from pathlib import Path

LOOK_SECONDS = 0.05
"""After so long the files are looked at all the same: a file system mounted over them is not heard of."""

_MODIFY, _ATTRIB, _DELETE_SELF, _MOVE_SELF = 0x2, 0x4, 0x400, 0x800
_GONE = _DELETE_SELF | _MOVE_SELF
# A file that loses a name while it is open changes its attributes; it is deleted only when it is closed.
_REPLACED = _GONE | _ATTRIB
_LOCAL = frozenset(
    {
        0xEF53,  # ext2, ext3, ext4
        0x58465342,  # xfs
        0x9123683E,  # btrfs
        0xF2F52010,  # f2fs
        0x2FC12FC1,  # zfs
        0x01021994,  # tmpfs
        0x794C7630,  # overlayfs
    }
)


class FileWatch:
    """What happens to a database and its two companions, from now on. `open_watch` makes it."""

    def __init__(self, events: int, log: int) -> None:
        self._events = events
        self._log = log
        self._look_at = 0.0
        poll = select.poll()
        poll.register(events, select.POLLIN)
        self._poll = poll.poll

    def quiet_log_size(self) -> int:
        """Bytes of the write-ahead log, if nothing was heard of any of the files; else, and now and then, -1."""
        if self._poll(0) or time.monotonic() > self._look_at:
            return -1
        return os.lseek(self._log, 0, os.SEEK_END)

    def restart(self) -> None:
        """Forget what was heard: whoever calls looks at the files now."""
        self._look_at = time.monotonic() + LOOK_SECONDS
        try:
            while os.read(self._events, 4096):
                pass
        except BlockingIOError:
            pass  # that was all

    def close(self) -> None:
        """Let the descriptors go. Nothing is locked through the log's, so closing it drops no lock of SQLite's."""
        os.close(self._events)
        os.close(self._log)


def open_watch(database: str, log: str, memory: str) -> FileWatch | None:
    """A watch on those files, which are to be looked at once more behind it; None where there can be none."""
    if sys.platform != "linux" or os.path.realpath(database) != database:
        return None  # of a link on the way, nobody would hear that it leads elsewhere now
    import ctypes  # where a store is never written, it need not be loaded

    libc = ctypes.CDLL(None)
    kind = ctypes.create_string_buffer(512)
    if libc.statfs(os.fsencode(database), kind) != 0:
        return None
    if int.from_bytes(kind.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder) not in _LOCAL:
        return None
    events = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if events < 0:
        return None  # every user has only so many
    try:
        # The database is written by checkpoints alone; the log with every commit, so its size is asked for.
        wanted = [(database, _REPLACED | _MODIFY), (log, _REPLACED), (memory, _REPLACED)]
        wanted += [(str(folder), _GONE) for folder in Path(database).parents]
        if all(libc.inotify_add_watch(events, os.fsencode(path), mask) >= 0 for path, mask in wanted):
            return FileWatch(events, os.open(log, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        pass  # the log is gone: whoever looks is told
    os.close(events)
    return None

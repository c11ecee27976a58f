"""A directory that other programs write into, reached by handles and without following a link.

Whatever lies there may be anything: links that lead out or nowhere, devices, pipes, names that are no text; and it may
change while we look. Each component of a path is opened from the handle of the one above, with O_NOFOLLOW.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from journal.tools.workspace import why_refused

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Seen(msgspec.Struct):
    """What lies in a directory and all below."""

    files: dict[str, os.stat_result] = {}
    """Regular files and symbolic links."""
    directories: list[str] = []
    """Those in which there is nothing."""
    refused: dict[str, str] = {}
    """What is neither file, link nor directory, or cannot be named or opened: why."""


class Jail:
    """The directory `path`. Paths in it are absolute ones of a workspace, as in ``/src/app.py``. All methods block."""

    def __init__(self, path: str) -> None:
        self.handle = os.open(path, _DIRECTORY)
        self._last = "/"
        self._last_handle = self.handle

    def close(self) -> None:
        """Let go of all handles."""
        self._forget()
        os.close(self.handle)

    def is_at(self, path: str) -> bool:
        """Whether this very directory is what is there now."""
        try:
            return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(self.handle))
        except FileNotFoundError:
            return False

    def _forget(self) -> None:
        if self._last_handle != self.handle:
            os.close(self._last_handle)
        self._last, self._last_handle = "/", self.handle

    def _directory(self, path: str, *, create: bool = False) -> int:
        """A handle of the directory, good until the next call. Raises `OSError` where a component is anything else."""
        if path == self._last:
            return self._last_handle
        self._forget()
        at = self.handle
        for name in path[1:].split("/") if path != "/" else ():
            try:
                if create:
                    try:
                        os.mkdir(name, dir_fd=at)
                    except FileExistsError:
                        pass
                below = os.open(name, _DIRECTORY, dir_fd=at)
            finally:
                if at != self.handle:
                    os.close(at)
            at = below
        self._last, self._last_handle = path, at
        return at

    @contextmanager
    def reading(self, path: str) -> Iterator[tuple[int, os.stat_result]]:
        """A handle of the regular file there. Raises `OSError` for anything else."""
        above, name = _split(path)
        handle = os.open(name, _READ, dir_fd=self._directory(above))
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(0, "it is no regular file")
            yield handle, found
        finally:
            os.close(handle)

    def create(self, path: str, mode: int) -> int:
        """A handle to write a new file with; its directories are made."""
        above, name = _split(path)
        return os.open(name, _CREATE, mode, dir_fd=self._directory(above, create=True))

    def link(self, path: str, target: bytes) -> os.stat_result:
        """Make a symbolic link, which we ourselves never follow."""
        above, name = _split(path)
        at = self._directory(above, create=True)
        os.symlink(target, name.encode(), dir_fd=at)
        return os.stat(name, dir_fd=at, follow_symlinks=False)

    def target(self, path: str) -> bytes:
        """Where the link leads."""
        above, name = _split(path)
        return os.readlink(name.encode(), dir_fd=self._directory(above))

    def make_directory(self, path: str) -> None:
        """Let it be there."""
        self._directory(path, create=True)

    def remove(self, path: str) -> None:
        """Remove a file or a link; what is not there need not be removed."""
        above, name = _split(path)
        try:
            os.unlink(name, dir_fd=self._directory(above))
        except FileNotFoundError:
            pass

    def remove_directory(self, path: str) -> bool:
        """Remove it if it is empty; whether it is gone."""
        above, name = _split(path)
        if self._last != above:
            self._forget()
        try:
            os.rmdir(name, dir_fd=self._directory(above))
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def walk(self) -> Seen:
        """All that is there, by its metadata: nothing is opened but directories."""
        self._forget()
        seen = Seen()
        _walk(self.handle, "", seen)
        return seen


def _walk(handle: int, prefix: str, seen: Seen) -> None:
    is_empty = True
    below: list[str] = []
    with os.scandir(handle) as entries:
        for entry in entries:
            is_empty = False
            path = f"{prefix}/{entry.name}"
            if (why := why_refused(path)) is not None:
                seen.refused[path.encode(errors="replace").decode()] = why
                continue
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # it went away under our eyes
            if stat.S_ISDIR(found.st_mode):
                below.append(entry.name)
            elif stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode):
                seen.files[path] = found
            else:
                seen.refused[path] = (
                    f"it is {_kind(found.st_mode)}: only files, directories and links are kept"
                )
    if is_empty and prefix:
        seen.directories.append(prefix)
    for name in below:
        path = f"{prefix}/{name}"
        try:
            inner = os.open(name, _DIRECTORY, dir_fd=handle)
        except OSError as error:
            seen.refused[path] = f"it cannot be opened: {error.strerror}"
            continue
        try:
            _walk(inner, path, seen)
        finally:
            os.close(inner)


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def _split(path: str) -> tuple[str, str]:
    above, _, name = path.rpartition("/")
    return above or "/", name

"""Directories as they are: what calls of `edits.py` do in them with plain system calls, and what lies there.

None of our code: neither to write, nor to look, nor to read a snapshot. Next: `edits_model.py`, whose `Disk` says what
must come of it.
"""

import asyncio
import hashlib
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from tests.crash.edits_model import CONTENTS, PATHS, PIPE, TARGETS, TWINS, View

There = tuple[View, list[str]]
"""Files, and the directories in which there is nothing."""
_EXECUTABLE, _LINK = 1, 2
_COMMAND_SECONDS = 0.01


async def do(place: str, op: Any) -> None:
    """What `Disk` says can be done."""
    path = place + PATHS[op.at]
    match op.kind:
        case "put" | "put_program":
            await _write(path, CONTENTS[op.what % len(CONTENTS)])
            if op.kind == "put_program":
                os.chmod(path, 0o755)
        case "command":
            await asyncio.to_thread(_command, path, CONTENTS[op.what % len(CONTENTS)])
        case "twin":
            before = CONTENTS.index(Path(path).read_bytes())
            await _write(path, CONTENTS[TWINS[before]])
        case "chmod":
            os.chmod(path, 0o755 if op.what % 2 else 0o644)
        case "link":
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(TARGETS[op.what % len(TARGETS)], path.encode())
        case "mkdir":
            os.makedirs(path)
        case "remove":
            (os.rmdir if stat.S_ISDIR(os.lstat(path).st_mode) else os.unlink)(path)
        case "rename":
            os.makedirs(os.path.dirname(place + PATHS[op.what]), exist_ok=True)
            os.rename(path, place + PATHS[op.what])
        case "pipe":
            os.mkfifo(place + PIPE)


async def _write(path: str, data: bytes) -> None:
    """In place, and in two pieces between which a life may end."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb", buffering=0) as file:
        file.write(data[: len(data) // 2])
        await asyncio.sleep(0)
        file.write(data[len(data) // 2 :])


def _command(path: str, data: bytes) -> None:
    """A program of its own, which a killed worker does not take along: it writes into what was its directory."""
    script = f'mkdir -p "$(dirname "$0")"; sleep {_COMMAND_SECONDS}; cat > "$0"'
    subprocess.run(["/bin/sh", "-c", script, path], input=data, stderr=subprocess.DEVNULL, check=True)


def there(place: str) -> There:
    """What lies in a directory."""
    files: View = {}
    directories = []
    for at, below, names in os.walk(place):
        prefix = at[len(place) :]
        if prefix and not below and not names:
            directories.append(prefix)
        for name in [*below, *names]:
            path = f"{at}/{name}"
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                files[f"{prefix}/{name}"] = -1 - TARGETS.index(os.readlink(path.encode())), False
            elif not stat.S_ISDIR(mode):
                assert stat.S_ISREG(mode), path
                content = CONTENTS.index(Path(path).read_bytes())
                files[f"{prefix}/{name}"] = content, bool(mode & stat.S_IXUSR)
    return files, sorted(directories)


def kept(root: str, snapshot: str) -> There:
    """What a snapshot holds."""
    listed, directories = _list(root, snapshot)
    files: View = {}
    for path, digest, size, mode in listed:
        content = (Path(root) / "objects" / digest.hex()[:2] / digest.hex()[2:]).read_bytes()
        assert len(content) == size
        number = -1 - TARGETS.index(content) if mode & _LINK else CONTENTS.index(content)
        files[path] = number, bool(mode & _EXECUTABLE)
    return files, sorted(directories)


def contents(root: str, snapshot: str) -> set[str]:
    """The digests of what is in its files."""
    return {digest.hex() for _, digest, _, _ in _list(root, snapshot)[0]}


def _list(root: str, snapshot: str) -> tuple[list[tuple[str, bytes, int, int]], list[str]]:
    data = (Path(root) / "snapshots" / snapshot).read_bytes()
    assert _digest(data).hex() == snapshot
    version, files, directories = msgspec.msgpack.decode(data)
    assert version == 1
    return files, directories


def target_of(digest: bytes) -> int:
    """Where the link leads whose target has that digest."""
    return -1 - [_digest(target) for target in TARGETS].index(digest)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()

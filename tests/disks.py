"""Small file systems, for stores that fill them. Root alone can mount them: elsewhere those tests are skipped."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str, *, owner: int = 0) -> Iterator[Path]:
    """A file system of that size (``3m``) at `folder`, which is made if it is not there."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    folder.mkdir(exist_ok=True)
    mount = [
        "mount",
        "-t",
        "tmpfs",
        "-o",
        f"size={size},uid={owner},gid={owner},mode=700",
        "tmpfs",
        str(folder),
    ]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def enlarge(folder: Path, size: str) -> None:
    """Make room."""
    subprocess.run(["mount", "-o", f"remount,size={size}", str(folder)], check=True)

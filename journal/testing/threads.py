"""The threads on which the sync functions of an event loop run. They are anyio's; asked for by what they carry."""

import asyncio
import os
import threading
from collections.abc import Iterator
from typing import Any


def workers_of(loop: asyncio.AbstractEventLoop) -> Iterator[Any]:
    """Those that serve `loop`, idle ones too."""
    for thread in threading.enumerate():
        if getattr(thread, "loop", None) is loop and hasattr(thread, "idle_workers"):
            yield thread


def is_at_work(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether one of them is running something."""
    return any(thread not in thread.idle_workers for thread in workers_of(loop))


def is_another_running() -> bool:
    """Whether a thread other than this computes, or waits for the disk. Where that cannot be seen: yes."""
    own = str(threading.get_native_id())
    try:
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/stat") as file:
                state = file.read().rpartition(")")[2].split()[0]
            if thread != own and state in "RD":
                return True
    except OSError:  # no Linux; or a thread has just ended
        return True
    return False

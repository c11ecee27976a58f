"""The threads on which the sync functions of an event loop run. They are anyio's; asked for by what they carry."""

import asyncio
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

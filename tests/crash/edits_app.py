"""One life of `edits_life.py` as a process: the environment says which."""

import asyncio
import os
import signal
import sys
from contextlib import AbstractAsyncContextManager
from itertools import count
from typing import Any

import msgspec

from journal.core.clock import Clock
from journal.core.ports import World
from journal.testing.life import LaterClock
from journal.worlds import open_world
from tests.crash.edits_life import LIFE, Spec, agent_of, live


class ServersClock:
    """What the clock of a server is taken for: that of this life. A `SystemClock` would be no business of theirs."""

    def __init__(self, clock: Clock) -> None:
        self.time = clock.time
        self.boottime = clock.boottime
        self.boot_id = clock.boot_id


def open_later(url: str, *, clock: Clock, **options: Any) -> AbstractAsyncContextManager[World]:
    """`open_world`, where it is later than the servers think: they need not be waited for to let a lease run out."""
    return open_world(url, clock=ServersClock(clock), **options)


def die() -> None:
    """Just here, in whichever thread."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(operation: int, root: str) -> None:
    """Die instead of that one of all operations on files under `root`, of the engine and of calls."""
    at = count(1)

    def look(event: str, args: tuple[Any, ...]) -> None:
        # What is done by a handle of a directory names no more than what lies there.
        if event in _OPERATIONS and isinstance(args[0], str | bytes):
            path = os.fsdecode(args[0])
            if (path.startswith(root) or not path.startswith("/")) and next(at) == operation:
                die()

    sys.addaudithook(look)


_OPERATIONS = frozenset(
    {"open", *(f"os.{name}" for name in ("chmod", "mkdir", "remove", "rename", "rmdir", "symlink", "utime"))}
)

if __name__ == "__main__":
    spec = msgspec.json.decode(os.environ[LIFE], type=Spec)
    watch, clock = spec.watch, LaterClock(spec.later)
    watch.kill = die
    if spec.root is not None and spec.kill is not None and not spec.kill[0]:
        die_at(spec.kill[1], spec.root)
    asyncio.run(live(agent_of(spec, watch, clock, open_later), spec, watch))

"""One life of `edits_life.py` as a process: the environment says which."""

import asyncio
import os
import signal
from contextlib import AbstractAsyncContextManager
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


if __name__ == "__main__":
    spec = msgspec.json.decode(os.environ[LIFE], type=Spec)
    watch, clock = spec.watch, LaterClock(spec.later)
    watch.kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
    asyncio.run(live(agent_of(spec, watch, clock, open_later), spec, watch))

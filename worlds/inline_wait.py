"""A wait for one socket in the place of the event loop, while the loop has nothing else to do.

Two passes of the loop cost a lone append more than all that is encoded for it. So whoever has just asked a server may
wait right there, as the loop would. Nothing is held up: the wait ends when anything comes for the loop, be it from a
socket, a timer, a thread or a signal, and where something is there already it does not begin.
"""

import asyncio
import select
from typing import Any

INLINE_SECONDS = 0.002
"""How long a wait takes at most: to a slower answer the passes of the loop are nothing."""
IN_A_ROW = 16
"""After so many the loop turns once, for its debug mode takes what runs for a tenth of a second for a fault."""
_EPOLL: Any = getattr(select, "epoll", ())
"""What Linux has, and is itself something to wait for."""


class InlineWait:
    """Waits for a socket that the running loop watches for reading. Belongs to that loop."""

    def __init__(self, socket: int) -> None:
        self._loop: Any = asyncio.get_running_loop()
        self._count = 0
        self._poll: select.poll | None = None
        # Nothing public shows what a loop has to do. One that does not show it (uvloop) is never waited for.
        watched: Any = getattr(getattr(self._loop, "_selector", None), "_selector", None)
        if (
            isinstance(watched, _EPOLL)
            and hasattr(self._loop, "_ready")
            and hasattr(self._loop, "_scheduled")
        ):
            self._socket = socket
            self._poll = select.poll()
            self._poll.register(socket, select.POLLIN)
            self._poll.register(watched.fileno(), select.POLLIN)  # readable when any socket of the loop is

    def wait(self) -> bool:
        """Whether the socket can be read; else it is for the loop to wait."""
        loop = self._loop
        if self._poll is not None and not loop._ready and self._count < IN_A_ROW:  # noqa: SLF001
            seconds, timers = INLINE_SECONDS, loop._scheduled  # noqa: SLF001
            if timers:
                seconds = min(seconds, timers[0].when() - loop.time())
            if seconds > 0:
                for found, _ in self._poll.poll(seconds * 1000):
                    if found == self._socket:
                        self._count += 1
                        return True
        self._count = 0
        return False

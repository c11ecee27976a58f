"""What commands go over, as those who ask see it: one line to a server (`line.py`), or one a node (`cluster.py`)."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from journal.core.errors import WorldUnavailable
from journal.worlds.redis.address import Address
from journal.worlds.redis.calls import Call, Cut, as_it_is, ignored
from journal.worlds.redis.connection import Part, pack
from journal.worlds.redis.slots import Node

PATIENCE_SECONDS = 10.0
"""How long a command waits for a server that is away, and for an answer, before its caller is told."""


class Wire:
    """Belongs to the event loop that opened it."""

    is_split = False
    """Whether keys of several partitions are out of reach of one command."""

    def __init__(self, address: Address, *, patience_seconds: float) -> None:
        self._address = address
        self._patience = patience_seconds
        self._world = address.shown
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    def call(
        self,
        parts: tuple[Part, ...],
        *,
        cut: Cut = Cut.AGAIN,
        decode: Callable[[Any], Any] = as_it_is,
        within: float | None = None,
    ) -> "asyncio.Future[Any]":
        """Send a command; the future has what `decode` makes of its reply, or a `WorldError`.

        `within`: for how many seconds it waits for a server that is away, if not for as long as usual.
        """
        call = self._make(parts, cut, decode, within)
        if self._is_closed:
            call.fail(self._closed())
        else:
            self.offer(call)
        return call.future

    async def together(self, *commands: tuple[Part, ...]) -> list[Any]:
        """Replies to reads of one partition that were run in that order, with nothing but others in between."""
        while True:
            if self._is_closed:
                raise self._closed()
            calls = [self._make(parts, Cut.AGAIN, as_it_is, None) for parts in commands]
            for call in calls:
                ignored(call.future)
                self.offer(call)
            replies = [await call.future for call in calls]
            if not any(call.hops for call in calls):
                return replies

    def offer(self, call: Call) -> None:
        """Send it where it belongs, now or soon."""
        raise NotImplementedError

    def node_of(self, key: bytes) -> Node | None:
        """Where a key is, or a channel, as far as is known."""
        raise NotImplementedError

    async def refresh(self) -> bool:
        """Look again where keys are; whether anybody answered. Raises a `WorldError` where all refuse."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Finish what was asked, within the bound; then let go."""
        raise NotImplementedError

    def _make(
        self, parts: tuple[Part, ...], cut: Cut, decode: Callable[[Any], Any], within: float | None
    ) -> Call:
        deadline = time.monotonic() + min(self._patience, self._patience if within is None else within)
        return Call(pack(parts), cut, decode, self._loop.create_future(), deadline, _key_of(parts))

    def _closed(self) -> WorldUnavailable:
        return WorldUnavailable("it was closed here: open it again", world=self._world)

    def _away(self, error: Exception) -> WorldUnavailable:
        reason = str(error) or f"nothing within {self._patience:g} s"
        return WorldUnavailable(
            f"it does not answer ({reason}): check that it runs, and the URL", world=self._world
        )


_KEYLESS = frozenset({"TIME"})


def _key_of(parts: tuple[Part, ...]) -> bytes | None:
    """The first key of a command of ours."""
    if parts[0] in _KEYLESS:
        return None
    key = parts[3] if parts[0] == b"FCALL" else parts[1]
    assert isinstance(key, bytes), parts[0]
    return key

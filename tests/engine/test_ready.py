"""What of an attempt is about to run is seen, whatever else stands ready in its event loop."""

import asyncio
import socket
from contextvars import Context
from typing import cast

import pytest

from journal import Journal, Turn
from journal.engine.attempt import Attempt
from journal.engine.ready import Ready
from journal.engine.scope import attempt_of

pytestmark = pytest.mark.anyio


def nothing() -> None:
    pass


async def test_the_handle_of_a_socket_comes_again_and_hides_nothing() -> None:
    """asyncio has one handle a socket, and puts it behind what is ready whenever there is something to read."""
    ours, theirs = socket.socketpair()
    theirs.send(b"never read: ready in each pass")
    journal = Journal("memory:")

    @journal.agent
    async def work(turn: Turn, given: None) -> list[bool]:
        loop = asyncio.get_running_loop()
        ready = Ready(loop._ready)  # type: ignore[attr-defined]
        attempt = cast("Attempt", attempt_of())
        elsewhere, found = Context(), list[bool]()
        elsewhere.run(lambda: loop.add_reader(ours, nothing))
        try:
            for others, own in ((4, 0), (0, 1), (2, 0), (0, 2)):
                done = loop.create_future()
                loop.call_soon(lambda: found.append(ready.holds(attempt)), context=elsewhere)
                for _ in range(others):
                    loop.call_soon(nothing, context=elsewhere)
                for _ in range(own):
                    loop.call_soon(nothing)
                loop.call_soon(done.set_result, None, context=elsewhere)
                await done
        finally:
            loop.remove_reader(ours)
        return found

    with ours, theirs:
        async with journal:
            assert await work.run(None) == [False, True, False, True]

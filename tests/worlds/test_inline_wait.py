"""A wait in the place of the event loop: it has what the loop would have, and holds up nothing."""

import asyncio
import selectors
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from journal.worlds import inline_wait
from journal.worlds.inline_wait import IN_A_ROW, InlineWait

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(autouse=True)
def _unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that is not ended by what it should be ended by outlasts the test."""
    monkeypatch.setattr(inline_wait, "INLINE_SECONDS", 3600.0)


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def in_loop(ours: socket.socket, look: Callable[[InlineWait], None]) -> None:
    """Run `look` in a loop that watches the socket, and would read what is there."""

    async def watch() -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(ours, lambda: ours.recv(100))
        look(InlineWait(ours.fileno()))
        loop.remove_reader(ours)

    asyncio.run(watch())


def test_what_comes_meanwhile_ends_it(pair: Pair) -> None:
    ours, theirs = pair

    def look(found: InlineWait) -> None:
        sender = threading.Timer(0.01, theirs.send, (b"x",))
        sender.start()
        assert found.wait()
        assert ours.recv(100) == b"x"
        sender.join()

    in_loop(ours, look)


def test_whoever_is_ready_goes_first(pair: Pair) -> None:
    ours, theirs = pair
    theirs.send(b"x")

    def look(found: InlineWait) -> None:
        assert found.wait()
        asyncio.get_running_loop().call_soon(bool)
        assert not found.wait()

    in_loop(ours, look)


def test_a_timer_that_is_due_goes_first(pair: Pair) -> None:
    ours, theirs = pair
    theirs.send(b"x")

    def look(found: InlineWait) -> None:
        asyncio.get_running_loop().call_later(0, bool)
        assert not found.wait()

    in_loop(ours, look)


def test_timers_are_found_after_the_loop_has_put_them_in_order(pair: Pair) -> None:
    """It makes a new list when most of many were cancelled."""
    ours, theirs = pair
    theirs.send(b"x")

    async def look() -> None:
        loop = asyncio.get_running_loop()
        found = InlineWait(ours.fileno())
        for timer in [loop.call_later(3600, bool) for _ in range(200)]:
            timer.cancel()
        await asyncio.sleep(0)
        loop.call_later(0, bool)
        assert not found.wait()

    asyncio.run(look())


def test_a_timer_ends_it(pair: Pair) -> None:
    ours, _ = pair

    def look(found: InlineWait) -> None:
        asyncio.get_running_loop().call_later(0.01, bool)
        assert not found.wait()

    in_loop(ours, look)


def test_another_socket_ends_it(pair: Pair) -> None:
    ours, _ = pair
    here, there = socket.socketpair()

    def look(found: InlineWait) -> None:
        asyncio.get_running_loop().add_reader(here, bool)
        there.send(b"x")
        assert not found.wait()
        asyncio.get_running_loop().remove_reader(here)

    with here, there:
        in_loop(ours, look)


def test_another_thread_ends_it(pair: Pair) -> None:
    ours, _ = pair

    def look(found: InlineWait) -> None:
        caller = threading.Timer(0.01, asyncio.get_running_loop().call_soon_threadsafe, (bool,))
        caller.start()
        assert not found.wait()
        caller.join()

    in_loop(ours, look)


def test_now_and_then_the_loop_turns(pair: Pair) -> None:
    ours, theirs = pair
    theirs.send(b"x")

    def look(found: InlineWait) -> None:
        assert [found.wait() for _ in range(IN_A_ROW + 2)] == [True] * IN_A_ROW + [False, True]

    in_loop(ours, look)


def test_a_loop_that_does_not_show_what_it_watches_is_not_waited_for(pair: Pair) -> None:
    ours, theirs = pair
    theirs.send(b"x")

    async def look() -> None:
        assert not InlineWait(ours.fileno()).wait()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        runner.run(look())

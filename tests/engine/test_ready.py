"""Whether anything of an attempt is about to run: what is counted by the way is what a look at all handles finds."""

import asyncio
import socket
import sys
import threading
from collections import deque
from contextvars import Context, copy_context
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal import Journal, Turn
from journal.engine.attempt import Attempt
from journal.engine.ready import Ready, ready_of
from journal.engine.scope import Scope, attempt_of, enter_root

ATTEMPTS = 3
SOCKETS = 2
steps = st.lists(
    st.one_of(
        st.tuples(st.just("comes"), st.integers(0, ATTEMPTS)),  # the last: of no attempt
        st.tuples(st.just("comes again"), st.integers(0, SOCKETS - 1)),
        st.tuples(st.just("leaves"), st.just(0)),
        st.tuples(st.just("asked"), st.integers(0, ATTEMPTS - 1)),
    ),
    max_size=60,
)


def handle_of(attempt: Any) -> Any:
    context = copy_context()
    if attempt is not None:
        context.run(enter_root, Scope(attempt, "", None))
    return SimpleNamespace(_context=context)


@given(steps)
def test_as_a_look_at_every_handle(steps: list[tuple[str, int]]) -> None:
    attempts: list[Any] = [SimpleNamespace(last_ready=0) for _ in range(ATTEMPTS)]
    handles: deque[Any] = deque()
    sockets = [handle_of(None), handle_of(attempts[0])]
    ready = Ready(handles)
    for step, which in steps:
        match step:
            case "comes":
                handles.append(handle_of(attempts[which] if which < ATTEMPTS else None))
            case "comes again":
                handles.append(sockets[which])
            case "leaves" if handles:
                handles.popleft()
            case "asked":
                mine = attempts[which]
                assert ready.holds(mine) is any(attempt_of(each._context) is mine for each in handles)


def test_what_is_ready_is_not_looked_at_more_closely() -> None:
    """To show a handle is to show what its callback is given: the handler's objects, however long that takes."""

    class Given:
        def __repr__(self) -> str:
            raise AssertionError("nobody asked how it looks")

    attempt: Any = SimpleNamespace(last_ready=0)
    handles: deque[Any] = deque()
    ready = Ready(handles)
    for _number in range(2):
        handles.append(handle_of(attempt))
        handles[-1].args = (Given(),)
        assert ready.holds(attempt)
        handles.popleft()


@pytest.mark.anyio
async def test_who_is_cancelled_in_each_pass_does_not_count() -> None:
    attempt: Any = SimpleNamespace(last_ready=0)
    loop = asyncio.get_running_loop()
    context = copy_context()
    context.run(enter_root, Scope(attempt, "", None))
    bearing = loop.create_task(asyncio.sleep(0), context=context)
    scope = anyio.CancelScope()
    loop.call_soon(scope.cancel, context=context)
    ready = ready_of(loop)
    assert ready is not None
    assert ready.holds(attempt)
    assert not ready.holds_besides(attempt, {bearing})
    assert ready.holds_besides(attempt, set())
    await bearing


@pytest.mark.anyio
async def test_one_a_loop_and_gone_with_it() -> None:
    loop = asyncio.get_running_loop()
    assert ready_of(loop) is ready_of(loop)
    other = asyncio.new_event_loop()
    assert ready_of(other) is not ready_of(loop)
    other.close()


def nothing() -> None:
    pass


@pytest.mark.anyio
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


@pytest.mark.anyio
async def test_while_other_threads_add_to_it() -> None:
    """Threads hand in callbacks whenever they like, as the writers of stores and sync steps do."""
    loop = asyncio.get_running_loop()
    ready = ready_of(loop)
    assert ready is not None
    is_over, waiting = threading.Event(), threading.Semaphore(100)

    def add() -> None:
        while not is_over.is_set():
            if waiting.acquire(timeout=0.01):
                loop.call_soon_threadsafe(waiting.release)

    interval = sys.getswitchinterval()
    threads = [threading.Thread(target=add) for _ in range(2)]
    attempt: Any = SimpleNamespace(last_ready=0)
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for _ in range(400):
            for _ in range(50):
                assert not ready.holds(attempt)
            await asyncio.sleep(0)
    finally:
        sys.setswitchinterval(interval)
        is_over.set()
        for thread in threads:
            thread.join()

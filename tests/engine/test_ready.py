"""Whether anything of an attempt is about to run: what is counted by the way is what a look at all handles finds."""

import asyncio
from collections import deque
from contextvars import copy_context
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.engine.ready import Ready, ready_of
from journal.engine.scope import Scope, attempt_of, enter_root

ATTEMPTS = 3
steps = st.lists(
    st.one_of(
        st.tuples(st.just("comes"), st.integers(0, ATTEMPTS)),  # the last: of no attempt
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
    ready = Ready(handles)
    for step, which in steps:
        match step:
            case "comes":
                handles.append(handle_of(attempts[which] if which < ATTEMPTS else None))
            case "leaves" if handles:
                handles.popleft()
            case "asked":
                mine = attempts[which]
                assert ready.holds(mine) is any(attempt_of(each._context) is mine for each in handles)


@pytest.mark.anyio
async def test_one_a_loop_and_gone_with_it() -> None:
    loop = asyncio.get_running_loop()
    assert ready_of(loop) is ready_of(loop)
    other = asyncio.new_event_loop()
    assert ready_of(other) is not ready_of(loop)
    other.close()

"""What a call asks for and never awaits: Python only warns, and the call would be recorded as done without it.

Each such function notes in the running call that it was asked for, and takes the note back when it begins. Whoever
awaits it from elsewhere (`anyio.from_thread.run`, `asyncio.run_coroutine_threadsafe`) is no different.
"""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from journal.tools.io import current_call

P = ParamSpec("P")
R = TypeVar("R")
Method = Callable[P, Coroutine[Any, Any, R]]


def awaited(what: str) -> Callable[[Method[P, R]], Method[P, R]]:
    """For an async function that users call by the name `what`: a call that never awaits it does not end well."""

    def mark(method: Method[P, R]) -> Method[P, R]:
        @functools.wraps(method)
        def noted(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
            context = current_call.get()
            if context is None:
                return method(*args, **kwargs)
            waiting, note = context.unawaited, object()
            waiting[note] = what

            async def begin() -> R:
                waiting.pop(note, None)
                return await method(*args, **kwargs)

            begin.__qualname__ = method.__qualname__
            return begin()

        return noted

    return mark

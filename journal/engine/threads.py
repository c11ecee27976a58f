"""Sync functions of a call run on a thread, so that they block nobody else's turn.

A thread cannot be stopped: cancelling the awaiter abandons it. `running` tells for how long it really ran.
"""

import inspect
from collections.abc import Callable
from typing import Any

import anyio.to_thread


async def on_thread(running: set[object], call: Callable[[], Any]) -> Any:
    """Run `call` on a thread, in this context; a mark stands in `running` until the thread has left it."""
    mark = object()

    def run() -> Any:
        running.add(mark)
        try:
            return call()
        finally:
            running.discard(mark)  # one step for the interpreter, so safe between threads

    result = await anyio.to_thread.run_sync(run, abandon_on_cancel=True)
    return await result if inspect.isawaitable(result) else result

"""Which attempts have something that is about to run, as far as their event loop shows.

It is asked for every outcome, and of fifty runs that are answered together each has its own among the ready handles: so
each handle is looked at once, when it has come to stand there, and its attempt told its number. Handles leave in the
order in which they came; that of a socket comes again, as often as there is something to read. Next: `order.py`.
"""

import asyncio
from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import anyio

from journal.engine.scope import attempt_of
from journal.tools.io import current_call

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt

_NAME = "__journal_ready__"


class Ready:
    """The ready handles of one event loop, numbered from 1 as they come. Belongs to that loop."""

    def __init__(self, handles: "deque[Any]") -> None:
        self._handles = handles
        self._known: list[Any] = []
        """Those that stood there when it was asked last."""
        self._seen = 0
        """The number of the last that was looked at."""

    def holds(self, attempt: "Attempt") -> bool:
        """Whether one of them belongs to that attempt."""
        # By one call: between two of them, other threads may add to it.
        handles, known = list(self._handles), self._known
        if not handles:
            self._known = handles
            return False
        # Not by a `ValueError`: that would show the handle, with all that its callback is given.
        known = known[known.index(handles[0]) :] if handles[0] in known else []
        count, kept = len(handles), len(known)
        if handles[:kept] != known:
            kept = 0  # one has left, and come again
        if kept < count:
            self._look(handles[kept:])
        self._known = handles
        return attempt.last_ready > self._seen - count

    def holds_besides(self, attempt: "Attempt", tasks: "Collection[asyncio.Task[Any]]") -> bool:
        """`holds`, apart from what cancels in each pass (scopes of anyio), and from `tasks`, which bear with that."""
        own = [h for h in list(self._handles) if attempt_of(h._context) is attempt]  # noqa: SLF001 - as above
        for handle in own:
            ran_on = getattr(handle._callback, "__self__", None)  # noqa: SLF001 - likewise
            if not isinstance(ran_on, anyio.CancelScope) and ran_on not in tasks:
                return True
        return False

    def _look(self, new: list[Any]) -> None:
        for handle in new:
            self._seen += 1
            attempt = attempt_of(handle._context)  # noqa: SLF001 - nothing public shows it
            if attempt is not None:
                attempt.last_ready = self._seen


def ready_of(loop: asyncio.AbstractEventLoop) -> Ready | None:
    """Those of `loop`; None: it does not show them (uvloop)."""
    found: Ready | None = getattr(loop, _NAME, None)
    handles = getattr(loop, "_ready", None)
    if found is None and handles is not None:
        found = Ready(handles)
        setattr(loop, _NAME, found)  # it refers to the loop, and is not to outlive it
    return found


def watch_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """In a loop that does not show what is ready, let an attempt know when its code begins a task."""
    plain = loop.get_task_factory()
    if isinstance(plain, _Beginnings):
        return
    loop.set_task_factory(_Beginnings(plain))


class _Beginnings:
    """A task factory around another, or around the loop's own."""

    def __init__(self, plain: Any) -> None:
        self._plain = plain or _task

    def __call__(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        attempt = attempt_of()
        if attempt is not None and attempt.is_alone and current_call.get() is None and not _is_of_world(coro):
            attempt.is_alone = False
        return self._plain(loop, coro, **options)


def _task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> "asyncio.Task[Any]":
    return asyncio.Task(coro, loop=loop, **options)


def _is_of_world(coro: Any) -> bool:
    """Whether it appends what a call came to, rather than runs the handler's code."""
    frame = getattr(coro, "cr_frame", None)
    return frame is not None and str(frame.f_globals.get("__name__")).startswith("journal.worlds.")

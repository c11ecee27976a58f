"""pdb in the frame that asks for a call (`journal replay --pdb-at`), or where the code parts from the log (`--pdb`).

The call is asked for on top of the code that makes it, so that code's frame is found below the engine's. Where a
harness or a task of its own stands between, the handler is suspended at that moment, and its frame is found where it
waits.
"""

import asyncio
import functools
import inspect
import os
import pdb
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

import journal

FAR_SECONDS = 365 * 86400.0
"""How long a replay may stand still while a person looks at it."""
_PLACES = ("stdlib", "platstdlib", "purelib", "platlib")
_NOT_THEIRS = (
    *(f"{sysconfig.get_path(name)}/" for name in _PLACES),
    *(f"{Path(sysconfig.get_path(name)).resolve()}/" for name in _PLACES),
    f"{Path(journal.__file__).parent}/",
    "<frozen ",
)
_LOOP = {asyncio.events.__file__, asyncio.base_events.__file__, asyncio.runners.__file__}
"""Below these the stack is no longer the task's."""


class Debugger(pdb.Pdb):
    """pdb for the handler of one replay."""

    def __init__(self, handler: Callable[..., Any]) -> None:
        super().__init__(nosigint=True)
        self.reset()
        self._code = _code_of(handler)

    def stop(self) -> None:
        """Open the prompt in the frame that asks; returns when the person goes on, stepping if they say so."""
        frame = self._frame()
        self.reset()
        below: FrameType | None = frame
        while below is not None:
            below.f_trace = self.trace_dispatch
            self.botframe = below
            below = below.f_back
        self.interaction(frame, None)
        if self.quitting or (self.stoplineno == -1 and not self.breaks):
            sys.settrace(None)
        else:
            sys.settrace(self.trace_dispatch)

    def stop_at_error(self, error: BaseException) -> None:
        """Open the prompt where `error` was raised, or in the last frame of theirs that it came through."""
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        trace = error.__traceback__
        places = [place for place, _ in traceback.walk_tb(trace)]
        theirs = [place for place, frame in enumerate(places) if self._is_theirs(frame)]
        self.reset()
        self.interaction(None, _up_to(trace, theirs[-1] if theirs else len(places) - 1))

    @staticmethod
    def _is_theirs(frame: FrameType) -> bool:
        return not os.path.abspath(frame.f_code.co_filename).startswith(_NOT_THEIRS)

    def _frame(self) -> FrameType:
        on_stack = list(_outwards(inspect.currentframe()))
        for frame in on_stack:
            if self._is_theirs(frame):
                return frame
        for frame in (*on_stack, *_suspended()):
            if frame.f_code is self._code:
                return frame
        return on_stack[0]


def _up_to(trace: TracebackType | None, last: int) -> TracebackType | None:
    """The traceback without what lies below its frame `last`."""
    parts: list[TracebackType] = []
    while trace is not None and len(parts) <= last:
        parts.append(trace)
        trace = trace.tb_next
    found: TracebackType | None = None
    for part in reversed(parts):
        found = TracebackType(found, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return found


def _code_of(handler: Callable[..., Any]) -> CodeType | None:
    plain: Any = inspect.unwrap(handler)
    while isinstance(plain, functools.partial):
        plain = inspect.unwrap(plain.func)
    if not hasattr(plain, "__code__"):
        plain = getattr(plain, "__call__", None)  # noqa: B004 - the method, not whether it is callable
    code: CodeType | None = getattr(plain, "__code__", None)
    return code


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None and frame.f_code.co_filename not in _LOOP:
        yield frame
        frame = frame.f_back


def _suspended() -> Iterator[FrameType]:
    """Frames of coroutines that wait in other tasks of this loop."""
    for task in asyncio.all_tasks():
        waiting: Any = task.get_coro()
        while (frame := getattr(waiting, "cr_frame", None)) is not None:
            yield frame
            waiting = waiting.cr_await

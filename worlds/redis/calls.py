"""One command on its way to a server, and what becomes of it where that server is away or not the right one."""

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any

from journal.core.errors import WorldError
from journal.core.ports import Unknown


class Cut(Enum):
    """What it means to a command that the connection was lost after it was sent."""

    UNKNOWN = 1
    """It may have landed: answered `Unknown`."""
    AGAIN = 2
    """It is asked again."""
    FAILED = 3
    """Its caller is told by an error."""
    HERE = 4
    """It is about this very connection: its caller is told, and it is asked nowhere else."""


def as_it_is(reply: Any) -> Any:
    """A reply that needs no decoding."""
    return reply


class Call:
    """A command, and who waits for its reply."""

    __slots__ = ("cut", "data", "deadline", "decode", "due", "future", "hops", "key")

    def __init__(
        self,
        data: bytes,
        cut: Cut,
        decode: Callable[[Any], Any],
        future: "asyncio.Future[Any]",
        deadline: float,
        key: bytes | None = None,
    ) -> None:
        self.data = data
        self.cut = cut
        self.decode = decode
        self.future = future
        self.deadline = deadline
        """Until when it waits for a connection."""
        self.due = 0.0
        """Once it is sent: until when its answer should be there."""
        self.key = key
        """The first of its keys, which says where in a cluster it belongs. None: anywhere."""
        self.hops = 0
        """How often it was sent again, and may have been overtaken."""

    def fail(self, error: BaseException) -> None:
        """Tell the caller; one that is gone needs not know."""
        if not self.future.done():
            self.future.set_exception(error)

    def unanswered(self, error: WorldError) -> None:
        """Tell the caller that there is no answer. A batch may have been offered before, so that it is not known to be
        missing: its author offers it again."""
        if self.cut is not Cut.UNKNOWN:
            self.fail(error)
        elif not self.future.done():
            self.future.set_result(Unknown(str(error)))


def ignored(future: "asyncio.Future[Any]") -> "asyncio.Future[Any]":
    """For a command among several: the first that fails tells the caller, and the others need not be asked."""
    future.add_done_callback(_look_away)
    return future


def _look_away(future: "asyncio.Future[Any]") -> None:
    if not future.cancelled():
        future.exception()

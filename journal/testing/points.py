"""Where a life can be ended: at the edges of each batch that goes through the door, and inside each act.

Pure. What lies between two points is code that nothing outside can tell apart: a process that dies there leaves
what one that died at the point before it leaves.
"""

from typing import Literal

import msgspec

from journal.core.ports import Batch, Finish
from journal.core.records import CallIntent, CallOutcome

Moment = Literal[
    "claimed",
    "intent",
    "intent durable",
    "act",
    "outcome",
    "outcome durable",
    "finish",
    "finish durable",
]
_WORDS: dict[Moment, str] = {
    "claimed": "at the turn's start",
    "intent": "before the intent of {} was durable",
    "intent durable": "once the intent of {} was durable",
    "act": "inside {}",
    "outcome": "before the outcome of {} was durable",
    "outcome durable": "once the outcome of {} was durable",
    "finish": "before the turn's end was durable",
    "finish durable": "once the turn's end was durable",
}


class Point(msgspec.Struct, frozen=True):
    """One place to die at: `call` is the key of the call it concerns, if it concerns one."""

    moment: Moment
    call: str = ""

    def __str__(self) -> str:
        return _WORDS[self.moment].format(self.call)


CLAIMED = Point("claimed")
"""The claim is given; nothing of this attempt is in the log."""


def points_of(batch: Batch) -> tuple[list[Point], list[Point]]:
    """The points just before `batch` is decided, and those when it is durable and its answer was not heard."""
    before: list[Point] = []
    after: list[Point] = []
    for record in batch.records:
        key = record.key or ""
        if record.type == CallIntent.TYPE:
            before.append(Point("intent", key))
            after.append(Point("intent durable", key))
        elif record.type == CallOutcome.TYPE:
            before.append(Point("outcome", key))
            after.append(Point("outcome durable", key))
    if isinstance(batch.queue, Finish):
        before.append(Point("finish"))
        after.append(Point("finish durable"))
    return before, after

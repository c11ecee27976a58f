"""The queue entry of a run, and what each event makes of it: the table of the design, as pure functions.

A world keeps the entry wherever it likes, and lease times in its own clock; what an event does to an entry is
decided here for the worlds that run Python under their lock (memory, SQLite). Others restate it in their own
language, and the contract suite compares.
"""

from typing import Literal

import msgspec
from msgspec.structs import replace

from journal.core.ports import (
    Block,
    Close,
    Drain,
    Finish,
    Move,
    Park,
    Progress,
    QueueChange,
    Release,
    Retry,
    RunStatus,
    Submit,
    Wake,
)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One run's place in the queue. `due_at` None: not due. `token` None: nobody holds it."""

    agent: str
    priority: int = 0
    due_at: float | None = None
    epoch: int = 0
    token: bytes | None = None
    woken: bool = False
    takeovers: int = 0
    draining: bool = False
    min_reader: int = 1
    status: RunStatus = "pending"
    last_batch: bytes | None = None
    """Id of the last batch that changed the entry without a record."""


def change(entry: Entry, event: QueueChange, *, now: float, unfinished: int) -> Entry | None:
    """The entry after `event`; None: it is removed.

    `unfinished` counts the turns of the run that are unfinished *after* the event.
    """
    match event:
        case Submit(priority=priority, due_at=due_at):
            if unfinished > 1:
                return entry
            return (
                replace(entry, priority=priority, due_at=now if due_at is None else due_at, status="pending")
                if (entry.token is None)
                else replace(entry, woken=True, status="pending")
            )
        case Park(due_at=due_at):
            return _free(replace(entry, due_at=due_at, status="parked", takeovers=0))
        case Wake():
            if entry.token is not None:
                return replace(entry, woken=True)
            if entry.status == "blocked" or not unfinished:
                return entry
            # Never later than it was: a run that is signalled often must not lose its place in the queue.
            return replace(entry, due_at=now if entry.due_at is None else min(entry.due_at, now))
        case Progress():
            return replace(entry, takeovers=0)
        case Finish(status=status):
            if unfinished or entry.woken:
                return _free(
                    replace(entry, due_at=now, takeovers=0, status="pending" if unfinished else status)
                )
            return _free(replace(entry, due_at=None, takeovers=0, status=status))
        case Block():
            return _free(replace(entry, due_at=None, status="blocked"))
        case Release(delay_seconds=delay):
            if not unfinished:
                return _free(replace(entry, due_at=None))
            return _free(replace(entry, due_at=now + delay, status="pending"))
        case Drain():
            return replace(entry, draining=True)
        case Retry():
            return replace(entry, due_at=now, takeovers=0, status="pending")
        case Close() | Move():
            return None


def _free(entry: Entry) -> Entry:
    """Nobody holds it any more. The epoch stays: the next claim counts on from it."""
    return replace(entry, token=None, woken=False, draining=False)


def take(entry: Entry, *, token: bytes, is_takeover: bool, unfinished: int) -> Entry:
    """The entry once it is claimed."""
    return replace(
        entry,
        epoch=entry.epoch + 1,
        token=token,
        woken=False,
        draining=False,
        takeovers=entry.takeovers + 1 if is_takeover and not entry.draining else entry.takeovers,
        status="running" if unfinished else entry.status,
    )


Standing = Literal["due", "later", "held", "parked", "blocked", "idle"]


def standing(entry: Entry, *, now: float) -> Standing:
    """Where a run that is not closed stands; the fields of `AgentStats`."""
    if entry.token is not None:
        return "held"
    if entry.due_at is not None:
        return "due" if entry.due_at <= now else "later"
    if entry.status == "parked" or entry.status == "blocked":
        return entry.status
    return "idle"

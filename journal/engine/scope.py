"""Scopes: where a call's key counts, so that parallel tasks and nested agents name their calls the same on replay.

The root scope is the handler's. A task that makes a call of its own opens a scope below the one it was started in
(``t1``, ``t2``, counted in the order in which they first call); a nested agent is given one by its adapter. Keys
read ``t1/lookup#2``: the second start of `lookup` in that scope. On replay a task is known again by what it began with:
`asyncio.as_completed` starts what it is given in any order, and a task that left nothing in the log may come first now.
Of several that began with the same, it is the one that was started with the same arguments (`task_digest.py`).
A task that begins with something else than a call (a clock, a race, a harness) says so in a record, ``t1/@task``.
"""

import asyncio
import random
from collections import deque
from collections.abc import Collection
from contextvars import Context, ContextVar, copy_context
from itertools import islice
from threading import get_ident
from typing import TYPE_CHECKING

from journal.core import values
from journal.core.codec import seal
from journal.core.errors import InvalidOptions, NotInTurn
from journal.core.records import Observed
from journal.engine.task_digest import likeness, task_digest
from journal.replay.history import TASK_MARK

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt


Beginning = tuple[str, bytes]
"""What a task begins with: the name of a call and the digest of its input; else what it is, and nothing."""
Alike = dict[bytes, deque[str]]
"""Names of tasks that begin with the same, in their order, by the digest over what they were started with."""
_MOST_COMPARED = 100
"""Digests that one of a task is compared with which is none of them."""


class Scope:
    """One place to count in. `path` is empty for the handler's own."""

    __slots__ = ("attempt", "chance", "counts", "is_new", "known", "path", "recorded", "task", "tasks")

    def __init__(self, attempt: "Attempt", path: str, task: "asyncio.Task[object] | None") -> None:
        self.attempt = attempt
        self.path = path
        self.task = task
        self.counts: dict[str, int] = {}
        self.tasks = 0
        """No new scope of a task below this one is named by this number or a lower one."""
        self.known: Collection[str] = ()
        """Names of those that the log knows."""
        self.recorded: dict[Beginning, Alike] | None = None
        """Those of them that were not opened yet, by what they begin with."""
        self.is_new = False
        """Whether it is of a task, and its first call is to say what the task was started with."""
        self.chance: random.Random | None = None

    def next_key(self, name: str) -> str:
        """The key of the next start of `name` here."""
        count = self.counts.get(name, 0) + 1
        self.counts[name] = count
        return f"{self.path}/{name}#{count}" if self.path else f"{name}#{count}"

    def name_of_task(self, first: Beginning, task: "asyncio.Task[object] | None") -> str:
        """The name of the next scope of a task below this one, which begins with that."""
        if self.recorded is None:
            self.known = known = self.attempt.history.tasks_of(self.path)
            self.recorded = {}
            for name in sorted(known, key=_number):
                alike = self.recorded.setdefault(known[name][:2], {})
                alike.setdefault(known[name].task_digest, deque()).append(name)
        if waiting := self.recorded.get(first):
            return _most_alike(waiting, task)
        self.tasks += 1
        while (name := f"t{self.tasks}") in self.known:
            self.tasks += 1
        return name


def _most_alike(alike: Alike, task: "asyncio.Task[object] | None") -> str:
    """Take the one that the task is, of several that began with the same: started with the same, else the first."""
    digest = task_digest(task) if len(alike) > 1 else b""
    if digest not in alike:
        ahead = list(islice(alike, _MOST_COMPARED))
        digest = max(ahead, key=lambda known: (likeness(known, digest), -_number(alike[known][0])))
    name = alike[digest].popleft()
    if not alike[digest]:
        del alike[digest]
    return name


def _number(name: str) -> int:
    return int(name[1:])


_current: ContextVar[Scope | None] = ContextVar("journal_scope", default=None)


def open_scope(attempt: "Attempt") -> Scope | None:
    """The scope of the running task, if `current_scope` has nothing to do for it: nearly always."""
    scope = _current.get()
    if scope is None or scope.attempt is not attempt or attempt.is_over or get_ident() != attempt.thread:
        return None
    return scope if scope.task is asyncio.current_task(attempt.loop) else None


def current_scope(what: str, attempt: "Attempt | None" = None, first: Beginning | None = None) -> Scope:
    """The scope of the running task, opened if it is the first that the task does: the call `first`, else `what`.

    Raises `NotInTurn`, and `InvalidOptions` on a thread that is not the handler's.
    """
    scope = _current.get()
    of = attempt if attempt is not None or scope is None else scope.attempt
    task = None if of is None else running_task(of, what)
    if scope is not None and scope.task is task and scope.attempt is attempt and not scope.attempt.is_over:
        return scope
    if scope is None or scope.attempt.is_over or (attempt is not None and scope.attempt is not attempt):
        if attempt is None or attempt.is_over:
            raise NotInTurn(what=what)
        scope = attempt.root
    if scope.task is not task:
        if scope.attempt.has_ended:
            raise asyncio.CancelledError  # it is left over, as those are that have made calls: nobody waits for it
        name = scope.name_of_task(first or (what, b""), task)
        scope = Scope(scope.attempt, f"{scope.path}/{name}" if scope.path else name, task)
        if first is None:
            _mark(scope, what)
        else:
            scope.is_new = True
        scope.attempt.is_alone = False
        if task is not None:
            scope.attempt.tasks[task] = None
        _current.set(scope)
    return scope


def running_task(attempt: "Attempt", what: str) -> "asyncio.Task[object] | None":
    """The running task of the attempt's event loop. Raises `InvalidOptions` on any thread but that loop's.

    The loop is known: to ask which one runs takes longer than all the rest.
    """
    if get_ident() != attempt.thread:
        raise InvalidOptions(
            f"{what} was used on another thread: a turn belongs to the event loop of its handler; await its calls "
            "there, and give the thread what they return"
        )
    return asyncio.current_task(attempt.loop)


def _mark(scope: Scope, what: str) -> None:
    """Let the log say what the task began with, since no call does."""
    attempt, key = scope.attempt, f"{scope.path}/{TASK_MARK}"
    if key not in attempt.history.observed:
        mark = Observed(value=values.encode(what), task_digest=task_digest(scope.task))
        attempt.holding.buffer(seal(attempt.holding.run, mark, turn=attempt.turn_id, key=key))


def attempt_of(context: Context | None = None) -> "Attempt | None":
    """The attempt that runs in that context, or in the current one."""
    scope = _current.get() if context is None else context.get(_current)
    return None if scope is None else scope.attempt


def outside() -> Context:
    """For what a turn starts and that is not of it: the context that the turn itself was started in.

    An agent that a call runs, and a journal that a handler opens, are not to see whose call and task that was.
    """
    scope = _current.get()
    return copy_context() if scope is None else scope.attempt.outside.copy()


def enter_root(scope: Scope) -> None:
    """Make `scope` the running task's own."""
    _current.set(scope)

"""Scopes: where a call's key counts, so that parallel tasks and nested agents name their calls the same on replay.

The root scope is the handler's. A task that makes a call of its own opens a scope below the one it was started in
(``t1``, ``t2``, counted in the order in which they first call); a nested agent is given one by its adapter. Keys
read ``t1/lookup#2``: the second start of `lookup` in that scope.
"""

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING

from journal.core.errors import NotInTurn

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt


class Scope:
    """One place to count in. `path` is empty for the handler's own."""

    __slots__ = ("attempt", "counts", "path", "task", "tasks")

    def __init__(self, attempt: "Attempt", path: str, task: "asyncio.Task[object] | None") -> None:
        self.attempt = attempt
        self.path = path
        self.task = task
        self.counts: dict[str, int] = {}
        self.tasks = 0

    def next_key(self, name: str) -> str:
        """The key of the next start of `name` here."""
        count = self.counts.get(name, 0) + 1
        self.counts[name] = count
        return f"{self.path}/{name}#{count}" if self.path else f"{name}#{count}"


_current: ContextVar[Scope | None] = ContextVar("journal_scope", default=None)


def current_scope(what: str, attempt: "Attempt | None" = None) -> Scope:
    """The scope of the running task, opened if it is the task's first call. Raises `NotInTurn`."""
    scope, task = _current.get(), asyncio.current_task()
    if scope is not None and scope.task is task and scope.attempt is attempt and not scope.attempt.is_over:
        return scope
    if scope is None or scope.attempt.is_over or (attempt is not None and scope.attempt is not attempt):
        if attempt is None or attempt.is_over:
            raise NotInTurn(what=what)
        scope = attempt.root
    if scope.task is not task:
        scope.tasks += 1
        name = f"t{scope.tasks}"
        scope = Scope(scope.attempt, f"{scope.path}/{name}" if scope.path else name, task)
        if task is not None:
            scope.attempt.tasks.add(task)
        _current.set(scope)
    return scope


def enter_root(scope: Scope) -> None:
    """Make `scope` the running task's own."""
    _current.set(scope)

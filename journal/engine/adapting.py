"""What adapters need of the engine beside `calls.py`: scopes that they name themselves, and calls with all due care.

A harness runs its tools and model calls in tasks of its own making, so an adapter cannot count by task: it opens a
scope by path and asks for calls in it explicitly.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from journal.core.errors import InvalidOptions
from journal.engine.context import in_call
from journal.engine.scope import Scope, _current, current_scope
from journal.tools.facts import Facts

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt


def scope_here(what: str) -> Scope:
    """The scope of the running task, for `what` to make calls in.

    Raises `NotInTurn` outside of a turn, and `InvalidOptions` inside a call: calls do not nest.
    """
    scope = current_scope(what)
    if (outer := in_call()) is not None and outer.attempt is scope.attempt:
        raise InvalidOptions(
            f"{what} was used inside call {outer.key!r}, and calls do not nest: use it in the handler, "
            "or make the inner agent a tool of the outer one (agent.as_tool)"
        )
    return scope


def inherited_scope() -> Scope | None:
    """The scope that the running task was started in, or is in: nothing is opened. None outside of a turn."""
    scope = _current.get()
    return None if scope is None or scope.attempt.is_over else scope


def notes_of(attempt: "Attempt", adapter: str) -> dict[str, Any]:
    """What `adapter` keeps for as long as the attempt lives; empty at first."""
    notes: dict[str, dict[str, Any]] = vars(attempt).setdefault("adapter_notes", {})
    return notes.setdefault(adapter, {})


@contextmanager
def inside(scope: Scope) -> Iterator[Scope]:
    """Let what runs in the block, in this task, count in `scope`."""
    scope.task = asyncio.current_task()
    token = _current.set(scope)
    try:
        yield scope
    finally:
        _current.reset(token)


def excuse(attempt: "Attempt", keys: Iterable[str]) -> None:
    """The code will not ask for these recorded calls: what came of them is known to the harness from elsewhere."""
    order = getattr(attempt, "order", None)
    for key in keys:
        attempt.history.claim(key)
        if order is not None:
            order.drop(key)


def reporting(
    act: Callable[[], Awaitable[Any]], facts_of: Callable[[Any], Facts]
) -> Callable[[], Awaitable[Any]]:
    """`act`, keeping with its outcome what the provider said beside the reply."""

    async def acting() -> Any:
        result = await act()
        if (context := in_call()) is not None:
            context.report(facts_of(result))
        return result

    return acting

"""Where in a turn an agent's run counts: its model calls by number, its tool calls by the reply that asked for them.

Pydantic AI runs tools and streams in tasks of its own. A run's place is found in a context variable, which those tasks
inherit; nothing is counted by task. Places live as long as the attempt, so that a run which is resumed with the results
of deferred tools, in the same handler, counts on.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from urllib.parse import quote

from journal.core import values
from journal.core.errors import NotInTurn
from journal.engine.adapting import inside, notes_of
from journal.engine.scope import Scope

_KEY_CHARACTERS = 96


class Place:
    """One scope of a turn in which agents run."""

    def __init__(self, scope: Scope) -> None:
        self.attempt = scope.attempt
        self.scope = scope
        self._asked: dict[str, str] = {}

    def key(self, name: str) -> str:
        """The key of the next start of `name` here."""
        return self.scope.next_key(name)

    def note_asked(self, model_key: str, call_ids: list[str]) -> None:
        """The reply to `model_key` asks for these tool calls, in this order."""
        for position, call_id in enumerate(call_ids):
            self._asked[call_id] = f"{model_key}/{position}:{_in_key(call_id)}"

    def tool_key(self, call_id: str) -> str:
        """The key of a tool call. One whose reply is not of this turn (a given history) is named by its id alone."""
        if (key := self._asked.get(call_id)) is not None:
            return key
        path = self.scope.path
        return f"{path}/resumed/{_in_key(call_id)}" if path else f"resumed/{_in_key(call_id)}"


def _in_key(call_id: str) -> str:
    """`call_id` without the characters that structure keys, and not too long: providers pack much into ids."""
    text = quote(call_id, safe=":._-|=+@~")
    return text if len(text) <= _KEY_CHARACTERS else values.digest(call_id.encode()).hex()


_current: ContextVar[Place | None] = ContextVar("journal_pydantic_ai_place", default=None)


def place_of(scope: Scope) -> Place:
    """The place of `scope`; the same one whenever a scope of its path is entered in this attempt."""
    places: dict[str, Place] = notes_of(scope.attempt, "pydantic_ai")
    place = places.get(scope.path)
    if place is None:
        place = places[scope.path] = Place(scope)
    return place


def current_place(what: str) -> Place:
    """The place that the agent runs in. Raises `NotInTurn`."""
    place = _current.get()
    if place is None or place.attempt.is_over:
        raise NotInTurn(what=what)
    return place


@contextmanager
def nested_at(outer: Place, path: str) -> Iterator[Place]:
    """The place of agents that run inside a tool, in a scope at `path`."""
    place = place_of(Scope(outer.attempt, path, None))
    with inside(place.scope), running_at(place):
        yield place


@contextmanager
def running_at(place: Place) -> Iterator[Place]:
    """Let the run that is entered in the block work at `place`; tasks that it starts keep to it."""
    token = _current.set(place)
    try:
        yield place
    finally:
        _current.reset(token)

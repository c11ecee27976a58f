"""Where in a turn the SDK's work counts: one place for each scope that model calls are counted in.

The SDK runs tools, guardrails and streams in tasks of its own, so wrappers find their place in a context variable,
which those tasks inherit, and never count by task. Places live as long as the attempt: when an interrupted run
is resumed within the same turn, its scopes count on.
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
    """One scope of a turn in which an agent runs."""

    def __init__(self, scope: Scope) -> None:
        self.attempt = scope.attempt
        self.scope = scope
        self.session = Scope(scope.attempt, f"{scope.path}/session" if scope.path else "session", None)
        """Session calls count apart, since the SDK may make them while the model is being asked."""
        self.agent_name = "agent"
        """Whose model call comes next; its wrapper says so when the SDK collects its tools."""
        self.is_server_side = False
        """Whether the provider keeps the conversation."""
        self._asked: dict[str, str] = {}

    def coming_model_key(self, ahead: int = 0) -> str:
        """The key of the next model call but `ahead`, without taking it."""
        number = self.scope.counts.get("model", 0) + 1 + ahead
        return f"{self.scope.path}/model#{number}" if self.scope.path else f"model#{number}"

    def note_asked(self, model_key: str, call_ids: list[str]) -> None:
        """The reply to `model_key` asks for these tool calls, in this order."""
        for position, call_id in enumerate(call_ids):
            self._asked[call_id] = f"{model_key}/{position}:{_in_key(call_id)}"

    def tool_key(self, call_id: str) -> str:
        """The key of a tool call. One whose reply is not of this turn (a resumed state) is named by its id alone."""
        if (key := self._asked.get(call_id)) is not None:
            return key
        path = self.scope.path
        return f"{path}/resumed/{_in_key(call_id)}" if path else f"resumed/{_in_key(call_id)}"


def _in_key(call_id: str) -> str:
    """`call_id` without the characters that structure keys, and not too long: providers pack much into ids."""
    text = quote(call_id, safe=":._-|=+@~")
    return text if len(text) <= _KEY_CHARACTERS else values.digest(call_id.encode()).hex()


_current: ContextVar[Place | None] = ContextVar("journal_openai_agents_place", default=None)


def place_of(scope: Scope) -> Place:
    """The place of `scope`; the same one whenever a scope of its path is entered in this attempt."""
    places: dict[str, Place] = notes_of(scope.attempt, "openai_agents")
    place = places.get(scope.path)
    if place is None:
        place = places[scope.path] = Place(scope)
    return place


def place_here() -> Place | None:
    """The place that the SDK runs in, if it runs in one."""
    place = _current.get()
    return None if place is None or place.attempt.is_over else place


def current_place(what: str) -> Place:
    """The place that the SDK runs in. Raises `NotInTurn`."""
    if (place := place_here()) is None:
        raise NotInTurn(what=what)
    return place


@contextmanager
def running_at(place: Place) -> Iterator[Place]:
    """Let the SDK, started in the block, work at `place`; tasks that it starts there keep to it."""
    token = _current.set(place)
    try:
        yield place
    finally:
        _current.reset(token)


@contextmanager
def nested_at(outer: Place, path: str) -> Iterator[Place]:
    """A nested agent's place, in a scope at `path`."""
    place = place_of(Scope(outer.attempt, path, None))
    with inside(place.scope), running_at(place):
        yield place

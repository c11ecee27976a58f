"""Where in a turn a harness works: its model calls by number, its tool calls by the reply that asked for them.

A harness runs tools and streams in tasks of its own, so a place is found in a context variable, which those tasks
inherit, and nothing is counted by task. Places live as long as the attempt: a run that is resumed in the same handler
counts on. A place of LangGraph is something else, see its package.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar
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
        self.is_blind = False
        """In a replay offline: whether tools are not known that a server offered, so that drift cannot be told."""
        self._asked: dict[str, str] = {}

    def key(self, name: str) -> str:
        """The key of the next start of `name` here."""
        return self.scope.next_key(name)

    def note_asked(self, model_key: str, call_ids: list[str]) -> None:
        """The reply to `model_key` asks for these tool calls, in this order."""
        for position, call_id in enumerate(call_ids):
            self._asked[call_id] = asked_key(model_key, position, call_id)

    def tool_key(self, call_id: str) -> str:
        """The key of a tool call. One whose reply is not of this turn (a given history) is named by its id alone."""
        if (key := self._asked.get(call_id)) is not None:
            return key
        return self._path(f"resumed/{_in_key(call_id)}")

    async def coming_reply(self) -> tuple[str, bytes] | None:
        """The recorded reply that the code will be given next, and the key of its call."""
        calls, number = self.attempt.history.calls, self.scope.counts.get("model", 0)
        while True:
            number += 1
            key = self._path(f"model#{number}")
            call = calls.get(key)
            if call is None or call.outcome is None:
                return None
            data = await self.attempt.load(call.outcome.value)
            if data is not None:
                return key, data
            # It failed, and the harness may have asked again.

    def _path(self, name: str) -> str:
        return f"{self.scope.path}/{name}" if self.scope.path else name


def asked_key(model_key: str, position: int, call_id: str) -> str:
    """The key of the tool call that a reply asks for at that position, from 0."""
    return f"{model_key}/{position}:{_in_key(call_id)}"


def _in_key(call_id: str) -> str:
    """`call_id` without the characters that structure keys, and not too long: providers pack much into ids."""
    text = quote(call_id, safe=":._-|=+@~")
    return text if len(text) <= _KEY_CHARACTERS else values.digest(call_id.encode()).hex()


P = TypeVar("P", bound=Place)


class Places(Generic[P]):
    """The places of one adapter, and the one that the running code is at."""

    def __init__(self, adapter: str, kind: Callable[[Scope], P]) -> None:
        self._adapter, self._kind = adapter, kind
        self._current: ContextVar[P | None] = ContextVar(f"journal_{adapter}_place", default=None)

    def of(self, scope: Scope) -> P:
        """The place of `scope`; the same one whenever a scope of its path is entered in this attempt."""
        places: dict[str, P] = notes_of(scope.attempt, self._adapter)
        place = places.get(scope.path)
        if place is None:
            place = places[scope.path] = self._kind(scope)
        return place

    def here(self) -> P | None:
        """The place that the harness runs at, if it runs at one."""
        place = self._current.get()
        return None if place is None or place.attempt.is_over else place

    def current(self, what: str) -> P:
        """The place that the harness runs at. Raises `NotInTurn`."""
        if (place := self.here()) is None:
            raise NotInTurn(what=what)
        return place

    @contextmanager
    def running_at(self, place: P) -> Iterator[P]:
        """Let the harness, started in the block, work at `place`; tasks that it starts keep to it."""
        token = self._current.set(place)
        try:
            yield place
        finally:
            self._current.reset(token)

    @contextmanager
    def nested_at(self, outer: P, path: str) -> Iterator[P]:
        """The place of an agent that runs inside a tool, in a scope at `path`."""
        place = self.of(Scope(outer.attempt, path, None))
        with inside(place.scope), self.running_at(place):
            yield place

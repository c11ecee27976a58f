"""`ScriptedModel`: a model that plays a script, for tests that ask for no provider.

For `turn.model` pass it as it is. An adapter's model calls it from its own method and returns what it is given, in the
types of its harness.
"""

import inspect
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from journal.engine.context import in_call


class ScriptedModel:
    """Answers with `script`: replies to be played in order, or a function of the request, sync or async.

    A call that a crash interrupted is answered as it was before: replies go by the call's key, not by how often it was
    asked. In a process that is started anew that holds for calls made one after the other (the n-th call is
    given the n-th reply); parallel ones take a function. An exception in the script is raised. Past its end it
    raises `ScriptEnded`.
    """

    def __init__(self, script: Sequence[Any] | Callable[[Any], Any], *, name: str = "model") -> None:
        self.__name__ = name
        self.requests: list[Any] = []
        """What was asked, every time that it was really asked."""
        self._script = script
        self._places: dict[str, int] = {}

    @property
    def asked(self) -> int:
        """How often it was really asked; recorded answers are not asked for again."""
        return len(self.requests)

    async def __call__(self, request: Any = None) -> Any:
        """One request."""
        self.requests.append(request)
        if callable(self._script):
            reply = self._script(request)
            return await reply if inspect.isawaitable(reply) else reply
        place = self._place()
        if place >= len(self._script):
            raise ScriptEnded(f"the script has {len(self._script)} replies, and another one was asked for")
        reply = self._script[place]
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def _place(self) -> int:
        call = in_call()
        if call is None:
            return self._next(str(len(self._places)))
        return self._next(f"{call.attempt.holding.run} {call.attempt.turn_id} {call.key}", call.key)

    def _next(self, asker: str, key: str = "") -> int:
        """The place of the reply for `asker`: the one it had, the number in its key, or the first that is left."""
        if asker not in self._places:
            name, _, number = key.rpartition("#")
            if name and number.isdecimal() and "/" not in name:
                place = int(number) - 1
            else:
                place = next(n for n in count() if n not in self._places.values())
            self._places[asker] = place
        return self._places[asker]


class ScriptEnded(AssertionError):
    """More was asked than the script has replies for."""

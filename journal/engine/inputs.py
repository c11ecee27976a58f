"""What an intent keeps of a model call's input: where it pays, only what is new against the call before it.

An attempt remembers for each scope the input that was recorded last, and the results since; an attempt that carries on
takes it from the log. What has not become durable is never built on. Next: `replay/difference.py`, `replay/inputs.py`.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from journal.core.errors import CorruptRecord
from journal.core.records import Difference
from journal.replay.difference import difference
from journal.replay.inputs import blobs_of, home_of, whole

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt

FULL_EVERY = 64
"""After so many differences an input is kept whole again, as soon as that adds little to what they took."""
_FULL_SHARE = 4
_LEAST_RESULT = 48
_MOST_RESULTS = 64
_MOST_BYTES = 16 * 1024 * 1024


class Sent(msgspec.Struct):
    """The input of a scope that was recorded last."""

    key: str
    data: bytes
    results: dict[str, bytes] = {}
    """Since then, by call key."""
    links: int = 0
    """Differences since the last whole one."""
    written: int = 0
    """Bytes that they took."""


class SentInputs:
    """Inputs of one attempt, by scope."""

    def __init__(self, attempt: "Attempt") -> None:
        self._attempt = attempt
        self.scopes: OrderedDict[str, Sent] = OrderedDict()
        """None, as long as no model was called: then no result matters either."""
        self._bytes = 0
        self._under_way: set[str] = set()
        """Keys whose intents were handed in: the log may hold another input of them by now, so none builds on them."""

    async def shortened(self, key: str, data: bytes) -> tuple[Difference, bytes] | None:
        """How `data`, the input of call `key`, is put together, and what of it is new; None: keep it whole."""
        scope = home_of(key)
        sent = self.scopes.get(scope) or await self._recorded(scope)
        is_settled = sent is not None and sent.key not in self._under_way
        self._under_way.add(key)
        if sent is None or not is_settled:
            return None
        if sent.links >= FULL_EVERY and len(data) * _FULL_SHARE <= sent.written:
            return None
        found = difference(data, sent.data, list(sent.results.values()))
        if found is None:
            return None
        said = Difference(
            base=sent.key, outcomes=tuple(sent.results), keep=found.keep, size=len(data), crc=crc32(data)
        )
        return said, found.literal

    def landed(self, key: str, data: bytes, literal: bytes | None) -> None:
        """The intent of `key` is durable; `literal` is what it keeps where that is not all."""
        self._under_way.discard(key)
        scope = home_of(key)
        before = self._forget(scope)
        sent = Sent(key, data)
        if literal is not None and before is not None:
            sent.links, sent.written = before.links + 1, before.written + len(literal)
        self.scopes[scope] = sent
        self._bytes += len(data)
        while self._bytes > _MOST_BYTES and len(self.scopes) > 1:
            self._forget(next(iter(self.scopes)))

    def settled(self, key: str, result: bytes | None) -> None:
        """The result of call `key` is durable: the next input of its scope, or of one further out, may repeat it."""
        if result is None or len(result) < _LEAST_RESULT:
            return
        scope = home_of(key)
        while scope and scope not in self.scopes:
            scope = scope.rpartition("/")[0]  # a task that makes no model calls reads for whoever started it
        sent = self.scopes.get(scope)
        if sent is not None and len(sent.results) < _MOST_RESULTS:
            sent.results[key] = result
            self._bytes += len(result)

    def _forget(self, scope: str) -> Sent | None:
        sent = self.scopes.pop(scope, None)
        if sent is not None:
            self._bytes -= len(sent.data) + sum(map(len, sent.results.values()))
        return sent

    async def _recorded(self, scope: str) -> Sent | None:
        """What the log has, for an attempt that carries on."""
        attempt = self._attempt
        found = attempt.history.inputs.latest(attempt.turn_id, scope)
        if found is None or found.size is None:
            return None
        try:
            blobs = {ref.blob: await attempt.load(ref) or b"" for ref in blobs_of(found)}
            return Sent(found.record.key or "", whole(found, blobs))
        except CorruptRecord as damage:
            attempt.log.warning("an input is kept whole", reason=str(damage))
            return None

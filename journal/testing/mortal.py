"""A world that ends the life of whoever works on it at one chosen point; up to there it only looks on.

What a kill means is what it means for a process: nothing of that life happens after the point; a batch is durable
or is not; an answer that was under way is not heard. How the life ends is the caller's: `die` is SIGKILL where the
life is a process, and where it is an event loop the loop never turns again.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from journal.core.ports import Answer, Batch, Claims, Committed, Duplicate
from journal.engine.context import CallContext
from journal.testing.points import CLAIMED, Point, points_of


class Act(msgspec.Struct, frozen=True):
    """An act that began, or (`number` 0) a probe that was asked."""

    call: str
    number: int


class Watch:
    """What one life passes, and where it is to end: at `at`, or once it has passed `after` points (None: never)."""

    def __init__(
        self,
        *,
        at: Point | None = None,
        after: int | None = None,
        on_act: Callable[[Act], None] = lambda _: None,
    ) -> None:
        self.at = at
        self.after = after
        self.passed: list[Point] = []
        """In order; each once."""
        self.acts: list[Act] = []
        self.is_doomed = False
        """The life is over, or ends before anything more of it can become durable."""
        self.is_dead = False
        self.kill: Callable[[], None] = lambda: None
        """Ends the life; whoever starts it says how."""
        self.bury: Callable[[], None] = lambda: None
        """Ends what a loop that does not turn any more leaves running in its process."""
        self._on_act = on_act
        self._count = 0

    def reach(self, points: list[Point]) -> bool:
        """Whether one of `points`, which are being passed now, is the one to die at."""
        is_last = False
        for point in points:
            if point not in self.passed:
                self.passed.append(point)
            self._count += 1
            is_last |= point == self.at or self._count == self.after
        return is_last

    def die(self) -> None:
        """End this life. Called with no code of the handler below it on the stack."""
        if not self.is_dead:
            self.is_doomed = self.is_dead = True
            self.kill()

    def on_act(self, context: CallContext) -> None:
        """An act begins. If it is to die inside, it runs until it first waits; its outcome is never offered."""
        act = Act(context.key, context.number)
        self.acts.append(act)
        self._on_act(act)
        if act.number and self.reach([Point("act", act.call)]):
            self.is_doomed = True
            asyncio.get_running_loop().call_soon(self.die)


class MortalWorld:
    """`inner`, watched."""

    def __init__(self, inner: Any, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def append(self, batch: Batch) -> "asyncio.Future[Answer]":
        """See `Log.append`. Decided a pass of the loop later: a handler on the stack would go on after the kill."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        loop.call_soon(self._offer, batch, answer)
        return answer

    def _offer(self, batch: Batch, answer: "asyncio.Future[Answer]") -> None:
        before, after = points_of(batch)
        if self._watch.reach(before) or self._watch.is_doomed:
            self._watch.die()
            return
        offered = asyncio.ensure_future(self._inner.append(batch))
        offered.add_done_callback(partial(self._answered, after, answer))

    def _answered(
        self, after: list[Point], answer: "asyncio.Future[Answer]", offered: "asyncio.Future[Answer]"
    ) -> None:
        if offered.cancelled():
            answer.cancel()
        elif (error := offered.exception()) is not None:
            if not answer.cancelled():
                answer.set_exception(error)
        elif isinstance(offered.result(), Committed | Duplicate) and self._watch.reach(after):
            self._watch.die()
        elif not answer.cancelled():
            answer.set_result(offered.result())

    async def claim(self, **options: Any) -> Claims:
        """`Queue.claim`."""
        claims: Claims = await self._inner.claim(**options)
        if claims.claimed and self._watch.reach([CLAIMED]):
            loop = asyncio.get_running_loop()
            loop.call_soon(self._watch.die)
            await loop.create_future()
        return claims

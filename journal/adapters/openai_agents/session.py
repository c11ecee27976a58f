"""Sessions: what is read from one is recorded, and what is written to one is written once.

`add_items` in doubt is not repeated before the session was asked: from what it held before, its length tells whether
the items arrived, all or some of them. Items that others write to the same session meanwhile make that uncertain,
and then the outcome is unknown.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from agents.memory import Session

from journal.adapters.openai_agents.messages import plain
from journal.adapters.openai_agents.place import Place, current_place
from journal.core import values
from journal.core.errors import InvalidOptions
from journal.core.records import Policy
from journal.engine.calls import Call, settle
from journal.engine.turn import failure_of
from journal.tools.io import CallContext
from journal.tools.probe import CannotTell, NotRun, ProbeFunction, Ran


class DurableSession:
    """`inner`, with its operations recorded as steps."""

    def __init__(self, inner: Session) -> None:
        self._inner = inner
        self._items: list[Any] | None = None
        """What it holds as far as the log tells; None before it was read whole."""

    @property  # type: ignore[misc]  # the SDK treats some sessions by what they are
    def __class__(self) -> type:
        return type(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get_items(self, limit: int | None = None, *, wrapper: Any = None) -> list[Any]:
        async def act() -> list[Any]:
            return [plain(item) for item in await self._call(self._inner.get_items, wrapper, limit)]

        items: list[Any] = await self._step("get_items", {"limit": limit}, act, "safe")
        if limit is None or len(items) < limit:
            self._items = list(items)
        return items

    async def add_items(self, items: list[Any], *, wrapper: Any = None) -> None:
        new = [plain(item) for item in items]
        present = 0

        async def act() -> None:
            if missing := items[present:]:
                await self._call(self._inner.add_items, wrapper, missing)

        async def probe(_: Any, __: CallContext) -> Ran | NotRun | CannotTell:
            nonlocal present
            held = [plain(item) for item in await self._call(self._inner.get_items, wrapper, None)]
            arrived = _arrived(self._items, held, new)
            if arrived is None:
                return CannotTell()
            present = arrived
            return Ran() if arrived == len(new) else NotRun(final=True)

        await self._step("add_items", {"items": new}, act, "never", probe)
        if self._items is not None:
            self._items += new

    async def pop_item(self, *, wrapper: Any = None) -> Any:
        async def act() -> Any:
            return plain(await self._call(self._inner.pop_item, wrapper))

        async def probe(_: Any, __: CallContext) -> Ran | NotRun | CannotTell:
            held = await self._call(self._inner.get_items, wrapper, None)
            before = self._items
            if before is None or len(held) not in (len(before), len(before) - 1):
                return CannotTell()
            return NotRun(final=True) if len(held) == len(before) else Ran(before[-1])

        item = await self._step("pop_item", {}, act, "never", probe)
        if self._items:
            self._items.pop()
        return item

    async def clear_session(self, *, wrapper: Any = None) -> None:
        async def act() -> None:
            await self._call(self._inner.clear_session, wrapper)

        await self._step("clear_session", {}, act, "safe")
        self._items = []

    async def _call(self, method: Callable[..., Awaitable[Any]], wrapper: Any, *args: Any) -> Any:
        """Call the inner session, giving it the run's context only if it takes one."""
        if wrapper is not None and "wrapper" in inspect.signature(method).parameters:
            return await method(*args, wrapper=wrapper)
        return await method(*args)

    async def _step(
        self,
        name: str,
        asked: dict[str, Any],
        act: Callable[[], Awaitable[Any]],
        policy: Policy,
        probe: ProbeFunction | None = None,
    ) -> Any:
        place: Place = current_place("a durable session")
        data = values.encode({"session": str(self._inner.session_id), **asked}, what=f"session.{name}")
        call = Call(
            key=place.session.next_key(name),
            kind="step",
            name=f"session.{name}",
            act=act,
            input=data,
            input_digest=values.digest(data),
            policy=policy,
            is_lazy=policy == "safe",
            probe=probe,
        )
        settled = await settle(place.attempt, call)
        if settled.data is None:
            raise failure_of(settled)
        return values.decode(settled.data)


def _arrived(before: list[Any] | None, held: Sequence[Any], new: Sequence[Any]) -> int | None:
    """How many of `new` the session holds; None if that cannot be told.

    Lengths decide, since a store may change items on their way in (ids, defaults); without a length to start
    from, the session's end does.
    """
    if before is None:
        return len(new) if new and list(held[-len(new) :]) == list(new) else 0
    arrived = len(held) - len(before)
    return arrived if 0 <= arrived <= len(new) else None


def durable_session(session: Session) -> Session:
    """`session` wrapped, once. Raises `InvalidOptions` for one that rewrites its history by itself."""
    if type(session) is DurableSession:
        return session
    if callable(getattr(session, "run_compaction", None)):
        raise InvalidOptions(
            f"{type(session).__name__} compacts its history by itself, which the adapter does not cover: "
            "give the session under it"
        )
    return DurableSession(session)

"""The suite against a store that is in use: every case in namespaces of its own, which are cleared behind it.

Runs of other namespaces are neither seen nor touched. What stays are the tombstones of moved runs, and,
where a world keeps them as rows, of swept ones.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from uuid import uuid4

import anyio
from msgspec.structs import replace

from journal.core.clock import ManualClock
from journal.core.ports import RunQuery, SweepPolicy, World
from journal.worlds.contract.harness import close
from journal.worlds.opening import open_world


class NamespaceHarness:
    """A harness over one URL. Its worlds share a clock that moves only when told to, whatever the server's says."""

    can_step_wall = False

    def __init__(self, url: str, *, is_persistent: bool) -> None:
        self.is_persistent = is_persistent
        self.clock = ManualClock()
        self.opened: set[str] = set()
        self._url = url
        self._mark = f"check-{uuid4().hex[:12]}"

    def open(self, *, namespace: str = "default") -> AbstractAsyncContextManager[World]:
        """One more world over the same store."""
        name = f"{self._mark}-{namespace}"
        self.opened.add(name)
        return open_world(self._url, namespace=name, clock=self.clock)

    async def advance(self, seconds: float) -> None:
        """Let time pass for the store and all its worlds."""
        self.clock.advance(seconds)

    async def step_wall(self, seconds: float) -> None:
        """Never called: `can_step_wall` says so."""
        raise NotImplementedError

    async def clear(self) -> None:
        """Close and sweep every run of the namespaces that were opened."""
        for name in self.opened:
            async with open_world(self._url, namespace=name, clock=self.clock) as world:
                await _close_all(world)
                self.clock.advance(1.0)
                policy = SweepPolicy(closed_older_than_seconds=0.0, tombstone_seconds=0.0)
                while await world.sweep(policy):
                    pass


async def _close_all(world: World) -> None:
    before: int | None = None
    while page := await world.runs(RunQuery(before=before)):
        for run in page:
            if run.building:
                image = await world.image(
                    run.run
                )  # as far as it has come: without turns whose end is still to come
                turns = tuple(turn for turn in image.turns if (turn.finished or turn.submitted) <= image.head)
                await world.build(replace(image, turns=turns), (), ())
                await world.settle(run.run, is_live=False)
            if not run.closed:
                await world.append(close(run.run))
        before = page[-1].position


@asynccontextmanager
async def namespaces_of(url: str, *, is_persistent: bool) -> AsyncIterator[NamespaceHarness]:
    """A harness in namespaces of its own, cleared in the end."""
    harness = NamespaceHarness(url, is_persistent=is_persistent)
    try:
        yield harness
    finally:
        # Whoever interrupts the suite does not want to be left with its runs either.
        with anyio.CancelScope(shield=True):
            clearing = asyncio.ensure_future(harness.clear())
            try:
                await asyncio.shield(clearing)
            except asyncio.CancelledError:
                await clearing
                raise

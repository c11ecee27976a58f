"""The lines to a cluster: one a node, and a map of which node serves which slot.

A command goes to the node of its first key. Where the map is old or a slot is on its way, nodes say so, nothing was
done, and the command is sent again: there, or here in a moment. Batches of one run go out one at a time, so that none
overtakes another on such a detour. What was sent to a node that is lost is decided as on one server: see `line.py`.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from journal.core.errors import WorldBusy, WorldError, WorldUnavailable, WorldUnknown
from journal.worlds.redis.address import Address
from journal.worlds.redis.calls import Call, Cut, as_it_is
from journal.worlds.redis.connection import Part, connect
from journal.worlds.redis.line import AGAIN_SECONDS
from journal.worlds.redis.node import CONNECT_SECONDS, NodeLine, at_node
from journal.worlds.redis.refusals import ReplyError, checked, is_passing, is_replica, world_error
from journal.worlds.redis.slots import SLOTS, Node, read_redirect, read_slots, slot_of
from journal.worlds.redis.wire import PATIENCE_SECONDS, Wire

_HOPS = 4
"""So many redirections at once; nodes that disagree for longer are given time to."""
_REFRESH_SECONDS = 0.1


class ClusterLine(Wire):
    """Belongs to the event loop that opened it."""

    is_split = True

    def __init__(self, address: Address, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        super().__init__(address, patience_seconds=patience_seconds)
        self._owners: list[Node | None] = [None] * SLOTS
        self._lines: dict[Node, NodeLine] = {}
        self._lanes: dict[bytes | None, deque[Call]] = {}
        """Of each run with a batch under way: those that wait for it."""
        self._strays: list[Call] = []
        """What waits for a look at the map."""
        self._reason: WorldError = WorldUnavailable("no node of it answers", world=self._world)
        self._task: asyncio.Task[None] | None = None
        self._pending = 0
        self._idle: asyncio.Future[None] | None = None

    @property
    def primaries(self) -> list[Node]:
        """All nodes that serve slots, as far as is known."""
        return sorted({node for node in self._owners if node is not None})

    # Asking

    def call(
        self,
        parts: tuple[Part, ...],
        *,
        cut: Cut = Cut.AGAIN,
        decode: Callable[[Any], Any] = as_it_is,
        within: float | None = None,
    ) -> "asyncio.Future[Any]":
        """See `Wire.call`."""
        future = super().call(parts, cut=cut, decode=decode, within=within)
        if cut is not Cut.UNKNOWN:
            return future
        # Whoever waits may be cancelled; the batch keeps its place before the next one all the same.
        outer: asyncio.Future[Any] = self._loop.create_future()
        future.add_done_callback(partial(_copy, outer))
        return outer

    def offer(self, call: Call) -> None:
        """See `Wire.offer`."""
        self._pending += 1
        call.future.add_done_callback(self._settled)
        if call.cut is Cut.UNKNOWN:
            lane = self._lanes.get(call.key)
            if lane is not None:
                lane.append(call)
                return
            self._lanes[call.key] = deque()
            call.future.add_done_callback(partial(self._next, call.key))
        self._dispatch(call)

    def _next(self, key: bytes | None, _: "asyncio.Future[Any]") -> None:
        lane = self._lanes[key]
        if lane:
            call = lane.popleft()
            call.future.add_done_callback(partial(self._next, key))
            self._dispatch(call)
        else:
            del self._lanes[key]

    def _dispatch(self, call: Call) -> None:
        if call.key is not None:
            node = self.node_of(call.key)
        else:
            node = next((node for node, line in self._lines.items() if line.is_up), self._owners[0])
        if node is None:
            self._stray(call)
        else:
            self._line(node).offer(call)

    def node_of(self, key: bytes) -> Node | None:
        """See `Wire.node_of`."""
        return self._owners[slot_of(key)]

    def _line(self, node: Node) -> NodeLine:
        line = self._lines.get(node)
        if line is None:
            line = self._lines[node] = NodeLine(
                self._address,
                node,
                patience_seconds=self._patience,
                on_refused=self._refused,
                on_lost=self._lost,
            )
            line.connect()
        return line

    # Detours

    def _refused(self, line: NodeLine, call: Call, error: ReplyError) -> bool:
        text = str(error)
        is_moved, is_asked = text.startswith("MOVED "), text.startswith("ASK ")
        if not (is_moved or is_asked or is_passing(error) or is_replica(error)):
            return False
        if time.monotonic() >= call.deadline:
            call.unanswered(world_error(error, self._world))
            return True
        call.hops += 1
        if is_asked:
            self._line(read_redirect(text, line.node)[1]).offer_asking(call)
        elif is_moved:
            slot, node = read_redirect(text, line.node)
            self._owners[slot] = node
            if call.hops % _HOPS:
                self._line(node).offer(call)
            else:
                self._stray(call)
        elif text.startswith("TRYAGAIN"):
            self._loop.call_later(AGAIN_SECONDS / 2, self._dispatch_again, call)
        else:
            self._stray(call)
        return True

    def _dispatch_again(self, call: Call) -> None:
        if not call.future.done():
            self._dispatch(call)

    def _lost(self, line: NodeLine, calls: list[Call], error: WorldUnavailable) -> None:
        if self._lines.get(line.node) is line:
            del self._lines[line.node]
        self._reason = error
        for call in calls:
            call.hops += 1
            self._stray(call)
        if not calls:
            self._look_around()

    def _stray(self, call: Call) -> None:
        self._strays.append(call)
        self._look_around()

    def _look_around(self) -> None:
        if (self._task is None or self._task.done()) and not (self._is_closed and self._idle is None):
            self._task = self._loop.create_task(self._regroup(), name="journal-redis-regroup")

    async def _regroup(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_SECONDS * random.uniform(0.5, 1.0))  # noqa: S311 - so that clients do not come at once
            refusal: WorldError | None = None
            try:
                await self.refresh()
            except WorldError as error:
                refusal = error
            now, calls, self._strays = time.monotonic(), self._strays, []
            for call in calls:
                if refusal is not None:
                    call.unanswered(refusal)
                elif call.deadline <= now:
                    call.unanswered(self._reason)
                elif not call.future.done():
                    self._dispatch(call)
            if not self._strays:
                return

    async def refresh(self) -> bool:
        """See `Wire.refresh`. Nodes are asked in no order: one that was away is behind."""
        up = [line.node for line in self._lines.values() if line.is_up]
        random.shuffle(up)
        refusal: WorldError | None = None
        for node in dict.fromkeys((*up, *self.primaries, *self._address.nodes)):
            try:
                async with asyncio.timeout(min(CONNECT_SECONDS, self._patience)):
                    reply = await self._ask_for_slots(node)
            except (OSError, TimeoutError) as error:
                self._reason = self._away(error)
            except WorldBusy as error:
                self._reason = error
            except WorldError as error:
                refusal = error
            else:
                self._use_map(read_slots(reply, node))
                return True
        if refusal is not None:
            raise refusal
        return False

    async def _ask_for_slots(self, node: Node) -> Any:
        greeting = await connect(at_node(self._address, node))
        assert greeting.connection is not None, "it has just been made"
        try:
            reply = await greeting.ask("CLUSTER", "SLOTS")
            if isinstance(reply, ReplyError) and "cluster support disabled" in str(reply):
                raise WorldUnknown("this is a server of its own: write redis:// instead", world=self._world)
            return checked(reply, self._world)
        finally:
            greeting.connection.close()

    def _use_map(self, owners: list[Node | None]) -> None:
        self._owners = owners
        serving = set(owners)
        for node, line in list(self._lines.items()):
            if node not in serving and line.is_idle:
                del self._lines[node]
                line.let_go()

    # The end

    async def aclose(self) -> None:
        """See `Wire.aclose`."""
        self._is_closed = True
        self._idle = self._loop.create_future()
        if self._pending:
            try:
                async with asyncio.timeout(self._patience):
                    await self._idle
            except TimeoutError:
                pass
        self._idle = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for call in [*self._strays, *(call for lane in self._lanes.values() for call in lane)]:
            call.fail(self._closed())
        self._strays = []
        for line in list(self._lines.values()):
            line.let_go()
        self._lines.clear()

    def _settled(self, _: "asyncio.Future[Any]") -> None:
        self._pending -= 1
        if not self._pending and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)


def _copy(outer: "asyncio.Future[Any]", inner: "asyncio.Future[Any]") -> None:
    """The answer, to whoever still waits."""
    error = inner.exception()
    if outer.done():
        return
    if error is not None:
        outer.set_exception(error)
    else:
        outer.set_result(inner.result())

"""The line to one node of a cluster: what it cannot answer goes back to the cluster, which knows where else to ask.

It connects once. A node that is lost gets a new line when the slots map still names it.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from msgspec.structs import replace

from journal.core.errors import WorldReadOnly, WorldUnavailable
from journal.worlds.redis.address import Address
from journal.worlds.redis.calls import Call, Cut, as_it_is, ignored
from journal.worlds.redis.connection import pack
from journal.worlds.redis.line import Line
from journal.worlds.redis.refusals import ReplyError
from journal.worlds.redis.slots import Node

CONNECT_SECONDS = 2.0
"""How long a node may take to be connected to, before the map is looked at again."""
_ASKING = pack(("ASKING",))


class NodeLine(Line):
    """`on_refused` is offered every refusal, and says whether it takes care; `on_lost` gets what was not answered."""

    def __init__(
        self,
        address: Address,
        node: Node,
        *,
        patience_seconds: float,
        on_refused: Callable[["NodeLine", Call, ReplyError], bool],
        on_lost: Callable[["NodeLine", list[Call], WorldUnavailable], None],
    ) -> None:
        super().__init__(at_node(address, node), patience_seconds=patience_seconds)
        self.node = node
        self._on_refused = on_refused
        self._on_lost = on_lost

    @property
    def is_up(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for it."""
        return not (self._sent or self._outbox)

    def connect(self) -> None:
        """Connect once, in the background."""
        self._task = self._loop.create_task(self._connect(), name="journal-redis-node")

    def offer_asking(self, call: Call) -> None:
        """Offer what belongs to a slot that is on its way to this node."""
        asking = Call(_ASKING, Cut.HERE, as_it_is, ignored(self._loop.create_future()), call.deadline)
        self._outbox += (asking, call)
        self._flush()

    def let_go(self) -> None:
        """End it at once; whoever still waits is told."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
        if self._watch is not None:
            self._watch.cancel()
        landed = self._replicas.drop() if self._replicas is not None else []
        calls, self._outbox, self._sent = [*landed, *self._sent, *self._outbox], [], deque()
        for call in calls:
            call.fail(self._closed())
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(min(CONNECT_SECONDS, self._patience)):
                greeting = await self._greet()
            self.use(greeting)
        except (OSError, TimeoutError, WorldReadOnly, WorldUnavailable) as error:
            # Read-only: it is a replica by now.
            is_ours = isinstance(error, WorldReadOnly | WorldUnavailable)
            self._reason = str(error) if is_ours else str(self._away(error))
            self._recover()
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait are told
            self._give_up(error)

    def _refused(self, call: Call, error: ReplyError) -> None:
        if call.cut is Cut.HERE or not self._on_refused(self, call, error):
            super()._refused(call, error)

    def _recover(self) -> None:
        calls, self._outbox = self._outbox, []
        error = WorldUnavailable(self._reason, world=self._world)
        self._is_closed = True
        for call in calls:
            if call.cut is Cut.HERE:
                call.fail(error)
        self._on_lost(self, [call for call in calls if call.cut is not Cut.HERE], error)

    def _touched(self, calls: list[Call]) -> bytes:
        key = next(call.key for call in calls if call.cut is Cut.UNKNOWN)
        assert key is not None, "a batch has a run"
        return key.partition(b"}")[0] + b"}w"


def at_node(address: Address, node: Node) -> Address:
    """How to reach that node: all are reached alike."""
    return replace(address, host=node[0], port=node[1])

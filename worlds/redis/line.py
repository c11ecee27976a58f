"""The line to the server: every command of a world but the renewer's, over one pipelined connection.

A command says what a cut means to it: a batch is answered `Unknown`, what may be asked twice is asked again, the rest
fails. Commands that were not sent wait for the next connection, up to a bound; then the same holds.
A cluster has one such line a node (`node.py`).
"""

import asyncio
import random
import time
from collections import deque
from typing import Any

from journal.core.errors import WorldError, WorldUnavailable
from journal.worlds.redis.address import Address
from journal.worlds.redis.calls import Call, Cut, as_it_is, ignored
from journal.worlds.redis.connection import Connection, Greeting, connect, pack
from journal.worlds.redis.keys import meta_key
from journal.worlds.redis.library import TEXT
from journal.worlds.redis.refusals import ReplyError, is_missing_function, is_passing, is_replica, world_error
from journal.worlds.redis.replicas import Replicas
from journal.worlds.redis.slots import Node
from journal.worlds.redis.wire import PATIENCE_SECONDS, Wire

AGAIN_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0
SPLIT_FROM = 8
"""So many commands under way, or more, go out by halves: the server has one while we compute the other."""


class Line(Wire):
    """Belongs to the event loop that opened it."""

    def __init__(self, address: Address, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        super().__init__(address, patience_seconds=patience_seconds)
        self._connection: Connection | None = None
        self._sent: deque[Call] = deque()
        self._outbox: list[Call] = []
        self._replicas = Replicas(address.wait, patience_seconds=patience_seconds) if address.wait else None
        self._is_scheduled = False
        self._is_alone = False
        """Whether the last write was of one command: then the next goes out as it comes, and waits for no company."""
        self._half = SPLIT_FROM
        """So many go out at once, without waiting for the others of this pass of the loop."""
        self._watch: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._idle: asyncio.Future[None] | None = None
        self._reason = "the connection was lost"

    async def open(self) -> Greeting:
        """Connect for the first time: what fails now is raised."""
        try:
            async with asyncio.timeout(self._patience):
                return await self._greet()
        except (OSError, TimeoutError) as error:
            raise self._away(error) from error

    async def _greet(self) -> Greeting:
        greeting = await connect(self._address)
        try:
            while True:
                reply = await greeting.ask("FUNCTION", "LOAD", TEXT)
                if not isinstance(reply, ReplyError) or "already exists" in str(reply):
                    return greeting
                if not is_passing(reply):
                    raise world_error(reply, self._world)
                await asyncio.sleep(AGAIN_SECONDS)
        except BaseException:
            if greeting.connection is not None:
                greeting.connection.abort()
            raise

    def use(self, greeting: Greeting) -> None:
        """Send over that connection from now on. Raises OSError if it is gone already."""
        connection = greeting.connection
        if connection is None or connection.is_lost:
            raise ConnectionResetError("the server closed the connection")
        greeting.then, greeting.lost = self._replied, self._lost
        self._connection = connection
        self._flush()

    # Asking

    def offer(self, call: Call) -> None:
        """See `Wire.offer`. What is asked in one pass of the loop goes out in one write, or in two.

        A batch that goes alone is answered here, if the loop has nothing else to do.
        """
        if self._is_alone and self._connection is not None and not (self._sent or self._outbox):
            connection = self._connection
            self._send(connection, [call])
            if call.cut is Cut.UNKNOWN and not call.hops:  # a detour is taken while a reply is read
                while self._sent and connection.wait_inline():
                    pass
            return
        self._outbox.append(call)
        if len(self._outbox) >= self._half:
            self._send_all()
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        self._send_all()

    def _send_all(self) -> None:
        if self._connection is not None and self._outbox:
            calls, self._outbox = self._outbox, []
            self._is_alone = len(calls) == 1
            under_way = len(calls) + len(self._sent)
            self._half = under_way // 2 if under_way >= SPLIT_FROM else SPLIT_FROM
            self._send(self._connection, calls)

    def _send(self, connection: Connection, calls: list[Call]) -> None:
        if self._replicas is not None and any(call.cut is Cut.UNKNOWN for call in calls):
            calls = [*calls, *self._replicas.behind(calls, self._touched(calls))]
        due = time.monotonic() + self._patience
        for call in calls:
            call.due = due
        self._sent.extend(calls)
        connection.write(calls[0].data if len(calls) == 1 else b"".join([call.data for call in calls]))
        if self._watch is None:
            self._watch = self._loop.call_later(self._patience, self._look_after)

    def _touched(self, calls: list[Call]) -> bytes:
        """A key that this server has."""
        return meta_key(self._address.prefix)

    def node_of(self, key: bytes) -> Node | None:
        """See `Wire.node_of`: all of it is here."""
        return self._address.nodes[0]

    async def refresh(self) -> bool:
        """See `Wire.refresh`."""
        return True

    # Replies

    def _replied(self, reply: Any) -> None:
        call = self._sent.popleft()
        if isinstance(reply, ReplyError):
            self._refused(call, reply)
        elif not call.future.done():
            try:
                answer = call.decode(reply)
                if self._replicas is not None and call.cut is Cut.UNKNOWN:
                    self._replicas.keep(call, answer)
                else:
                    call.future.set_result(answer)
            except Exception as error:  # noqa: BLE001 - the next replies have other callers
                call.fail(error)
        if self._idle is not None:
            self._check_idle()

    def _refused(self, call: Call, error: ReplyError) -> None:
        """Nothing was done. What may pass is offered again, as it is."""
        if call.cut is Cut.HERE:
            call.fail(world_error(error, self._world))
            if self._replicas is not None:
                self._replicas.refused(call)
        elif is_missing_function(error) and time.monotonic() < call.deadline:
            load, future = pack(("FUNCTION", "LOAD", TEXT)), ignored(self._loop.create_future())
            self._outbox.append(Call(load, Cut.HERE, as_it_is, future, call.deadline))
            self._again(call)
        elif is_passing(error) and time.monotonic() < call.deadline:
            self._loop.call_later(AGAIN_SECONDS, self._again, call)
        elif is_passing(error):
            call.unanswered(world_error(error, self._world))
        else:
            call.fail(world_error(error, self._world))
            if is_replica(error) and self._connection is not None:
                # It was the primary once. Whoever is now may be found under the same name.
                self._connection.abort()

    def _again(self, call: Call) -> None:
        if self._is_closed and self._connection is None:
            call.fail(self._closed())
            return
        call.hops += 1
        self._outbox.append(call)
        self._flush()

    def _look_after(self) -> None:
        """A server that hangs says nothing: after the bound, the connection is taken for lost."""
        self._watch = None
        if not self._sent or self._connection is None:
            return
        left = self._sent[0].due - time.monotonic()
        if left <= 0:
            self._reason = f"it has not answered for {self._patience:g} s"
            self._connection.abort()
        else:
            self._watch = self._loop.call_later(left, self._look_after)

    # A lost connection

    def _lost(self, connection: Connection, error: Exception | None) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        if error is not None:
            self._reason = f"the connection was lost: {error}"
        landed = self._replicas.drop() if self._replicas is not None else []
        sent, self._sent = [*landed, *self._sent], deque()
        again: list[Call] = []
        for call in sent:
            if call.cut is Cut.AGAIN and time.monotonic() < call.deadline:
                again.append(call)
            else:
                call.unanswered(WorldUnavailable(self._reason, world=self._world))
        self._outbox[:0] = again
        self._reason = "the connection was lost"
        if self._is_closed:
            self._give_up(self._closed())
        else:
            self._recover()
        self._check_idle()

    def _recover(self) -> None:
        """There is no connection any more."""
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._reconnect(), name="journal-redis-reconnect")

    async def _reconnect(self) -> None:
        pause = AGAIN_SECONDS / 2
        while True:
            try:
                async with asyncio.timeout(self._patience):
                    greeting = await self._greet()
                self.use(greeting)
                return
            except (OSError, TimeoutError) as found:
                self._expire(self._away(found))
            except Exception as found:  # noqa: BLE001 - whatever it is, those who wait are told, and it is tried again
                self._give_up(found)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - only so that clients do not come at once
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _expire(self, error: WorldError) -> None:
        now = time.monotonic()
        for call in self._outbox:
            if call.deadline <= now:
                call.unanswered(error)
        self._outbox = [call for call in self._outbox if call.deadline > now]
        self._check_idle()

    def _give_up(self, error: BaseException) -> None:
        calls, self._outbox = self._outbox, []
        for call in calls:
            call.fail(error)
        self._check_idle()

    # The end

    async def aclose(self) -> None:
        """Finish what was asked, within the bound; then let go."""
        self._is_closed = True
        self._idle = self._loop.create_future()
        self._check_idle()
        try:
            async with asyncio.timeout(self._patience):
                await self._idle
        except TimeoutError:
            pass
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._give_up(self._closed())
        if self._watch is not None:
            self._watch.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            for call in self._sent:
                call.fail(self._closed())

    def _check_idle(self) -> None:
        if self._idle is not None and not (self._sent or self._outbox or self._idle.done()):
            self._idle.set_result(None)

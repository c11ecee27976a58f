"""Group commit: what waits at the same moment goes to the server in one statement, and is durable by one sync.

One group is under way at a time, on one connection; what comes meanwhile forms the next. A group that fails over its
contents is halved until the part at fault stands alone. When the connection is lost nobody knows what landed: its
batches are answered `Unknown`, once there is a connection again (or there was none for too long). Next: `link.py`
(the connection), `waiting.py` (what goes together), `group.py` (batches as a statement), `lone.py` (one alone).
"""

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import pq

from journal.core.clock import Clock
from journal.core.errors import InvalidValue, JournalError, WorldError, WorldUnavailable
from journal.core.ports import Answer, Batch, Claim, Committed, Delta, Unknown
from journal.worlds.postgres.address import Address
from journal.worlds.postgres.deltas import PUBLISH, Publication, publish_answers, publish_parameters
from journal.worlds.postgres.failures import is_content, is_lost, is_passing, world_error
from journal.worlds.postgres.group import Group
from journal.worlds.postgres.link import Link
from journal.worlds.postgres.lone import lone_answer, lone_steps
from journal.worlds.postgres.offer import Offer
from journal.worlds.postgres.places import Places
from journal.worlds.postgres.waiting import Member, Waiting

PASSING_TRIES = 5
SPLIT_FROM = 8
"""So many runs at work, or more, work in two halves."""
HELD_PASSES = 5
"""Passes of the loop for which the second half waits at most: being answered, waking and appending take three."""

Connection = psycopg.AsyncConnection[Any]


class Writer:
    """All appends and publications of one world. Belongs to the event loop."""

    def __init__(
        self,
        connection: Connection,
        address: Address,
        places: Places,
        *,
        clock: Clock | None,
        on_change: Callable[[list[str], bool], None],
    ) -> None:
        self._address = address
        self._places = places
        self._clock = clock
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._waiting = Waiting()
        self._under_way: list[Member] | None = None
        self._group: Group | None = None
        self._lone: Offer | None = None
        """What is under way alone, in place of a group."""
        self._held: list[tuple[Offer, Answer | None]] = []
        self._tries = 0
        self._is_scheduled = False
        self._is_alone = False
        """Whether the last group was of one: then the next is sent as it comes, and does not wait for company."""
        self._idle: asyncio.Future[None] | None = None
        self._is_closed = False
        self._link = Link(connection, address, on_settled=self._settled)

    async def prepare(self) -> None:
        """Prepare the statements on the connection that was handed over. Raises a `WorldError`."""
        await self._link.prepare()

    # What is offered

    def append(self, batch: Batch) -> "asyncio.Future[Answer]":
        """Offer the batch in the next group."""
        future: asyncio.Future[Answer] = self._loop.create_future()
        if self._is_closed:
            future.set_exception(self._closed())
            return future
        try:
            offer = Offer(batch, future, self._places.lock(batch.run))
        except Exception as error:  # noqa: BLE001 - a lone surrogate, say: the batch is at fault, and its author is told
            future.set_exception(_invalid(error))
            return future
        self._submit(offer)
        return future

    def publish(self, claim: Claim, deltas: list[Delta]) -> "asyncio.Future[bool]":
        """Publish the deltas in the next group."""
        future: asyncio.Future[bool] = self._loop.create_future()
        if self._is_closed:
            future.set_exception(self._closed())
            return future
        self._submit(Publication(claim, deltas, future, self._places.lock(claim.run)))
        return future

    def _submit(self, member: Member) -> None:
        if self._under_way is not None or self._is_scheduled or self._link.is_recovering:
            self._waiting.add(member)
        elif self._is_alone and self._link.is_open and not self._waiting:
            self._send([member])
            self._link.wait_inline()
        else:
            self._waiting.add(member)
            self._schedule()

    def _schedule(self) -> None:
        self._is_scheduled = True
        self._loop.call_soon(self._flush)

    # One group

    def _flush(self) -> None:
        self._is_scheduled = False
        if self._under_way is not None or self._link.is_recovering:
            return
        if not self._waiting:
            self._check_idle()
        elif not self._link.is_open:
            self._link.restore()
        else:
            members = self._waiting.take()
            self._is_alone = len(members) == 1 and not (self._waiting or self._held)
            self._send(members)
            self._let_go()

    def _send(self, members: list[Member]) -> None:
        self._under_way = members
        try:
            at = self._clock.time() if self._clock is not None else None
            offers = [member for member in members if isinstance(member, Offer)]
            if len(offers) == 1 and (lone := lone_steps(offers[0], self._places, at)) is not None:
                self._lone, steps = offers[0], lone
            elif offers:
                self._group = Group(offers, self._places, at)
                steps = self._group.steps
            else:
                published = [member for member in members if isinstance(member, Publication)]
                steps = [(PUBLISH, publish_parameters(published, self._places.namespace, at))]
        except Exception as error:  # noqa: BLE001 - what cannot be encoded: somebody's contents
            self._fail(error)
            return
        self._link.execute(steps, self._answered)

    def _answered(self, result: "pq.abc.PGresult | None", error: Exception | None) -> None:
        members = self._under_way
        assert members is not None, "an answer comes to what was sent"
        if error is not None or result is None:
            error = error or psycopg.OperationalError("no result")
            if is_lost(error):
                self._link.abandon(str(error))  # `_settled` goes on from here
            else:
                self._fail(error)
            return
        lone, self._lone = self._lone, None
        group, self._group = self._group, None
        self._under_way, self._tries = None, 0
        if lone is not None:
            self._deliver([(lone, lone_answer(result))])
        elif group is None:
            self._deliver_published(members, publish_answers(result))
        else:
            self._deliver_by_halves(group.answers(result, self._places))
        if self._waiting and not self._is_scheduled:
            self._schedule()
        elif self._idle is not None:
            self._check_idle()

    def _deliver(self, answers: list[tuple[Offer, Answer | None]]) -> None:
        runs: list[str] = []
        again: list[Member] = []
        has_work = False
        for offer, answer in answers:
            if answer is None:
                offer.goes_long = True
                again.append(offer)
                continue
            if type(answer) is Committed:
                runs.append(offer.batch.run)
                has_work |= offer.has_work
            if not offer.future.done():  # else its awaiter was cancelled; the batch stands all the same
                offer.future.set_result(answer)
        if again:
            self._waiting.again(again)
        if runs:
            self._on_change(runs, has_work)

    def _deliver_by_halves(self, answers: list[tuple[Offer, Answer | None]]) -> None:
        """Answer a group so that of all who are at work one half computes while the server has the other.

        Runs that are all answered together come back together: then we and the server wait for each other in turn.
        So those who wait already go first; if they are too few, some of the group join them before the others go on.
        """
        waiting = len(self._waiting)
        leading = (len(answers) - waiting) // 2
        if len(answers) + waiting < SPLIT_FROM or self._is_closed:
            self._deliver(answers)
        elif leading < SPLIT_FROM // 2:
            self._flush()
            self._deliver(answers)
        else:
            self._held = answers[leading:]
            self._deliver(answers[:leading])
            self._loop.call_soon(self._let_go, HELD_PASSES)

    def _let_go(self, passes: int = 0) -> None:
        """Answer the second half: when the first is on its way, or is not heard of for some passes."""
        if not self._held:
            return
        if passes:
            self._loop.call_soon(self._let_go, passes - 1)
            return
        held, self._held = self._held, []
        self._deliver(held)
        if self._waiting and not self._is_scheduled:
            self._schedule()

    def _deliver_published(self, members: list[Member], taken: tuple[bool, ...]) -> None:
        runs: list[str] = []
        for member, is_taken in zip(members, taken, strict=True):
            if isinstance(member, Publication):
                if is_taken:
                    runs.append(member.claim.run)
                if not member.future.done():
                    member.future.set_result(is_taken)
        if runs:
            self._on_change(runs, False)

    # Failures

    def _fail(self, error: Exception) -> None:
        """The server refused the group, and nothing of it landed."""
        members, self._under_way = self._under_way or [], None
        self._group = self._lone = None
        if is_passing(error) and self._tries < PASSING_TRIES:
            self._tries += 1
            self._waiting.first(members)
        elif len(members) > 1 and is_content(error):
            self._waiting.halve(members)
        else:
            refusal: JournalError
            if isinstance(error, JournalError):
                refusal = error
            elif is_content(error):
                refusal = _invalid(error)
            else:
                refusal = world_error(error, self._address.url)
            self._tries = 0
            for member in members:
                if not member.future.done():
                    member.future.set_exception(refusal)
        if not self._is_scheduled:
            self._schedule()

    def _settled(self, reason: str, failure: WorldError | None) -> None:
        """The connection was lost, and with it the answer to what was under way; and it is back, or is not.

        Those who were not sent yet are sent now, or told that nothing of theirs was written.
        """
        members, self._under_way = self._under_way or [], None
        self._group = self._lone = None
        for member in members:
            if member.future.done():
                continue
            if isinstance(member, Offer):
                member.future.set_result(Unknown(reason if failure is None else str(failure)))
            else:
                member.future.set_exception(WorldUnavailable(reason, world=self._address.url))
        if failure is not None:
            for member in self._waiting.clear():
                if not member.future.done():
                    member.future.set_exception(failure)
        self._flush()

    # The end

    async def aclose(self) -> None:
        """Finish what was offered, then close the connection."""
        self._is_closed = True
        self._let_go()
        if self._waiting or self._under_way is not None or self._link.is_recovering:
            self._idle = self._loop.create_future()
            if not self._is_scheduled:
                self._schedule()
            await self._idle
        await self._link.aclose()

    def _check_idle(self) -> None:
        if self._idle is not None and not self._idle.done():
            is_over = not self._waiting and self._under_way is None
            if is_over and not self._link.is_recovering:
                self._idle.set_result(None)

    def _closed(self) -> WorldUnavailable:
        return WorldUnavailable("it was closed here: open it again", world=self._address.url)


def _invalid(error: Exception) -> InvalidValue:
    refusal = InvalidValue(
        what="batch", path="", reason=f"the store cannot take it ({type(error).__name__}: {error})"
    )
    refusal.__cause__ = error
    return refusal

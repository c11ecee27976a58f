"""`Handle`: one turn, seen from outside. Holding it costs nothing; it can be made again from the ids."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from journal.core import values
from journal.core.codec import open_record
from journal.core.errors import (
    ResultTimeout,
    RunGone,
    RunNotFound,
    TurnBlocked,
    TurnCancelled,
    TurnFailed,
    TurnNotFound,
    WorldError,
)
from journal.core.failures import words_of
from journal.core.ports import START, Delta, RunStatus, offset_of
from journal.core.records import BlobRef, Body, Record, TurnFinished, Value
from journal.core.records import TurnBlocked as BlockedRecord
from journal.core.typed import ValueCodec
from journal.engine.directing import directing
from journal.engine.held import advice
from journal.engine.offering import submitted
from journal.engine.retrial import is_of_a_call

if TYPE_CHECKING:
    from journal.engine.journal import Journal
    from journal.engine.runtime import Runtime

O = TypeVar("O")  # noqa: E741 - output
_PAGE = 500


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to a run: a record (`body`) or a piece of output (`data`)."""

    offset: str
    """Where to go on: `events(after=offset)`."""
    type: str
    """The record's type; ``delta`` for a piece of output."""
    seq: int
    time: float
    turn: str | None = None
    call: str | None = None
    body: Body | None = None
    data: Any = None


class Handle(Generic[O]):
    """A turn that was submitted."""

    def __init__(
        self,
        journal: "Journal",
        run_id: str,
        turn_id: str,
        codec: ValueCodec[O],
        *,
        begun: "tuple[Runtime, tuple[Record, ...] | None] | None" = None,
    ) -> None:
        self.run_id = run_id
        self.turn_id = turn_id
        self._journal = journal
        self._codec = codec
        self._begun = begun
        """Where whoever has submitted it goes on to wait for it, and what that has appended, if anything."""

    @directing
    async def status(self) -> RunStatus:
        """Where the turn stands now."""
        runtime = await self._journal.runtime()
        turn = await runtime.world.turn(self.run_id, self.turn_id)
        run = await runtime.world.run(self.run_id)
        if run is None:
            raise RunNotFound(run_id=self.run_id, world=runtime.world.url)
        if turn is None:
            raise TurnNotFound(run_id=self.run_id, turn_id=self.turn_id)
        if turn.status is not None:
            return turn.status
        return run.status if run.turn == self.turn_id else "pending"

    async def result(self, timeout: float | None = None) -> O:
        """Wait until a worker has ended the turn and return its output; it does not work on it here.

        Raises `TurnFailed`, `TurnCancelled`, `TurnBlocked`, and `ResultTimeout` after `timeout` seconds; `RunNotFound`
        or `TurnNotFound` for what is not in the store.
        """
        return await self.settle(timeout, serve=False)

    @directing
    async def settle(self, timeout: float | None, *, serve: bool) -> O:
        """`result`; `serve` says to work on the run here as well."""
        begun, self._begun = self._begun, None
        runtime, written = begun or (await self._journal.runtime(), None)
        try:
            async with asyncio.timeout(timeout) as scope:
                ended = await runtime.until_ended(self.run_id, self.turn_id, serve=serve, written=written)
        except TimeoutError:
            if not scope.expired() or timeout is None:
                raise
            raise ResultTimeout(run_id=self.run_id, turn_id=self.turn_id, seconds=timeout) from None
        except WorldError as error:
            raise submitted(error, self.run_id, self.turn_id) from error
        try:
            return await self._read_result(ended.finished)
        except (TurnFailed, TurnBlocked) as error:
            raise error from ended.raised
        except WorldError as error:
            raise submitted(error, self.run_id, self.turn_id) from error

    async def cancel(self, reason: str | None = None) -> None:
        """Ask for the turn to be cancelled; it may have ended before that is heard."""
        await self._journal.cancel(self.run_id, turn_id=self.turn_id, reason=reason)

    async def events(self, after: str | None = None) -> AsyncIterator[Event]:
        """What happened and happens to the run, from `after` on; ends once this turn has ended.

        Records come exactly once, deltas at most once. Leaving it changes nothing for the run.
        """
        runtime = await self._journal.runtime()
        async for item in runtime.world.follow(self.run_id, offset=after or START):
            if isinstance(item, Delta):
                yield Event(
                    offset=offset_of(item),
                    type="delta",
                    seq=item.seq,
                    time=item.time,
                    call=item.call or None,
                    data=values.decode(item.data),
                )
                continue
            body = open_record(item)
            yield Event(
                offset=offset_of(item),
                type=item.type,
                seq=item.seq,
                time=item.time,
                turn=item.turn,
                call=item.key,
                body=body,
            )
            if item.turn == self.turn_id and isinstance(body, TurnFinished | BlockedRecord):
                return

    async def _find_end(self) -> TurnFinished:
        world = (await self._journal.runtime()).world
        info = await world.turn(self.run_id, self.turn_id)
        if info is None:
            raise TurnNotFound(run_id=self.run_id, turn_id=self.turn_id)
        if info.finished is None:
            await self._raise_blocked(info.submitted)
        assert info.finished is not None
        (record,) = await world.read(self.run_id, after=info.finished - 1, limit=1)
        body = open_record(record)
        assert isinstance(body, TurnFinished)
        return body

    async def _read_result(self, finished: TurnFinished | None) -> O:
        body = finished or await self._find_end()
        match body.status:
            case "cancelled":
                raise TurnCancelled(run_id=self.run_id, turn_id=self.turn_id)
            case "failed":
                error = body.error
                assert error is not None
                raise TurnFailed(
                    run_id=self.run_id,
                    turn_id=self.turn_id,
                    type=error.type,
                    code=error.code,
                    data=await self._load(error.data if error.data is not None else error.args),
                    text=words_of(error),
                )
            case "succeeded":
                data = await self._bytes(body.output)
                return self._codec.decode(data if data is not None else b"null")

    async def _raise_blocked(self, submitted: int) -> None:
        world = (await self._journal.runtime()).world
        after, last = submitted - 1, None
        while page := await world.read(self.run_id, after=after, limit=_PAGE):
            last = next(
                (r for r in reversed(page) if r.type == BlockedRecord.TYPE and r.turn == self.turn_id), last
            )
            after = page[-1].seq
        run = await world.run(self.run_id)
        if run is not None and run.moved_to is not None:
            raise RunGone(run_id=self.run_id, to=run.moved_to)
        reason, detail, can_accept = "closed", "the run was closed before the turn ended", True
        if run is not None and not run.closed:
            reason, detail = "held back", advice(self.run_id)
        if last is not None:
            body = open_record(last)
            assert isinstance(body, BlockedRecord)
            reason, detail, can_accept = body.reason, body.detail, is_of_a_call(body)
        raise TurnBlocked(
            run_id=self.run_id, turn_id=self.turn_id, reason=reason, detail=detail, can_accept=can_accept
        )

    async def _bytes(self, value: Value | None) -> bytes | None:
        if isinstance(value, BlobRef):
            return await (await self._journal.runtime()).world.get_blob(self.run_id, value.blob)
        return value

    async def _load(self, value: Value | None) -> Any:
        data = await self._bytes(value)
        return None if data is None else values.decode(data)

    def __repr__(self) -> str:
        return f"<Handle {self.run_id!r} turn {self.turn_id!r}>"

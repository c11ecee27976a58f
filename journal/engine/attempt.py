"""One attempt at one turn: run the handler over its history, see that the turn ends or is handed on.

It ends in one of these ways: finished (succeeded, failed, cancelled) · blocked · released · lost. The handler runs
in a task of its own; it is cancelled when someone cancelled the turn, when the claim is lost, or when this
process stops, and only the first of these is an end. Long since whether it stops, and which end that is, is read best
in one place.
"""

import asyncio
import contextlib
import traceback
from collections.abc import Awaitable, Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import anyio
import msgspec

from journal.core import values
from journal.core.codec import Blob, pack, seal
from journal.core.errors import (
    CallError,
    ClaimLost,
    ControlFlow,
    CorruptRecord,
    Diverged,
    HandlerAborted,
    LogError,
    LogUnreadable,
    WorldUnavailable,
)
from journal.core.failures import describe, words_of
from journal.core.ports import (
    Block,
    Drain,
    Finish,
    QueueChange,
    Release,
)
from journal.core.records import (
    BlobRef,
    BlockReason,
    Body,
    DocumentEdited,
    ErrorInfo,
    FilesChanged,
    TurnBlocked,
    TurnFinished,
    TurnStarted,
    TurnStatus,
    Value,
)
from journal.engine.attempt_files import AttemptFiles
from journal.engine.cancelling import Cancellation
from journal.engine.claim import Holding
from journal.engine.deltas import Deltas
from journal.engine.documents import AttemptDocs
from journal.engine.inputs import SentInputs
from journal.engine.joining import Named
from journal.engine.order import Order
from journal.engine.parting import where_inputs_part
from journal.engine.scope import Scope, enter_root, outside
from journal.engine.snapshots import Reader
from journal.engine.turn import Turn
from journal.replay.checkpoints import Checkpoints
from journal.replay.history import TurnHistory
from journal.replay.matcher import parting, recorded_call

if TYPE_CHECKING:
    from journal.engine.agent import Agent
    from journal.engine.calls import Call
    from journal.engine.runtime import Runtime
    from journal.replay.matcher import Decision

T = TypeVar("T")
_RECANCEL_SECONDS = 5.0
_READ_AGAIN_SECONDS = 0.5
_RECANCELS = 2
"""How often a handler that swallows cancellations is cancelled again before a shutdown leaves it behind."""


class Ended(NamedTuple):
    """How a turn ended, as far as this process has seen it."""

    raised: BaseException | None = None
    """What its handler raised, here and now."""
    finished: TurnFinished | None = None
    """The record of its end. None: it is blocked, or the log has to be asked."""


Stop = Literal["cancel", "shutdown", "lost", "over"]


class Attempt:
    """The handler's side of a claim."""

    is_offline = False
    """Whether it is a replay in which nothing may happen."""

    def __init__(
        self,
        runtime: "Runtime",
        holding: Holding,
        history: TurnHistory,
        agent: "Agent[Any, Any]",
        reader: Reader | None = None,
    ) -> None:
        assert history.created is not None
        self.runtime = runtime
        self.clock = runtime.clock
        self.loop = asyncio.get_running_loop()
        self.thread = get_ident()
        """Of the event loop."""
        self.outside = outside()
        """The context it was started in."""
        self.holding = holding
        self.history = history
        self.agent = agent
        self.turn_id = history.turn
        self.nonce = history.created.nonce
        self.number = history.attempts + 1
        self.reader = reader
        """Of what the run's records come to, where that was read."""
        self.acting = 0
        """Calls between intent and outcome."""
        self.named: dict[str, Named] = {}
        """Calls under explicit keys that were asked for in this attempt."""
        self.has_noted = False
        """Whether a call's cancellation was noted and may not be durable yet: nothing that rests on it acts before."""
        self.tasks: WeakKeyDictionary[asyncio.Task[Any], None] = WeakKeyDictionary()
        """Tasks besides the handler's own that made calls, in the order in which they began to."""
        self.is_alone = True
        """Whether no task but the handler's own has made a call (or has begun, where the loop is blind: `ready.py`)."""
        self.last_ready = 0
        """Number of the last handle of its that came to stand ready in the event loop (`ready.py`)."""
        self.threads: set[object] = set()
        """Sync calls whose threads are still running, awaited or not."""
        self.stop: Stop | None = None
        self.fatal: ControlFlow | None = None
        """The first control flow that was raised into the handler; no harness can swallow it for good."""
        self.is_over = False
        self.ended: TurnStatus | None = None
        """How the turn ended here; None: it did not."""
        self.deps: Any = None
        self.log = runtime.log.bind(run=holding.run, turn=self.turn_id, attempt=self.number)
        self.root = Scope(self, "", None)
        self.order = Order(self)
        self.cancellation = Cancellation(self)
        self.has_begun = False
        """Whether the handler runs, or did."""
        self.has_ended = False
        """Whether the handler has ended: a task of its that has made no call yet is cancelled over its first."""
        self._handler: asyncio.Task[Any] | None = None
        self._recancels = 0
        self.deltas: Deltas = Deltas(holding, self.log)
        self.inputs = SentInputs(self)
        self.docs: AttemptDocs = AttemptDocs(self)
        self.files: AttemptFiles = AttemptFiles(self)
        self.checkpoints: Checkpoints | None = None if history.folded is None else history.folded.checkpoints
        """Of the run, once the handler has asked for them."""

    # Running -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry the turn on from where its log ends; returns once it ended here, in whichever way."""
        holding = self.holding
        holding.on_lost = lambda: self.halt("lost")
        holding.on_foreign = lambda after, upto: self.runtime.spawn(self._read_foreign, after, upto)
        started = TurnStarted(
            worker=self.runtime.worker_id,
            attempt=self.number,
            version=self.runtime.version,
            taken_over=holding.claimed.taken_over,
            snapshot=None if self.reader is None else self.reader.snapshot,
        )
        blob = None if self.reader is None else self.reader.made
        holding.buffer(seal(holding.run, started, turn=self.turn_id), blob)
        if self.cancellation.is_asked and not self.cancellation.can_carry_on:
            await self._finish("cancelled")
            return
        self.deps = await self.runtime.resources()
        name = f"journal turn {holding.run}"
        self._handler = self.outside.copy().run(self.loop.create_task, self._handle(), name=name)
        stopped: asyncio.CancelledError | None = None
        try:
            await self._until_done(self._handler)
        except asyncio.CancelledError as error:
            stopped = error
        if self._handler.done():
            await self.cancellation.end()
            await self._stop_leftovers()
        holding.on_foreign = None
        self.is_over = True
        if self._handler.done():
            await self._conclude(self._handler)
        else:
            self.log.error("handler swallows its cancellation and is left behind")
            await self.drain()
        if stopped is not None:
            raise stopped

    async def _handle(self) -> Any:
        # Here too: where tasks are begun at once (`asyncio.eager_task_factory`), whoever made this one has it later.
        self._handler = self.root.task = asyncio.current_task()
        enter_root(self.root)
        assert self.history.submitted is not None
        data = await self.recorded(self.history.submitted.input, self.history.submitted_seq)
        assert data is not None
        await self.docs.load()
        given = self.agent.input_codec.decode(data)
        self.has_begun = True
        self.cancellation.begin()
        try:
            return await self.agent.handler(Turn(self), given)
        except (Exception, ControlFlow, asyncio.CancelledError, KeyboardInterrupt, BaseExceptionGroup):
            raise
        except BaseException as error:
            # sys.exit() in a handler ends its turn, not the worker with everybody else's.
            raise CallError(call="the handler itself", type=type(error).__qualname__) from error
        finally:
            self.has_ended = True
            self._cancel_leftovers()  # at once: how far they come after this would be chance

    async def _until_done(self, handler: "asyncio.Task[Any]") -> None:
        """Wait for the handler; if we are cancelled ourselves, this process stops: stop it, and wait a little."""
        try:
            while True:
                await asyncio.wait({handler}, timeout=_RECANCEL_SECONDS)
                if handler.done():
                    return
                if self.stop == "shutdown":
                    self._recancels += 1
                    if self._recancels > _RECANCELS:
                        return  # it will not listen: the process may end, and the run falls to the next holder
                if self.is_leaving or self.fatal is not None:
                    handler.cancel()  # it swallowed the one before
        except asyncio.CancelledError:
            self.halt("shutdown")
            with anyio.CancelScope(shield=True):
                await asyncio.wait({handler}, timeout=_RECANCEL_SECONDS)
            raise

    async def _stop_leftovers(self) -> None:
        """See to it that what the handler left running (a gather that failed, a task nobody awaited) has ended.

        Their calls stay without an outcome: nobody waits for it any more, and a retry runs the safe ones again.
        """
        if not self.has_ended:
            self._cancel_leftovers()
        if left := self._leftovers():
            with anyio.CancelScope(shield=True):
                await asyncio.wait(left, timeout=_RECANCEL_SECONDS)

    def _cancel_leftovers(self) -> None:
        left = self._leftovers()
        if left:
            self.stop = self.stop or "over"
        for task in left:
            task.cancel()

    def _leftovers(self) -> list[asyncio.Task[Any]]:
        return [task for task in self.tasks if not task.done()]

    def halt(self, why: Stop) -> None:
        """Cancel the handler because of `why`; the first reason but for a lost claim stands.

        One that was cancelled before has its clean-up broken off, for whoever holds the run next to carry on.
        """
        if not self.is_leaving or why == "lost":
            self.stop = why
        if why == "shutdown":
            self.holding.is_ending = True
        if self._handler is not None and not self._handler.done():
            self._handler.cancel()

    def cancel(self) -> None:
        """Give the handler the cancellation of its turn, whose place it is (`cancelling.py`)."""
        if not self.is_leaving and self._handler is not None and not self._handler.done():
            self.stop = "cancel"
            self._handler.cancel()

    @property
    def is_leaving(self) -> bool:
        """Whether this attempt stops, and its turn does not end by that."""
        return self.stop not in (None, "cancel")

    async def is_stopping(self) -> bool:
        """Whether a cancellation that just arrived means that this attempt ends without the call's outcome.

        When a loop is torn down every task is cancelled in the same pass, and which hears of it first is
        chance; so give the runtime a few passes to notice before calling it the handler's own doing. Whoever is
        cancelled once more meanwhile (`asyncio.gather` hands on what anyio does in each pass) hears of the first.
        """
        with anyio.CancelScope(shield=True):
            for _ in range(3):
                if self.stop is not None or self.runtime.is_closing:
                    break
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
        if self.runtime.is_closing and self.stop is None:
            self.stop = "shutdown"
        return self.fatal is not None or self.is_leaving

    # Ending ------------------------------------------------------------------------------------------

    async def _conclude(self, handler: "asyncio.Task[Any]") -> None:
        with anyio.CancelScope(shield=True):
            error = asyncio.CancelledError() if handler.cancelled() else handler.exception()
            await self.deltas.flush()
            control = self.fatal or _control_flow(error)
            if self.stop is None and self.runtime.is_closing and isinstance(error, asyncio.CancelledError):
                self.stop = "shutdown"
            if self.holding.lost is not None or isinstance(control, ClaimLost | HandlerAborted):
                await self._give_up(control or self.holding.lost)
            elif isinstance(control, Diverged):
                if self.cancellation.is_pending or self.cancellation.is_out_of_place:
                    self.log.warning("cancelled without its clean-up: the code does not follow the log")
                    await self._finish("cancelled")
                else:
                    await self._diverged(control)
            elif isinstance(control, LogUnreadable):
                await self.block("log_error", str(control.cause))
            elif error is None:
                await self._succeed(handler.result())
            elif self.stop == "shutdown":
                await self.release()
            elif self.stop == "cancel":
                await self._finish("cancelled")
            elif isinstance(error, Exception | asyncio.CancelledError):
                await self._fail(error)
            else:
                await self.release()
                raise error

    async def _succeed(self, result: Any) -> None:
        try:
            data = self.agent.output_codec.encode(result, what=f"the output of agent {self.agent.name!r}")
        except Exception as error:  # noqa: BLE001 - an output that cannot be kept fails the turn
            await self._fail(error)
            return
        value, blob = pack(data)
        await self._finish("succeeded", value, blob)

    async def _fail(self, error: BaseException) -> None:
        self.log.warning("turn failed", error=type(error).__qualname__, at=_place(error))
        info = _info_of(error)
        await self._finish("failed", error=info, cause=_call_of(error), raised=error)

    async def _finish(
        self,
        status: TurnStatus,
        output: Value | None = None,
        blob: Blob | None = None,
        *,
        error: ErrorInfo | None = None,
        cause: str | None = None,
        raised: BaseException | None = None,
    ) -> None:
        must_match = status != "cancelled" or (self.cancellation.is_recorded and self.stop == "cancel")
        if must_match and (key := self.history.unclaimed()) is not None:
            recorded = recorded_call(self.history.calls[key])
            diverged = Diverged(call=key, recorded=recorded, asked=None)
            diverged.__cause__ = raised
            await self._diverged(diverged)
            return
        self.ended = status
        snapshot = None if self.reader is None else self.reader.snapshot
        body = TurnFinished(status=status, output=output, error=error, cause=cause, snapshot=snapshot)
        if await self._append(body, Finish(self.turn_id, status), blob):
            self.runtime.turn_ended(self.holding.run, self.turn_id, Ended(raised, body))

    async def _diverged(self, error: Diverged) -> None:
        words = parting(error, await where_inputs_part(self, error))
        if (raised := error.__cause__) is not None:
            words += f"; before it did, the handler raised {_in_words(raised)}"
        await self.block("divergence", words, error.recorded, error.asked, raised)

    async def block(
        self,
        reason: BlockReason,
        detail: str,
        recorded: Any = None,
        asked: Any = None,
        raised: BaseException | None = None,
    ) -> None:
        """Stop the turn until someone acts; the claim goes back."""
        body = TurnBlocked(
            reason=reason,
            detail=detail,
            recorded=None if recorded is None else values.encode(recorded),
            asked=None if asked is None else values.encode(asked),
            version=self.runtime.version,
            v=2 if reason == "workspace" else 1,
        )
        # The detail of a divergence quotes inputs, which belong into no log line.
        self.log.error("turn blocked", reason=reason, detail=detail if recorded is None else None)
        if await self._append(body, Block()):
            self.runtime.turn_ended(self.holding.run, self.turn_id, Ended(raised))

    async def release(self) -> None:
        """Give the run back unfinished; best effort, since a lease that runs out does the same.

        A sync call cannot be stopped on its thread: while one runs, nobody else may have the run. It is marked
        draining, and falls to the next holder with this process.
        """
        await self._append(None, Drain() if self.threads else Release())

    async def drain(self) -> None:
        """Say that whoever takes this run over does not follow a crash."""
        await self._append(None, Drain())

    async def _append(self, body: Body | None, queue: QueueChange, blob: Blob | None = None) -> bool:
        record = None if body is None else seal(self.holding.run, body, turn=self.turn_id)
        try:
            await self.holding.commit(record, blob, queue=queue)
        except (ClaimLost, HandlerAborted) as error:
            await self._give_up(error)
            return False
        return True

    async def _give_up(self, error: BaseException | None) -> None:
        self.log.warning("turn given up here", reason=str(error))
        self.runtime.turn_lost(self.holding.run, self.turn_id, error)

    # What calls need ---------------------------------------------------------------------------------

    def asked(self, call: "Call", decision: "Decision") -> None:
        """The code asked for `call`, and the turn has a history: `decision` is what becomes of it. For onlookers."""

    async def heard(self, error: ControlFlow, call: "Call") -> None:
        """`call` ends in `error`, which stops the handler: it is raised once this returns."""
        self.end_with(error)

    def end_with(self, error: ControlFlow) -> None:
        """`error` ends the attempt: the handler is cancelled, though it may be another task of it that is told."""
        self.fatal = self.fatal or error
        if self._handler is not None and self._handler is not asyncio.current_task():
            self._handler.cancel()

    async def load(self, value: Value | None) -> bytes | None:
        """The canonical JSON behind a recorded value."""
        if isinstance(value, BlobRef):
            world, run, blob = self.holding.world, self.holding.run, value.blob
            return await self.outlasting(lambda: world.get_blob(run, blob))
        return value

    async def outlasting(self, read: Callable[[], Awaitable[T]]) -> T:
        """What `read` gives; a store that is away is waited for, as long as the claim is trusted.

        It is no failure of the call that wants to know, nor of the handler.
        """
        while True:
            try:
                return await read()
            except WorldUnavailable as error:
                if self.holding.is_ending:
                    raise
                self.holding.check_trust()
                self.log.warning("reading failed", error=type(error).__qualname__)
                await asyncio.sleep(_READ_AGAIN_SECONDS)

    async def recorded(self, value: Value | None, seq: int) -> bytes | None:
        """The canonical JSON behind a value of record `seq`. Raises `LogUnreadable` where there is none.

        What the record stands for has happened, and must not look to the handler like a failure.
        """
        try:
            data = await self.load(value)
            if data is not None:
                values.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError, CorruptRecord) as error:
            reason = (
                error.reason if isinstance(error, CorruptRecord) else f"its value does not decode: {error}"
            )
            run = self.holding.run
            damage = CorruptRecord(run_id=run, seq=seq, reason=reason)
            raise LogUnreadable(run_id=run, cause=damage) from error
        return data

    async def _read_foreign(self, after: int, upto: int) -> None:
        try:
            await self._add_foreign(after, upto)
        except (ControlFlow, WorldUnavailable) as error:
            # It runs beside the turns of all: an error would end the journal, and this turn has ended here anyway.
            self.log.warning("what others appended was not read", error=type(error).__qualname__)
        except LogError as error:
            self.holding.lose(HandlerAborted(run_id=self.holding.run, cause=error))
        else:
            self.holding.caught_up()

    async def _add_foreign(self, after: int, upto: int) -> None:
        world, run = self.holding.world, self.holding.run
        for record in await self.outlasting(lambda: world.read(run, after=after, limit=upto - after)):
            if record.type == DocumentEdited.TYPE:
                await self.docs.add(record)
            elif record.type == FilesChanged.TYPE:
                await self.files.add(record)
            elif record.turn == self.turn_id and record.type in ("cancel.requested", "call.evidence"):
                self.history.add(record)
        if self.history.cancel_requested is not None and not self.cancellation.is_asked:
            self.cancellation.ask()

    async def look_outside(self) -> None:
        """Read what others appended while this attempt was silent."""
        if self.is_over or not self.holding.is_idle:
            return
        info = await self.holding.world.run(self.holding.run)
        if info is not None and self.holding.is_idle:
            self.holding.saw(info.head)


def _call_of(error: BaseException) -> str | None:
    """Key of the call whose failure `error` is, comes from, or holds among others."""
    waiting: list[BaseException | None] = [error]
    seen = set[int]()  # a part of a group may come from the group
    while waiting:
        part = waiting.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        key: str | None = getattr(part, "__journal_call__", None)
        if key is not None:
            return key
        waiting.append(part.__cause__ or part.__context__)
        if isinstance(part, BaseExceptionGroup):
            waiting += reversed(part.exceptions)
    return None


def _info_of(error: BaseException) -> ErrorInfo:
    return describe(error) if isinstance(error, Exception) else ErrorInfo(type=type(error).__qualname__)


def _in_words(error: BaseException) -> str:
    """Class of `error`, and what it said where the log may keep that."""
    info = _info_of(error)
    words = words_of(info)
    return f"{info.type}: {words}" if words else info.type


def _place(error: BaseException) -> str | None:
    """File, line and function where `error` was raised: for the log line, which has no room for values."""
    trace = traceback.extract_tb(error.__traceback__)
    return f"{trace[-1].filename}:{trace[-1].lineno} in {trace[-1].name}" if trace else None


def _control_flow(error: BaseException | None) -> ControlFlow | None:
    """The control flow in `error`, alone or in a group."""
    if isinstance(error, ControlFlow):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((found for part in error.exceptions if (found := _control_flow(part))), None)
    return None

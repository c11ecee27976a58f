"""Replay offline: an agent's handler run against a log, every call served from it, and no effect possible.

Its attempt holds nothing: whatever would append, act or probe raises `LogEnds` before it does, and there is no store
to reach. A call at which the log ends waits, so that other branches may still ask for what is recorded of them; once
nothing more happens the handler is stopped. Code between calls does run. Next: `replay/verdict.py` (what comes of it).
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from journal.core import values
from journal.core.codec import open_record
from journal.core.errors import ControlFlow, CorruptRecord, Diverged, LogUnreadable, TurnNotFound
from journal.core.failures import describe
from journal.core.records import Accepted, ErrorInfo, TurnFinished, TurnRetried
from journal.engine.attempt import Attempt, _call_of, _control_flow, _place
from journal.engine.parting import recorded_input, where_inputs_part
from journal.engine.readonly import LogEnds, NoDeltas, NoDeps, ReadOnlyHolding, Refused, offline
from journal.replay.fields import Difference, differences
from journal.replay.history import TurnHistory
from journal.replay.matcher import Decision, Probe, Run, Serve, Settle, parting
from journal.replay.recorded import RecordedRun
from journal.replay.verdict import Ended, Next, NextCall, Replay, ReplayedCall, compared, ended

if TYPE_CHECKING:
    from journal.engine.agent import Agent
    from journal.engine.calls import Call

STALL_SECONDS = 10.0
"""How long the code may do nothing that the log knows of before the replay is given up."""
_QUIET_SECONDS = 0.05
"""How long nothing happens once the log has ended, until the handler is stopped."""
_UNASKED_SECONDS = 1.0
"""How long it may take the code to ask for what is recorded beside the call at which the log ends."""
_TICKS = 4
_CANCELS, _CANCEL_SECONDS = 5, 1.0

Watch = Callable[[ReplayedCall], bool]
"""Told of each recorded call as the code asks for it, before it is served; runs in the asking task, on top of its
frames. What it returns says whether to go on."""
Parted = Callable[[str, BaseException | None], None]
"""Told in words where the code parts from the log, as long as its frames are there: on top of the asking task's, while
the handler waits, or, with the error that the turn was not recorded to end with, on that error's traceback."""


async def replay(
    agent: "Agent[Any, Any]",
    log: RecordedRun,
    *,
    turn: str | None = None,
    watch: Watch | None = None,
    parted: Parted | None = None,
    deps: Any = None,
    stall_seconds: float = STALL_SECONDS,
) -> Replay:
    """Run `agent`'s handler against `turn` of `log` (the last one, if none is named), and say what came of it.

    `deps` is what the handler finds as `turn.deps`; without it an object of which every attribute exists and none
    can be called. `parted` is for debuggers. Raises `TurnNotFound`, and a `LogError` for a record that cannot be read.
    """
    from journal.engine.runtime import Runtime

    state = log.state()
    turn = turn or (state.turns[-1].id if state.turns else "")
    if all(known.id != turn for known in state.turns):
        raise TurnNotFound(run_id=state.run, turn_id=turn)
    numbers = {
        call.key: call.number for call in state.calls if call.turn == turn and call.superseded_by is None
    }
    for accepted in _accepted(log, turn):
        numbers.setdefault(accepted.key or "", numbers.get(accepted.recorded, 0))
    runtime = Runtime(agent.journal, agent.journal.clock)  # never opened
    attempt = OfflineAttempt(runtime, log, log.history(turn), agent, numbers)
    attempt.watch, attempt.parted, attempt.stall_seconds = watch, parted, stall_seconds
    attempt.deps = NoDeps() if deps is None else deps
    return await attempt.replay()


def _accepted(log: RecordedRun, turn: str) -> Iterator[Accepted]:
    """Which recorded calls stand for what is asked for under another key."""
    for record in log.records:
        if record.type == TurnRetried.TYPE and record.turn == turn:
            body = open_record(record)
            if isinstance(body, TurnRetried) and body.accepted is not None:
                yield body.accepted


class OfflineAttempt(Attempt):
    """An attempt that nobody claimed, over a log that stays as it is."""

    is_offline = True

    def __init__(
        self,
        runtime: Any,
        log: RecordedRun,
        history: TurnHistory,
        agent: "Agent[Any, Any]",
        numbers: dict[str, int],
    ) -> None:
        super().__init__(runtime, ReadOnlyHolding(log.records[0].run, log, runtime.clock), history, agent)
        self.deltas = NoDeltas(self.holding, self.log)
        self.watch: Watch | None = None
        self.parted: Parted | None = None
        self.stall_seconds = STALL_SECONDS
        self.calls: list[ReplayedCall] = []
        self.at: list[NextCall] = []
        self._numbers = numbers
        self._decisions: dict[str, Decision] = {}
        self._parted: tuple[Diverged, Call | None] | None = None
        self._is_stopped = False
        self._loop = asyncio.get_running_loop()
        self._quiet: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None

    # What the engine tells ---------------------------------------------------------------------------

    def asked(self, call: "Call", decision: Decision) -> None:
        """Note it; ask whoever watches whether to go on."""
        self._decisions[call.key] = decision
        known = self.history.calls.get(call.key)
        if known is None or known.intent is None:
            return
        outcome = decision.outcome if isinstance(decision, Serve) else None
        before = known.intent.config_digest
        replayed = ReplayedCall(
            number=self._numbers.get(call.key, 0),
            key=call.key,
            kind=call.kind,
            name=call.name,
            status=None if outcome is None else outcome.status,
            seq=0 if outcome is None else known.outcome_seq,
            has_drifted=None not in (before, call.config_digest) and before != call.config_digest,
        )
        if self.watch is not None and not self.watch(replayed):
            self._is_stopped = True
            raise self.halt_with(LogEnds(f"asked to stop at call {replayed.number}"))
        if isinstance(decision, Serve):
            self.calls.append(replayed)
        self._stir()

    async def heard(self, error: ControlFlow, call: "Call") -> None:
        """Where the log ends, wait: other branches may have more in it."""
        if not isinstance(error, LogEnds) or self.fatal is not None:
            is_first = self.fatal is None
            self.halt_with(error)
            if isinstance(error, Diverged):
                self._parted = self._parted or (error, call)
                if is_first and self.parted is not None:
                    self.parted(parting(error, await where_inputs_part(self, error)), None)
            return
        then = self._next(call)
        number = self._numbers.get(call.key)
        self.at.append(NextCall(number=number, key=call.key, kind=call.kind, name=call.name, then=then))
        self._stir()
        await self._loop.create_future()

    def end_with(self, error: ControlFlow) -> None:
        """See `Attempt`; `replay` stops the handler."""
        is_first = self.fatal is None
        self.halt_with(error)
        if is_first and isinstance(error, Diverged) and self.parted is not None:
            self.parted(parting(error), None)

    def halt_with(self, error: ControlFlow) -> ControlFlow:
        """Stop the handler because of `error`, which no harness can swallow for good; what to raise."""
        self.fatal = self.fatal or error
        self._stop()
        return self.fatal

    def _next(self, call: "Call") -> Next:
        known = self.history.calls.get(call.key)
        if known is None or known.intent is None:
            return "new"
        match self._decisions.get(call.key):
            case Run():
                return "again"
            case Probe():
                return "probe"
            case Settle(outcome) if outcome.evidence is not None:
                return "evidence"
            case _:
                return "unknown"

    # Running -----------------------------------------------------------------------------------------

    async def replay(self) -> Replay:
        """Run the handler as far as the log goes."""
        token = offline.set(self)
        handler = self._handler = self._loop.create_task(
            self._handle(), name=f"journal replay {self.holding.run}"
        )
        offline.reset(token)
        self._stir()
        try:
            await asyncio.wait({handler, self._quiet}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            was_done, missing = handler.done(), self.order.missing
            is_cancelling = self._is_cancelled_turn and self.fatal is None
            if not was_done and not is_cancelling:
                self._tell_where_it_waits(missing)
            await self._end(handler)
        replay = Replay(run=self.holding.run, turn=self.turn_id, agent=self.agent.name, verdict="stopped")
        replay.calls, replay.at = self.calls, self.at
        try:
            await self._recall_end(replay)
            await self._judge(replay, handler, missing, was_done or is_cancelling)
        except LogUnreadable as error:
            replay.verdict, replay.detail = "unreadable", str(error.cause)
        return replay

    def _tell_where_it_waits(self, missing: str | None) -> None:
        if self.parted is None or self.fatal is not None or self._is_stopped:
            return
        found = Replay(run=self.holding.run, turn=self.turn_id, agent=self.agent.name, verdict="stopped")
        self._cut_short(found, missing, has_ended=False)
        if found.has_parted:
            self.parted(found.detail, None)

    async def _recall_end(self, replay: Replay) -> None:
        if (finished := self.history.finished) is not None:
            output = await self.recorded(finished.output, self.history.finished_seq)
            replay.recorded = ended(finished, output)

    @property
    def _is_cancelled_turn(self) -> bool:
        finished = self.history.finished
        return finished is not None and finished.status == "cancelled"

    def _stir(self) -> None:
        """Something happened: the handler has a while from now on."""
        if self._timer is not None:
            self._timer.cancel()
        self._wait(self._patience() / _TICKS, _TICKS)

    def _wait(self, seconds: float, ticks: int) -> None:
        """Stop the handler after so many ticks: code that blocks the loop for long (an import) uses up but one."""
        if ticks:
            self._timer = self._loop.call_later(seconds, self._wait, seconds, ticks - 1)
        else:
            self._stop()

    def _stop(self) -> None:
        if not self._quiet.done():
            self._quiet.set_result(None)

    def _patience(self) -> float:
        is_all_asked = self.history.unclaimed() is None
        if self._is_cancelled_turn:
            return _QUIET_SECONDS if is_all_asked else self.stall_seconds
        if any(call.then == "new" for call in self.at):
            return _QUIET_SECONDS
        if self.at and self.history.finished is None:
            return _QUIET_SECONDS if is_all_asked else min(_UNASKED_SECONDS, self.stall_seconds)
        return self.stall_seconds

    async def _end(self, handler: "asyncio.Task[Any]") -> None:
        """Stop the handler, if it still runs, and what it left running."""
        if not handler.done():
            self.stop = "cancel" if self._is_cancelled_turn else "over"
            if not self._is_cancelled_turn:
                self.fatal = self.fatal or LogEnds("the replay is over")
            for _ in range(_CANCELS):
                handler.cancel()
                await asyncio.wait({handler}, timeout=_CANCEL_SECONDS)
                if handler.done():
                    break
        if handler.done() and not handler.cancelled():
            handler.exception()  # looked at, whatever is made of it
        await self._stop_leftovers()
        self.is_over = True

    # Judging -----------------------------------------------------------------------------------------

    async def _judge(
        self, replay: Replay, handler: "asyncio.Task[Any]", missing: str | None, has_ended: bool
    ) -> None:
        error: BaseException | None = None
        if handler.done():
            error = asyncio.CancelledError() if handler.cancelled() else handler.exception()
        control = self.fatal or _control_flow(error)
        if self._is_stopped:
            replay.detail = "stopped where it was asked to"
        elif isinstance(control, Diverged):
            await self._parting(replay, *(self._parted or (control, None)))
        elif isinstance(control, LogUnreadable):
            replay.verdict, replay.detail = "unreadable", str(control.cause)
        elif isinstance(control, Refused):
            replay.verdict, replay.detail = "refused", str(control)
        elif has_ended and handler.done() and not isinstance(control, ControlFlow):
            await self._finished(replay, handler, error)
        else:
            self._cut_short(replay, missing, has_ended)

    async def _finished(
        self, replay: Replay, handler: "asyncio.Task[Any]", error: BaseException | None
    ) -> None:
        replay.replayed = ended_now = self._ended(handler, error)
        if (missing := _missing(error)) is not None and not _has_failed_so(replay.recorded):
            replay.verdict, replay.detail = "missing", missing
            return
        if isinstance(error, Exception):
            replay.raised = f"{type(error).__qualname__} at {_place(error)}"
        if ended_now.status != "cancelled" and (key := self.history.unclaimed()) is not None:
            await self._parting(replay, Diverged(call=key, recorded={"key": key}, asked=None), None)
        elif replay.recorded is not None:
            replay.differences = compared(replay.recorded, ended_now)
            replay.verdict = "differs" if replay.differences else "same"
            if replay.differences:
                replay.detail = "it ends otherwise than recorded"
                if isinstance(error, Exception) and self.parted is not None:
                    self.parted(f"{replay.detail}: {type(error).__qualname__} at {_place(error)}", error)
        else:
            replay.verdict = "log_ends" if self.at else "would_finish"

    def _ended(self, handler: "asyncio.Task[Any]", error: BaseException | None) -> Ended:
        if error is None:
            try:
                what = f"the output of agent {self.agent.name!r}"
                output = self.agent.output_codec.encode(handler.result(), what=what)
                return ended(TurnFinished(status="succeeded"), output)
            except Exception as lost:  # noqa: BLE001 - an output that cannot be kept fails the turn
                error = lost
        elif self.stop == "cancel":
            return Ended(status="cancelled")
        info = describe(error) if isinstance(error, Exception) else ErrorInfo(type=type(error).__qualname__)
        return Ended(status="failed", error=info, cause=_call_of(error))

    def _cut_short(self, replay: Replay, missing: str | None, has_ended: bool) -> None:
        places = "; ".join(map(str, self.at))
        key = missing or self.history.unclaimed()
        if self.at and self.history.finished is not None:
            replay.verdict = "differs"
            replay.detail = f"the turn is finished in the log, and the code asks for more: {places}"
        elif key is None and (self.at or has_ended):
            replay.verdict = "log_ends"
        elif self.at or missing is not None:
            # It was recorded when that lay ahead as well, so nothing can be in its way.
            replay.verdict = "diverged"
            where = (
                f" before the log ends: {places}" if self.at else ", and what it waits for lies behind that"
            )
            replay.detail = f"call {key!r} is in the log and the code does not ask for it{where}"
        else:
            replay.verdict = "stalled"
            recorded = "" if key is None else f", and the log holds {key!r} next"
            replay.detail = f"the code did nothing that is recorded for {self.stall_seconds:g} s{recorded}"

    async def _parting(self, replay: Replay, error: Diverged, call: "Call | None") -> None:
        replay.verdict = "diverged"
        replay.detail = parting(error, await where_inputs_part(self, error))
        if call is None or error.recorded is None or error.recorded.get("key") != call.key:
            return
        known = self.history.calls[call.key]
        if known.intent is None:
            return
        before: dict[str, Any] = {"kind": known.intent.kind, "name": known.intent.name}
        now: dict[str, Any] = {"kind": call.kind, "name": call.name}
        with suppress(LogUnreadable, CorruptRecord):
            data = await recorded_input(self, call.key)
            if data is not None and call.input is not None:
                before["input"], now["input"] = values.decode(data), values.decode(call.input)
        replay.differences = differences(before, now)
        if not replay.differences and known.intent.input_digest != call.input_digest:
            digests = known.intent.input_digest.hex(), call.input_digest.hex()
            replay.differences = [Difference("input_digest", *digests)]


def _missing(error: BaseException | None) -> str | None:
    """What is to be installed before the code can run, if that is what it fell over."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    return (
        f"the code needs the module {error.name!r} ({_place(error)}), which is not installed here: "
        "install what the application needs, and replay again"
    )


def _has_failed_so(recorded: Ended | None) -> bool:
    """Whether it was so when it was recorded as well."""
    return (
        recorded is not None and recorded.error is not None and recorded.error.type == "ModuleNotFoundError"
    )

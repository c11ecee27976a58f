"""One call: match it against the log, record its intent, act, record its outcome.

`perform` is the protocol of SEMANTICS 2 in code. It promises: what is recorded is never run again; a `never` call is
started only behind a durable intent, under a claim that holds; what it returns is durable. Everything that can
go wrong after the act began ends as an outcome (ok, error, unknown, value_lost), as evidence, or as a call left
in doubt for the next holder; never as silence.
Long since one call is read best in one place, from its intent to its outcome.
"""

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
import msgspec
from msgspec.structs import replace

from journal.core import values
from journal.core.codec import Blob, pack, seal
from journal.core.errors import (
    ClaimLost,
    ControlFlow,
    Diverged,
    InvalidOptions,
    NotAwaited,
)
from journal.core.failures import describe
from journal.core.ports import Progress
from journal.core.records import (
    CallIntent,
    CallOutcome,
    Difference,
    ErrorInfo,
    NewRecord,
    Observed,
    OutcomeStatus,
)
from journal.engine.cancelling import note_cancelled
from journal.engine.claim import landing_of
from journal.engine.context import CallContext, in_call
from journal.engine.directories import finished
from journal.engine.editing import EditingOutcome
from journal.engine.evidence import leave_evidence
from journal.engine.joining import join
from journal.engine.retry import retrying
from journal.engine.task_digest import task_digest
from journal.replay.history import CallHistory, cancelled_key, drift_key, is_cancelled
from journal.replay.interventions import began
from journal.replay.matcher import Asked, Diverge, Probe, Run, Serve, Settle, decide, recorded_call
from journal.tools.facts import with_facts
from journal.tools.interruption import is_interruption
from journal.tools.io import current_call
from journal.tools.probe import NotRun, ProbeFunction, Ran
from journal.tools.retry import Retry

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt

_REPR_LIMIT = 2000


class Call(Asked, frozen=True, gc=False, kw_only=True):
    """A call as it is asked for. Adapters make these; `Turn` makes them for hand-written code."""

    act: Callable[[], Awaitable[Any]]
    """Does it; run again for each retry."""
    input: bytes | None
    """Canonical JSON; None: too large or too private to keep, the digest stands for it."""
    encode: Callable[[Any], bytes] = values.encode
    """The result to canonical JSON; raises `InvalidValue` or `ValueTooLarge`."""
    config_digest: bytes | None = None
    is_lazy: bool = False
    """The intent may ride with its outcome; only for safe tools and steps, never for a model call."""
    retry: Retry | None = None
    timeout: float | None = None
    probe: ProbeFunction | None = None
    dedupes: bool = False
    """The service honours our idempotency key, so a probe's plain "it did not run" may be trusted."""
    begins_task: bool = False
    """Whether it is the first that a task does."""


class Settled(msgspec.Struct, frozen=True, gc=False):
    """How a call ended, as recorded."""

    call: Call
    outcome: CallOutcome
    data: bytes | None
    """The value's canonical JSON, where there is one."""
    is_replayed: bool
    """Whether it came from the log rather than from acting now."""
    cause: BaseException | None = None
    """What the act raised, on the first run only: for tracebacks, not for decisions."""


async def settle(attempt: "Attempt", call: Call) -> Settled:
    """`perform` for code that a handler or a harness runs: control flow is noted, so that swallowing it undoes nothing.

    Recorded outcomes come in the order of the log (`order.py`), and what is live after them. A recorded
    cancellation does not come back as a result: whatever cancelled the call the first time is to do so again.
    """
    if attempt.fatal is not None:
        raise attempt.fatal
    if current_call.get() is not None:
        _refuse_nested(attempt, call)
    try:
        if not call.is_counted:
            return await join(attempt, call, perform)
        if attempt.history.calls:
            return await perform(attempt, call)
        return await _carry_out(attempt, call, 1)
    except ControlFlow as error:
        await attempt.heard(error, call)
        raise


async def perform(attempt: "Attempt", call: Call) -> Settled:
    """Carry `call` through; raises `ControlFlow` where the turn cannot go on, else returns how it ended."""
    history = attempt.history
    if not history.calls:
        return await _carry_out(attempt, call, 1)
    decision = decide(call, history)
    history.claim(call.key)
    attempt.order.claimed()
    attempt.asked(call, decision)
    match decision:
        case Serve(outcome):
            known = history.calls[call.key]
            _check_drift(attempt, call, known)
            if is_cancelled(known):
                await attempt.order.cancelled(call.key, known.outcome_time)
            if outcome.error is None and type(outcome.value) is bytes and _is_json(outcome.value):
                settled = Settled(call, outcome, outcome.value, True)  # as `_served` says, at once
            else:
                settled = await _served(attempt, call, outcome, known.outcome_seq)
            if not attempt.order.release(call.key):
                try:
                    await attempt.order.released(call.key)
                except asyncio.CancelledError:
                    if attempt.stop is None and _may_rest_on_it(attempt):
                        attempt.order.put_off_cancellation()
                        return settled
                    if history.unclaimed() is None:
                        await note_cancelled(attempt, cancelled_key(call.key))
                    raise
            return settled
        case Settle(outcome):
            settled = await _served(attempt, call, outcome, history.calls[call.key].evidence_seq)
            if not outcome.edits and not outcome.files:
                await _hand_out(attempt, call, outcome)
                return settled
            await attempt.docs.fetch(outcome.edits, history.calls[call.key].evidence_seq)
            await attempt.files.fetch(outcome.files)
            editing = EditingOutcome(attempt, call.key, outcome, None)
            await _hand_out(attempt, call, outcome, editing=editing)
            return replace(settled, outcome=editing.outcome)
        case Diverge(recorded, wanted):
            if call.key not in history.calls and attempt.order.is_to_be_cancelled:
                # It was asked for then as well, and cancelled before it could act.
                await _until_it_may_act(attempt, call, 1)
                return await perform(attempt, call)
            raise Diverged(call=call.key, recorded=recorded, asked=wanted, given=call.input)
        case Probe(number, _):
            await _until_it_may_act(attempt, call, number)
            if (probed := await _probe(attempt, call)) is not None:
                return probed
        case Run(number, _):
            await _until_it_may_act(attempt, call, number)
    return await _carry_out(attempt, call, number)


def _may_rest_on_it(attempt: "Attempt") -> bool:
    """Whether the code has something recorded still to do, so that it may rest on what is handed out now."""
    history = attempt.history
    return history.unclaimed() is not None or history.first_unasked() is not None or attempt.order.is_to_come


async def _until_it_may_act(attempt: "Attempt", call: Call, number: int) -> None:
    """Wait for what comes before try `number` of `call` (`order.py`). One that is cancelled by then ends so."""
    if attempt.is_offline:
        return
    try:
        await attempt.order.passed(call, math.inf if number == 1 else began(attempt.history.calls[call.key]))
    except asyncio.CancelledError as error:
        if not await attempt.is_stopping():
            # A task may be known by it.
            if number == 1:
                attempt.holding.buffer(*_intent(attempt, call, 1))
            is_open = number > 1 and call.policy == "never"
            outcome = CallOutcome(status="unknown" if is_open else "cancelled", cancelled=True)
            await _interrupt(attempt, call, outcome, error)
        raise


def _refuse_nested(attempt: "Attempt", call: Call) -> None:
    if (outer := in_call()) is not None and outer.attempt is attempt:
        raise InvalidOptions(
            f"calls do not nest: {call.name!r} was asked for inside call {outer.key!r}; "
            "make both from the handler, or call the function itself"
        )


def _check_drift(attempt: "Attempt", call: Call, known: CallHistory) -> None:
    """Note that a recorded call was configured otherwise than the code would have it now, or diverge over it."""
    then = None if known.intent is None else known.intent.config_digest
    if then is None or call.config_digest is None or then == call.config_digest:
        return
    if attempt.agent.drift == "refuse":
        asked = {"key": call.key, "name": call.name, "config_digest": call.config_digest.hex()}
        raise Diverged(
            call=call.key, recorded={**recorded_call(known), "config_digest": then.hex()}, asked=asked
        )
    key, now = drift_key(call.key), values.encode(call.config_digest.hex())
    noted = attempt.history.observed.get(key)
    if noted is None or noted.value != now:
        attempt.log.warning("drift", call=call.key, name=call.name)
        attempt.holding.buffer(seal(attempt.holding.run, Observed(value=now), turn=attempt.turn_id, key=key))


def _is_json(data: bytes) -> bool:
    try:
        values.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


async def _served(attempt: "Attempt", call: Call, outcome: CallOutcome, seq: int) -> Settled:
    """What record `seq` says of the call."""
    if outcome.error is not None:
        await attempt.recorded(outcome.error.data, seq)
    return Settled(call, outcome, await attempt.recorded(outcome.value, seq), True)


def _carry_out(attempt: "Attempt", call: Call, number: int) -> Coroutine[Any, Any, Settled]:
    """Intent, act, outcome. Await it at once."""
    if not call.is_lazy or attempt.has_noted or attempt.cancellation.is_next:
        return _act_behind(attempt, call, number)
    holding = attempt.holding
    record, blob = _intent(attempt, call, number)
    holding.buffer(record, blob)
    holding.check_trust()
    return _act(attempt, call, number)


async def _act_behind(attempt: "Attempt", call: Call, number: int) -> Settled:
    """`_carry_out` where the act waits: for its intent to be durable, or for what is to come before it."""
    if attempt.cancellation.is_next:
        await _until_it_may_act(attempt, call, number)
    shortened = None
    if call.kind == "model" and call.input is not None:
        shortened = await attempt.inputs.shortened(call.key, call.input)
    record, blob = _intent(attempt, call, number, shortened)
    if attempt.has_noted and attempt.holding.is_idle:
        attempt.has_noted = False  # it is durable by now
    if call.is_lazy and not attempt.has_noted:
        attempt.holding.buffer(record, blob)
    else:
        try:
            await attempt.holding.commit(record, blob)
        except asyncio.CancelledError as error:
            if not await attempt.is_stopping():
                # The handler's own doing, before the act began: the log must say so, or a replay would act.
                cancelled = CallOutcome(status="cancelled", cancelled=True)
                await _interrupt(attempt, call, cancelled, error)
            raise
        if call.kind == "model" and call.input is not None:
            attempt.inputs.landed(call.key, call.input, None if shortened is None else shortened[1])
    attempt.holding.check_trust()
    return await _act(attempt, call, number)


async def _act(attempt: "Attempt", call: Call, number: int) -> Settled:
    """Act, outcome."""
    outer = sys.exception()
    data: bytes | None = None
    blob: Blob | None = None
    cause: BaseException | None = None
    interruption: asyncio.CancelledError | None = None
    editing: EditingOutcome | None = None
    act = call.act
    context = CallContext(attempt, call.key, number, call.timeout)
    heard = _heard_cancellations(attempt)
    attempt.acting += 1
    token = context.enter()
    try:
        try:
            if call.retry is None and call.timeout is None:
                result, tries = await act(), 1
            else:
                is_never = call.policy == "never"
                result, tries = await retrying(act, call.retry, call.timeout, call.key, is_never=is_never)
            if context.has_more and context.forgotten is not None:
                outcome = _unfinished(call, context.forgotten, result, tries)
            else:
                outcome, data, blob = _succeeded(call, result, tries)
        except asyncio.CancelledError as error:
            cause = error
            if _heard_cancellations(attempt) <= heard:
                outcome = _failed(call, error, outer)  # the act raised it by itself; nobody cancels this task
            elif await attempt.is_stopping():
                raise  # left in doubt: whoever holds the run next decides by the table
            else:
                interruption = error
                status: OutcomeStatus = "unknown" if call.policy == "never" else "cancelled"
                outcome = CallOutcome(status=status, cancelled=True)
        except (ControlFlow, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a call raises is its outcome, sys.exit() too
            cause = error
            outcome = _failed(call, error, outer)
        finally:
            current_call.reset(token)
            attempt.acting -= 1
            if context.has_more:
                context.end()
        if context.has_more or cause is not None:
            outcome = with_facts(outcome, call.kind, context.facts, cause)
            if context.has_emitted:
                try:
                    with anyio.CancelScope(shield=True):
                        await attempt.deltas.flush()
                except asyncio.CancelledError as error:
                    interruption = error  # delivered below: the outcome comes first
            if context.has_edited and outcome.status in ("ok", "value_lost"):
                editing, cancelled = await _edited(attempt, call, context, outcome, blob)
                interruption = cancelled or interruption
        if interruption is not None:
            await _interrupt(attempt, call, outcome, interruption, blob, editing)
        await _hand_out(attempt, call, outcome, blob, data, editing)
        if editing is not None:
            outcome = editing.outcome
    finally:
        if context.has_more:
            context.let_go()
    return Settled(call, outcome, data, False, cause)


async def _edited(
    attempt: "Attempt", call: Call, context: CallContext, outcome: CallOutcome, blob: Blob | None
) -> tuple[EditingOutcome, asyncio.CancelledError | None]:
    """The outcome with what the call edited, its files kept; and the cancellation that came meanwhile."""
    docs, files = context.edited_docs, context.changed_files
    snapshot = cancelled = None
    if files is not None and attempt.files.directory is not None:
        snapshot, cancelled = await finished(files.snapshot())
    return EditingOutcome(attempt, call.key, outcome, blob, docs, files, snapshot), cancelled


def _intent(
    attempt: "Attempt", call: Call, number: int, shortened: tuple[Difference, bytes] | None = None
) -> tuple[NewRecord, Blob | None]:
    data = call.input if shortened is None else shortened[1]
    value, blob = (None, None) if data is None else pack(data)
    nonces = attempt.history.nonces
    intent = CallIntent(
        kind=call.kind,
        name=call.name,
        input=value,
        input_digest=call.input_digest,
        config_digest=call.config_digest,
        policy=call.policy,
        attempt=attempt.number,
        number=number,
        nonce=nonces.get(call.key, b"") if nonces else b"",
    )
    if shortened is not None:
        intent = replace(intent, difference=shortened[0], v=2)
    if call.begins_task:
        intent = replace(intent, task_digest=task_digest(asyncio.current_task(attempt.loop)))
    return seal(attempt.holding.run, intent, attempt.turn_id, call.key), blob


def _heard_cancellations(attempt: "Attempt") -> int:
    """How often this task was cancelled and has heard of it; one that it swallowed does not end what it does next."""
    task = asyncio.current_task(attempt.loop)
    if task is None:
        return 0
    return task.cancelling() - getattr(task, "_must_cancel", False)  # nothing public shows what is to come


def _succeeded(call: Call, result: Any, tries: int) -> tuple[CallOutcome, bytes | None, Blob | None]:
    encode = call.encode
    try:
        data = encode(result)
    except Exception as error:  # noqa: BLE001 - it happened; a result that cannot be kept is still an outcome
        info = ErrorInfo(type=type(error).__qualname__, data=values.encode(str(error)[:_REPR_LIMIT]))
        lost = _repr(result)
        return CallOutcome(status="value_lost", error=info, lost=lost, tries=tries), None, None
    value, blob = pack(data)
    return CallOutcome(status="ok", value=value, tries=tries), data, blob


def _unfinished(call: Call, forgotten: str, result: Any, tries: int) -> CallOutcome:
    """It returned without what it forgot to await. Raises `NotAwaited`, unless it may not look as if it had failed."""
    error = NotAwaited(what=forgotten)
    if call.policy != "never":
        raise error
    info = ErrorInfo(type=type(error).__qualname__, data=values.encode(str(error)))
    return CallOutcome(status="value_lost", error=info, lost=_repr(result), tries=tries)


def _repr(result: Any) -> str:
    """What is left of a result that cannot be kept. Never raises: the call happened."""
    try:
        return repr(result)[:_REPR_LIMIT].encode(errors="replace").decode()
    except Exception as error:  # noqa: BLE001 - a __repr__ may do anything
        return f"a {type(result).__qualname__} whose repr raises {type(error).__qualname__}"


def _failed(call: Call, error: BaseException, outer: BaseException | None) -> CallOutcome:
    tries = getattr(error, "__journal_tries__", 1)
    if not isinstance(error, Exception):
        is_unknown = call.policy == "never" and isinstance(error, asyncio.CancelledError)
        info = ErrorInfo(type=type(error).__qualname__)
        return CallOutcome(status="unknown" if is_unknown else "error", error=info, tries=tries)
    if call.policy == "never" and is_interruption(error, outer):
        return CallOutcome(status="unknown", error=describe(error), tries=tries)
    return CallOutcome(status="error", error=describe(error), tries=tries)


async def _probe(attempt: "Attempt", call: Call) -> Settled | None:
    """Ask the probe of an in-doubt `never` call. None: it certainly did not happen, run it."""
    assert call.probe is not None
    attempt.holding.check_trust()
    recorded = None if call.input is None else values.decode(call.input)
    context = CallContext(attempt, call.key, 0, None)
    token = context.enter()
    try:
        found = await call.probe(recorded, context)
    except Exception as error:  # noqa: BLE001 - a probe that fails cannot tell
        attempt.log.warning("probe failed", call=call.key, error=type(error).__qualname__)
        found = None
    except asyncio.CancelledError as error:
        if not await attempt.is_stopping():
            outcome = CallOutcome(status="unknown", probed=True, cancelled=True)
            await _interrupt(attempt, call, outcome, error)
        raise
    finally:
        current_call.reset(token)
    match found:
        case Ran(value):
            outcome, data, blob = _succeeded(call, value, 1)
            outcome = replace(outcome, probed=True)
        case NotRun(final=final) if final or call.dedupes:
            return None
        case _:
            outcome, data, blob = CallOutcome(status="unknown", probed=True), None, None
    await _hand_out(attempt, call, outcome, blob)
    return Settled(call, outcome, data, True)


async def _hand_out(
    attempt: "Attempt",
    call: Call,
    outcome: CallOutcome,
    blob: Blob | None = None,
    data: bytes | None = None,
    editing: EditingOutcome | None = None,
) -> None:
    """Make the outcome durable, and wait until it may reach the handler (`order.py`).

    Whoever is cancelled in between does not see it, and the log says so: else a replay would hand it out.
    """
    try:
        try:
            landing = await _commit(attempt, call, outcome, blob, editing)
        except (ClaimLost, asyncio.CancelledError) as error:
            await _leave(attempt, call, outcome, blob, editing)
            if not attempt.is_leaving and (landed := landing_of(error)) is not None:
                with anyio.CancelScope(shield=True):  # as `_interrupt` says
                    await _in_order(attempt, landed)
            raise
        if attempt.inputs.scopes:
            attempt.inputs.settled(call.key, data)
        if attempt.holding.unread or not attempt.order.is_clear():
            await _in_order(attempt, landing)
    except asyncio.CancelledError:
        if not outcome.cancelled:
            await note_cancelled(attempt, cancelled_key(call.key))
        raise


async def _interrupt(
    attempt: "Attempt",
    call: Call,
    outcome: CallOutcome,
    interruption: asyncio.CancelledError,
    blob: Blob | None = None,
    editing: EditingOutcome | None = None,
) -> NoReturn:
    """`_hand_out`, where the code was cancelled already: raise that in the outcome's place.

    Until then it is cancelled no more. Scopes of anyio do so in each pass of the loop, and a block with a timeout tells
    its own cancellation by nobody else's having come: with the passes that the store takes, that would be chance.
    """
    with anyio.CancelScope(shield=True):
        await _hand_out(attempt, call, outcome, blob, None, editing)
    if not outcome.cancelled:
        await note_cancelled(attempt, cancelled_key(call.key))
    raise interruption


async def _in_order(attempt: "Attempt", landing: int) -> None:
    """Wait until what landed may reach the handler: `order.py`; and until that has all edits that lie before it."""
    if attempt.holding.unread and (attempt.agent.docs or attempt.agent.workspace):
        await attempt.holding.until_read()
    if not attempt.order.is_clear():
        await attempt.order.live(landing)


def _commit(
    attempt: "Attempt", call: Call, outcome: CallOutcome, blob: Blob | None, editing: EditingOutcome | None
) -> Awaitable[int]:
    """Append the outcome; await it, at once, until it is durable. It returns the landing."""
    holding = attempt.holding
    progress = None
    if holding.progress_due:
        holding.progress_due = False
        progress = Progress()
    if editing is not None:
        return holding.commit_late(editing, queue=progress)
    record = seal(holding.run, outcome, attempt.turn_id, call.key)
    return holding.commit(record, blob, queue=progress)


async def _leave(
    attempt: "Attempt", call: Call, outcome: CallOutcome, blob: Blob | None, editing: EditingOutcome | None
) -> None:
    """The outcome may not have become durable: if the claim is gone, leave it as evidence."""
    # Losing the claim cancels the handler, and which of the two is heard first is chance.
    if isinstance(attempt.holding.lost, ClaimLost) and outcome.status in ("ok", "error", "value_lost"):
        blobs: tuple[Blob, ...] = () if blob is None else (blob,)
        if editing is not None:
            outcome, blobs = editing.as_it_stands()
        await leave_evidence(attempt, call.key, outcome, blobs)

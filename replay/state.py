"""A run's records folded to a state that people read: turns, their attempts, their calls, and how each ended.

`fold` is pure: the same records give the same state, and `export` gives it the same bytes, on any world and any
machine. A release leaves no record, so the log alone cannot tell a holder at work from one that let go: such an
attempt is `open` until the next one starts. Next: `timeline.py` draws it, `history.py` is the matcher's own fold.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from journal.core.codec import open_record
from journal.core.records import (
    BlobRef,
    Body,
    CallEvidence,
    CallIntent,
    CallKind,
    CallOutcome,
    CancelRequested,
    ErrorInfo,
    OutcomeStatus,
    Policy,
    Record,
    RunClosed,
    RunCreated,
    TurnBlocked,
    TurnFinished,
    TurnRetried,
    TurnStarted,
    TurnSubmitted,
    Value,
)

AttemptEnding = Literal["open", "finished", "interrupted", "released", "blocked", "cancelled", "closed"]
"""`interrupted`: its holder died, or fell silent until its lease ran out."""
TryEnding = Literal["open", "answered", "interrupted"]
TurnPhase = Literal["pending", "running", "blocked", "succeeded", "failed", "cancelled"]


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """A recorded value: its size, and itself unless it lies in a blob."""

    size: int
    """Bytes of canonical JSON."""
    json: msgspec.Raw | None = None
    blob: str | None = None


class ErrorState(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as the log keeps it."""

    type: str
    code: str | None = None
    args: Kept | None = None
    data: Kept | None = None


class TryState(msgspec.Struct, omit_defaults=True):
    """One intent of a call."""

    seq: int
    time: float
    attempt: int
    number: int
    ending: TryEnding = "open"


class OutcomeState(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a call ended."""

    seq: int
    time: float
    attempt: int
    """The attempt that recorded it; another one than tried it, where it carried on."""
    status: OutcomeStatus
    value: Kept | None = None
    error: ErrorState | None = None
    lost: str | None = None
    usage: dict[str, int] = {}
    tries: int = 1
    """Step retries within the attempt."""
    evidence: int | None = None
    is_probed: bool = False


class CallState(msgspec.Struct, omit_defaults=True):
    """One call: its tries in order, and its outcome once there is one."""

    number: int
    """Counts the calls of the run in the order of their first start, from 1. People name calls by it."""
    turn: str
    key: str
    kind: CallKind | None = None
    name: str = ""
    policy: Policy | None = None
    input: Kept | None = None
    tries: list[TryState] = []
    outcome: OutcomeState | None = None
    duration_seconds: float | None = None
    """From the last intent to the outcome, by the store's clock. None where they were written together."""
    evidence: list[int] = []
    """Seqs of results that came after their holder had lost the claim."""
    superseded_by: int | None = None
    """Seq of the `turn.retried` that set it aside."""

    @property
    def is_in_doubt(self) -> bool:
        """Whether it was interrupted and nothing has settled it."""
        return self.outcome is None and bool(self.tries) and self.tries[-1].ending == "interrupted"

    @property
    def is_carried_on(self) -> bool:
        """Whether an attempt ended inside it, and a later one tried it again or settled it."""
        first = self.tries[0].attempt if self.tries else None
        last = self.outcome.attempt if self.outcome else self.tries[-1].attempt if self.tries else None
        return first != last


class AttemptState(msgspec.Struct, omit_defaults=True):
    """One execution of a turn by one holder."""

    number: int
    worker: str
    seq: int
    time: float
    epoch: int
    is_takeover: bool = False
    version: str | None = None
    recorded_before: int = 0
    """How many calls of the turn had an outcome when it began: those it does not run again."""
    ending: AttemptEnding = "open"
    ended_seq: int | None = None
    """Of the record that ended it, or of the next attempt's start where it left none."""
    ended_time: float | None = None


class BlockedState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a turn is stopped."""

    seq: int
    reason: str
    detail: str
    recorded: Kept | None = None
    asked: Kept | None = None
    version: str | None = None


class TurnState(msgspec.Struct, omit_defaults=True):
    """One input of the run, and what became of it."""

    id: str
    seq: int
    time: float
    input: Kept
    status: TurnPhase = "pending"
    attempts: list[AttemptState] = []
    finished_seq: int | None = None
    finished_time: float | None = None
    output: Kept | None = None
    error: ErrorState | None = None
    cause: str | None = None
    """Key of the call whose error escaped the handler."""
    blocked: BlockedState | None = None
    cancel_requested: int | None = None
    cancel_reason: str | None = None
    retries: list[int] = []
    """Seqs of its `turn.retried`."""

    @property
    def is_finished(self) -> bool:
        """Whether it ended; a blocked turn has not."""
        return self.status in ("succeeded", "failed", "cancelled")


class RunState(msgspec.Struct, omit_defaults=True):
    """A run up to `head`."""

    run: str
    head: int = 0
    time: float = 0.0
    """Of the last record."""
    created: float = 0.0
    agent: str = ""
    namespace: str = ""
    subject: str | None = None
    metadata: dict[str, str] = {}
    versions: dict[str, str] = {}
    min_reader: int = 1
    is_closed: bool = False
    turns: list[TurnState] = []
    """In the order of submission."""
    calls: list[CallState] = []
    """Of all turns, in the order of their first start."""

    @property
    def status(self) -> TurnPhase:
        """That of the oldest unfinished turn, else of the last."""
        unfinished = next((turn for turn in self.turns if not turn.is_finished), None)
        if unfinished is not None:
            return unfinished.status
        return self.turns[-1].status if self.turns else "pending"


def fold(records: Iterable[Record], upto: int | None = None) -> RunState:
    """The state that `records` (a run's, in order, from its first) come to; `upto`: the last seq to look at.

    Raises a `LogError` for a record that cannot be read, `ValueError` where there is no record at all.
    """
    run = RunFold()
    for record in records:
        if upto is not None and record.seq > upto:
            break
        run.add(record)
    return run.state


def export(state: RunState) -> bytes:
    """The state as canonical JSON: equal states give equal bytes."""
    return msgspec.json.encode(state, order="sorted")


class RunFold:
    """`fold` for records that come page by page: `add` each, then look at `state`."""

    def __init__(self) -> None:
        self._state: RunState | None = None
        self._turns: dict[str, TurnState] = {}
        self._open: dict[tuple[str, str], CallState] = {}
        """The call that a key of a turn stands for now: one that was set aside makes room for another."""

    @property
    def state(self) -> RunState:
        """What the records so far come to. It goes on changing with `add`."""
        if self._state is None:
            raise ValueError("a run has at least one record, and none was given")
        return self._state

    def add(self, record: Record) -> None:
        """Take in the next record of the run."""
        state = self._state = self._state or RunState(record.run)
        state.head, state.time = record.seq, record.time
        body = open_record(record)
        match body:
            case RunCreated():
                state.created = record.time
                state.agent, state.namespace, state.subject = body.agent, body.namespace, body.subject
                state.metadata, state.versions = body.metadata, body.versions
                state.min_reader = body.min_reader
            case RunClosed():
                state.is_closed = True
                for turn in state.turns:
                    self._end_attempt(turn, "closed", record)
            case TurnSubmitted() if record.turn is not None:
                turn = TurnState(record.turn, record.seq, record.time, kept(body.input))
                state.turns.append(turn)
                self._turns[record.turn] = turn
            case _ if (found := self._turns.get(record.turn or "")) is not None:
                self._add_to_turn(found, record, body)
            case _:
                pass  # of a turn that was never submitted: no turn to show it in

    def _add_to_turn(self, turn: TurnState, record: Record, body: Body) -> None:
        match body:
            case TurnStarted():
                self._end_attempt(turn, "interrupted" if body.taken_over else "released", record)
                attempt = AttemptState(
                    body.attempt,
                    body.worker,
                    record.seq,
                    record.time,
                    record.epoch,
                    body.taken_over,
                    body.version,
                )
                attempt.recorded_before = sum(
                    call.outcome is not None for (of, _), call in self._open.items() if of == turn.id
                )
                turn.attempts.append(attempt)
                turn.status = "running"
            case CallIntent():
                self._intend(turn, record, body)
            case CallOutcome():
                self._settle(turn, record, body)
            case CallEvidence():
                self._call(turn, record).evidence.append(record.seq)
            case TurnFinished():
                turn.status = body.status
                turn.finished_seq, turn.finished_time = record.seq, record.time
                turn.output, turn.error, turn.cause = _maybe(body.output), _error(body.error), body.cause
                self._end_attempt(turn, "cancelled" if body.status == "cancelled" else "finished", record)
            case TurnBlocked():
                turn.status = "blocked"
                turn.blocked = BlockedState(
                    record.seq,
                    body.reason,
                    body.detail,
                    _maybe(body.recorded),
                    _maybe(body.asked),
                    body.version,
                )
                # A crash loop is stopped by a holder that never started: the attempt before it died.
                is_own = bool(turn.attempts) and turn.attempts[-1].epoch == record.epoch
                self._end_attempt(turn, "blocked" if is_own else "interrupted", record)
            case TurnRetried():
                self._retry(turn, record, set(body.superseded))
            case CancelRequested():
                if turn.cancel_requested is None:
                    turn.cancel_requested, turn.cancel_reason = record.seq, body.reason
            case _:
                pass

    def _call(self, turn: TurnState, record: Record) -> CallState:
        key = record.key or ""
        call = self._open.get((turn.id, key))
        if call is None:
            call = self._open[turn.id, key] = CallState(len(self.state.calls) + 1, turn.id, key)
            self.state.calls.append(call)
        return call

    def _intend(self, turn: TurnState, record: Record, body: CallIntent) -> None:
        call = self._call(turn, record)
        call.kind, call.name, call.policy = body.kind, body.name, body.policy
        call.input = _maybe(body.input)
        call.tries.append(TryState(record.seq, record.time, body.attempt, body.number))

    def _settle(self, turn: TurnState, record: Record, body: CallOutcome) -> None:
        call = self._call(turn, record)
        last = turn.attempts[-1].number if turn.attempts else 0
        attempt = next((a.number for a in reversed(turn.attempts) if a.epoch == record.epoch), last)
        call.outcome = OutcomeState(
            record.seq,
            record.time,
            attempt,
            body.status,
            _maybe(body.value),
            _error(body.error),
            body.lost,
            body.usage,
            body.tries,
            body.evidence,
            body.probed,
        )
        if call.tries and call.tries[-1].attempt == attempt:
            call.tries[-1].ending = "answered"
            if call.tries[-1].time < record.time:
                call.duration_seconds = record.time - call.tries[-1].time

    def _end_attempt(self, turn: TurnState, ending: AttemptEnding, record: Record) -> None:
        if not turn.attempts or turn.attempts[-1].ending != "open":
            return
        attempt = turn.attempts[-1]
        attempt.ending, attempt.ended_seq, attempt.ended_time = ending, record.seq, record.time
        for (of, _), call in self._open.items():
            if of == turn.id and call.outcome is None and call.tries and call.tries[-1].ending == "open":
                call.tries[-1].ending = "interrupted"

    def _retry(self, turn: TurnState, record: Record, gone: set[int]) -> None:
        turn.status = "pending"
        turn.retries.append(record.seq)
        turn.finished_seq = turn.finished_time = turn.output = turn.error = turn.cause = turn.blocked = None
        for place, call in list(self._open.items()):
            if place[0] != turn.id:
                continue
            is_gone = (
                call.outcome.seq in gone if call.outcome else not gone.isdisjoint(t.seq for t in call.tries)
            )
            if is_gone:
                call.superseded_by = record.seq
                del self._open[place]


def kept(value: Value) -> Kept:
    """A recorded value as the state shows it."""
    if isinstance(value, BlobRef):
        return Kept(value.size, blob=value.blob)
    return Kept(len(value), json=msgspec.Raw(value))


def _maybe(value: Value | None) -> Kept | None:
    return None if value is None else kept(value)


def _error(info: ErrorInfo | None) -> ErrorState | None:
    if info is None:
        return None
    return ErrorState(info.type, info.code, _maybe(info.args), _maybe(info.data))

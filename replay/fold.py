"""From the records of a run to its state: who tried what, what was interrupted, who carried it on.

Pure: the same records give the same state, however they are paged. `state.py` has the words; `history.py` is the
matcher's fold of one turn, which keeps to what decides and forgets who did it.
"""

from collections.abc import Iterable, Mapping

import msgspec

from journal.core.codec import open_record
from journal.core.records import (
    Body,
    CallEvidence,
    CallIntent,
    CallOutcome,
    CancelRequested,
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
from journal.replay.inputs import NO_BLOBS, Inputs, Whole, blobs_of
from journal.replay.state import (
    AttemptEnding,
    AttemptState,
    BlockedState,
    CallState,
    Kept,
    OutcomeState,
    RetryState,
    RunState,
    TryState,
    TurnState,
    error_state,
    kept,
    maybe_kept,
    origin_state,
)


def fold(records: Iterable[Record], upto: int | None = None) -> RunState:
    """The state that `records` (a run's, in order, from its first) come to; `upto`: the last seq to look at.

    Raises a `LogError` for a record that cannot be read, `ValueError` where there is no record at all.
    """
    run = RunFold()
    for record in records:
        if upto is not None and record.seq > upto:
            break
        run.add(record)
    run.fill()
    return run.state


class RunFold:
    """`fold` for records that come page by page: `add` each, then look at `state`."""

    def __init__(self) -> None:
        self._state: RunState | None = None
        self._turns: dict[str, TurnState] = {}
        self._open: dict[tuple[str, str], CallState] = {}
        """The call that a key of a turn stands for now: one that was set aside makes room for another."""
        self.inputs = Inputs()
        """What model calls were asked, as far as their records do not say it by themselves."""
        self._lived: set[int] = set()
        """Epochs of holders that left a late result: they lost the claim and lived on."""

    @property
    def state(self) -> RunState:
        """What the records so far come to. It goes on changing with `add`."""
        if self._state is None:
            raise ValueError("a run has at least one record, and none was given")
        return self._state

    def add(self, record: Record) -> None:
        """Take in the next record of the run."""
        body = open_record(record)  # first: a record that cannot be read must leave the state as it was
        self.inputs.add(record, body)
        state = self._state = self._state or RunState(record.run)
        state.head, state.time = record.seq, record.time
        kind = type(body)
        if kind is CallIntent or kind is CallOutcome:  # nearly all of them: not by way of the others
            if (turn := self._turns.get(record.turn or "")) is not None:
                self._add_to_call(turn, record, body)
            return
        match body:
            case RunCreated():
                state.created = record.time
                state.agent, state.namespace, state.subject = body.agent, body.namespace, body.subject
                state.metadata, state.versions = body.metadata, body.versions
                state.min_reader = body.min_reader
                state.origin = origin_state(body.origin)
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

    def fill(self, blobs: Mapping[str, bytes] = NO_BLOBS) -> None:
        """Put inputs together that the log holds as differences, where all they need is inline or in `blobs`.

        As large as all conversations of the run, each as often as it was sent: for those who want to look at them.
        """
        putting = Whole(blobs)
        for call in self.state.calls:
            if call.input is None or call.input.seq is None or call.input.json is not None:
                continue
            found = self.inputs.at(call.input.seq)
            if found is not None and all(ref.blob in blobs for ref in blobs_of(found)):
                call.input = Kept(call.input.size, msgspec.Raw(putting.of(found)))

    def _add_to_turn(self, turn: TurnState, record: Record, body: Body) -> None:
        match body:
            case TurnStarted():
                last = turn.attempts[-1] if turn.attempts else None
                is_alive = last is not None and (last.worker == body.worker or last.epoch in self._lived)
                taken: AttemptEnding = "lost" if is_alive else "interrupted"
                self._end_attempt(turn, taken if body.taken_over else "released", record)
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
            case CallEvidence():
                self._call(turn, record).evidence.append(record.seq)
                self._lived.add(body.epoch)
                for attempt in turn.attempts:
                    if attempt.epoch == body.epoch and attempt.ending == "interrupted":
                        attempt.ending = "lost"
            case TurnFinished():
                turn.status = body.status
                turn.finished_seq, turn.finished_time = record.seq, record.time
                turn.output, turn.error, turn.cause = (
                    maybe_kept(body.output),
                    error_state(body.error),
                    body.cause,
                )
                self._end_attempt(turn, "finished" if body.status == "succeeded" else body.status, record)
            case TurnBlocked():
                turn.status = "blocked"
                turn.blocked = BlockedState(
                    record.seq,
                    body.reason,
                    body.detail,
                    maybe_kept(body.recorded),
                    maybe_kept(body.asked),
                    body.version,
                )
                # A crash loop is stopped by a holder that never started: the attempt before it died.
                is_own = bool(turn.attempts) and turn.attempts[-1].epoch == record.epoch
                self._end_attempt(turn, "blocked" if is_own else "interrupted", record)
            case TurnRetried():
                self._retry(turn, record, body)
            case CancelRequested():
                if turn.cancel_requested is None:
                    turn.cancel_requested, turn.cancel_reason = record.seq, body.reason
            case _:
                pass

    def _add_to_call(self, turn: TurnState, record: Record, body: Body) -> None:
        if isinstance(body, CallOutcome):
            self._settle(turn, record, body)
        elif isinstance(body, CallIntent):
            self._intend(turn, record, body)

    def _call(self, turn: TurnState, record: Record) -> CallState:
        key = record.key or ""
        place = turn.id, key
        call = self._open.get(place)
        if call is None:
            calls = self.state.calls
            call = self._open[place] = CallState(len(calls) + 1, turn.id, key)
            calls.append(call)
        return call

    def _intend(self, turn: TurnState, record: Record, body: CallIntent) -> None:
        call = self._call(turn, record)
        call.kind, call.name, call.policy = body.kind, body.name, body.policy
        if body.difference is not None:
            call.input = Kept(body.difference.size, seq=record.seq)
        else:
            call.input = maybe_kept(body.input)
        call.tries.append(TryState(record.seq, record.time, body.attempt, body.number))

    def _settle(self, turn: TurnState, record: Record, body: CallOutcome) -> None:
        call = self._call(turn, record)
        attempt = turn.attempts[-1].number if turn.attempts else 0
        if turn.attempts and turn.attempts[-1].epoch != record.epoch:
            attempt = next((a.number for a in reversed(turn.attempts) if a.epoch == record.epoch), attempt)
        call.outcome = OutcomeState(
            record.seq,
            record.time,
            attempt,
            body.status,
            maybe_kept(body.value),
            error_state(body.error),
            body.lost,
            body.usage,
            body.tries,
            body.evidence,
            body.probed,
            body.finish,
            body.raw_finish,
            body.rate_limits,
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

    def _retry(self, turn: TurnState, record: Record, body: TurnRetried) -> None:
        turn.status = "pending"
        turn.retries.append(record.seq)
        turn.finished_seq = turn.finished_time = turn.output = turn.error = turn.cause = turn.blocked = None
        calls = {place: call for place, call in self._open.items() if place[0] == turn.id}
        if body.from_seq is not None or body.settled or body.accepted is not None:
            turn.interventions.append(intervention(record.seq, body, calls.values()))
        for place, call in calls.items():
            if is_set_aside(call, body):
                call.superseded_by = record.seq
                del self._open[place]
            elif place_of(call) in body.settled:
                self._tell(turn, call, record, body.settled[place_of(call)])
        if (accepted := body.accepted) is not None and accepted.key is not None:
            self._accept(turn, accepted.recorded, accepted.key)

    def _accept(self, turn: TurnState, recorded: str, asked: str) -> None:
        """What is recorded under the one key answers for the other."""
        call = self._open.get((turn.id, recorded))
        if call is not None and (turn.id, asked) not in self._open:
            del self._open[turn.id, recorded]
            self._open[turn.id, asked] = call

    def _tell(self, turn: TurnState, call: CallState, record: Record, value: Value | None) -> None:
        """Somebody told what the call gave."""
        attempt = call.outcome.attempt if call.outcome else turn.attempts[-1].number
        seq = call.outcome.seq if call.outcome else record.seq
        call.outcome = OutcomeState(seq, record.time, attempt, "ok", maybe_kept(value), by_hand=record.seq)


def is_set_aside(call: CallState, body: TurnRetried) -> bool:
    """Whether it answers no more from here on."""
    seqs = {call.outcome.seq} if call.outcome else {tried.seq for tried in call.tries}
    if not seqs.isdisjoint(body.superseded):
        return True
    if body.from_seq is not None and began(call) >= body.from_seq:
        return True
    return body.settled.get(place_of(call), b"") is None


def place_of(call: CallState) -> int:
    """The seq under which a result may be told by hand: of its outcome, else of its last intent."""
    if call.outcome is not None:
        return call.outcome.seq
    return call.tries[-1].seq if call.tries else 0


def began(call: CallState) -> int:
    """Seq of its first record."""
    if call.tries:
        return call.tries[0].seq
    return call.outcome.seq if call.outcome is not None else call.evidence[0]


def intervention(seq: int, body: TurnRetried, calls: Iterable[CallState]) -> RetryState:
    """What the `turn.retried` at `seq` says, in numbers of calls."""
    numbers = {place_of(call): call.number for call in calls}
    told = {numbers[place]: value for place, value in body.settled.items() if place in numbers}
    from_call = None
    if body.from_seq is not None:
        from_call = min((call.number for call in calls if began(call) >= body.from_seq), default=None)
    return RetryState(
        seq,
        from_call,
        sorted(number for number, value in told.items() if value is not None),
        sorted(number for number, value in told.items() if value is None),
        body.accepted.recorded if body.accepted else None,
        body.accepted.key if body.accepted else None,
    )

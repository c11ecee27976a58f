"""From the records of a run to its state: who tried what, what was interrupted, who carried it on.

Pure: the same records give the same state, however they are paged. `state.py` has the words; `history.py` is the
matcher's fold of one turn, which keeps to what decides and forgets who did it.
"""

from collections.abc import Iterable, Mapping
from itertools import takewhile

from journal.core.codec import DECODE, open_record
from journal.core.records import (
    Body,
    CallEvidence,
    CallIntent,
    CallOutcome,
    CancelRequested,
    Observed,
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
    OutcomeState,
    RetryState,
    RunState,
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
    run.extend(records if upto is None else takewhile(lambda record: record.seq <= upto, records))
    run.fill()
    return run.state


class _Turn:
    """A turn while it is folded."""

    __slots__ = ("calls", "results", "state")

    def __init__(self, state: TurnState) -> None:
        self.state = state
        self.calls: dict[str, CallState] = {}
        """The call that a key stands for now: one that was set aside makes room for another."""
        self.results: dict[str, Value] | None = None
        """What `Inputs` has of its results, once somebody may build on them: see `RunFold._results`."""


class RunFold:
    """`fold` for records that come page by page: `extend` by a page, or `add` one; then look at `state`."""

    def __init__(self) -> None:
        self._state: RunState | None = None
        self._turns: dict[str, _Turn] = {}
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
        self.extend((record,))

    def extend(self, records: Iterable[Record]) -> None:
        """Take in the next records of the run, as `add` does. Those before one that cannot be read count.

        Nearly all records are intents and outcomes of the turn before them, and a run may have millions: what they
        do is written out in this loop, since calls and attributes would double what it costs.
        """
        turn: _Turn | None = None  # that of the record before, where it was of a call
        turn_id: str | None = None
        last: Record | None = None
        try:
            for record in records:
                try:
                    body = DECODE[record.type](record.body)
                except Exception:  # noqa: BLE001 - `open_record` says what is wrong
                    body = open_record(record)
                if body.v > 1 and body.v > body.VERSION:
                    body = open_record(record)  # one that cannot be read leaves the state as it was
                if turn is None or record.turn != turn_id:
                    if last is None:
                        self._state = self._state or RunState(record.run)
                    turn_id = record.turn
                    turn = self._turns.get(turn_id or "")
                    calls, results, epoch, attempt = _doors_of(turn)
                    known, of = self.state.calls, turn_id or ""
                last = record
                if type(body) is CallOutcome and turn is not None:
                    key, time, value = record.key or "", record.time, body.value
                    call = calls.get(key) or self._call(turn, key)
                    if results is not None:
                        if value is None:
                            results.pop(key, None)
                        else:
                            results[key] = value
                    author = attempt if record.epoch == epoch else _attempt_of(turn, record.epoch)
                    call.outcome = OutcomeState(record.seq, time, author, body)
                    if (tried := call.intent) is not None and tried.attempt == author:
                        call.ending = "answered"
                        if call.time < time:
                            call.duration_seconds = time - call.time
                elif type(body) is CallIntent and turn is not None:
                    key = record.key or ""
                    if body.kind == "model":
                        results = self._results(turn)
                        self.inputs.add(record, body)
                    standing = calls.get(key)
                    if standing is not None:
                        standing.tried(record.seq, record.time, body)
                    else:
                        standing = CallState(len(known) + 1, of, key, record.seq, record.time, body)
                        calls[key] = standing
                        known.append(standing)
                elif type(body) is Observed and turn is not None:
                    pass  # what the handler read is not shown
                else:
                    self._add_other(self.state, record, body)
                    turn = None
        finally:
            if last is not None:
                self.state.head, self.state.time = last.seq, last.time

    def _add_other(self, state: RunState, record: Record, body: Body) -> None:
        match body:
            case RunCreated():
                state.created = record.time
                state.agent, state.namespace, state.subject = body.agent, body.namespace, body.subject
                state.metadata, state.versions = body.metadata, body.versions
                state.min_reader = body.min_reader
                state.origin = origin_state(body.origin)
            case RunClosed():
                state.is_closed = True
                for turn in self._turns.values():
                    _end_attempt(turn, "closed", record)
            case TurnSubmitted() if record.turn is not None:
                submitted = TurnState(record.turn, record.seq, record.time, kept(body.input))
                state.turns.append(submitted)
                known = self._turns.setdefault(record.turn, _Turn(submitted))
                known.state = submitted
            case _ if (found := self._turns.get(record.turn or "")) is not None:
                self._add_to_turn(found, record, body)
            case _:
                self.inputs.add(record, body)  # of a turn that was never submitted: no turn to show it in

    def fill(self, blobs: Mapping[str, bytes] = NO_BLOBS) -> None:
        """Put inputs together that the log holds as differences, where all they need is inline or in `blobs`.

        As large as all conversations of the run, each as often as it was sent: for those who want to look at them.
        """
        putting = Whole(blobs)
        for call in self.state.calls:
            found = self.inputs.at(call.seq) if call.whole is None else None
            if found is not None and all(ref.blob in blobs for ref in blobs_of(found)):
                call.whole = putting.of(found)

    def _add_to_turn(self, folded: _Turn, record: Record, body: Body) -> None:
        turn = folded.state
        match body:
            case TurnStarted():
                last = turn.attempts[-1] if turn.attempts else None
                is_alive = last is not None and (last.worker == body.worker or last.epoch in self._lived)
                taken: AttemptEnding = "lost" if is_alive else "interrupted"
                _end_attempt(folded, taken if body.taken_over else "released", record)
                attempt = AttemptState(
                    body.attempt,
                    body.worker,
                    record.seq,
                    record.time,
                    record.epoch,
                    body.taken_over,
                    body.version,
                )
                attempt.recorded_before = sum(call.outcome is not None for call in folded.calls.values())
                turn.attempts.append(attempt)
                turn.status = "running"
            case CallEvidence():
                key = record.key or ""
                call = folded.calls.get(key) or self._call(folded, key)
                call.evidence += (record.seq,)
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
                _end_attempt(folded, "finished" if body.status == "succeeded" else body.status, record)
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
                _end_attempt(folded, "blocked" if is_own else "interrupted", record)
            case TurnRetried():
                self._results(folded)  # while the calls are there that it may set aside
                _retry(folded, record, body)
            case CancelRequested():
                if turn.cancel_requested is None:
                    turn.cancel_requested, turn.cancel_reason = record.seq, body.reason
            case _:
                pass

    def _results(self, turn: _Turn) -> dict[str, Value]:
        """What calls of the turn gave. A turn that asks no model does without: it would be a tenth of its memory."""
        if turn.results is None:
            turn.results = self.inputs.results_of(turn.state.id)
            for key, call in turn.calls.items():
                if call.outcome is not None and (value := call.outcome.body.value) is not None:
                    turn.results[key] = value
        return turn.results

    def _call(self, turn: _Turn, key: str) -> CallState:
        calls = self.state.calls
        call = turn.calls[key] = CallState(len(calls) + 1, turn.state.id, key)
        calls.append(call)
        return call


def _doors_of(turn: _Turn | None) -> tuple[dict[str, CallState], dict[str, Value] | None, int | None, int]:
    """Its calls and results; epoch and number of its last attempt, (None, 0) where it has none."""
    if turn is None:
        return {}, None, None, 0
    last = turn.state.attempts[-1] if turn.state.attempts else None
    epoch, number = (None, 0) if last is None else (last.epoch, last.number)
    return turn.calls, turn.results, epoch, number


def _attempt_of(turn: _Turn, epoch: int) -> int:
    """Number of the attempt that held the run in that epoch, else of the last; 0 where there is none."""
    attempts = turn.state.attempts
    last = attempts[-1].number if attempts else 0
    return next((found.number for found in reversed(attempts) if found.epoch == epoch), last)


def _end_attempt(turn: _Turn, ending: AttemptEnding, record: Record) -> None:
    attempts = turn.state.attempts
    if not attempts or attempts[-1].ending != "open":
        return
    attempt = attempts[-1]
    attempt.ending, attempt.ended_seq, attempt.ended_time = ending, record.seq, record.time
    for call in turn.calls.values():
        if call.outcome is None and call.ending == "open":
            call.ending = "interrupted"


def _retry(folded: _Turn, record: Record, body: TurnRetried) -> None:
    turn, calls = folded.state, folded.calls
    turn.status = "pending"
    turn.retries.append(record.seq)
    turn.finished_seq = turn.finished_time = turn.output = turn.error = turn.cause = turn.blocked = None
    if body.from_seq is not None or body.settled or body.accepted is not None:
        turn.interventions.append(intervention(record.seq, body, calls.values()))
    for key, call in list(calls.items()):
        if is_set_aside(call, body):
            call.superseded_by = record.seq
            del calls[key]
        elif place_of(call) in body.settled:
            _tell(turn, call, record, body.settled[place_of(call)])
    if (accepted := body.accepted) is not None and accepted.key is not None:
        # What is recorded under the one key answers for the other.
        standing = calls.get(accepted.recorded)
        if standing is not None and accepted.key not in calls:
            del calls[accepted.recorded]
            calls[accepted.key] = standing


def _tell(turn: TurnState, call: CallState, record: Record, value: Value | None) -> None:
    """Somebody told what the call gave."""
    attempt = call.outcome.attempt if call.outcome else turn.attempts[-1].number
    seq = call.outcome.seq if call.outcome else record.seq
    call.outcome = OutcomeState(seq, record.time, attempt, CallOutcome(status="ok", value=value), record.seq)


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
    return call.seq if call.outcome is None else call.outcome.seq


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

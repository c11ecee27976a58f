"""The history of one turn: what its records say about its calls, kept by call key.

`TurnHistory` is a fold: feed it the run's records in order, whole or as they arrive. It promises nothing about
records of other turns, which it skips. Next: `matcher.py` decides on it, `state.py` folds whole runs.
"""

from collections import Counter

import msgspec

from journal.core.codec import open_record
from journal.core.records import (
    CallEvidence,
    CallIntent,
    CallOutcome,
    CancelRequested,
    Record,
    RunCreated,
    TurnBlocked,
    TurnFinished,
    TurnRetried,
    TurnStarted,
    TurnSubmitted,
    Value,
)
from journal.replay.inputs import Inputs, blobs_of, whole


def scope_of(key: str) -> str:
    """The scope that a counted key (``scope/name#n``) counts in; the root's is empty."""
    return key.rpartition("/")[0]


def is_counted(key: str) -> bool:
    """Whether the key was made by counting (``name#n``), rather than named by the caller or a model."""
    _, found, count = key.rpartition("#")
    return bool(found) and count.isdecimal()


def is_of_run(evidence: CallEvidence, created: RunCreated | None) -> bool:
    """Whether the evidence is of this run, and not of one that had its id before."""
    return not evidence.nonce or created is None or evidence.nonce == created.nonce


class CallHistory(msgspec.Struct, gc=False):
    """What the log says of one call. `intent` is its latest try's."""

    key: str
    intent: CallIntent | None = None
    intent_seqs: list[int] = []
    outcome: CallOutcome | None = None
    intent_time: float = 0.0
    outcome_seq: int = 0
    outcome_time: float = 0.0
    evidence: CallEvidence | None = None
    evidence_seq: int = 0


class TurnHistory:
    """Everything recorded of one turn so far."""

    def __init__(self, turn: str) -> None:
        self.turn = turn
        self.created: RunCreated | None = None
        self.submitted: TurnSubmitted | None = None
        self.submitted_seq = 0
        self.attempts = 0
        self.calls: dict[str, CallHistory] = {}
        self.finished: TurnFinished | None = None
        self.finished_seq = 0
        self.blocked: TurnBlocked | None = None
        self.cancel_requested: CancelRequested | None = None
        self.inputs = Inputs()
        self.last_seq = 0
        self.last_batch: bytes | None = None
        self._unclaimed: Counter[str] | None = None
        self._claimed: set[str] = set()

    def add(self, record: Record) -> None:
        """Take in the next record of the run."""
        self.last_seq = record.seq
        self.last_batch = record.batch
        if record.turn != self.turn:
            if record.type == RunCreated.TYPE:
                body = open_record(record)
                assert isinstance(body, RunCreated)
                self.created = body
            return
        match open_record(record):
            case CallIntent() as body:
                call = self._call(record)
                call.intent = body
                call.intent_seqs.append(record.seq)
                call.intent_time = record.time
                self.inputs.add(record, body)
            case CallOutcome() as body:
                call = self._call(record)
                call.outcome = body
                call.outcome_seq = record.seq
                call.outcome_time = record.time
                self.inputs.add(record, body)
            case CallEvidence() as body if is_of_run(body, self.created):
                call = self._call(record)
                if call.evidence is None:
                    call.evidence = body
                    call.evidence_seq = record.seq
            case TurnStarted() as body:
                self.attempts = max(self.attempts, body.attempt)
            case TurnSubmitted() as body:
                self.submitted = body
                self.submitted_seq = record.seq
            case TurnFinished() as body:
                self.finished = body
                self.finished_seq = record.seq
            case TurnBlocked() as body:
                self.blocked = body
            case TurnRetried() as body:
                self._retry(body)
            case CancelRequested() as body:
                self.cancel_requested = self.cancel_requested or body
            case _:
                pass

    def _call(self, record: Record) -> CallHistory:
        key = record.key or ""
        call = self.calls.get(key)
        if call is None:
            call = self.calls[key] = CallHistory(key)
        return call

    def _retry(self, retried: TurnRetried) -> None:
        cause = self.calls.get(self.finished.cause or "") if self.finished is not None else None
        self.finished = None
        self.blocked = None
        self.cancel_requested = None
        for call in self.calls.values():
            # Cancelled because of the failure that is set aside: it is not to be cancelled again.
            if cause is not None and call.outcome is not None and call.outcome_seq > cause.outcome_seq:
                call.outcome = msgspec.structs.replace(call.outcome, cancelled=False)
        gone = set(retried.superseded)
        for key, call in list(self.calls.items()):
            if call.outcome_seq in gone or (call.outcome is None and gone.intersection(call.intent_seqs)):
                del self.calls[key]

    def input_of(self, key: str) -> Value | None:
        """The recorded input of the call, whole; None where none was kept, or part of it lies in a blob."""
        intent = self.calls[key].intent
        if intent is None or intent.difference is None:
            return None if intent is None else intent.input
        found = self.inputs.of(self.turn, key)
        return None if found is None or any(True for _ in blobs_of(found)) else whole(found)

    # Claiming: which recorded intents the running code has asked for --------------------------------

    def claim(self, key: str) -> None:
        """The code asked for this recorded call."""
        if key in self.calls and key not in self._claimed:
            counts = self._counts()  # before the key joins those claimed
            self._claimed.add(key)
            if is_counted(key):
                counts[scope_of(key)] -= 1

    def unclaimed_in(self, scope: str) -> str | None:
        """A recorded, counted call of `scope` that the code has not asked for yet."""
        if self._counts()[scope] <= 0:
            return None
        left = (k for k in self.calls if k not in self._claimed and is_counted(k) and scope_of(k) == scope)
        return next((k for k in left if not self._may_go_unasked(k)), None)

    def unclaimed(self) -> str | None:
        """Any recorded call that the code has not asked for; one that was cancelled may go unasked."""
        if len(self._claimed) == len(self.calls):
            return None
        return next((k for k in self.calls if k not in self._claimed and not self._may_go_unasked(k)), None)

    def _may_go_unasked(self, key: str) -> bool:
        """Whether the call lost a race: on replay the winner may be there before it is asked for at all."""
        call = self.calls[key]
        if call.outcome is None:
            return call.intent is None  # nothing but evidence of somebody who lost the run
        return call.outcome.cancelled or call.outcome.status == "cancelled"

    def _counts(self) -> Counter[str]:
        if self._unclaimed is None:
            self._unclaimed = Counter(
                scope_of(k) for k in self.calls if is_counted(k) and k not in self._claimed
            )
        return self._unclaimed

"""The history of one turn: what its records say about its calls, kept by call key.

`TurnHistory` is a fold: feed it the run's records in order, whole or as they arrive. It promises nothing about
records of other turns, which it skips. Next: `matcher.py` decides on it, `state.py` folds whole runs. Long since all
that a turn's records say of its calls is one state, and a retry changes it in every part.
"""

import re
from bisect import bisect
from collections import Counter, deque
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

import msgspec

from journal.core import values
from journal.core.codec import DECODE, open_record
from journal.core.records import (
    Body,
    CallEvidence,
    CallIntent,
    CallOutcome,
    CancelRequested,
    CheckpointDeleted,
    CheckpointWritten,
    Observed,
    Record,
    RunCreated,
    TurnBlocked,
    TurnFinished,
    TurnRetried,
    TurnStarted,
    TurnSubmitted,
    Value,
)
from journal.replay.inputs import Input, Inputs, blobs_of, whole
from journal.replay.interventions import began, intervene
from journal.replay.snapshot import Folded
from journal.replay.workspace import READ_MARK

_TASK = re.compile(r"t[0-9]+")
_AGAIN = re.compile(r"@again[0-9]+\Z")
TASK_MARK = "@task"
"""Under which a task's scope says what it began with, where that was no call."""


class First(NamedTuple):
    """What a task began with."""

    name: str
    """Of a call; else what it was."""
    digest: bytes = b""
    """Of the call's input."""
    task_digest: bytes = b""
    """Over what the task was started with: there may be others that have the rest in common."""


def scope_of(key: str) -> str:
    """The scope that a counted key (``scope/name#n``) counts in; the root's is empty."""
    return key.rpartition("/")[0]


def is_counted(key: str) -> bool:
    """Whether the key was made by counting (``name#n``), rather than named by the caller or a model."""
    _, found, count = key.rpartition("#")
    return bool(found) and count.isdecimal()


def is_task(name: str) -> bool:
    """Whether a scope of that name is a task's."""
    return _TASK.fullmatch(name) is not None


def is_timeout(key: str) -> bool:
    """Whether an observation under that key says that a `turn.timeout` ran out."""
    return key.rpartition("/")[2].startswith("@timeout#")


def is_awaited(key: str) -> bool:
    """Whether the handler waited for what was observed under that key: it comes in the order of the log."""
    return is_timeout(key) or key.rpartition("/")[2].startswith(f"{READ_MARK}#")


def drift_key(call: str) -> str:
    """The key under which it is noted how a recorded call would be configured now."""
    return f"{call}@drift"


_CANCELLED = "@cancelled"


TURN_CANCELLED = _CANCELLED
"""Under which it is noted that the handler was given the cancellation of its turn."""


_JOINED = "@joined"


def joined_key(call: str, count: int) -> str:
    """The key under which it is noted what became of those who joined a call: of the `count`-th."""
    return f"{call}{_JOINED}{count}"


def is_left(key: str) -> bool:
    """Whether an observation under that key says that somebody who had joined a call was cancelled meanwhile."""
    return key.endswith(_CANCELLED) and _JOINED in key


def again_key(call: str, count: int) -> str:
    """The key of a call whose first `count` tries in one attempt were cancelled, and that is asked for once more."""
    return f"{call}@again{count}" if count else call


def is_again(key: str) -> bool:
    """Whether it is such a key."""
    return _AGAIN.search(key) is not None


def asked_key(key: str) -> str:
    """The key that the call was asked for under."""
    return _AGAIN.sub("", key)


def cancelled_key(call: str) -> str:
    """The key under which it is noted that the handler saw a cancellation in place of a recorded outcome."""
    return call + _CANCELLED


def is_of_run(evidence: CallEvidence, created: RunCreated | None) -> bool:
    """Whether the evidence is of this run, and not of one that had its id before."""
    return not evidence.nonce or created is None or evidence.nonce == created.nonce


class CallHistory(msgspec.Struct, gc=False):
    """What the log says of one call. `intent` is its latest try's."""

    key: str
    intent: CallIntent | None = None
    intent_seqs: tuple[int, ...] = ()
    outcome: CallOutcome | None = None
    intent_time: float = 0.0
    outcome_seq: int = 0
    outcome_time: float = 0.0
    evidence: CallEvidence | None = None
    evidence_seq: int = 0
    is_optional: bool = False
    """Whether somebody has said that the code need not ask for it any more."""
    is_late: bool = False
    """Whether it began after something that a retry set aside, which may have led to it: it may go unasked then."""


def is_cancelled(call: CallHistory) -> bool:
    """Whether the handler saw a cancellation in place of the outcome."""
    return call.outcome is not None and (call.outcome.cancelled or call.outcome.status == "cancelled")


def _see_cancelled(call: CallHistory) -> None:
    if call.outcome is not None:
        call.outcome = msgspec.structs.replace(call.outcome, cancelled=True)


class Event(msgspec.Struct, frozen=True, gc=False):
    """Something recorded that the handler waited for: an outcome, a timeout that ran out, a checkpoint, a look."""

    key: str
    time: float
    is_cancelled: bool
    """Whether the handler saw a cancellation in its place."""
    is_late: bool = False
    """Whether nobody need wait for it: `CallHistory.is_late`."""
    seq: int = 0
    """Of its record."""


_seq = attrgetter("seq")


class TurnHistory:
    """Everything recorded of one turn so far."""

    def __init__(self, turn: str) -> None:
        self.turn = turn
        self.folded: Folded | None = None
        """What the run's records come to, where that was asked for: whoever reads them sees to it."""
        self.created: RunCreated | None = None
        self.submitted: TurnSubmitted | None = None
        self.submitted_seq = 0
        self.attempts = 0
        self.started_at = 0.0
        """When the first attempt began: wall clock of the store, seconds."""
        self._starts: list[tuple[int, float]] = []
        """(seq, time) of the beginning of each attempt."""
        self.calls: dict[str, CallHistory] = {}
        self.observed: dict[str, Observed] = {}
        self.nonces: dict[str, bytes] = {}
        """Of the run that a copied call was started in, by key; it stays when the call is set aside."""
        self.finished: TurnFinished | None = None
        self.finished_seq = 0
        self.blocked: TurnBlocked | None = None
        self.cancel_requested: CancelRequested | None = None
        self.inputs = Inputs()
        self.checkpoints: dict[str, tuple[int, float, int]] = {}
        """(sequence, time, seq) of what the turn wrote and deleted of checkpoints, by key."""
        self.last_seq = 0
        self.last_batch: bytes | None = None
        self._unclaimed: Counter[str] | None = None
        self._beginnings: deque[CallHistory] | None = None
        self._claimed: set[str] = set()
        self._set_aside: list[CallHistory] = []
        """By retries, in the order of the log."""
        self._reopened: set[str] = set()
        self._late: set[str] = set()
        self.observed_at: dict[str, tuple[int, float]] = {}
        """(seq, time) of what was observed, by key."""
        self._tasks: dict[str, dict[str, First]] = {}
        self._are_tasks_noted = False

    def add(self, record: Record) -> None:
        """Take in the next record of the run."""
        self.extend((record,))

    def extend(self, records: Iterable[Record]) -> None:
        """Take in the next records of the run. Nearly all are intents and outcomes: those two are looked at first."""
        turn, calls, results = self.turn, self.calls, self.inputs.results_of(self.turn)
        for record in records:
            self.last_seq, self.last_batch = record.seq, record.batch
            if record.turn != turn:
                if record.type == RunCreated.TYPE:
                    created = open_record(record)
                    assert isinstance(created, RunCreated)
                    self.created = created
                continue
            try:
                body = DECODE[record.type](record.body)
            except Exception:  # noqa: BLE001 - `open_record` says what is wrong
                body = open_record(record)
            if body.v > 1 and body.v > body.VERSION:
                body = open_record(record)
            key = record.key or ""
            if type(body) is CallOutcome:
                call = calls.get(key) or self._call(record)
                call.outcome = body
                call.outcome_seq = record.seq
                call.outcome_time = record.time
                if body.value is None:
                    results.pop(key, None)
                else:
                    results[key] = body.value
            elif type(body) is CallIntent:
                if (tried := calls.get(key)) is None:
                    tried = calls[key] = CallHistory(key, body, (record.seq,), None, record.time)
                else:
                    tried.intent = body
                    tried.intent_seqs += (record.seq,)
                    tried.intent_time = record.time
                if body.nonce:
                    self.nonces[tried.key] = body.nonce
                if body.kind == "model":
                    self.inputs.add(record, body)
            else:
                self._add_other(record, body)

    def _add_other(self, record: Record, body: Body) -> None:
        match body:
            case CallEvidence() if is_of_run(body, self.created):
                call = self._call(record)
                if call.evidence is None:
                    call.evidence = body
                    call.evidence_seq = record.seq
            case Observed():
                key = record.key or ""
                if key.endswith(_CANCELLED) and (seen := self.calls.get(key.removesuffix(_CANCELLED))):
                    _see_cancelled(seen)
                self.observed[key] = body
                self.observed_at[key] = record.seq, record.time
            case CheckpointWritten() | CheckpointDeleted():
                self.checkpoints[record.key or ""] = body.sequence, record.time, record.seq
            case TurnStarted():
                self.attempts = max(self.attempts, body.attempt)
                self.started_at = self.started_at or record.time
                self._starts.append((record.seq, record.time))
            case TurnSubmitted():
                self.submitted = body
                self.submitted_seq = record.seq
            case TurnFinished():
                self.finished = body
                self.finished_seq = record.seq
            case TurnBlocked():
                self.blocked = body
            case TurnRetried():
                self._retry(body, record.seq)
            case CancelRequested():
                self.cancel_requested = self.cancel_requested or body
            case _:
                pass

    def _call(self, record: Record) -> CallHistory:
        key = record.key or ""
        call = self.calls.get(key)
        if call is None:
            call = self.calls[key] = CallHistory(key)
        return call

    def _retry(self, retried: TurnRetried, seq: int) -> None:
        self._note_tasks()  # a task is known by its first call, also when that is set aside
        failed_after = self.failed_after()
        if self.finished is not None and self.observed.pop(TURN_CANCELLED, None) is not None:
            del self.observed_at[TURN_CANCELLED]  # the handler had ended before it was given that
        self.finished = None
        self.blocked = None
        self.cancel_requested = None
        if failed_after is not None:
            # Cancelled because of the failure that is set aside: it is not to be cancelled again.
            for call in self.calls.values():
                if call.outcome is not None and call.outcome.cancelled and self._ended(call) > failed_after:
                    call.outcome = msgspec.structs.replace(call.outcome, cancelled=False)
            for key in [k for k, (at, _) in self.observed_at.items() if at > failed_after and is_left(k)]:
                del self.observed_at[key], self.observed[key]
        before = list(self.calls.values())
        holes = set(retried.settled)
        gone = set(retried.superseded)
        for key, call in list(self.calls.items()) if gone else ():
            if call.outcome_seq in gone or (call.outcome is None and gone.intersection(call.intent_seqs)):
                del self.calls[key]
        for key, (at, _) in list(self.observed_at.items()):
            if at in gone or (retried.from_seq is not None and at >= retried.from_seq):
                del self.observed_at[key], self.observed[key]
                holes.add(at)
        if retried.from_seq is not None:
            for key, (_, _, at) in list(self.checkpoints.items()):
                if at >= retried.from_seq:
                    del self.checkpoints[key]
        intervene(self.calls, retried, seq)
        self._set_aside += [call for call in before if self.calls.get(call.key) is not call]
        self._reopened |= {call.key for call in self._set_aside}
        holes |= {call.outcome_seq for call in self._set_aside if call.outcome is not None}
        self._go_on_after(holes)

    def failed_after(self) -> int | None:
        """Behind which seq whatever was cancelled was so over the failure that ended the turn; None: it did not fail.

        Where the handler failed by itself no record says when: then of what was cancelled behind all that was not.
        """
        if self.finished is None or self.finished.status != "failed":
            return None
        cause = self.finished.cause
        if cause in self.calls:
            return self.calls[cause].outcome_seq
        if cause in self.observed_at:
            return self.observed_at[cause][0]
        last = 0
        for call in self.calls.values():
            if self._ended(call) == call.outcome_seq and not is_cancelled(call):
                last = max(last, call.outcome_seq, *call.intent_seqs)
        for key, (seq, _) in self.observed_at.items():
            if not key.endswith(_CANCELLED):
                last = max(last, seq)
        return max(last, *(seq for _, _, seq in self.checkpoints.values()), 0)

    def _ended(self, call: CallHistory) -> int:
        """Seq of its outcome, or of the note that the handler saw a cancellation in its place."""
        return self.observed_at.get(cancelled_key(call.key), (call.outcome_seq, 0.0))[0]

    def _go_on_after(self, holes: set[int]) -> None:
        """What began after one of these, which the handler may see otherwise now, is late: it may rest on that."""
        if not holes:
            return
        first = min(holes)
        for call in self.calls.values():
            call.is_late = call.is_late or began(call) > first
        self._late |= {key for key, (at, _) in self.observed_at.items() if at > first}
        self._late |= {key for key, (_, _, at) in self.checkpoints.items() if at > first}

    def is_reopened(self, key: str) -> bool:
        """Whether the call was set aside, so that what comes in its place is no new effect."""
        return key in self._reopened

    def events(self) -> list[Event]:
        """What the handler waited for, in the order of the log."""
        events = [
            Event(call.key, call.outcome_time, is_cancelled(call), call.is_late, call.outcome_seq)
            for call in self.calls.values()
            if call.outcome is not None and not call.is_optional
        ]
        for key, (seq, time) in self.observed_at.items():
            if is_awaited(key) or key == TURN_CANCELLED or is_left(key):
                events.append(Event(key, time, is_left(key), key in self._late, seq))
        for key, (_, time, seq) in self.checkpoints.items():
            events.append(Event(key, time, False, key in self._late, seq))
        events.sort(key=_seq)
        return events

    def attempt_began(self, seq: int) -> float:
        """When the attempt began that appended the record of that seq."""
        place = bisect(self._starts, (seq,))
        return self._starts[place - 1][1] if place else 0.0

    def tasks_of(self, scope: str) -> dict[str, First]:
        """The scopes of tasks that were opened below `scope`: what each began with, by name."""
        if not self._are_tasks_noted:
            self._note_tasks()
            self._are_tasks_noted = True
        return self._tasks.get(scope, {})

    def _note_tasks(self) -> None:
        firsts = {
            key: First(str(values.decode(seen.value)), task_digest=seen.task_digest)
            for key, seen in self.observed.items()
            if key.endswith(f"/{TASK_MARK}")
        }
        for key, call in self.calls.items():
            if "/" in key and call.intent is not None:
                intent = call.intent
                firsts.setdefault(key, First(intent.name, intent.input_digest, intent.task_digest))
        for key, first in firsts.items():
            parent, _, name = scope_of(key).rpartition("/")
            if is_task(name):
                self._tasks.setdefault(parent, {}).setdefault(name, first)

    def difference_of(self, key: str) -> Input | None:
        """What the recorded input of the call is put together from; None where it stands in its record.

        By its intent, not by its key: a retry may have let the call stand for one of another key.
        """
        seqs = self.calls[key].intent_seqs
        return self.inputs.at(seqs[-1]) if seqs else None

    def input_of(self, key: str) -> Value | None:
        """The recorded input of the call, whole; None where none was kept, or part of it lies in a blob."""
        intent = self.calls[key].intent
        if intent is None or intent.difference is None:
            return None if intent is None else intent.input
        found = self.difference_of(key)
        return None if found is None or any(True for _ in blobs_of(found)) else whole(found)

    # Claiming: which recorded intents the running code has asked for --------------------------------

    def claim(self, key: str) -> None:
        """The code asked for this recorded call."""
        if key in self.calls and key not in self._claimed:
            self._claimed.add(key)
            if self._unclaimed is not None and is_counted(key) and not self._may_go_unasked(key):
                self._unclaimed[scope_of(key)] -= 1

    def unclaimed_in(self, scope: str) -> str | None:
        """A recorded, counted call of `scope` that the code has not asked for yet."""
        if len(self._claimed) == len(self.calls) or self._counts()[scope] <= 0:
            return None
        left = (k for k in self.calls if k not in self._claimed and is_counted(k) and scope_of(k) == scope)
        return next((k for k in left if not self._may_go_unasked(k)), None)

    def unclaimed(self) -> str | None:
        """Any recorded call that the code has not asked for; one that was cancelled may go unasked."""
        if len(self._claimed) == len(self.calls):
            return None
        return next((k for k in self.calls if k not in self._claimed and not self._may_go_unasked(k)), None)

    def first_unasked(self) -> CallHistory | None:
        """Of the calls that need be asked for before what lies behind them is handed out, the one that began first."""
        if self._beginnings is None:
            left = (call for call in self.calls.values() if call.intent is not None and not call.is_optional)
            self._beginnings = deque(sorted((call for call in left if not call.is_late), key=began))
        while self._beginnings and self._beginnings[0].key in self._claimed:
            self._beginnings.popleft()
        return self._beginnings[0] if self._beginnings else None

    def give_up(self, key: str) -> None:
        """The code will not ask for that call, which was cancelled then: nothing waits for it any more."""
        assert self._beginnings is not None
        self._beginnings = deque(call for call in self._beginnings if call.key != key)

    def is_claimed(self, key: str) -> bool:
        """Whether the code has asked for that recorded call."""
        return key in self._claimed

    def expected(self, before: float) -> str | None:
        """`unclaimed` of what began before that seq, but for what may come only after something new has (`is_late`)."""
        if len(self._claimed) == len(self.calls):
            return None
        left = (key for key, call in self.calls.items() if key not in self._claimed and not call.is_late)
        return next((k for k in left if began(self.calls[k]) < before and not self._may_go_unasked(k)), None)

    def _may_go_unasked(self, key: str) -> bool:
        """Whether the call lost a race: on replay the winner may be there before it is asked for at all."""
        call = self.calls[key]
        if call.is_optional:
            return True
        if call.is_late and call.outcome is not None:
            return True
        if call.outcome is None:
            return call.intent is None  # nothing but evidence of somebody who lost the run
        return is_cancelled(call)

    def _counts(self) -> Counter[str]:
        if self._unclaimed is None:
            self._unclaimed = Counter(
                scope_of(k)
                for k in self.calls
                if is_counted(k) and k not in self._claimed and not self._may_go_unasked(k)
            )
        return self._unclaimed

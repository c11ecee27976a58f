"""What a retry sets aside, and what whoever gives it says of calls: decided here, written as one `turn.retried`.

A started `never` call is never set aside by the way: whoever wants it done again has to say that it did not run.
Next: `replay/interventions.py`, which brings it to the history.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from journal.core import values
from journal.core.codec import Blob, pack
from journal.core.errors import (
    CallNotFound,
    DidNotHappen,
    NotRetriable,
    RetryRefused,
    RunBusy,
    TurnNotFound,
)
from journal.core.failures import rebuild
from journal.core.ports import RunInfo, World
from journal.core.records import Accepted, TurnBlocked, TurnRetried, Value
from journal.replay.fold import RunFold
from journal.replay.history import CallHistory, TurnHistory
from journal.replay.interventions import began, place_of
from journal.replay.state import CallState
from journal.tools.probe import NotRun, Ran

_PAGE = 500


class Retrial(msgspec.Struct, frozen=True):
    """A retry that may be written: the record, its blobs, and the head it was decided at."""

    retried: TurnRetried
    head: int
    blobs: tuple[Blob, ...] = ()


async def plan_retry(
    world: World,
    info: RunInfo,
    turn: str,
    *,
    from_call: int | None = None,
    settle: Mapping[int, Any] | None = None,
    accept_divergence: bool = False,
) -> Retrial:
    """See `Journal.retry`. Raises `NotRetriable`, `RetryRefused`, `CallNotFound`, `RunBusy`, `TurnNotFound`."""
    found = await world.turn(info.run, turn)
    if found is None:
        raise TurnNotFound(run_id=info.run, turn_id=turn)
    if info.turn not in (None, turn):
        # The older one would cut in.
        advice = f"wait until turn {info.turn} has ended, or end it (journal cancel {info.run}), then retry this one"
        raise RunBusy(run_id=info.run, advice=advice)
    history, run = TurnHistory(turn), RunFold()
    is_numbered = from_call is not None or bool(settle)
    after = 0 if is_numbered else found.submitted - 1
    while page := await world.read(info.run, after=after, limit=_PAGE):
        for record in page:
            history.add(record)
            if is_numbered:
                run.add(record)
        after = page[-1].seq
    # A copy that was held back is blocked, and its log does not say so: it is its origin's.
    is_blocked = history.blocked is not None or (info.status == "blocked" and info.turn == turn)
    if history.finished is None and not is_blocked:
        raise NotRetriable(run_id=info.run, turn_id=turn, status="not finished")
    if history.finished is not None and history.finished.status != "failed":
        raise NotRetriable(run_id=info.run, turn_id=turn, status=history.finished.status)
    said = Said(info.run, history, run.state.calls if is_numbered else [])
    if from_call is not None:
        said.set_aside(from_call, settle or {})
    for number, result in (settle or {}).items():
        said.settle(number, result)
    if accept_divergence:
        said.accept()
    gone = {*superseded(history), *said.superseded}
    retried = TurnRetried(
        superseded=tuple(sorted(gone)),
        from_seq=said.from_seq,
        settled=said.settled,
        accepted=said.accepted,
    )
    return Retrial(retried, after, tuple(said.blobs))


class Said:
    """What is said of a turn's calls, checked against its history; `calls` are those of the run, numbered."""

    def __init__(self, run_id: str, history: TurnHistory, calls: list[CallState]) -> None:
        self.from_seq: int | None = None
        self.settled: dict[int, Value | None] = {}
        self.accepted: Accepted | None = None
        self.superseded: list[int] = []
        self.blobs: list[Blob] = []
        self._run_id = run_id
        self._history = history
        self._calls = calls
        self._by_start = {began(call): call for call in history.calls.values()}

    def set_aside(self, number: int, settle: Mapping[int, Any]) -> None:
        """Call `number` and all that began after it; `settle` is what is said of calls besides."""
        first = self.from_seq = began(self._call(number))
        started = []
        for state in self._calls:
            call = self._current(state)
            if call is None:
                continue
            if began(call) >= first:
                self.superseded += _seqs(call)
                if _has_started(call) and state.number not in settle:
                    started.append(state)
            elif _was_cancelled_after(call, first):
                self.superseded += _seqs(call)
        if started:
            names = ", ".join(f"{state.number} ({state.key})" for state in started)
            options = " ".join(f"--settle {state.number}=did-not-run" for state in started)
            raise self._refusal(
                f"call {names} is `never` and was started, so that it may have happened and would be done a second "
                f"time: say that it did not ({options}), or set aside from a later call on",
                *(state.number for state in started),
            )

    def settle(self, number: int, result: Any) -> None:
        """Call `number` gave `result`, or is a `NotRun`."""
        call = self._call(number)
        is_aside = self.from_seq is not None and began(call) >= self.from_seq
        if not _is_not_run(result):
            if is_aside:
                raise self._refusal(
                    f"call {number} is set aside by --from, and its result with it: set aside from a later call on, "
                    f"or give {number}=did-not-run",
                    number,
                )
            self._check_open(number, call)
            data = values.encode(result.value if isinstance(result, Ran) else result, what=f"call {number}")
            value, blob = pack(data)
            self.settled[place_of(call)] = value
            self.blobs += [blob] if blob else []
            return
        if not (is_aside and _has_started(call)):
            self._check_open(number, call)
        self.superseded += _seqs(call)
        self.settled[place_of(call)] = None

    def _check_open(self, number: int, call: CallHistory) -> None:
        is_by_hand = any(c.number == number and c.outcome and c.outcome.by_hand for c in self._calls)
        if call.outcome is not None and call.outcome.status != "unknown" and not is_by_hand:
            raise self._refusal(
                f"the outcome of call {number} is known ({call.outcome.status}), and only an unknown one is settled: "
                f"--from {number} sets it aside",
                number,
            )

    def accept(self) -> None:
        """What the divergence that blocks the turn names as recorded stands for what was asked for."""
        blocked = self._history.blocked
        if blocked is None or blocked.reason != "divergence":
            raise self._refusal(
                "it is not blocked by a divergence, so that there is none to accept: leave that out"
            )
        recorded, asked = _parts(blocked)
        call = self._history.calls.get(recorded.get("key", ""))
        if call is None or not is_of_a_call(blocked):
            raise self._refusal(
                "what diverges is not the outcome of a call: deploy code that does what was recorded, or set it aside "
                "(--from N)"
            )
        if asked is None:
            self.accepted = Accepted(recorded=call.key)
            return
        if call.outcome is None and place_of(call) not in self.settled:
            raise self._refusal(
                f"the call {call.key} that was recorded has no outcome to take: settle it too (--settle N=JSON), or "
                "set it aside (--from N)"
            )
        self.accepted = Accepted(
            recorded=call.key,
            key=asked["key"],
            kind=asked["kind"],
            name=asked["name"],
            input_digest=bytes.fromhex(asked["input_digest"]),
        )

    def _call(self, number: int) -> CallHistory:
        if not 1 <= number <= len(self._calls):
            raise CallNotFound(run_id=self._run_id, call=number, calls=len(self._calls))
        state = self._calls[number - 1]
        if state.turn != self._history.turn:
            raise self._refusal(
                f"call {number} is of turn {state.turn}, and turn {self._history.turn} would be retried: "
                "name the turn (--turn)",
                number,
            )
        call = self._current(state)
        if call is None:
            raise self._refusal(
                f"call {number} was set aside before, by record {state.superseded_by}: choose the one that took its "
                f"place (journal show {self._run_id})",
                number,
            )
        return call

    def _current(self, state: CallState) -> CallHistory | None:
        """What the history has of the call; None: it is of another turn, or was set aside."""
        if state.turn != self._history.turn or state.superseded_by is not None:
            return None
        first = state.tries[0].seq if state.tries else state.outcome.seq if state.outcome else 0
        return self._by_start.get(first)

    def _refusal(self, reason: str, *calls: int) -> RetryRefused:
        return RetryRefused(run_id=self._run_id, reason=reason, calls=calls)


def is_of_a_call(blocked: TurnBlocked) -> bool:
    """Whether what diverged is the outcome of a call, which may be taken for what was asked."""
    recorded, asked = _parts(blocked)
    names_call = asked is None or {"key", "kind", "name", "input_digest"} <= asked.keys()
    return recorded.get("ending") != "cancelled" and names_call


def _parts(blocked: TurnBlocked) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """(recorded, asked), as the matcher named them."""
    recorded = values.decode(blocked.recorded) if isinstance(blocked.recorded, bytes) else {}
    asked = values.decode(blocked.asked) if isinstance(blocked.asked, bytes) else None
    return recorded, asked


def _seqs(call: CallHistory) -> list[int]:
    """Of its intents, and of its outcome where there is one."""
    return [*call.intent_seqs, call.outcome_seq] if call.outcome is not None else [*call.intent_seqs]


def _is_not_run(result: Any) -> bool:
    return isinstance(result, NotRun) or result is NotRun


def _has_started(call: CallHistory) -> bool:
    """Whether it is a `never` call that may have happened."""
    return call.intent is not None and call.intent.policy == "never" and not _did_not_happen(call)


def _did_not_happen(call: CallHistory) -> bool:
    if call.outcome is not None and call.outcome.status == "cancelled":
        return call.intent is not None and call.intent.number == 1  # before it acted, else it is unknown
    error = call.outcome.error if call.outcome is not None and call.outcome.status == "error" else None
    if error is None:
        return False
    return error.type.rpartition(".")[2] == DidNotHappen.__name__ or isinstance(
        rebuild(error, ""), DidNotHappen
    )


def _was_cancelled_after(call: CallHistory, seq: int) -> bool:
    return call.outcome is not None and call.outcome.status == "cancelled" and call.outcome_seq > seq


def superseded(history: TurnHistory) -> tuple[int, ...]:
    """Seqs of the error outcome (or the timeout) that escaped the handler, and of its siblings without an outcome.

    A `never` call that was started is not set aside: its outcome stays, so that it is not started again.
    """
    finished = history.finished
    seqs: list[int] = []
    if finished is not None and finished.cause is not None:
        call = history.calls.get(finished.cause)
        if call is not None and call.intent is not None and call.outcome is not None:
            may_repeat = call.intent.policy == "safe" or _did_not_happen(call)
            if may_repeat and call.outcome.status in ("error", "cancelled", "value_lost"):
                seqs += [*call.intent_seqs, call.outcome_seq]
    if finished is not None and finished.cause in history.observed_at:
        seqs.append(history.observed_at[finished.cause][0])
    after = history.failed_after()
    for call in history.calls.values():
        if call.intent is None or not (call.intent.policy == "safe" or _did_not_happen(call)):
            continue
        if call.outcome is None:
            seqs += call.intent_seqs
        elif call.outcome.status == "cancelled" and after is not None and call.outcome_seq > after:
            seqs += [*call.intent_seqs, call.outcome_seq]  # a sibling that was cancelled over it
    return tuple(sorted(seqs))

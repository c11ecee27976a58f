"""A run as people read it: its turns, their attempts, their calls, and how each ended.

Made by `fold.py` from records and drawn by `timeline.py`. Calls hold the bodies of their records, and look up in them
what those say: copies would be most of what a fold costs. `export` spells it out, and gives equal states equal bytes,
on any world and any machine. A release leaves no record, so the log alone cannot tell a holder at work from one that
let go: such an attempt is `open` until the next one starts.
"""

from typing import Any, Literal

import msgspec
from msgspec.structs import asdict

from journal.core.records import (
    BlobRef,
    CallIntent,
    CallKind,
    CallOutcome,
    ErrorInfo,
    FinishReason,
    Origin,
    OutcomeStatus,
    Policy,
    Value,
)

_CALL = (
    "number",
    "turn",
    "key",
    "kind",
    "name",
    "policy",
    "input",
    "tries",
    "outcome",
    "duration_seconds",
    "evidence",
    "superseded_by",
)
_OUTCOME = (
    "seq",
    "time",
    "attempt",
    "status",
    "value",
    "error",
    "lost",
    "usage",
    "tries",
    "evidence",
    "is_probed",
    "finish",
    "raw_finish",
    "rate_limits",
    "by_hand",
)
"""What is exported of a call, and of its outcome."""

AttemptEnding = Literal[
    "open", "finished", "failed", "interrupted", "lost", "released", "blocked", "cancelled", "closed"
]
"""`interrupted`: its holder died, or fell silent until its lease ran out. `lost`: that, and its worker is known to have
lived on: it took the run up again, or left a late result."""
TryEnding = Literal["open", "answered", "interrupted"]
TurnPhase = Literal["pending", "running", "blocked", "succeeded", "failed", "cancelled"]


class Kept(msgspec.Struct, omit_defaults=True, gc=False):
    """A recorded value: its size, and itself unless it lies in a blob; a reader may fill that in, or leave it out."""

    size: int
    """Bytes of canonical JSON."""
    json: msgspec.Raw | None = None
    blob: str | None = None
    seq: int | None = None
    """Of the intent that holds what is new of it, until somebody has put it together (`RunFold.fill`)."""


class ErrorState(msgspec.Struct, frozen=True, gc=False):
    """An error as the log keeps it."""

    type: str
    code: str | None = None
    args: Kept | None = None
    data: Kept | None = None


class TryState(msgspec.Struct, frozen=True, gc=False):
    """One intent of a call."""

    seq: int
    time: float
    attempt: int
    number: int
    ending: TryEnding = "open"


class OutcomeState(msgspec.Struct, frozen=True, gc=False):
    """How a call ended: its record's body, and what that does not know."""

    seq: int
    time: float
    attempt: int
    """The attempt that recorded it; another one than tried it, where it carried on."""
    body: CallOutcome
    by_hand: int | None = None
    """Seq of the `turn.retried` in which somebody told it."""

    @property
    def status(self) -> OutcomeStatus:
        """Whether it gave a value."""
        return self.body.status

    @property
    def value(self) -> Kept | None:
        """What it gave."""
        return maybe_kept(self.body.value)

    @property
    def error(self) -> ErrorState | None:
        """What it raised."""
        return error_state(self.body.error)

    @property
    def lost(self) -> str | None:
        """What `repr` gave of a value that could not be kept."""
        return self.body.lost

    @property
    def usage(self) -> dict[str, int]:
        """What a model call used up."""
        return self.body.usage

    @property
    def tries(self) -> int:
        """Step retries within the attempt."""
        return self.body.tries

    @property
    def evidence(self) -> int | None:
        """Seq of the late result it rests on."""
        return self.body.evidence

    @property
    def is_probed(self) -> bool:
        """Whether a probe, not the act, gave it."""
        return self.body.probed

    @property
    def finish(self) -> FinishReason | None:
        """Why the model ended its reply."""
        return self.body.finish

    @property
    def raw_finish(self) -> str | None:
        """The same in the provider's word."""
        return self.body.raw_finish

    @property
    def rate_limits(self) -> dict[str, float]:
        """What the provider said is left."""
        return self.body.rate_limits


class CallState(msgspec.Struct, gc=False):
    """One call: its tries in order, and its outcome once there is one."""

    number: int
    """Counts the calls of the run in the order of their first start, from 1. People name calls by it."""
    turn: str
    key: str
    seq: int = 0
    """Of the last intent, as `time`, `intent` and `ending` are."""
    time: float = 0.0
    intent: CallIntent | None = None
    ending: TryEnding = "open"
    earlier: tuple[TryState, ...] = ()
    """All tries but the last."""
    whole: bytes | None = None
    """The input, put together, of an intent that holds what is new of it."""
    outcome: OutcomeState | None = None
    duration_seconds: float | None = None
    """From the last intent to the outcome, by the store's clock. None where they were written together."""
    evidence: tuple[int, ...] = ()
    """Seqs of results that came after their holder had lost the claim."""
    superseded_by: int | None = None
    """Seq of the `turn.retried` that set it aside."""

    @property
    def kind(self) -> CallKind | None:
        """None where there is no intent."""
        return None if self.intent is None else self.intent.kind

    @property
    def name(self) -> str:
        """Of what is called; empty where there is no intent."""
        return "" if self.intent is None else self.intent.name

    @property
    def policy(self) -> Policy | None:
        """None where there is no intent."""
        return None if self.intent is None else self.intent.policy

    @property
    def input(self) -> Kept | None:
        """What it was last asked with."""
        if self.intent is None or (said := self.intent.difference) is None:
            return None if self.intent is None else maybe_kept(self.intent.input)
        return Kept(said.size, seq=self.seq) if self.whole is None else kept(self.whole)

    @property
    def tries(self) -> tuple[TryState, ...]:
        """Its intents in order."""
        if self.intent is None:
            return ()
        last = TryState(self.seq, self.time, self.intent.attempt, self.intent.number, self.ending)
        return (*self.earlier, last)

    def tried(self, seq: int, time: float, intent: CallIntent) -> None:
        """It was tried, or tried again."""
        self.earlier = self.tries
        self.seq, self.time, self.intent, self.ending, self.whole = seq, time, intent, "open", None

    @property
    def is_in_doubt(self) -> bool:
        """Whether it was interrupted and nothing has settled it."""
        return self.outcome is None and self.intent is not None and self.ending == "interrupted"

    @property
    def is_carried_on(self) -> bool:
        """Whether an attempt ended inside it, and a later one tried it again or settled it."""
        tries = self.tries
        first = tries[0].attempt if tries else None
        last = self.outcome.attempt if self.outcome else tries[-1].attempt if tries else None
        return first != last


class AttemptState(msgspec.Struct):
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


class BlockedState(msgspec.Struct, frozen=True):
    """Why a turn is stopped."""

    seq: int
    reason: str
    detail: str
    recorded: Kept | None = None
    asked: Kept | None = None
    version: str | None = None


class RetryState(msgspec.Struct, frozen=True):
    """What somebody said when they sent the turn on."""

    seq: int
    from_call: int | None = None
    """The first of the calls that were set aside, by number."""
    settled: list[int] = []
    """Numbers of the calls whose result was told by hand."""
    did_not_run: list[int] = []
    """Numbers of those that were said not to have happened."""
    recorded: str | None = None
    """Key of the recorded call that stands for another from then on."""
    asked: str | None = None
    """Key of that other; None: it may go unasked."""


class TurnState(msgspec.Struct):
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
    interventions: list[RetryState] = []
    """Those in which more was said than that it shall go on."""

    @property
    def is_finished(self) -> bool:
        """Whether it ended; a blocked turn has not."""
        return self.status in ("succeeded", "failed", "cancelled")


class OriginState(msgspec.Struct, frozen=True):
    """Where a fork comes from."""

    run: str
    seq: int
    at: int
    """The first call of its own, as it numbers them too."""
    is_anew: bool
    """Whether the turn began with another input there: then `at` only says which turn."""


class RunState(msgspec.Struct):
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
    origin: OriginState | None = None
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


def export(state: RunState) -> bytes:
    """The state as canonical JSON: equal states give equal bytes."""
    return encode(plain(state))


def encode(shown: dict[str, Any]) -> bytes:
    """What `plain` gave as canonical JSON."""
    return msgspec.json.encode(shown, order="sorted")


def plain(state: RunState) -> dict[str, Any]:
    """The state with its calls spelled out, as it is exported."""
    return {**asdict(state), "calls": [_plain_call(call) for call in state.calls]}


def _plain_call(call: CallState) -> dict[str, Any]:
    shown = {name: getattr(call, name) for name in _CALL}
    if call.outcome is not None:
        shown["outcome"] = {name: getattr(call.outcome, name) for name in _OUTCOME}
    return shown


def kept(value: Value) -> Kept:
    """A recorded value as the state shows it."""
    if isinstance(value, BlobRef):
        return Kept(value.size, blob=value.blob)
    return Kept(len(value), json=msgspec.Raw(value))


def maybe_kept(value: Value | None) -> Kept | None:
    """`kept`, where there is a value."""
    return None if value is None else kept(value)


def error_state(info: ErrorInfo | None) -> ErrorState | None:
    """A recorded error as the state shows it."""
    if info is None:
        return None
    return ErrorState(info.type, info.code, maybe_kept(info.args), maybe_kept(info.data))


def origin_state(origin: Origin | None) -> OriginState | None:
    """A recorded origin as the state shows it."""
    if origin is None:
        return None
    return OriginState(origin.run, origin.seq, origin.at, origin.input_digest is not None)

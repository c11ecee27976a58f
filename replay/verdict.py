"""What a replay offline found: the calls it served, where it ended, and whether that was what is recorded. Pure."""

from typing import Any, Literal

import msgspec

from journal.core import values
from journal.core.records import CallKind, ErrorInfo, OutcomeStatus, TurnFinished, TurnStatus
from journal.replay.fields import Difference, differences

Verdict = Literal[
    "same",
    "differs",
    "diverged",
    "log_ends",
    "would_finish",
    "stopped",
    "stalled",
    "unreadable",
    "refused",
    "missing",
]
"""`same`: it ended as recorded. `differs`: it ended, or went on, in another way. `diverged`: it asked for another call.
`log_ends`: every recorded call was served, and the turn is unfinished. `would_finish`: that, and the code asks for
nothing more. `stopped`: where it was asked to. `stalled`: the code neither ended nor asked for what is recorded next.
`unreadable`: a recorded value cannot be read back. `refused`: the handler reached for a store, or for what its
resources are, outside a call. `missing`: it needs a module that is not installed here."""
Next = Literal["new", "again", "probe", "evidence", "unknown"]
"""What a worker would do with a call without an outcome: make it (`new`), make it again, ask its probe, take a late
result for its outcome, or call it unknown."""

_PARTED = ("differs", "diverged", "stalled", "unreadable", "refused", "missing")
_WORDS: dict[Next, str] = {
    "new": "it is not in the log",
    "again": "it is in doubt, and a worker would make it again",
    "probe": "it is in doubt, and a worker would ask its probe",
    "evidence": "it is in doubt, and a worker would take the late result for its outcome",
    "unknown": "it is in doubt, and a worker would call it unknown",
}


class ReplayedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded call that the code asked for."""

    number: int
    """As `journal show` numbers it."""
    key: str
    kind: CallKind
    name: str
    status: OutcomeStatus | None = None
    """How it ended. None: it is in doubt, and the replay goes no further there."""
    seq: int = 0
    """Of its outcome."""
    has_drifted: bool = False
    """Whether its configuration (prompt, tool schemas, settings) is another one now."""


class NextCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call at which the log ends."""

    number: int | None
    """None: the log does not know it."""
    key: str
    kind: CallKind
    name: str
    then: Next

    def __str__(self) -> str:
        number = "" if self.number is None else f"call {self.number}, "
        return f"{number}{self.kind} {self.key}: {_WORDS[self.then]}"


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn ended."""

    status: TurnStatus
    output: msgspec.Raw | None = None
    error: ErrorInfo | None = None
    cause: str | None = None
    """Key of the call whose error escaped the handler."""

    def fields(self) -> dict[str, Any]:
        """As JSON, to be compared."""
        error: dict[str, Any] | None = None
        if self.error is not None:
            error = {"type": self.error.type, "code": self.error.code}
            for name in ("args", "data"):
                value = getattr(self.error, name)
                error[name] = values.decode(value) if isinstance(value, bytes) else None
        output = {} if self.output is None else {"output": values.decode(bytes(self.output))}
        return {"status": self.status, **output, "error": error, "cause": self.cause}


class Replay(msgspec.Struct, kw_only=True):
    """One turn, run again from its log."""

    run: str
    turn: str
    agent: str
    verdict: Verdict
    calls: list[ReplayedCall] = []
    """Those that were asked for, in that order."""
    at: list[NextCall] = []
    """The calls that the log has no outcome for."""
    recorded: Ended | None = None
    """None: the turn is unfinished in the log."""
    replayed: Ended | None = None
    differences: list[Difference] = []
    detail: str = ""
    raised: str | None = None
    """The class of what left the handler, and where it was raised."""

    @property
    def has_parted(self) -> bool:
        """Whether code and log do not go together."""
        return self.verdict in _PARTED

    @property
    def drifted(self) -> list[ReplayedCall]:
        """The calls whose configuration has changed since."""
        return [call for call in self.calls if call.has_drifted]

    def __str__(self) -> str:
        match self.verdict:
            case "same":
                assert self.recorded is not None
                return f"ended as recorded: {self.recorded.status}"
            case "log_ends":
                places = "; ".join(map(str, self.at))
                return f"the log ends here: {places}" if places else "the log ends here"
            case "would_finish":
                assert self.replayed is not None
                return (
                    f"all that is recorded was asked for, and the turn would end now: {self.replayed.status}"
                )
            case _:
                return self.detail


def ended(finished: TurnFinished, output: bytes | None) -> Ended:
    """`finished`, with its output's bytes."""
    raw = None if output is None else msgspec.Raw(output)
    return Ended(status=finished.status, output=raw, error=finished.error, cause=finished.cause)


def compared(recorded: Ended, replayed: Ended) -> list[Difference]:
    """Where the two ends differ."""
    return differences(recorded.fields(), replayed.fields())

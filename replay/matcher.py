"""What happens to a call that the handler asks for: the table of SEMANTICS 2, as one pure function.

log holds      recorded / declared        decision
-----------    -----------------------    ------------------------------------------------------------
outcome        any                        Serve: nothing runs
intent only    asked for something else   Diverge
intent only    model, safe                Run: a new try of the same call
intent only    safe / safe                Run with the recorded input
intent only    never, evidence            Settle: the evidence becomes the outcome
intent only    never / never, probe       Probe
intent only    never, or they differ      Settle: unknown
nothing        any                        Run, once every recorded intent of this scope was asked for;
                                          before that Diverge: no new effect inside old history
"""

from typing import Any

import msgspec

from journal.core.errors import Diverged
from journal.core.records import CallIntent, CallKind, CallOutcome, Policy, Value
from journal.replay.history import CallHistory, TurnHistory, scope_of


class Asked(msgspec.Struct, frozen=True, gc=False):
    """A call as the code asks for it now. The engine's `Call` is one, with how it is done besides."""

    key: str
    kind: CallKind
    name: str
    input_digest: bytes
    policy: Policy
    probe: object = None
    """What can tell what became of it; here it only counts whether there is something."""
    is_counted: bool = True
    """Whether the key was made by counting."""
    input: bytes | None = None
    """Canonical JSON; only to be shown where it differs."""
    scope: str | None = None
    """Where a call is made whose key is given. None: side by side with others, so that it keeps no order."""


class Serve(msgspec.Struct, frozen=True, gc=False):
    """Hand out the recorded outcome."""

    outcome: CallOutcome


class Run(msgspec.Struct, frozen=True, gc=False):
    """Record an intent and act."""

    number: int
    """Which try this is, from 1."""
    input: Value | None = None
    """The recorded input, where an earlier try recorded one."""


class Probe(msgspec.Struct, frozen=True, gc=False):
    """Ask the tool's probe what became of the recorded try; if it says so, run as try `number`."""

    number: int
    input: Value | None


class Settle(msgspec.Struct, frozen=True, gc=False):
    """Record this outcome; nothing runs."""

    outcome: CallOutcome


class Diverge(msgspec.Struct, frozen=True, gc=False):
    """The code and the log part here."""

    recorded: dict[str, Any] | None
    asked: dict[str, Any] | None


Decision = Serve | Run | Probe | Settle | Diverge
FIRST = Run(1)
_SHOWN_BYTES = 400


def decide(asked: Asked, history: TurnHistory) -> Decision:
    """Decide on `asked`; the caller has not claimed it yet."""
    call = history.calls.get(asked.key)
    if call is None or (call.intent is None and call.outcome is None):
        scope = scope_of(asked.key) if asked.is_counted else asked.scope
        if (
            scope is not None
            and not history.is_reopened(asked.key)
            and (missing := history.unclaimed_in(scope)) is not None
        ):
            return Diverge(recorded_call(history.calls[missing]), asked_call(asked))
        return FIRST
    intent = call.intent
    if intent is not None and (
        intent.input_digest != asked.input_digest or intent.name != asked.name or intent.kind != asked.kind
    ):
        return Diverge(recorded_call(call), asked_call(asked))
    if call.outcome is not None:
        return Serve(call.outcome)
    assert intent is not None
    return _in_doubt(asked, call, intent, history)


def _in_doubt(asked: Asked, call: CallHistory, intent: CallIntent, history: TurnHistory) -> Decision:
    if intent.policy == "safe" and asked.policy == "safe":
        return Run(intent.number + 1, history.input_of(asked.key))
    if call.evidence is not None:
        return Settle(msgspec.structs.replace(call.evidence.outcome, evidence=call.evidence_seq))
    if intent.policy == "never" and asked.policy == "never" and asked.probe is not None:
        return Probe(intent.number + 1, history.input_of(asked.key))
    return Settle(CallOutcome(status="unknown"))


def recorded_call(call: CallHistory) -> dict[str, Any]:
    """The call as the log holds it, to be shown beside what the code asks for."""
    intent = call.intent
    if intent is None:
        return {"key": call.key}
    return {
        "key": call.key,
        "kind": intent.kind,
        "name": intent.name,
        "input_digest": intent.input_digest.hex(),
        **_shown(None if intent.difference else intent.input),
    }


def asked_call(asked: Asked) -> dict[str, Any]:
    """The call as the code asks for it, likewise."""
    return {
        "key": asked.key,
        "kind": asked.kind,
        "name": asked.name,
        "input_digest": asked.input_digest.hex(),
        **_shown(asked.input),
    }


def _shown(data: Value | None) -> dict[str, str]:
    """The input, where it is short enough to be looked at."""
    return {"input": data.decode()} if isinstance(data, bytes) and len(data) <= _SHOWN_BYTES else {}


def parting(error: Diverged, where: str | None = None) -> str:
    """Where code and log part, in words; `where`: at which place of the input."""
    recorded, asked = error.recorded or {}, error.asked
    if recorded.get("ending") == "cancelled":
        return (
            f"call {error.call!r} was cancelled by the code when it was recorded, and now nothing cancels it"
        )
    if "winner" in recorded:
        count = (asked or {}).get("branches")
        return f"the race {error.call!r} was won by branch {recorded['winner']}, and the code gives it {count} now"
    if "config_digest" in recorded:
        return (
            f"call {error.call!r} was made with another configuration (prompt, tools, settings) than the code has "
            "now, and this agent refuses drift"
        )
    if asked is None:
        return f"call {error.call!r} is in the log and the code no longer asks for it"
    if recorded.get("key") != asked.get("key") or recorded.get("name") != asked.get("name"):
        return (
            f"the code asks for {asked.get('kind')} {asked.get('key')!r} ({asked.get('name')}), "
            f"and the log holds {recorded.get('kind')} {recorded.get('key')!r} ({recorded.get('name')})"
        )
    if recorded.get("kind") != asked.get("kind"):
        return f"the code asks for {asked.get('key')!r} as a {asked.get('kind')}, and it was a {recorded.get('kind')}"
    is_shown = "input" in recorded and "input" in asked
    if where is not None and not is_shown:
        return f"the code asks for {asked.get('key')!r} with another input than was recorded: {where}"
    return (
        f"the code asks for {asked.get('key')!r} with the input {asked.get('input', 'another')}, "
        f"and it was recorded with {recorded.get('input', 'another')}"
    )

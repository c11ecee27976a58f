"""What a person said of a turn's calls when they sent it on (`turn.retried`), brought to its history.

Pure. A call that another is asked for in the place of becomes what was asked for: the matcher then finds it like any
other, and stays as strict as it is. Next: `history.py`; `engine/retrial.py` decides what may be said.
"""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from journal.core.records import Accepted, CallOutcome, TurnRetried

if TYPE_CHECKING:
    from journal.replay.history import CallHistory


def place_of(call: "CallHistory") -> int:
    """The seq under which a result may be told by hand: of its outcome, else of its last intent."""
    return call.outcome_seq or (call.intent_seqs[-1] if call.intent_seqs else 0)


def began(call: "CallHistory") -> int:
    """Seq of its first record."""
    return call.intent_seqs[0] if call.intent_seqs else call.outcome_seq or call.evidence_seq


def intervene(calls: "dict[str, CallHistory]", retried: TurnRetried, seq: int) -> None:
    """Bring `calls` to what was said in the `turn.retried` at `seq`."""
    says_of_calls = retried.from_seq is not None or retried.settled
    for key, call in list(calls.items()) if says_of_calls else ():
        place = place_of(call)
        is_gone = retried.from_seq is not None and began(call) >= retried.from_seq
        if is_gone or (place in retried.settled and retried.settled[place] is None):
            del calls[key]
        elif place in retried.settled:
            call.outcome = CallOutcome(status="ok", value=retried.settled[place])
            call.outcome_seq = call.outcome_seq or seq
        elif retried.from_seq is not None and call.outcome is not None and place > retried.from_seq:
            # Cancelled over what is set aside: it is not to be cancelled again.
            call.outcome = replace(call.outcome, cancelled=False)
    if retried.accepted is not None:
        _accept(calls, retried.accepted)


def _accept(calls: "dict[str, CallHistory]", accepted: Accepted) -> None:
    call = calls.get(accepted.recorded)
    if call is None:
        return
    if accepted.key is None:
        call.is_optional = True
        return
    if accepted.key != accepted.recorded and accepted.key in calls:
        return
    call.key = accepted.key
    if call.intent is not None:
        call.intent = replace(
            call.intent, kind=accepted.kind, name=accepted.name, input_digest=accepted.input_digest
        )
    items = [(accepted.key if key == accepted.recorded else key, call) for key, call in calls.items()]
    calls.clear()
    calls.update(items)  # in the order of the log, in which their scope is gone through

"""The table of SEMANTICS 2, row by row, and the fold of a turn's history it decides on."""

import pytest

from journal.core.codec import seal
from journal.core.records import (
    Body,
    CallEvidence,
    CallIntent,
    CallKind,
    CallOutcome,
    CancelRequested,
    ErrorInfo,
    Observed,
    Policy,
    Record,
    TurnFinished,
    TurnRetried,
    TurnStarted,
    TurnSubmitted,
)
from journal.engine.retrial import superseded
from journal.replay.history import TurnHistory, is_counted, scope_of
from journal.replay.matcher import Asked, Diverge, Probe, Run, Serve, Settle, decide


def log(*bodies: tuple[Body, str | None]) -> TurnHistory:
    """A history of turn `t`, from (body, call key) pairs; seqs count from 1."""
    history = TurnHistory("t")
    for seq, (body, key) in enumerate(bodies, 1):
        new = seal("r", body, turn="t", key=key)
        history.add(Record("r", seq, 0.0, new.type, new.turn, new.key, 1, b"b", new.body, new.checksum))
    return history


def intent(
    name: str = "refund",
    *,
    kind: CallKind = "tool",
    policy: Policy = "safe",
    digest: bytes = b"d",
    number: int = 1,
) -> CallIntent:
    return CallIntent(
        kind=kind, name=name, input=b"{}", input_digest=digest, policy=policy, attempt=1, number=number
    )


def asked(
    key: str = "refund#1",
    *,
    name: str = "refund",
    kind: CallKind = "tool",
    policy: Policy = "safe",
    digest: bytes = b"d",
    probe: bool = False,
) -> Asked:
    return Asked(key, kind, name, digest, policy, probe or None, is_counted(key))


OK = CallOutcome(status="ok", value=b"1")


def test_nothing_recorded_runs() -> None:
    assert decide(asked(), log()) == Run(1)


@pytest.mark.parametrize("policy", ["safe", "never"])
def test_a_recorded_outcome_is_served_whatever_the_policy(policy: Policy) -> None:
    history = log((intent(policy="never"), "refund#1"), (OK, "refund#1"))
    assert decide(asked(policy=policy), history) == Serve(OK)


def test_safe_in_doubt_runs_again_with_the_recorded_input() -> None:
    assert decide(asked(), log((intent(), "refund#1"))) == Run(2, b"{}")


def test_the_third_try_counts_on() -> None:
    history = log((intent(), "refund#1"), (intent(number=2), "refund#1"))
    assert decide(asked(), history) == Run(3, b"{}")


def test_a_model_call_in_doubt_is_sent_again() -> None:
    history = log((intent("chat", kind="model"), "chat#1"))
    assert decide(asked("chat#1", name="chat", kind="model"), history) == Run(2, b"{}")


def test_a_model_call_that_acts_at_the_provider_is_unknown() -> None:
    history = log((intent("chat", kind="model", policy="never"), "chat#1"))
    decision = decide(asked("chat#1", name="chat", kind="model", policy="never"), history)
    assert decision == Settle(CallOutcome(status="unknown"))


@pytest.mark.parametrize(("recorded", "declared"), [("never", "never"), ("never", "safe"), ("safe", "never")])
def test_never_or_differing_policies_are_unknown(recorded: Policy, declared: Policy) -> None:
    history = log((intent(policy=recorded), "refund#1"))
    assert decide(asked(policy=declared), history) == Settle(CallOutcome(status="unknown"))


def test_never_with_a_probe_asks_it() -> None:
    history = log((intent(policy="never"), "refund#1"))
    assert decide(asked(policy="never", probe=True), history) == Probe(2, b"{}")


def test_a_probe_does_not_help_where_the_policies_differ() -> None:
    history = log((intent(policy="safe"), "refund#1"))
    assert decide(asked(policy="never", probe=True), history) == Settle(CallOutcome(status="unknown"))


def test_evidence_becomes_the_outcome_of_a_never_call() -> None:
    history = log((intent(policy="never"), "refund#1"), (CallEvidence(outcome=OK, epoch=1), "refund#1"))
    assert decide(asked(policy="never"), history) == Settle(CallOutcome(status="ok", value=b"1", evidence=2))


def test_evidence_is_only_kept_for_reading_where_the_call_runs_again() -> None:
    history = log((intent(), "refund#1"), (CallEvidence(outcome=OK, epoch=1), "refund#1"))
    assert decide(asked(), history) == Run(2, b"{}")


def test_evidence_never_changes_a_recorded_outcome() -> None:
    unknown = CallOutcome(status="unknown")
    history = log(
        (intent(policy="never"), "refund#1"),
        (unknown, "refund#1"),
        (CallEvidence(outcome=OK, epoch=1), "refund#1"),
    )
    assert decide(asked(policy="never"), history) == Serve(unknown)


@pytest.mark.parametrize(
    "other", [asked(digest=b"e"), asked(name="other"), asked(kind="step")], ids=["input", "name", "kind"]
)
def test_another_call_under_the_same_key_diverges(other: Asked) -> None:
    for history in (log((intent(), "refund#1")), log((intent(), "refund#1"), (OK, "refund#1"))):
        decision = decide(other, history)
        assert isinstance(decision, Diverge)
        assert decision.recorded is not None
        assert decision.recorded["name"] == "refund"


def test_a_new_effect_inside_old_history_diverges() -> None:
    history = log((intent("a"), "a#1"), (intent("b"), "b#1"))
    history.claim("a#1")
    decision = decide(asked("c#1", name="c"), history)
    assert isinstance(decision, Diverge)
    assert decision.recorded is not None
    assert decision.recorded["key"] == "b#1"
    history.claim("b#1")
    assert decide(asked("c#1", name="c"), history) == Run(1)


def test_scopes_keep_their_own_order() -> None:
    history = log((intent("a"), "t1/a#1"), (intent("b"), "t2/b#1"))
    history.claim("t1/a#1")
    assert decide(asked("t1/c#1", name="c"), history) == Run(1)
    assert isinstance(decide(asked("t2/c#1", name="c"), history), Diverge)


def test_a_call_named_by_a_model_keeps_no_order() -> None:
    history = log((intent("a"), "model#1/0:call_1"))
    assert decide(asked("model#1/1:call_2", name="b"), history) == Run(1)


def test_scope_and_counting_are_read_from_the_key() -> None:
    assert (scope_of("a#1"), scope_of("t1/a#1"), scope_of("t1/t2/a#10")) == ("", "t1", "t1/t2")
    assert is_counted("a#1")
    assert not is_counted("model#1/0:call_1")
    assert not is_counted("mine")


# Retry ---------------------------------------------------------------------------------------------


def failed(cause: str | None) -> TurnFinished:
    return TurnFinished(status="failed", error=ErrorInfo(type="ValueError"), cause=cause)


def error(kind: str = "ValueError") -> CallOutcome:
    return CallOutcome(status="error", error=ErrorInfo(type=kind))


def test_retry_sets_the_escaped_error_aside_and_keeps_the_caught_one() -> None:
    history = log(
        (intent("a"), "a#1"), (error(), "a#1"), (intent("b"), "b#1"), (error(), "b#1"), (failed("b#1"), None)
    )
    assert superseded(history) == (3, 4)


def test_retry_never_sets_a_started_never_call_aside() -> None:
    history = log((intent(policy="never"), "refund#1"), (error(), "refund#1"), (failed("refund#1"), None))
    assert superseded(history) == ()
    unknown = CallOutcome(status="unknown")
    history = log((intent(policy="never"), "refund#1"), (unknown, "refund#1"), (failed("refund#1"), None))
    assert superseded(history) == ()


def test_retry_runs_a_never_call_again_that_did_not_happen() -> None:
    history = log(
        (intent(policy="never"), "refund#1"),
        (error("journal.core.errors.DidNotHappen"), "refund#1"),
        (failed("refund#1"), None),
    )
    assert superseded(history) == (1, 2)


def test_retry_sets_unfinished_safe_siblings_aside() -> None:
    history = log(
        (intent("a"), "t1/a#1"), (intent("b"), "t2/b#1"), (error(), "t2/b#1"), (failed("t2/b#1"), None)
    )
    assert superseded(history) == (1, 2, 3)


def test_retry_sets_aside_what_was_cancelled_over_the_handlers_own_failure() -> None:
    """Also where the worker died in between, and of a call whose intent came to the log with its cancellation."""
    cancelled = CallOutcome(status="cancelled", cancelled=True)
    history = log(
        (intent("early"), "t1/early#1"),
        (cancelled, "t1/early#1"),
        (intent("next"), "next#1"),
        (CallOutcome(status="ok", value=b"1"), "next#1"),
        (intent("done"), "t2/done#1"),
        (CallOutcome(status="ok", value=b"1"), "t2/done#1"),
        (intent("safe"), "t3/safe#1"),
        (cancelled, "t3/safe#1"),
        (TurnStarted(worker="w", attempt=2), None),
        (intent("pay", policy="never"), "t4/pay#1"),
        (cancelled, "t4/pay#1"),
        (intent("acted", policy="never"), "t5/acted#1"),
        (CallOutcome(status="unknown", cancelled=True), "t5/acted#1"),
        (Observed(value=b"true"), "t2/done#1@cancelled"),
        (failed(None), None),
    )
    assert history.failed_after() == 4
    assert superseded(history) == (7, 8, 10, 11)


def test_what_was_set_aside_counts_no_more() -> None:
    history = log(
        (TurnSubmitted(input=b"1", input_digest=b"d"), None),
        (intent("a"), "a#1"),
        (error(), "a#1"),
        (failed("a#1"), None),
        (TurnRetried(superseded=(2, 3)), None),
    )
    assert history.finished is None
    assert decide(asked("a#1", name="a"), history) == Run(1)


def test_the_first_cancel_request_stands() -> None:
    history = log((CancelRequested(reason="one"), None), (CancelRequested(reason="two"), None))
    assert history.cancel_requested == CancelRequested(reason="one")


def test_a_cancelled_call_may_go_unasked() -> None:
    """It lost a race; on replay the winner may be there before it is asked for."""
    history = log(
        (intent("a"), "a#1"), (CallOutcome(status="cancelled"), "a#1"), (intent("b"), "b#1"), (OK, "b#1")
    )
    history.claim("b#1")
    assert history.unclaimed() is None
    assert decide(asked("c#1", name="c"), history) == Run(1)

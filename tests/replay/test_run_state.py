"""A run's records folded to a state: attempts and calls, what was interrupted and what carried on."""

import msgspec
import pytest

from journal.core.errors import CorruptRecord, LogError, RecordTooNew, UnknownRecordType
from journal.core.records import (
    BlobRef,
    CallEvidence,
    CallIntent,
    CallOutcome,
    CancelRequested,
    Difference,
    ErrorInfo,
    RunClosed,
    TurnFinished,
    TurnRetried,
    TurnStarted,
)
from journal.replay.fold import RunFold, fold
from journal.replay.history import TurnHistory
from journal.replay.state import Kept, export
from tests.replay.hand import EPOCH, Hand, refund


def test_attempts_tell_how_they_ended() -> None:
    turn = fold(refund().records).turns[0]
    assert [(a.number, a.worker, a.ending, a.is_takeover) for a in turn.attempts] == [
        (1, "worker-1", "interrupted", False),
        (2, "worker-2", "interrupted", True),
        (3, "worker-3", "finished", True),
    ]
    assert [a.recorded_before for a in turn.attempts] == [0, 2, 3]


def test_calls_are_numbered_in_the_order_of_their_start() -> None:
    calls = fold(refund().records).calls
    assert [(c.number, c.key, c.kind, c.policy) for c in calls] == [
        (1, "gpt#1", "model", "safe"),
        (2, "lookup#1", "tool", "safe"),
        (3, "refund#1", "tool", "never"),
        (4, "gpt#2", "model", "safe"),
    ]


def test_a_call_knows_who_started_it_and_who_carried_it_on() -> None:
    refunded, asked = fold(refund().records).calls[2:]
    assert refunded.outcome is not None
    assert asked.outcome is not None
    assert ([t.attempt for t in refunded.tries], refunded.outcome.attempt) == ([1], 2)
    assert (refunded.outcome.status, refunded.is_carried_on) == ("unknown", True)
    assert [(t.attempt, t.ending) for t in asked.tries] == [(2, "interrupted"), (3, "answered")]
    assert asked.outcome.attempt == 3


def test_a_call_is_in_doubt_until_someone_settles_it() -> None:
    hand = refund()
    before = fold(hand.records, upto=9)  # the second attempt has begun, and not yet looked at the refund
    assert [c.key for c in before.calls if c.is_in_doubt] == ["refund#1"]
    assert not any(c.is_in_doubt for c in fold(hand.records).calls)


def test_durations_need_two_moments() -> None:
    calls = fold(refund().records).calls
    assert calls[0].duration_seconds == 1.0
    assert calls[1].duration_seconds is None  # the intent rode with its outcome
    assert calls[2].duration_seconds is None  # it was settled, not run


def test_upto_gives_the_state_as_it_was() -> None:
    state = fold(refund().records, upto=8)
    assert (state.head, state.status) == (8, "running")
    assert [a.ending for a in state.turns[0].attempts] == ["open"]
    assert state.calls[-1].tries[0].ending == "open"


def test_a_start_that_is_no_takeover_follows_a_release() -> None:
    hand = Hand()
    hand.start(1)
    hand.start(2)
    hand.finish()
    assert [a.ending for a in fold(hand.records).turns[0].attempts] == ["released", "finished"]


def test_a_blocked_turn_and_its_attempt() -> None:
    hand = Hand()
    hand.start(1)
    hand.block()
    state = fold(hand.records)
    turn = state.turns[0]
    assert (state.status, turn.attempts[0].ending) == ("blocked", "blocked")
    assert turn.blocked is not None
    assert turn.blocked.reason == "divergence"


def test_a_crash_loop_is_stopped_by_a_holder_that_never_started() -> None:
    hand = Hand()
    hand.start(1)
    hand.block(own=False)
    assert fold(hand.records).turns[0].attempts[0].ending == "interrupted"


def test_cancelling_ends_the_attempt() -> None:
    hand = Hand()
    hand.start(1)
    hand.intend("slow#1")
    hand.add(CancelRequested(reason="enough"))
    hand.add(TurnFinished(status="cancelled"))
    turn = fold(hand.records).turns[0]
    assert (turn.status, turn.cancel_reason, turn.attempts[0].ending) == ("cancelled", "enough", "cancelled")
    assert fold(hand.records).calls[0].tries[0].ending == "interrupted"


def test_a_retry_sets_calls_aside_and_their_keys_start_anew() -> None:
    hand = Hand()
    hand.start(1)
    hand.intend("good#1")
    hand.settle("good#1")
    intent = hand.intend("bad#1")
    outcome = hand.settle("bad#1", "error")
    hand.finish(failed_by="bad#1")
    failed = fold(hand.records)
    assert (failed.status, failed.turns[0].cause) == ("failed", "bad#1")
    retried = hand.retry(intent, outcome)
    assert fold(hand.records).status == "pending"
    hand.start(2)
    hand.intend("bad#1", attempt=2)
    hand.settle("bad#1")
    hand.finish()
    state = fold(hand.records)
    assert (state.status, state.turns[0].error, state.turns[0].retries) == ("succeeded", None, [retried])
    assert [(c.number, c.key, c.superseded_by) for c in state.calls] == [
        (1, "good#1", None),
        (2, "bad#1", retried),
        (3, "bad#1", None),
    ]


def test_calls_that_count_are_those_that_the_matcher_sees() -> None:
    """The same log, folded for people and for the matcher, holds the same calls with the same outcomes."""
    hand = refund()
    intent = hand.intend("note#1", attempt=3)
    hand.finish(failed_by="note#1")
    hand.retry(intent)
    history = TurnHistory("start")
    for record in hand.records:
        history.add(record)
    standing = {c.key: c for c in fold(hand.records).calls if c.superseded_by is None}
    assert {k: c.outcome_seq for k, c in history.calls.items()} == {
        k: c.outcome.seq if c.outcome else 0 for k, c in standing.items()
    }
    assert {k: c.intent_seqs for k, c in history.calls.items()} == {
        k: tuple(t.seq for t in c.tries) for k, c in standing.items()
    }


def test_a_second_turn_waits_and_gives_the_run_its_status() -> None:
    hand = refund()
    assert fold(hand.records).status == "succeeded"
    hand.submit("second")
    state = fold(hand.records)
    assert [(t.id, t.status) for t in state.turns] == [("start", "succeeded"), ("second", "pending")]
    assert state.status == "pending"


def test_evidence_is_kept_beside_the_call_and_changes_nothing() -> None:
    hand = Hand()
    hand.start(1)
    hand.intend("refund#1", policy="never")
    hand.start(2, taken_over=True)
    seq = hand.add(CallEvidence(outcome=CallOutcome(status="ok"), epoch=1), key="refund#1")
    call = fold(hand.records).calls[0]
    assert (call.evidence, call.outcome, call.is_in_doubt) == ((seq,), None, True)


def test_closing_ends_what_was_open() -> None:
    hand = Hand()
    hand.start(1)
    hand.add(RunClosed(), turn=None)
    state = fold(hand.records)
    assert (state.is_closed, state.turns[0].attempts[0].ending) == (True, "closed")


def test_large_values_are_named_by_blob_and_size() -> None:
    hand = Hand()
    hand.start(1)
    hand.add(TurnFinished(status="succeeded", output=BlobRef(blob="ab", size=70_000)))
    assert fold(hand.records).turns[0].output == Kept(70_000, blob="ab")


def test_the_export_is_canonical_json_and_the_same_each_time() -> None:
    records = refund().records
    data = export(fold(records))
    assert data == export(fold(list(records)))
    assert data.startswith(
        b'{"agent":"support","calls":[{"duration_seconds":1.0,"evidence":[],"input":{"json":"hello","size":7}'
    )
    assert msgspec.json.decode(data)["turns"][0]["output"] == {"json": "bye", "size": 5}


def test_the_export_spells_out_what_the_records_of_a_call_say() -> None:
    """Every field: people and programs read this shape."""
    hand = Hand()
    hand.start(1)
    hand.add(
        CallIntent(
            kind="model", name="gpt", input=BlobRef("aa", 70_000), input_digest=b"d", policy="safe", attempt=1
        ),
        key="gpt#1",
    )
    hand.start(2, taken_over=True)
    hand.add(
        CallIntent(
            kind="model", name="gpt", input=b"[1]", input_digest=b"d", policy="never", attempt=2, number=2
        ),
        key="gpt#1",
    )
    hand.add(
        CallOutcome(
            status="error",
            value=BlobRef("bb", 80_000),
            error=ErrorInfo(type="ValueError", args=b"[2]", code="E1", data=BlobRef("cc", 90_000)),
            lost="<object>",
            usage={"output_tokens": 7},
            finish="stop",
            raw_finish="end_turn",
            rate_limits={"requests_remaining": 49.5},
            tries=3,
            evidence=9,
            probed=True,
        ),
        key="gpt#1",
    )
    hand.settle("told#1", "unknown")
    hand.block()
    retried = hand.add(TurnRetried(settled={8: b"true"}, superseded=(7,)))
    hand.intend("gpt#1", attempt=2)
    settled, told, begun = msgspec.json.decode(export(fold(hand.records)))["calls"]
    assert (retried, settled) == (
        10,
        {
            "number": 1,
            "turn": "start",
            "key": "gpt#1",
            "kind": "model",
            "name": "gpt",
            "policy": "never",
            "input": {"size": 3, "json": [1]},
            "tries": [
                {"seq": 4, "time": EPOCH + 3, "attempt": 1, "number": 1, "ending": "interrupted"},
                {"seq": 6, "time": EPOCH + 5, "attempt": 2, "number": 2, "ending": "answered"},
            ],
            "outcome": {
                "seq": 7,
                "time": EPOCH + 6,
                "attempt": 2,
                "status": "error",
                "value": {"size": 80_000, "blob": "bb"},
                "error": {
                    "type": "ValueError",
                    "code": "E1",
                    "args": {"size": 3, "json": [2]},
                    "data": {"size": 90_000, "blob": "cc"},
                },
                "lost": "<object>",
                "usage": {"output_tokens": 7},
                "tries": 3,
                "evidence": 9,
                "is_probed": True,
                "finish": "stop",
                "raw_finish": "end_turn",
                "rate_limits": {"requests_remaining": 49.5},
                "by_hand": None,
            },
            "duration_seconds": 1.0,
            "evidence": [],
            "superseded_by": 10,
        },
    )
    assert told == {
        "number": 2,
        "turn": "start",
        "key": "told#1",
        "kind": None,
        "name": "",
        "policy": None,
        "input": None,
        "tries": [],
        "outcome": {
            "seq": 8,
            "time": EPOCH + 9,
            "attempt": 2,
            "status": "ok",
            "value": {"size": 4, "json": True},
            "error": None,
            "lost": None,
            "usage": {},
            "tries": 1,
            "evidence": None,
            "is_probed": False,
            "finish": None,
            "raw_finish": None,
            "rate_limits": {},
            "by_hand": 10,
        },
        "duration_seconds": None,
        "evidence": [],
        "superseded_by": None,
    }
    assert (begun["number"], begun["outcome"], begun["tries"][0]["ending"]) == (3, None, "open")


def test_a_model_call_builds_on_results_from_before_the_first_and_on_what_was_set_aside() -> None:
    hand = Hand()
    hand.start(1)
    hand.settle("look#1")
    outcome = hand.settle("look#2")
    hand.retry(outcome)
    hand.intend("gpt#1", "model")
    hand.settle("look#3")
    said = Difference(base="gpt#1", outcomes=("look#1", "look#2", "look#3"), keep=(), size=0, crc=0)
    seq = hand.add(
        CallIntent(
            v=2, kind="model", name="gpt", input_digest=b"", policy="safe", attempt=1, difference=said
        ),
        key="gpt#2",
    )
    run = RunFold()
    run.extend(hand.records)
    found = run.inputs.at(seq)
    assert found is not None
    assert found.outcomes == (b'{"done":"look#1"}', b'{"done":"look#2"}', b'{"done":"look#3"}')


def test_page_by_page_comes_to_the_same() -> None:
    records = refund().records
    run = RunFold()
    for record in records:
        run.add(record)
    assert export(run.state) == export(fold(records))


def test_no_records_are_no_run() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        fold([])


def test_a_record_of_a_later_version_is_refused_by_name() -> None:
    hand = Hand()
    hand.records.append(msgspec.structs.replace(hand.records[-1], seq=3, type="turn.teleported"))
    with pytest.raises(UnknownRecordType, match=r"turn\.teleported"):
        fold(hand.records)


NEWER = msgspec.msgpack.encode({"v": 99, "status": "ok"})


@pytest.mark.parametrize(
    ("body", "kind", "error"),
    [
        (b"\xc1", "call.outcome", CorruptRecord),
        (b"", "call.outcome", CorruptRecord),
        (b"\x91" * 100_000, "call.outcome", CorruptRecord),
        (msgspec.msgpack.encode({"status": "ok"}) + b"\x80", "call.outcome", CorruptRecord),
        (NEWER, "call.outcome", RecordTooNew),
        (NEWER, "call.intent", RecordTooNew),
        (msgspec.msgpack.encode({}), "turn.teleported", UnknownRecordType),
    ],
)
def test_a_record_that_cannot_be_read_is_named_and_those_before_it_count(
    body: bytes, kind: str, error: type[LogError]
) -> None:
    records = refund().records
    at = 5
    bad = msgspec.structs.replace(records[at], type=kind, body=body)
    run, history = RunFold(), TurnHistory("start")
    for folded in (run, history):
        with pytest.raises(error) as caught:
            folded.extend([*records[:at], bad, *records[at + 1 :]])
        assert (caught.value.run_id, caught.value.seq) == ("order-42", at + 1)
    assert run.state.head == at
    assert export(run.state) == export(fold(records[:at]))


def test_calls_stay_with_their_own_turn() -> None:
    hand = Hand()
    hand.submit("second")
    for turn in ("start", "second"):
        hand.turn = turn
        hand.start(1)
    for turn in ("start", "second", "never submitted"):
        hand.turn = turn
        hand.intend("look#1")
    hand.add(CallOutcome(status="ok"), key="look#1", turn=None)
    hand.turn = "second"
    seq = hand.settle("look#1")
    hand.add(CallOutcome(status="ok"), key="look#1", turn=None)
    state = fold(hand.records)
    assert [(call.turn, call.key) for call in state.calls] == [("start", "look#1"), ("second", "look#1")]
    assert [call.outcome and call.outcome.seq for call in state.calls] == [None, seq]
    assert (state.head, state.time) == (len(hand.records), hand.records[-1].time)


def test_an_attempt_whose_worker_took_the_run_up_again_was_not_lost_with_it() -> None:
    hand = Hand()
    hand.start(1)
    hand.add(TurnStarted(worker="worker-1", attempt=2, taken_over=True))
    hand.add(TurnStarted(worker="worker-2", attempt=3, taken_over=True))
    assert [a.ending for a in fold(hand.records).turns[0].attempts] == ["lost", "interrupted", "open"]


@pytest.mark.parametrize("is_late", [True, False])
def test_late_evidence_shows_that_its_worker_lived_on(is_late: bool) -> None:
    hand = Hand()
    hand.start(1)
    hand.intend("pay#1")
    evidence = CallEvidence(outcome=CallOutcome(status="ok", value=b"1"), epoch=hand.epoch)
    if is_late:
        hand.start(2, taken_over=True)
        hand.add(evidence, key="pay#1")
    else:
        hand.add(evidence, key="pay#1")
        hand.start(2, taken_over=True)
    assert [a.ending for a in fold(hand.records).turns[0].attempts] == ["lost", "open"]

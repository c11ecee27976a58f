"""What a fork takes over of a log: by hand, record by record."""

import msgspec
import pytest

from journal.core import values
from journal.core.codec import open_record, seal, verify
from journal.core.records import (
    BlobRef,
    CallEvidence,
    CallIntent,
    CallOutcome,
    CancelRequested,
    DocumentEdit,
    FileChange,
    FileSnapshot,
    Origin,
    Record,
    RunCreated,
    TurnRetried,
    TurnSubmitted,
)
from journal.replay.fold import fold
from journal.replay.prefix import Fork, Given, NoSuchCall, Part, Prefix
from tests.replay.hand import EPOCH, INPUT, Hand, refund

NONCE = b"f" * 16


def part_of(hand: Hand, at: int, given: Given | None = None) -> Part:
    prefix = Prefix(at, given)
    for record in hand.records:
        prefix.add(record)
    return prefix.part()


def forked(hand: Hand, at: int, given: Given | None = None) -> list[Record]:
    """The whole log of the fork."""
    part = part_of(hand, at, given)
    origin = Origin(run=hand.run, seq=len(hand.records), at=at)
    fork = Fork("copy", origin, NONCE, EPOCH + 1000, part, given)
    log = [fork.copied(hand.records[seq - 1]) for seq in part.seqs]
    log += [fork.settlement(number) for number in range(len(part.settled))]
    assert [record.seq for record in log] == list(range(1, part.head + 1))
    for record in log:
        verify(record)
        assert record.run == "copy"
    return log


def said(log: list[Record]) -> list[str]:
    """Type and key of each record, and how calls ended."""
    words = []
    for record in log:
        body = open_record(record)
        status = f" {body.status}" if isinstance(body, CallOutcome) else ""
        words.append(f"{record.type} {record.key or record.turn or ''}{status}".strip())
    return words


def test_what_precedes_the_call_is_taken_as_it_lies() -> None:
    hand = refund()
    log = forked(hand, 4)
    assert said(log) == [
        "run.created", "turn.submitted start", "turn.started start", "call.intent gpt#1", "call.outcome gpt#1 ok",
        "call.intent lookup#1", "call.outcome lookup#1 ok", "call.intent refund#1", "turn.started start",
        "call.outcome refund#1 unknown",
    ]  # fmt: skip
    created = open_record(log[0])
    assert isinstance(created, RunCreated)
    assert created.origin == Origin(run="order-42", seq=15, at=4)
    assert (created.nonce, created.agent) == (NONCE, "support")
    assert (log[0].time, log[1].time) == (EPOCH + 1000, hand.records[1].time)
    assert [record.body for record in log[1:3]] == [record.body for record in hand.records[1:3]]
    state = fold(log)
    assert (state.status, len(state.calls)) == ("running", 3)
    assert state.origin is not None
    assert state.origin.at == len(state.calls) + 1, "they are numbered alike"


@pytest.mark.parametrize(("at", "pinned"), [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)])
def test_each_place(at: int, pinned: int) -> None:
    part = part_of(refund(), at)
    assert part.pinned == pinned
    assert part.repeats == (("refund#1",) if at <= 3 else ())
    assert part.turns[0].finished is None
    assert part.epoch == (3 if at == 5 else 2 if at == 4 else 1)


def test_one_more_than_the_last_takes_the_end_away_only() -> None:
    log = forked(refund(), 5)
    assert said(log)[-1] == "call.outcome gpt#2 ok"
    assert len(log) == len(refund().records) - 1


@pytest.mark.parametrize("at", [6, 7, 100])
def test_there_is_no_such_call(at: int) -> None:
    with pytest.raises(NoSuchCall) as refused:
        part_of(refund(), at)
    assert refused.value.calls == 4


def test_copied_calls_keep_what_their_idempotency_keys_are_made_of() -> None:
    log = forked(refund(), 4)
    intents = [body for record in log if isinstance(body := open_record(record), CallIntent)]
    assert [intent.nonce for intent in intents] == [b"n" * 16] * 3
    again = Prefix(4)
    for record in log:
        again.add(record)
    fork = Fork("copy", Origin(run="copy", seq=len(log), at=4), b"g" * 16, 0.0, again.part())
    twice = [body for record in log if isinstance(body := open_record(fork.copied(record)), CallIntent)]
    assert [intent.nonce for intent in twice] == [b"n" * 16] * 3, "a fork of a fork"


def parallel() -> Hand:
    """Three calls under way at once; the last ends first."""
    hand = Hand()
    hand.start(1)
    hand.intend("a#1", policy="never")
    hand.intend("b#1")
    hand.intend("c#1")
    hand.settle("c#1")
    return hand


def test_what_had_begun_and_ended_later_is_taken_and_what_did_not_is_unknown() -> None:
    hand = parallel()
    hand.settle("b#1")
    part = part_of(hand, 3)
    assert (part.unknown, part.pinned) == ((1,), 2)
    assert said(forked(hand, 3))[-4:] == [
        "call.intent a#1", "call.intent b#1", "call.outcome b#1 ok", "call.outcome a#1 unknown",
    ]  # fmt: skip


def test_a_cancellation_over_what_the_fork_has_yet_to_do_is_not_taken() -> None:
    hand = parallel()
    hand.settle("b#1", "cancelled")
    hand.add(CallOutcome(status="unknown", cancelled=True), key="a#1")
    log = forked(hand, 3)
    assert said(log)[-2:] == ["call.outcome a#1 unknown", "call.outcome b#1 unknown"]
    assert not any(isinstance(b := open_record(r), CallOutcome) and b.cancelled for r in log)


def test_late_evidence_is_what_a_call_in_doubt_gave() -> None:
    hand = parallel()
    late = CallOutcome(status="ok", value=b"7")
    hand.add(CallEvidence(outcome=late, epoch=1, nonce=b"other run"), key="a#1")
    hand.add(CallEvidence(outcome=late, epoch=1, nonce=b"n" * 16), key="a#1")
    log = forked(hand, 3)
    assert said(log)[-3:] == ["call.evidence a#1", "call.outcome a#1 ok", "call.outcome b#1 unknown"]
    evidence, outcome = open_record(log[-3]), open_record(log[-2])
    assert isinstance(evidence, CallEvidence)
    assert isinstance(outcome, CallOutcome)
    assert evidence.nonce == NONCE, "of this run now"
    assert (outcome.value, outcome.evidence) == (b"7", log[-3].seq)


def test_what_comes_under_its_key_after_a_retry_is_another_call() -> None:
    hand = parallel()
    hand.settle("b#1", "error")
    hand.finish(failed_by="b#1")
    hand.retry(4, 5, 7)
    hand.intend("a#1")
    hand.settle("a#1")
    assert part_of(hand, 3).unknown == (1,)


def test_references_follow_what_they_refer_to() -> None:
    hand = Hand()
    hand.start(1)
    hand.add(CancelRequested(), turn="start")  # is not taken over, so that seqs shift
    hand.intend("a#1")
    hand.settle("a#1", "error")
    hand.finish(failed_by="a#1")
    hand.retry(5, 6)
    hand.start(2)
    hand.intend("a#1")
    hand.settle("a#1")
    hand.submit("later")
    hand.turn = "start"
    hand.intend("b#1")
    log = forked(hand, 3)
    (retried,) = [body for record in log if isinstance(body := open_record(record), TurnRetried)]
    assert [log[seq - 1].key for seq in retried.superseded] == ["a#1", "a#1"]
    assert "turn.submitted later" not in said(log)
    assert len(part_of(hand, 3).turns) == 1


def test_what_was_said_of_calls_follows_them_too() -> None:
    hand = Hand()
    hand.start(1)
    hand.add(CancelRequested(), turn="start")  # is not taken over, so that seqs shift
    hand.intend("a#1", policy="never")
    told = hand.settle("a#1", "unknown")
    aside = hand.intend("b#1")
    error = hand.settle("b#1", "error")
    hand.finish(failed_by="b#1")
    large = BlobRef("aa", 70_000)
    hand.add(TurnRetried(superseded=(aside, error), from_seq=aside, settled={told: large, 999: b"1"}))
    hand.start(2)
    hand.intend("b#1")
    log = forked(hand, 3)
    (retried,) = [body for record in log if isinstance(body := open_record(record), TurnRetried)]
    assert retried.from_seq is not None
    assert log[retried.from_seq - 1].key == "b#1"
    assert [(log[seq - 1].key, value) for seq, value in retried.settled.items()] == [("a#1", large)]
    assert part_of(hand, 3).blobs == {"aa"}
    before, after = fold(hand.records).calls[0].outcome, fold(log).calls[0].outcome
    assert before is not None
    assert after is not None
    assert before.status == after.status == "ok"


def test_turns_before_it_are_taken_whole_and_those_after_it_not_at_all() -> None:
    hand = Hand()
    hand.start(1)
    hand.intend("a#1")
    hand.submit("second")
    hand.submit("third")
    hand.turn = "start"
    hand.settle("a#1")
    hand.finish()
    hand.turn = "second"
    hand.start(1)
    hand.intend("a#1")
    hand.settle("a#1")
    hand.finish()
    part = part_of(hand, 2)
    assert [(turn.turn, turn.status) for turn in part.turns] == [("start", "succeeded"), ("second", None)]
    assert [key.key for key in part.keys] == ["turn:second", "turn:start"]
    log = forked(hand, 2)
    assert said(log)[-2:] == ["turn.finished start", "turn.started second"]
    assert part.turns[1].submitted == said(log).index("turn.submitted second") + 1


def test_with_another_input_nothing_of_the_turn_is_taken() -> None:
    hand = refund()
    data = values.encode("another")
    given = Given(data, values.digest(data))
    part = part_of(hand, 2, given)
    assert (part.pinned, part.repeats) == (0, ("refund#1",))
    log = forked(hand, 2, given)
    assert said(log) == ["run.created", "turn.submitted start"]
    submitted = open_record(log[1])
    assert isinstance(submitted, TurnSubmitted)
    assert (submitted.input, submitted.input_digest) == (data, values.digest(data))
    assert part.keys[0].digest == values.digest(data) != values.digest(INPUT)


def test_fields_of_a_later_version_are_kept() -> None:
    hand = Hand()
    hand.start(1)
    seq = hand.intend("a#1")
    hand.intend("b#1")
    told = msgspec.msgpack.decode(hand.records[seq - 1].body) | {"later": [1]}
    body = msgspec.msgpack.encode(told)
    sealed = seal(hand.run, open_record(hand.records[seq - 1]), turn="start", key="a#1")
    hand.records[seq - 1] = msgspec.structs.replace(
        hand.records[seq - 1], body=body, checksum=sealed.checksum
    )
    copied = msgspec.msgpack.decode(forked(hand, 2)[3].body)
    assert (copied["later"], copied["nonce"]) == ([1], b"n" * 16)


# Edits of calls that ended behind the parting --------------------------------------------------------


def edit(base: bytes | None, value: bytes) -> DocumentEdit:
    return DocumentEdit(
        doc="notes", version=1, base=None if base is None else values.digest(base), value=value
    )


def change(path: str, base: bytes | None, content: bytes | None, source: str | None = None) -> FileChange:
    digest = None if base is None else values.digest(base)
    return FileChange(path=path, base=digest, content=content, source=source)


def behind(*outcomes: tuple[str, CallOutcome]) -> list[CallOutcome]:
    """`a`, `b` and `c` begin; then `before` edits and writes, `d` begins where the fork parts, and these end.

    The outcomes of the fork from there on.
    """
    hand = Hand()
    hand.start(1)
    for key in ("a#1", "b#1", "c#1"):
        hand.intend(key)
    hand.intend("before#1")
    hand.add(
        CallOutcome(
            status="ok",
            edits=(edit(None, b"[1]"),),
            files=(change("/x", None, b"x"), change("/y", None, b"y")),
        ),
        key="before#1",
    )
    hand.intend("d#1")
    for key, outcome in outcomes:
        hand.add(outcome, key=key)
    bodies = [open_record(record) for record in forked(hand, 5)]
    return [body for body in bodies if isinstance(body, CallOutcome)][1:]


def test_an_edit_that_rests_on_what_is_left_behind_does_not_count() -> None:
    """`d` is left behind, and with it what it put into the document and the files; `a` had built upon that."""
    d = CallOutcome(
        status="ok",
        edits=(edit(b"[1]", b"[1,4]"),),
        files=(change("/x", b"x", b"xd"), change("/new", None, b"d")),
    )
    a = CallOutcome(
        status="ok",
        value=b"7",
        edits=(edit(b"[1,4]", b"[1,4,5]"),),
        files=(change("/x", b"xd", b"xda"), change("/y", b"y", b"ya"), change("/new", b"d", None)),
    )
    kept, *unknown = behind(("d#1", d), ("a#1", a))
    assert (kept.status, kept.value) == ("ok", b"7"), "what it gave stays"
    assert [(each.value, each.rejected) for each in kept.edits] == [
        (None, "the document was edited meanwhile")
    ]
    assert [(each.path, each.content, each.rejected) for each in kept.files] == [
        ("/x", None, "it was changed meanwhile"),
        ("/y", b"ya", None),
        ("/new", None, "it was changed meanwhile"),
    ]
    assert [outcome.status for outcome in unknown] == ["unknown", "unknown"]


def test_what_rests_on_others_that_come_along_counts() -> None:
    a = CallOutcome(status="ok", edits=(edit(b"[1]", b"[1,2]"),), files=(change("/x", b"x", b"xa"),))
    b = CallOutcome(status="ok", edits=(edit(b"[1,2]", b"[1,2,3]"),), files=(change("/x", b"xa", b"xab"),))
    assert behind(("a#1", a), ("b#1", b))[:2] == [a, b]


def test_both_halves_of_a_move_are_left_behind_and_no_file_lies_below_another() -> None:
    d = CallOutcome(status="ok", files=(change("/x", b"x", None), change("/y", b"y", b"yd")))
    a = CallOutcome(status="ok", files=(change("/x/below", None, b"1"),))
    b = CallOutcome(status="ok", files=(change("/y", b"yd", None), change("/z", None, b"yd", source="/y")))
    first, second, _ = behind(("d#1", d), ("a#1", a), ("b#1", b))
    assert [each.rejected for each in first.files] == ["it passes through the file '/x'"]
    assert [each.rejected for each in second.files] == [
        "it was changed meanwhile",
        "it was to be moved together with '/y'",
    ]


def test_a_snapshot_of_a_directory_counts_on_what_it_was_made_on() -> None:
    """It holds all files: one that was made on what stays behind would bring that along."""

    def saved(name: str, base: str | None) -> CallOutcome:
        change = FileChange(
            path="/",
            base=None if base is None else bytes.fromhex(base),
            snapshot=FileSnapshot(id=name, files=1, size=1, root="/srv"),
        )
        return CallOutcome(status="ok", v=3, files=(change, FileChange(path="/p", rejected="it is a pipe")))

    a, b = saved("00aa", None), saved("00bb", "00aa")
    assert behind(("a#1", a), ("b#1", b))[:2] == [a, b]
    d = saved("00dd", None)
    kept, *_ = behind(("d#1", d), ("a#1", saved("00ee", "00dd")))
    assert [(each.path, each.snapshot, each.rejected) for each in kept.files] == [
        ("/", None, "it was changed meanwhile"),
        ("/p", None, "it is a pipe"),
    ]


def test_evidence_that_is_taken_for_the_outcome_is_judged_too() -> None:
    d = CallOutcome(status="ok", edits=(edit(b"[1]", b"[4]"),))
    late = CallOutcome(status="ok", value=b"7", edits=(edit(b"[4]", b"[4,5]"),))
    hand = Hand()
    hand.start(1)
    hand.intend("a#1")
    hand.intend("before#1")
    hand.add(CallOutcome(status="ok", edits=(edit(None, b"[1]"),)), key="before#1")
    hand.intend("d#1")
    hand.add(d, key="d#1")
    hand.add(CallEvidence(outcome=late, epoch=1, nonce=b"n" * 16), key="a#1")
    outcome = open_record(forked(hand, 3)[-1])
    assert isinstance(outcome, CallOutcome)
    assert (outcome.value, outcome.edits[0].rejected) == (b"7", "the document was edited meanwhile")

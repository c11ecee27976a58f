"""Whoever reads an input gets it as a whole: forks, checks, comparisons and replays of a log that holds differences."""

from typing import Any
from zlib import crc32

import msgspec
import pytest

from journal.core import values
from journal.core.codec import Blob, open_record, pack
from journal.core.ports import TurnInfo
from journal.core.records import (
    Accepted,
    BlobRef,
    CallIntent,
    CallOutcome,
    Difference,
    Origin,
    Record,
    TurnRetried,
)
from journal.replay.diff import diff, recorded
from journal.replay.history import TurnHistory
from journal.replay.inputs import Inputs, Whole, whole
from journal.replay.prefix import Fork, Prefix
from journal.replay.recorded import RecordedRun, blobs_of
from tests.bundle.test_verify import batched, found, image_of
from tests.replay.hand import Hand
from tests.replay.test_inputs import A, B, C, Conversation, chain, conversation

REPLY = values.encode("An answer. " * 200)


def asked(records: list[Record], blobs: dict[str, bytes] | None = None) -> list[bytes]:
    """The input of each model call's intent, whole, in the order of the log."""
    inputs, putting, wholes = Inputs(), Whole(blobs or {}), []
    for record in records:
        body = open_record(record)
        inputs.add(record, body)
        if isinstance(body, CallIntent) and body.kind == "model":
            latest = inputs.of(record.turn, record.key or "")
            assert latest is not None
            wholes.append(putting.of(latest))
    return wholes


def talk() -> Conversation:
    """Two turns; inputs build on one another, on a reply, on their own first try, and on one that was set aside."""
    log = Conversation()
    log.start(1)
    log.ask("ask#1", A)
    log.add(CallOutcome(status="ok", value=REPLY), key="ask#1")
    log.finish()
    log.submit("second")
    log.start(1)
    log.ask("ask#1", B)
    log.add(CallOutcome(status="ok", value=REPLY), key="ask#1")
    with_reply = B[:10] + REPLY + B[10:]
    keep = (0, 0, 10, 0, len(B), len(REPLY), 0, 10, len(B) - 10)
    said = Difference(
        base="ask#1", outcomes=("ask#1",), keep=keep, size=len(with_reply), crc=crc32(with_reply)
    )
    second = log.intent("ask#2", b"", said)
    log.start(2, taken_over=True)
    again = log.ask("ask#2", with_reply, base="ask#2", source=with_reply)
    failed = log.settle("ask#2", "error")
    log.finish(failed_by="ask#2")
    log.retry(second, again, failed)
    log.start(3)
    log.ask("ask#2", C, base="ask#2", source=with_reply)
    log.ask("t1/ask#1", A)
    log.settle("ask#2")
    log.ask("ask#3", conversation(*range(10)), base="ask#2", source=C)
    log.settle("t1/ask#1")
    log.settle("ask#3")
    log.finish()
    return log


@pytest.mark.parametrize("at", range(1, 8))
def test_what_a_fork_takes_over_never_builds_on_what_it_does_not(at: int) -> None:
    log = talk()
    prefix = Prefix(at)
    for record in log.records:
        prefix.add(record)
    part = prefix.part()
    fork = Fork("copy", Origin(run=log.run, seq=len(log.records), at=at), b"f" * 16, 0.0, part)
    copied = [fork.copied(log.records[seq - 1]) for seq in part.seqs]
    copied += [fork.settlement(number) for number in range(len(part.settled))]
    wholes = dict(zip(asked_seqs(log.records), asked(log.records), strict=True))
    assert asked(copied) == [wholes[seq] for seq in part.seqs if seq in wholes]


def asked_seqs(records: list[Record]) -> list[int]:
    bodies = [(record.seq, open_record(record)) for record in records]
    return [seq for seq, body in bodies if isinstance(body, CallIntent) and body.kind == "model"]


def test_a_call_that_stands_for_another_keeps_its_input() -> None:
    log = chain()
    log.block()
    accepted = Accepted(recorded="ask#3", key="other#1", kind="model", name="other", input_digest=b"d")
    log.add(TurnRetried(accepted=accepted))
    history = TurnHistory("start")
    for record in log.records:
        history.add(record)
    assert history.input_of("other#1") == C


# Verify ----------------------------------------------------------------------------------------------


def problems(log: Hand, blobs: dict[str, bytes] | None = None) -> list[tuple[int | None, str]]:
    records = batched(log.records)
    turns = (TurnInfo("start", 2, None, None),)
    return found(records, image_of(records, turns=turns, blobs=tuple(sorted(blobs or {}))), blobs)


def test_verify_puts_each_input_together() -> None:
    assert problems(chain()) == []


def test_verify_puts_those_in_blobs_together_too() -> None:
    log, (ref, blob) = large()
    assert isinstance(ref, BlobRef)
    assert problems(log, {ref.blob: blob.data}) == []


LARGE = conversation(*range(400))


def large(*, crc: int = 0) -> tuple[Conversation, tuple[BlobRef, Blob]]:
    """A conversation that begins in a blob."""
    ref, blob = pack(LARGE)
    assert isinstance(ref, BlobRef)
    assert blob is not None
    log = Conversation()
    log.start(1)
    log.intent("ask#1", ref, None)
    said = Difference(base="ask#1", keep=(0, 0, len(LARGE)), size=len(LARGE), crc=crc32(LARGE) ^ crc)
    log.intent("ask#2", b"", said)
    return log, (ref, blob)


def test_verify_tells_an_input_that_does_not_come_out_once() -> None:
    log, (ref, blob) = large(crc=1)
    log.intent(
        "ask#3", b"", Difference(base="ask#2", keep=(0, 0, len(LARGE)), size=len(LARGE), crc=crc32(LARGE))
    )
    assert problems(log, {ref.blob: blob.data}) == [(5, "its input does not come out as it was")]


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        ({"base": "ask#9"}, "it builds on the input of 'ask#9', which is not in the log before it"),
        ({"crc": crc32(A) ^ 1}, "its input does not come out as it was"),
    ],
)
def test_verify_names_the_record_whose_input_is_damaged(damage: dict[str, Any], what: str) -> None:
    log = Conversation()
    log.start(1)
    log.ask("ask#1", A)
    good = Difference(base="ask#1", keep=(0, 0, len(A)), size=len(A), crc=crc32(A))
    seq = log.intent("ask#2", b"", msgspec.structs.replace(good, **damage))
    assert problems(log) == [(seq, what)]


# Compared, and replayed ------------------------------------------------------------------------------


def test_inputs_that_differ_are_shown_whole() -> None:
    short = [values.encode({"messages": ["x" * 30 * n], "n": n}) for n in (1, 2)]
    logs = []
    for last in (b"1", b"2"):
        log = Conversation()
        log.start(1)
        log.ask("ask#1", short[0])
        data = short[0][:-1] + b',"z":' + last + b"}"
        keep = (0, 0, len(short[0]) - 1)
        said = Difference(base="ask#1", keep=keep, size=len(data), crc=crc32(data))
        log.intent("ask#2", data[len(short[0]) - 1 :], said, digest=values.digest(data))
        logs.append(log)
    (parting,) = diff(*(recorded(log.records) for log in logs)).partings
    start = short[0][:-1].decode()
    assert (parting.how, parting.left, parting.right) == ("input", start + ',"z":1}', start + ',"z":2}')


def test_the_state_of_a_recorded_run_has_inputs_whole() -> None:
    log, (ref, blob) = large()
    state = RecordedRun(log.records, {ref.blob: blob.data}).state()
    shown = state.calls[1].input
    assert shown is not None
    assert bytes(shown.json or b"") == LARGE


def test_results_told_by_hand_are_among_what_a_recorded_run_needs() -> None:
    log = chain()
    log.block()
    seq = log.add(TurnRetried(settled={8: BlobRef("aa", 70_000), 6: None}))
    assert list(blobs_of(log.records[seq - 1])) == ["aa"]


def test_a_base_from_before_a_retry_still_answers() -> None:
    log = talk()
    inputs = Inputs()
    for record in log.records:
        inputs.add(record, open_record(record))
    latest = inputs.of("second", "ask#3")
    assert latest is not None
    assert whole(latest) == conversation(*range(10))

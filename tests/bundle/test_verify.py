"""What a log must be: each thing that can be wrong with one is found, and named by its record."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from journal.core import values
from journal.core.codec import checksum, seal
from journal.core.errors import CorruptRecord
from journal.core.ports import KeyInfo, RunImage, TurnInfo
from journal.core.records import BlobRef, CallOutcome, Record, RunCreated, TurnSubmitted
from journal.engine.verifying import verify
from journal.replay.verify import MOST, Verifier
from tests.replay.hand import Hand, refund

LARGE = b'"large"'
NAME = values.digest(LARGE).hex()
TURNS = (TurnInfo("start", 2, "succeeded", 15),)


def batched(records: list[Record]) -> list[Record]:
    """A batch id each, as long as they are."""
    return [replace(record, batch=b"%016d" % record.seq) for record in records]


def image_of(records: list[Record], **fields: Any) -> RunImage:
    said: dict[str, Any] = {
        "run": "order-42", "agent": "support", "created": 0.0, "min_reader": 1, "closed": None, "epoch": 3,
        "head": len(records), "turns": TURNS, "keys": (), "blobs": (), "status": "succeeded", "priority": 0,
        "due_at": None, "takeovers": 0,
    }  # fmt: skip
    return RunImage(**(said | fields))


def found(
    records: list[Record], image: RunImage | None = None, blobs: dict[str, bytes] | None = None
) -> list[tuple[int | None, str]]:
    verifier = Verifier("order-42")
    for record in records:
        verifier.add(record)
    for name, data in (blobs or {}).items():
        verifier.add_blob(name, data)
    verifier.finish(image or image_of(records))
    return [(problem.seq, problem.what) for problem in verifier.problems]


def log() -> list[Record]:
    """The demo's, fifteen records."""
    return batched(refund().records)


def test_a_whole_log_has_no_problem() -> None:
    assert found(log()) == []


def changed(seq: int, **fields: Any) -> Callable[[list[Record]], list[Record]]:
    return lambda records: [*records[: seq - 1], replace(records[seq - 1], **fields), *records[seq:]]


def said(seq: int, body: Any) -> Callable[[list[Record]], list[Record]]:
    """Another body in its place, sealed as if it were right."""

    def change(records: list[Record]) -> list[Record]:
        old = records[seq - 1]
        new = seal(old.run, body, turn=old.turn, key=old.key)
        return changed(seq, type=new.type, body=new.body, checksum=new.checksum)(records)

    return change


HELLO = values.encode("hello")
DONE = CallOutcome(status="ok", value=b"1")
CASES: dict[str, tuple[Callable[[list[Record]], list[Record]], int | None, str]] = {
    "missing": (lambda rs: [*rs[:5], *rs[6:]], 6, "it is missing"),
    "several missing": (lambda rs: [*rs[:5], *rs[8:]], 6, "it is missing, and so are all up to record 8"),
    "doubled": (lambda rs: [*rs[:5], rs[4], *rs[5:]], 5, "it stands behind record 5"),
    "the end is missing": (lambda rs: rs[:-1], None, "the log ends at record 14, and its store says 15"),
    "of another run": (changed(5, run="other"), 5, "it is of run 'other'"),
    "changed": (changed(5, body=b"\x80"), 5, "its checksum does not match"),
    "a short batch id": (changed(5, batch=b"b5"), 5, "its batch id has 2 bytes instead of 16"),
    "a batch apart": (changed(8, batch=b"%016d" % 5), 8, "had ended before"),
    "a batch of two epochs": (changed(5, batch=b"%016d" % 4, epoch=0), 5, "epoch 0 in a batch of epoch 1"),
    "a holder that had lost it": (changed(11, epoch=1), 11, "its holder had lost the claim: epoch 1 after 2"),
    "created later": (said(3, RunCreated(agent="a", nonce=b"n")), 3, "run.created is the first record"),
    "not created": (said(1, DONE), 1, "run.created is the first record, and no other"),
    "submitted twice": (
        said(3, TurnSubmitted(input=HELLO, input_digest=values.digest(HELLO))), 3, "was submitted before at record 2"
    ),
    "another input": (
        said(2, TurnSubmitted(input=b'"bye"', input_digest=values.digest(HELLO))), 2, "the digest differs"
    ),
    "another large input": (
        said(2, TurnSubmitted(input=BlobRef("00", 2), input_digest=values.digest(HELLO))), 2, "the digest differs"
    ),
    "of another turn": (changed(5, turn="other"), 5, "its checksum does not match"),
    "a NUL": (changed(5, key="a\0"), 5, "holds a NUL"),
    "no blob": (said(5, CallOutcome(status="ok", value=BlobRef(NAME, 7))), 5, f"its blob {NAME} is missing"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_named_by_its_record(name: str) -> None:
    change, seq, words = CASES[name]
    problems = found(change(log()), image_of(log()))
    assert any(place == seq and words in what for place, what in problems), problems


def test_a_turn_that_was_never_submitted() -> None:
    hand = refund()
    hand.turn = "other"
    hand.start(1)
    hand.turn = "start"
    assert found(batched(hand.records)) == [(16, "turn 'other' was never submitted")]


def test_a_second_outcome_of_a_call() -> None:
    hand = refund()
    hand.settle("lookup#1")
    assert found(batched(hand.records)) == [(16, "call 'lookup#1' has an outcome already: record 7")]


def test_what_a_retry_set_aside_may_have_another_outcome() -> None:
    hand = Hand()
    hand.start(1)
    first = hand.intend("look#1")
    second = hand.settle("look#1", "error")
    hand.finish("look#1")
    hand.retry(first, second)
    hand.start(2)
    hand.intend("look#1", attempt=2)
    hand.settle("look#1")
    last = hand.finish()
    assert (
        found(batched(hand.records), image_of(hand.records, turns=(TurnInfo("start", 2, "succeeded", last),)))
        == []
    )


def test_a_turn_that_ends_twice() -> None:
    hand = refund()
    hand.finish()
    (problem,) = found(batched(hand.records))
    assert problem == (16, "turn 'start' had ended at record 15")


def test_what_the_store_says_of_the_turns_is_what_the_log_says() -> None:
    (problem,) = found(log(), image_of(log(), turns=(TurnInfo("start", 2, None, None),)))
    assert problem == (
        None,
        "its turns are start (from 2, succeeded at 15) by the log, and start (from 2, unfinished) by its store",
    )


@pytest.mark.parametrize(("first", "last"), [(0, 1), (3, 1), (15, 16)])
def test_keys_are_of_records(first: int, last: int) -> None:
    (problem,) = found(log(), image_of(log(), keys=(KeyInfo("turn:start", b"", first, last, 0.0),)))
    assert problem == (None, f"key 'turn:start' is of records {first} to {last}, which are none")


def test_blobs_are_what_their_records_name() -> None:
    records = said(5, CallOutcome(status="ok", value=BlobRef(NAME, 7)))(log())
    assert found(records, blobs={NAME: LARGE}) == []
    assert found(records, blobs={NAME: b'"other"'}) == [(5, f"blob {NAME} is not what its name says")]
    longer = said(5, CallOutcome(status="ok", value=BlobRef(NAME, 8)))(log())
    assert found(longer, blobs={NAME: LARGE}) == [(5, f"blob {NAME} has 7 bytes, and 8 are named")]


def test_newer_records_are_named_and_the_others_are_checked() -> None:
    records = changed(5, type="call.dreamt")(log())
    records = changed(12, body=b"\x80")(records)
    newer = replace(records[4], checksum=_sum(records[4]))
    problems = found([*records[:4], newer, *records[5:]])
    assert problems[0] == (5, "it has the unknown type 'call.dreamt': upgrade durable-journal")
    assert problems[1] == (12, "its checksum does not match")


def _sum(record: Record) -> int:
    return checksum(record.run, record.type, record.turn, record.key, record.key_id, record.body)


def test_damage_does_not_hide_the_next_and_is_not_told_for_ever() -> None:
    verifier = Verifier("order-42")
    records = log()
    for record in records[:4]:
        verifier.add(record)
    verifier.damaged(5, "its bytes are gone")
    for record in records[5:]:
        verifier.add(record)
    for _ in range(2 * MOST):
        verifier.add(records[0])
    verifier.finish(image_of(records))
    assert (verifier.problems[0].seq, verifier.problems[0].what.partition(":")[0]) == (
        1,
        "it stands behind record 15",
    )
    assert len(verifier.problems) == MOST
    assert (5, "its bytes are gone") in [(problem.seq, problem.what) for problem in verifier.problems]


def test_damage_that_goes_on_is_one_problem() -> None:
    verifier = Verifier("order-42")
    for record in log()[:4]:
        verifier.add(record)
    for seq in range(5, 16):
        verifier.damaged(seq, "it is missing")
    verifier.damaged(16, "its bytes are gone")
    verifier.finish(image_of(log(), head=16))
    assert [(problem.seq, problem.what) for problem in verifier.problems] == [
        (5, "it is missing, and so are all up to record 15"),
        (16, "its bytes are gone"),
    ]


def test_what_a_store_gives_with_the_wrong_types_is_damage() -> None:
    records: list[Any] = log()
    records[4] = replace(records[4], epoch="three")
    assert found(records) == [(5, "it is of the wrong types: Expected `int`, got `str` - at `$.epoch`")]


@pytest.mark.anyio
async def test_a_head_that_is_nowhere_does_not_keep_it_busy() -> None:
    class Damaged:
        async def read(self, run: str, *, after: int = 0, limit: int = 500) -> list[Record]:
            raise CorruptRecord(run_id=run, seq=after + 1, reason="it is missing")

        async def get_blob(self, run: str, blob: str) -> bytes:
            raise CorruptRecord(run_id=run, seq=0, reason=f"its blob {blob} is missing")

    done = await verify(Damaged(), image_of(log(), head=2**60, blobs=(NAME,)))
    assert [(problem.seq, problem.what) for problem in done.problems] == [
        (1, f"it is missing, and so are all up to record {MOST}"),
        (None, f"its blob {NAME} is missing"),
        (None, f"the log ends at record {MOST}, and its store says {2**60}"),
    ]

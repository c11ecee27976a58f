"""Inputs of model calls as differences: the same bytes come out, or the record is said to be damaged."""

import json
from zlib import crc32

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from journal.core import values
from journal.core.errors import CorruptRecord
from journal.core.records import BlobRef, CallIntent, CallOutcome, Difference
from journal.replay.difference import common_prefix, difference
from journal.replay.fold import RunFold, fold
from journal.replay.history import TurnHistory
from journal.replay.inputs import Inputs, Whole, blobs_of, home_of, whole
from journal.replay.matcher import Asked, Run, decide
from tests.replay.hand import Hand


def put_together(found: tuple[int, ...], literal: bytes, source: bytes) -> bytes:
    """By hand, out of what `New` says of itself."""
    data, at = b"", 0
    for place in range(0, len(found), 3):
        new, start, length = found[place : place + 3]
        data += literal[at : at + new] + source[start : start + length]
        at += new
    return data + literal[at:]


def checked(new: bytes, base: bytes, *outcomes: bytes) -> bytes | None:
    """What of `new` is new; None where it is kept whole."""
    found = difference(new, base, outcomes)
    if found is None:
        return None
    assert put_together(found.keep, found.literal, base + b"".join(outcomes)) == new
    return found.literal


def said(number: int) -> dict[str, str]:
    return {"role": "user", "content": f"message {number}: " + f"word{number} " * 30}


def conversation(*numbers: int) -> bytes:
    return values.encode({"messages": [said(number) for number in numbers], "model": "m", "temperature": 0.5})


def test_of_a_conversation_that_grows_only_the_new_is_new() -> None:
    assert checked(conversation(*range(9)), conversation(*range(8))) == b"," + values.encode(said(8))


def test_the_same_again_is_nothing_new() -> None:
    assert checked(conversation(1, 2, 3, 4, 5), conversation(1, 2, 3, 4, 5)) == b""


def test_a_window_that_moves_on_keeps_what_it_still_shows() -> None:
    new = checked(conversation(0, *range(5, 12)), conversation(0, *range(3, 11)))
    assert new is not None
    assert len(new) < len(values.encode(said(11))) + 40


def test_a_message_put_in_the_middle() -> None:
    new = checked(conversation(*range(4), 99, *range(4, 8)), conversation(*range(8)))
    assert new is not None
    assert len(new) < len(values.encode(said(99))) + 40


def test_replies_and_results_are_not_written_twice() -> None:
    """The reply comes back as an item with fewer fields; the tool's text as a field of an item."""
    text, result = "An answer. " * 60, "A result. " * 80
    reply = values.encode(
        {"output": [{"id": "x", "content": text, "status": "done"}], "usage": {"tokens": 3}}
    )
    items = [said(1), said(2), {"role": "assistant", "content": text}, {"call_id": "c", "output": result}]
    new = checked(values.encode(items), values.encode(items[:2]), reply, values.encode(result))
    assert new is not None
    assert len(new) < 100


def test_the_best_of_several_places_that_begin_alike_is_taken() -> None:
    reply = values.encode(
        {
            "output": [
                said(7) | {"content": f"The same beginning, {'x' * 40} {n} " + f"{n}" * 500} for n in range(5)
            ]
        }
    )
    items = [
        said(1),
        said(2),
        said(3),
        {"role": "assistant", "content": f"The same beginning, {'x' * 40} 3 " + "3" * 500},
    ]
    new = checked(values.encode(items), values.encode(items[:3]), reply)
    assert new is not None
    assert len(new) < 100


@pytest.mark.parametrize(
    ("new", "base"),
    [
        (conversation(1), conversation(2)),  # nothing in common
        (b"[1]", b"[1]"),  # too small to be worth it
        (conversation(*range(20, 40)), conversation(*range(15))),
    ],
)
def test_where_it_saves_little_it_is_kept_whole(new: bytes, base: bytes) -> None:
    assert checked(new, base) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=8), inner, max_size=8),
    max_leaves=30,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(json_values, max_size=8), st.lists(json_values, max_size=8), json_values, st.randoms())
def test_whatever_it_finds_gives_the_same_bytes(
    before: list[object], added: list[object], result: object, r: object
) -> None:
    filler = [said(n) for n in range(6)]
    mixed = [*filler[2:], *before[1:], result, *added]
    for new in ([*filler, *before, *added], mixed, [result, *filler], filler[::-1] + before):
        checked(
            values.encode(new), values.encode([*filler, *before]), values.encode(result), values.encode(added)
        )


@given(st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=20))
def test_common_prefix(shared: bytes, one: bytes, other: bytes) -> None:
    found = common_prefix(b"12" + shared + one, 2, shared + other, 0)
    expected = 0
    for left, right in zip(shared + one, shared + other, strict=False):
        if left != right:
            break
        expected += 1
    assert found == expected


@pytest.mark.parametrize(
    ("key", "home"),
    [
        ("ask#1", ""), ("t1/ask#2", "t1"), ("t1/t2/ask#1", "t1/t2"), ("mine", ""), ("a/b", ""),
        ("model#1/0:c1", ""), ("t1/model#3/0:c1", "t1"), ("model#1/0:c1/model#2", "model#1/0:c1"), ("resumed/x", ""),
    ],
)  # fmt: skip
def test_calls_are_of_the_scope_whose_model_asked_for_them(key: str, home: str) -> None:
    assert home_of(key) == home


# In a log --------------------------------------------------------------------------------------------


class Conversation(Hand):
    """A log whose model calls are written as the engine writes them."""

    def ask(
        self,
        key: str,
        data: bytes,
        *,
        base: str | None = None,
        source: bytes = b"",
        outcomes: tuple[str, ...] = (),
    ) -> int:
        said = None
        literal = data
        if base is not None:
            found = difference(data, source)
            assert found is not None
            literal = found.literal
            said = Difference(base=base, outcomes=outcomes, keep=found.keep, size=len(data), crc=crc32(data))
        return self.intent(key, literal, said, digest=values.digest(data))

    def intent(
        self, key: str, literal: bytes | BlobRef, said: Difference | None, *, digest: bytes = b"d"
    ) -> int:
        body = CallIntent(
            kind="model", name="ask", input=literal, input_digest=digest, policy="safe", attempt=1, difference=said,
            v=2 if said else 1,
        )  # fmt: skip
        return self.add(body, key=key)

    def inputs(self) -> Inputs:
        from journal.core.codec import open_record

        found = Inputs()
        for record in self.records:
            found.add(record, open_record(record))
        return found


A, B, C = conversation(*range(6)), conversation(*range(7)), conversation(*range(9))


def chain() -> Conversation:
    log = Conversation()
    log.start(1)
    log.ask("ask#1", A)
    log.settle("ask#1")
    log.ask("ask#2", B, base="ask#1", source=A)
    log.settle("ask#2")
    log.ask("ask#3", C, base="ask#2", source=B)
    return log


def test_inputs_are_put_together_in_any_order() -> None:
    inputs, putting = chain().inputs(), Whole()
    for key, data in (("ask#3", C), ("ask#1", A), ("ask#2", B), ("ask#3", C), ("ask#3", C)):
        found = inputs.of("start", key)
        assert found is not None
        assert whole(found) == putting.of(found) == data
        assert found.size == len(data)


def test_a_base_that_is_set_aside_and_asked_again_stays_what_it_was() -> None:
    """`ask#2` is retried with another input; what was built on the first one still comes out."""
    log = chain()
    log.finish(failed_by="ask#3")
    log.retry(6, 7, 8)
    other = conversation(*range(6), 70)
    again = log.ask("ask#2", other, base="ask#1", source=A)
    later = log.ask("ask#3", conversation(*range(6), 70, 71), base="ask#2", source=other)
    inputs = log.inputs()
    assert [whole(found) for seq in (6, 8, again, later) if (found := inputs.at(seq))] == [
        B, C, other, conversation(*range(6), 70, 71)
    ]  # fmt: skip


def test_a_call_that_is_tried_again_builds_on_its_own_first_try() -> None:
    log = Conversation()
    log.start(1)
    log.ask("ask#1", A)
    log.start(2, taken_over=True)
    log.ask("ask#1", A, base="ask#1", source=A)
    found = log.inputs().of("start", "ask#1")
    assert found is not None
    assert found.intent.input == b""
    assert whole(found) == A


def test_the_fold_shows_whole_inputs() -> None:
    state = fold(chain().records)
    inputs = [call.input for call in state.calls]
    assert [found and bytes(found.json or b"") for found in inputs] == [A, B, C]
    assert [found and found.size for found in inputs] == [len(A), len(B), len(C)]


def test_a_fold_that_was_not_asked_to_keeps_sizes_alone() -> None:
    run = RunFold()
    for record in chain().records:
        run.add(record)
    found = run.state.calls[2].input
    assert found is not None
    assert (found.size, found.json, found.seq) == (len(C), None, 8)
    run.fill()
    found = run.state.calls[2].input
    assert found is not None
    assert (bytes(found.json or b""), found.seq) == (C, None)


def test_the_matcher_runs_again_with_the_whole_recorded_input() -> None:
    history = TurnHistory("start")
    for record in chain().records:
        history.add(record)
    decision = decide(Asked("ask#3", "model", "ask", values.digest(C), "safe"), history)
    assert decision == Run(2, C)


def test_what_lies_in_blobs_is_named_and_then_used() -> None:
    log = Conversation()
    log.start(1)
    log.intent("ask#1", BlobRef("a0", len(A)), None)
    log.ask("ask#2", B, base="ask#1", source=A)
    found = log.inputs().of("start", "ask#2")
    assert found is not None
    assert list(blobs_of(found)) == [BlobRef("a0", len(A))]
    assert whole(found, {"a0": A}) == B
    with pytest.raises(KeyError):
        whole(found)
    shown = fold(log.records).calls[1].input
    assert shown is not None
    assert (shown.json, shown.size, shown.seq) == (None, len(B), 5)  # somebody has to fetch it first


def test_results_stand_behind_the_base_in_the_source() -> None:
    text = "An answer. " * 200
    log = Conversation()
    log.start(1)
    log.ask("ask#1", A)
    log.add(CallOutcome(status="ok", value=values.encode(text)), key="ask#1")
    data = A[:10] + values.encode(text) + A[10:]
    keep = (0, 0, 10, 0, len(A), len(values.encode(text)), 0, 10, len(A) - 10)
    log.intent(
        "ask#2",
        b"",
        Difference(base="ask#1", outcomes=("ask#1",), keep=keep, size=len(data), crc=crc32(data)),
    )
    found = log.inputs().of("start", "ask#2")
    assert found is not None
    assert whole(found) == data


GOOD = Difference(base="ask#1", keep=(0, 0, len(A)), size=len(A), crc=crc32(A))


@pytest.mark.parametrize(
    ("literal", "damage"),
    [
        (b"", {"base": "ask#9"}),
        (b"", {"outcomes": ("ask#1",)}),
        (b"", {"keep": (0, 1, len(A))}),
        (b"", {"keep": (0, 1, -1)}),
        (b"", {"keep": (0, 0)}),
        (b"", {"keep": (5, 0, len(A))}),
        (b"", {"keep": (0, len(A), len(A))}),
        (b"", {"size": len(A) + 1}),
        (b"", {"crc": crc32(A) ^ 1}),
        (b"x", {}),
        (b"x", {"size": len(A) + 1}),
        (b"", {"keep": (0, 0, len(A)) * 9000, "size": len(A) * 9000}),  # no memory is spent on it
    ],
)
def test_what_does_not_add_up_is_a_damaged_record(literal: bytes, damage: dict[str, object]) -> None:
    log = Conversation()
    log.start(1)
    log.ask("ask#1", A)
    seq = log.intent("ask#2", literal, msgspec.structs.replace(GOOD, **damage))
    found = log.inputs().of("start", "ask#2")
    assert found is not None
    with pytest.raises(CorruptRecord) as told:
        whole(found)
    assert told.value.seq == seq
    with pytest.raises(CorruptRecord):
        fold(log.records)


def test_a_chain_of_thousands_is_quick_to_read() -> None:
    """Whole slices, no recursion: a run may ask for days."""
    log = Conversation()
    log.start(1)
    items: list[object] = [said(0) for _ in range(8)]
    before = values.encode(items)
    log.ask("ask#1", before)
    for number in range(2, 1201):
        items.append({"n": number})
        data = values.encode(items)
        log.ask(f"ask#{number}", data, base=f"ask#{number - 1}", source=before)
        before = data
    found = log.inputs().of("start", "ask#1200")
    assert found is not None
    assert json.loads(whole(found)) == items

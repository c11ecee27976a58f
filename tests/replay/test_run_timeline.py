"""The timeline: an interrupted call and what carried it on, readable one below the other."""

from journal.core.records import CallOutcome, DocumentEdit, ErrorInfo, FileChange, TurnFinished
from journal.replay.fold import fold
from journal.replay.state import Kept
from journal.replay.timeline import duration, lines, marked_lines, rows
from tests.replay.hand import Hand, refund

DRAWN = """\
run order-42 · agent support · succeeded · 1 turn · 3 attempts · 4 calls · 15 records
✓ turn start · succeeded · 2023-11-14 22:13:21 UTC
  ✂ attempt 1 · worker-1 · interrupted: worker lost
    ✓ 1  model  gpt#1     safe   ok                                1.0 s  16 B
    ✓ 2  tool   lookup#1  safe   ok                                       19 B
    ✂ 3  tool   refund#1  never  interrupted, left in doubt
  ✂ attempt 2 · worker-2 · took over from attempt 1 · 2 calls on record, not repeated · interrupted: worker lost
    ↪ 3  tool   refund#1  never  settled: unknown, not repeated
    ✂ 4  model  gpt#2     safe   interrupted, left in doubt
  ✓ attempt 3 · worker-3 · took over from attempt 2 · 3 calls on record, not repeated · finished · 3.0 s
    ↪ 4  model  gpt#2     safe   try 2, after an interruption: ok  1.0 s  16 B
  ✓ output of 5 B"""


def test_the_demo_reads_as_a_story() -> None:
    assert "\n".join(lines(rows(fold(refund().records)))) == DRAWN


def test_values_are_shown_only_on_request() -> None:
    state = fold(refund().records)
    assert "hello" not in "\n".join(lines(rows(state)))

    def show(value: Kept) -> str:
        return "" if value.json is None else bytes(value.json).decode()

    text = "\n".join(lines(rows(state, show)))
    assert 'input: "hello"' in text
    assert 'output: {"done":"gpt#2"}' in text


def test_a_failure_names_the_call_it_came_from() -> None:
    hand = Hand()
    hand.start(1)
    hand.intend("bad#1")
    hand.settle("bad#1", "error")
    hand.finish(failed_by="bad#1")
    text = "\n".join(lines(rows(fold(hand.records))))
    assert "error ValueError (E1)" in text
    assert "failed with ValueError, out of call bad#1" in text
    assert "--values" not in text


def test_what_an_error_says_is_shown_on_request_and_that_is_said() -> None:
    hand = Hand()
    hand.start(1)
    hand.add(TurnFinished(status="failed", error=ErrorInfo(type="ValueError", args=b'["secret"]')))
    text = "\n".join(lines(rows(fold(hand.records))))
    assert ("failed with ValueError (--values shows what it says)" in text, "secret" in text) == (True, False)
    assert "--values" not in "\n".join(lines(rows(fold(hand.records), lambda kept: "value")))


def test_a_running_attempt_is_not_called_interrupted() -> None:
    text = "\n".join(lines(rows(fold(refund().records, upto=8))))
    assert "interrupted" not in text
    assert "attempt 1 · worker-1 · not ended" in text


def test_names_from_outside_cannot_steer_a_terminal() -> None:
    hand = Hand()
    hand.start(1)
    hand.intend("evil\x1b[2J#1")
    text = "\n".join(lines(rows(fold(hand.records))))
    assert "\x1b" not in text
    assert r"evil\x1b[2J#1" in text


def test_marks_go_with_the_lines() -> None:
    marks = [mark for mark, _ in marked_lines(rows(fold(refund().records)))]
    assert marks.count("interrupted") == 4
    assert marks.count("carried") == 2


def test_an_empty_turn_draws() -> None:
    hand = Hand()
    hand.start(1)
    hand.add(TurnFinished(status="cancelled"))
    assert any("cancelled" in line for line in lines(rows(fold(hand.records))))


def test_durations_read_like_words() -> None:
    assert [duration(s) for s in (0.0042, 1.0, 59.94, 61, 3_725)] == [
        "4 ms", "1.0 s", "59.9 s", "1 min 01 s", "1 h 02 min",
    ]  # fmt: skip


def test_a_call_is_marked_with_what_it_changed() -> None:
    hand = Hand()
    hand.start(1)
    hand.intend("edit#1")
    files = (
        FileChange(path="/new", content=b"1"),
        FileChange(path="/new too", content=b"1"),
        FileChange(path="/old", base=b"d", content=b"1"),
        FileChange(path="/gone", base=b"d"),
        FileChange(path="/lost", base=b"d", rejected="somebody changed it"),
    )
    edits = (
        DocumentEdit(doc="todo", version=1, value=b"[]"),
        DocumentEdit(doc="plan", version=1, rejected="somebody changed it"),
    )
    hand.add(CallOutcome(status="ok", value=b"1", files=files, edits=edits, v=2), key="edit#1")
    (line,) = (line for line in lines(rows(fold(hand.records))) if "edit#1" in line)
    assert "ok, files: +2 ~1 -1 !1, doc todo, doc plan!" in line

"""A run, and bare counts, as the lines that people read beside each other."""

from io import StringIO

from rich.console import Console

from journal.core.codec import seal
from journal.core.records import (
    Body,
    CallIntent,
    CallOutcome,
    Policy,
    Record,
    RunCreated,
    TurnFinished,
    TurnStarted,
    TurnSubmitted,
)
from journal.demo.timeline import Attempt, Line, from_counts, from_state, render
from journal.replay.fold import fold


def log(*bodies: tuple[str | None, Body]) -> list[Record]:
    records, epoch = [], 0
    for seq, (key, body) in enumerate(bodies, 1):
        epoch += isinstance(body, TurnStarted)
        new = seal("r", body, turn="start", key=key)
        records.append(Record("r", seq, 0.0, new.type, "start", key, epoch, b"", new.body, new.checksum))
    return records


def model(attempt: int, number: int = 1) -> CallIntent:
    return CallIntent(
        kind="model", name="loopback", input_digest=b"", policy="safe", attempt=attempt, number=number
    )


def tool(name: str, policy: Policy, attempt: int) -> CallIntent:
    return CallIntent(kind="tool", name=name, input_digest=b"", policy=policy, attempt=attempt)


OK = CallOutcome(status="ok", value=b"1")

KILLED_TWICE = fold(
    log(
        (None, RunCreated(agent="support", nonce=b"")),
        (None, TurnSubmitted(input=b"1", input_digest=b"")),
        (None, TurnStarted(worker="a", attempt=1)),
        ("m1", model(1)),
        ("m1", OK),
        ("t1", tool("get_order", "safe", 1)),
        ("t1", OK),
        ("t2", tool("refund", "never", 1)),
        (None, TurnStarted(worker="b", attempt=2, taken_over=True)),
        ("t2", CallOutcome(status="unknown")),
        ("m2", model(2)),
        (None, TurnStarted(worker="c", attempt=3, taken_over=True)),
        ("m2", model(3, number=2)),
        ("m2", OK),
        (None, TurnFinished(status="succeeded", output=b'"all good"')),
    )
)


def test_a_run_is_told_attempt_by_attempt() -> None:
    assert from_state(KILLED_TWICE) == [
        Attempt(
            "attempt 1 starts",
            [
                Line("ran", "model call"),
                Line("ran", "get_order (safe)"),
                Line("killed", "refund (never): killed in the middle"),
            ],
        ),
        Attempt(
            "attempt 2 takes over",
            [
                Line("served", "2 recorded calls: not run again"),
                Line("unknown", "refund (never): in doubt, not repeated, the model is told"),
                Line("killed", "model call: killed in the middle"),
            ],
        ),
        Attempt(
            "attempt 3 takes over",
            [
                Line("served", "3 recorded calls: not run again"),
                Line("ran", "model call, tried again"),
                Line("done", "finished: all good"),
            ],
        ),
    ]


def test_counts_are_told_the_same_way() -> None:
    happened = [
        "started",
        "model_calls",
        "answered",
        "refunds",
        "killed",
        "started",
        "model_calls",
        "answered",
    ]
    assert from_counts(happened) == [
        Attempt(
            "attempt 1 starts",
            [Line("ran", "model call, paid"), Line("killed", "refund, 30 gone: killed")],
        ),
        Attempt("attempt 2 starts from the top", [Line("ran", "model call, paid"), Line("done", "finished")]),
    ]


def test_both_stand_side_by_side() -> None:
    console = Console(file=StringIO(), record=True, width=120)
    console.print(
        render(("with", from_state(KILLED_TWICE)), ("without", from_counts(["started", "refunds"])))
    )
    text = console.export_text()
    first = next(line for line in text.splitlines() if "attempt 1" in line)
    assert first.count("attempt 1") == 2
    assert "not repeated" in text

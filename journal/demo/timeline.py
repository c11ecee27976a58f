"""A log drawn as a timeline: attempt by attempt, what ran, what was answered from the log, where it was killed.

Pure: records in, lines out; and the same kind of lines from the bare counts of a script that kept no log. `render`
puts the two side by side.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from journal.core import values
from journal.core.records import BlobRef, Body, CallIntent, CallOutcome, Record, TurnFinished, TurnStarted

KILLED = "killed"
STARTED = "started"
"""What a tally says when a process was killed, and when one was started."""

Mark = Literal["ran", "served", "unknown", "killed", "done", "failed"]
Entry = tuple[Record, Body]

_SIGNS: dict[Mark, tuple[str, str]] = {
    "ran": ("●", "green"),
    "served": ("↺", "cyan"),
    "unknown": ("?", "yellow"),
    "killed": ("✗", "bold red"),
    "done": ("■", "bold green"),
    "failed": ("■", "bold red"),
}
_EFFECTS = {
    "model_calls": "model call, paid",
    "orders_read": "get_order",
    "refunds": "refund, 30 gone",
    "notes_posted": "post_note",
}


class Line(msgspec.Struct, frozen=True):
    """One thing that happened."""

    mark: Mark
    text: str


class Attempt(msgspec.Struct, frozen=True):
    """One process at work."""

    title: str
    lines: list[Line]


def from_log(log: Iterable[Entry]) -> list[Attempt]:
    """The attempts that a log tells of."""
    attempts: list[Attempt] = []
    intents: dict[str, CallIntent] = {}
    open_calls: dict[str, CallIntent] = {}  # begun in this attempt, without an outcome so far
    finished = 0
    for record, body in log:
        key = record.key or ""
        match body:
            case TurnStarted():
                _interrupt(attempts, open_calls)
                how = "starts" if body.attempt == 1 else "takes over" if body.taken_over else "carries on"
                attempts.append(Attempt(f"attempt {body.attempt} {how}", []))
                if finished:
                    attempts[-1].lines.append(Line("served", f"{finished} recorded calls: not run again"))
            case CallIntent():
                intents[key] = open_calls[key] = body
            case CallOutcome() if attempts:
                open_calls.pop(key, None)
                finished += 1
                attempts[-1].lines.append(_outcome(_name(intents.get(key), key), body))
            case TurnFinished() if attempts:
                attempts[-1].lines.append(_end(body))
    _interrupt(attempts, open_calls)
    return attempts


def from_counts(happened: Sequence[str]) -> list[Attempt]:
    """The attempts of a script that kept no log: what the outside saw of it."""
    attempts: list[Attempt] = []
    for name in happened:
        if name == STARTED:
            again = "starts" if not attempts else "starts from the top"
            attempts.append(Attempt(f"attempt {len(attempts) + 1} {again}", []))
        elif name == KILLED:
            last = attempts[-1].lines.pop()
            attempts[-1].lines.append(Line("killed", f"{last.text}: killed"))
        elif name in _EFFECTS:
            attempts[-1].lines.append(Line("ran", _EFFECTS[name]))
    if attempts:
        attempts[-1].lines.append(Line("done", "finished"))
    return attempts


def render(left: tuple[str, list[Attempt]], right: tuple[str, list[Attempt]]) -> RenderableType:
    """Two timelines side by side, attempt beside attempt."""
    table = Table(box=None, padding=(0, 3, 1, 0), header_style="bold")
    table.add_column(left[0])
    table.add_column(right[0])
    rows = max(len(left[1]), len(right[1]))
    for number in range(rows):
        table.add_row(
            *(_draw(side[number]) if number < len(side) else Text() for side in (left[1], right[1]))
        )
    return table


def _draw(attempt: Attempt) -> Text:
    text = Text(attempt.title, style="underline")
    for line in attempt.lines:
        sign, style = _SIGNS[line.mark]
        text.append(f"\n{sign} ", style=f"not underline {style}")
        text.append(line.text, style=f"not underline {style if line.mark != 'ran' else ''}".strip())
    return text


def _interrupt(attempts: list[Attempt], open_calls: dict[str, CallIntent]) -> None:
    """Whatever was begun and has no outcome was cut off with its process."""
    if attempts:
        attempts[-1].lines.extend(
            Line("killed", f"{_name(intent, key)}: killed in the middle")
            for key, intent in open_calls.items()
        )
    open_calls.clear()


def _name(intent: CallIntent | None, key: str) -> str:
    if intent is None:
        return key
    if intent.kind == "model":
        return "model call" if intent.number == 1 else "model call, tried again"
    return f"{intent.name} ({intent.policy})"


def _outcome(name: str, outcome: CallOutcome) -> Line:
    match outcome.status:
        case "ok":
            return Line("ran", name)
        case "unknown":
            return Line("unknown", f"{name}: in doubt, not repeated, the model is told")
        case status:
            return Line("failed", f"{name}: {status}")


def _end(body: TurnFinished) -> Line:
    if body.status != "succeeded":
        return Line("failed", body.status)
    output = "" if body.output is None or isinstance(body.output, BlobRef) else values.decode(body.output)
    return Line("done", f"finished: {output}")

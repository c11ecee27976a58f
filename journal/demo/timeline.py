"""A run in a few words an attempt: what ran, what was answered from the log, where it was killed.

Pure: the state of a run in, lines out; and the same kind of lines from the bare counts of a script that kept no log.
`render` puts the two side by side. What a log has to say in full is drawn by `journal.replay.timeline`.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from journal.replay.state import CallState, RunState, TurnState

KILLED = "killed"
STARTED = "started"
"""What a tally says when a process was killed, and when one was started."""

Mark = Literal["ran", "served", "unknown", "killed", "done", "failed"]

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


def from_state(state: RunState) -> list[Attempt]:
    """The attempts of a run's last turn, as its log tells them."""
    turn = state.turns[-1]
    attempts = []
    for attempt in turn.attempts:
        how = "starts" if attempt.number == 1 else "takes over" if attempt.is_takeover else "carries on"
        lines = [_call(call, attempt.number) for call in state.calls if _touches(call, attempt.number)]
        if attempt.recorded_before:
            lines.insert(0, Line("served", f"{attempt.recorded_before} recorded calls: not run again"))
        attempts.append(Attempt(f"attempt {attempt.number} {how}", lines))
    if attempts and turn.is_finished:
        attempts[-1].lines.append(_end(turn))
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


def _touches(call: CallState, attempt: int) -> bool:
    """Whether the attempt tried the call, or settled it."""
    return any(t.attempt == attempt for t in call.tries) or _is_settled(call, attempt)


def _is_settled(call: CallState, attempt: int) -> bool:
    return call.outcome is not None and call.outcome.attempt == attempt


def _call(call: CallState, attempt: int) -> Line:
    """What became of a call in one attempt."""
    name = "model call" if call.kind == "model" else f"{call.name} ({call.policy})"
    if call.kind == "model" and any(t.attempt == attempt and t.number > 1 for t in call.tries):
        name += ", tried again"
    if call.outcome is None or not _is_settled(call, attempt):
        return Line("killed", f"{name}: killed in the middle")
    match call.outcome.status:
        case "ok":
            return Line("ran", name)
        case "unknown":
            return Line("unknown", f"{name}: in doubt, not repeated, the model is told")
        case status:
            return Line("failed", f"{name}: {status}")


def _end(turn: TurnState) -> Line:
    if turn.status != "succeeded":
        return Line("failed", turn.status)
    output = turn.output.json if turn.output is not None else None
    return Line("done", "finished" if output is None else f"finished: {msgspec.json.decode(output)}")

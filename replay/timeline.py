"""A run's state drawn as rows: each attempt with the calls it made, what was interrupted and what carried on.

Pure, and without a terminal: rows hold words and a mark, `lines` sets them in columns, whoever prints them chooses
colours by mark. A call stands under every attempt that touched it, always with the same number, so that an
interrupted call and what became of it can be read one below the other.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from journal.core.records import CallOutcome, FileChange
from journal.replay.state import AttemptState, CallState, Kept, RetryState, RunState, TryState, TurnState

Mark = Literal["plain", "good", "bad", "interrupted", "carried", "quiet"]
"""`interrupted`: a holder died in it. `carried`: a later holder dealt with what was interrupted."""
Show = Callable[[Kept], str]

_SIGNS: dict[Mark, str] = {
    "plain": " ",
    "good": "✓",
    "bad": "✗",
    "interrupted": "✂",
    "carried": "↪",
    "quiet": " ",
}
_ENDINGS: dict[str, tuple[Mark, str]] = {
    "open": ("plain", "not ended"),
    "finished": ("good", "finished"),
    "failed": ("bad", "failed"),
    "interrupted": ("interrupted", "interrupted: worker lost"),
    "lost": ("interrupted", "interrupted: its claim ran out, the worker lived on"),
    "released": ("plain", "released unfinished"),
    "blocked": ("bad", "blocked"),
    "cancelled": ("plain", "cancelled"),
    "closed": ("plain", "ended by the closing of the run"),
}


class Row(msgspec.Struct, frozen=True):
    """One line: how deep it stands, its mark, and its cells. Rows of calls have the same cells in the same order."""

    kind: Literal["run", "turn", "attempt", "call", "value", "note"]
    mark: Mark
    cells: tuple[str, ...]


def rows(state: RunState, show: Show | None = None) -> list[Row]:
    """The whole run. `show` turns a recorded value into text; without it values are not shown, only their sizes."""
    drawn = [_run(state), *_origin(state)]
    for turn in state.turns:
        calls = [call for call in state.calls if call.turn == turn.id]
        drawn.append(Row("turn", _mark_of(turn), (f"turn {turn.id}", turn.status, _when(turn.time))))
        drawn += _value("input", turn.input, show)
        for attempt in turn.attempts:
            drawn.append(_attempt(turn, attempt))
            for call in calls:
                drawn += _call(call, attempt, show)
        drawn += _ending(turn, show)
    if state.is_closed:
        drawn.append(Row("note", "quiet", ("the run is closed",)))
    return drawn


def lines(drawn: Sequence[Row]) -> list[str]:
    """The rows as text, the cells of calls in columns."""
    return [text for _, text in marked_lines(drawn)]


def marked_lines(drawn: Sequence[Row]) -> list[tuple[Mark, str]]:
    """`lines`, each with its mark."""
    calls = [row.cells for row in drawn if row.kind == "call"]
    widths = [max(len(cell) for cell in column) for column in zip(*calls, strict=True)] if calls else []
    return [(row.mark, printable(_line(row, widths))) for row in drawn]


def printable(text: str) -> str:
    """`text` with control characters spelled out: what a model or a tool wrote must not steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _line(row: Row, widths: Sequence[int]) -> str:
    sign = _SIGNS[row.mark]
    match row.kind:
        case "run":
            return " · ".join(row.cells)
        case "turn":
            return f"{sign} {' · '.join(row.cells)}"
        case "attempt":
            return f"  {sign} {' · '.join(row.cells)}"
        case "call":
            number, *rest = (
                cell.rjust(width) if place == 0 else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(row.cells, widths, strict=True))
            )
            return f"    {sign} {number}  {'  '.join(rest)}".rstrip()
        case "value":
            return f"          {row.cells[0]}: {row.cells[1]}"
        case "note":
            return f"  {sign} {row.cells[0]}"


def _run(state: RunState) -> Row:
    attempts = sum(len(turn.attempts) for turn in state.turns)
    cells = (
        f"run {state.run}",
        f"agent {state.agent}",
        state.status,
        _count(len(state.turns), "turn"),
        _count(attempts, "attempt"),
        _count(len(state.calls), "call"),
        _count(state.head, "record"),
    )
    return Row("run", "plain", cells)


def _origin(state: RunState) -> Iterable[Row]:
    if (origin := state.origin) is None:
        return
    how = "in the turn of call" if origin.is_anew else "before call"
    what = ", begun anew with another input" if origin.is_anew else ""
    yield Row(
        "note", "quiet", (f"forked from {origin.run} {how} {origin.at}{what} (read up to {origin.seq})",)
    )


def _attempt(turn: TurnState, attempt: AttemptState) -> Row:
    mark, ending = _ENDINGS[attempt.ending]
    cells = [f"attempt {attempt.number}", attempt.worker]
    place = turn.attempts.index(attempt)
    if attempt.is_takeover and place:
        cells.append(f"took over from attempt {turn.attempts[place - 1].number}")
    elif attempt.is_takeover:
        cells.append("took over")
    elif place and attempt.recorded_before:
        cells.append("carries on")
    if attempt.recorded_before:
        cells.append(f"{_count(attempt.recorded_before, 'call')} on record, not repeated")
    cells.append(ending)
    # What ended the others left no record: the time on hand is when somebody noticed.
    if attempt.ended_time is not None and attempt.ending not in ("interrupted", "lost", "released"):
        cells.append(duration(attempt.ended_time - attempt.time))
    return Row("attempt", mark, tuple(cells))


def _call(call: CallState, attempt: AttemptState, show: Show | None) -> Iterable[Row]:
    tried = next((t for t in call.tries if t.attempt == attempt.number), None)
    settled = call.outcome is not None and call.outcome.attempt == attempt.number
    if tried is None and not settled:
        return []
    mark, words, seconds, size = _fate(call, tried, settled)
    cells = (
        str(call.number),
        call.kind or "?",
        call.key if call.name and call.name in call.key else f"{call.name} {call.key}".strip(),
        call.policy or "",
        words,
        "" if seconds is None else duration(seconds),
        "" if size is None else _bytes(size),
    )
    drawn = [Row("call", mark, cells)]
    if tried is not None and tried.number == call.tries[0].number:
        drawn += _value("input", call.input, show)
    if settled and call.outcome is not None:
        drawn += _value("output", call.outcome.value, show)
    return drawn


def _fate(
    call: CallState, tried: TryState | None, settled: bool
) -> tuple[Mark, str, float | None, int | None]:
    """(mark, words, seconds, bytes) of a call within one attempt."""
    earlier = [t for t in call.tries if tried is None or t.number < tried.number]
    again = f"try {tried.number}, after an interruption: " if tried is not None and earlier else ""
    if not settled or call.outcome is None:
        if tried is not None and tried.ending == "open":
            return "plain", f"{again}started", None, None
        return "interrupted", f"{again}interrupted, left in doubt", None, None
    outcome = call.outcome
    words: str = outcome.status
    if outcome.error is not None:
        words += f" {outcome.error.type}{f' ({outcome.error.code})' if outcome.error.code else ''}"
    if outcome.finish is not None and outcome.finish not in ("error", "cancelled"):
        words += f", {outcome.finish}"
    if outcome.usage:
        words += _tokens(outcome.usage)
    if outcome.tries > 1:
        words += f", {outcome.tries} tries"
    size = outcome.value.size if outcome.value else None
    if outcome.by_hand:
        words += f", told by hand in record {outcome.by_hand}"
    if changed := marks(outcome.body):
        words += f", {', '.join(changed)}"
    aside = f", set aside by record {call.superseded_by}" if call.superseded_by else ""
    if tried is None:
        how = (
            "by its probe"
            if outcome.is_probed
            else "from late evidence"
            if outcome.evidence
            else "not repeated"
        )
        return "carried", f"settled: {words}, {how}{aside}", None, size
    good: Mark = "good" if outcome.status == "ok" else "bad"
    return "carried" if earlier else good, f"{again}{words}{aside}", call.duration_seconds, size


def marks(outcome: CallOutcome) -> list[str]:
    """What the call changed, in short: ``files: +2 ~1 -1`` (new, changed, gone; ``!1`` rejected), ``doc todo``.

    Of a directory: ``files: 3 in snapshot 1a2b3c4d``, which are all that there are then.
    """
    found: list[str] = []
    if outcome.files:
        counts = Counter(_sign(change) for change in outcome.files)
        words = [
            f"{change.snapshot.files:,} in snapshot {change.snapshot.id[:8]}"
            for change in outcome.files
            if change.snapshot is not None and change.rejected is None
        ]
        words += [f"{sign}{counts[sign]}" for sign in "+~-!" if counts[sign]]
        found.append(f"files: {' '.join(words)}")
    for doc in dict.fromkeys(edit.doc for edit in outcome.edits):
        is_rejected = all(edit.rejected is not None for edit in outcome.edits if edit.doc == doc)
        found.append(f"doc {doc}{'!' if is_rejected else ''}")
    return found


def _sign(change: FileChange) -> str:
    if change.rejected is not None:
        return "!"
    if change.snapshot is not None:
        return ""
    if change.content is None:
        return "-"
    return "+" if change.base is None else "~"


def _tokens(usage: dict[str, int]) -> str:
    counts = [f"{usage[f'{way}_tokens']:,} {way}" for way in ("input", "output") if f"{way}_tokens" in usage]
    return f", {' + '.join(counts)} tokens" if counts else ""


def _ending(turn: TurnState, show: Show | None) -> Iterable[Row]:
    if turn.blocked is not None:
        yield Row("note", "bad", (f"blocked ({turn.blocked.reason}): {turn.blocked.detail}",))
        for name, value in (("recorded", turn.blocked.recorded), ("asked", turn.blocked.asked)):
            yield from _value(name, value, show)
    if turn.retries:
        yield Row("note", "quiet", (f"retried at record {', '.join(map(str, turn.retries))}",))
    for said in turn.interventions:
        yield Row("note", "quiet", (f"record {said.seq} {'; '.join(_said(said))}",))
    if turn.cancel_requested is not None:
        reason = f": {turn.cancel_reason}" if turn.cancel_reason else ""
        yield Row("note", "quiet", (f"cancel asked for at record {turn.cancel_requested}{reason}",))
    if turn.error is not None:
        code = f" ({turn.error.code})" if turn.error.code else ""
        cause = f", out of call {turn.cause}" if turn.cause else ""
        kept = [value for value in (turn.error.args, turn.error.data) if value is not None and value.size > 2]
        hint = " (--values shows what it says)" if kept and show is None else ""
        yield Row("note", "bad", (f"failed with {turn.error.type}{code}{cause}{hint}",))
        yield from _value("arguments", turn.error.args, show)
        yield from _value("data", turn.error.data, show)
    if turn.output is not None:
        yield Row("note", "good", (f"output of {_bytes(turn.output.size)}",))
        yield from _value("output", turn.output, show)


def _said(said: RetryState) -> Iterable[str]:
    if said.from_call is not None:
        yield f"sets call {said.from_call} and all after it aside"
    if said.settled:
        yield f"tells by hand what call {', '.join(map(str, said.settled))} gave"
    if said.did_not_run:
        yield f"says that call {', '.join(map(str, said.did_not_run))} did not run"
    if said.recorded is None:
        return
    if said.asked is None:
        yield f"lets {said.recorded} go unasked"
    elif said.recorded == said.asked:
        yield f"takes {said.recorded} as it was recorded"
    else:
        yield f"takes what {said.recorded} gave for {said.asked}"


def _value(name: str, value: Kept | None, show: Show | None) -> Iterable[Row]:
    return [] if value is None or show is None else [Row("value", "quiet", (name, show(value)))]


def _mark_of(turn: TurnState) -> Mark:
    if turn.status == "succeeded":
        return "good"
    return "bad" if turn.status in ("failed", "blocked") else "plain"


def duration(seconds: float) -> str:
    """A span as people read it."""
    if seconds < 0:  # the store's wall clock was stepped
        return "?"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def _when(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _bytes(size: int) -> str:
    return f"{size:,} B" if size < 10_000 else f"{size / 1024:,.0f} KiB"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

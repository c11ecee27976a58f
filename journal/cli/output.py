"""What verbs print: results on stdout (text, or JSON with ``--json``), remarks and progress on stderr."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from journal.cli.settings import Settings
from journal.replay.timeline import Mark, printable

_COLOURS: dict[Mark, dict[str, Any]] = {
    "plain": {},
    "good": {"fg": "green"},
    "bad": {"fg": "red"},
    "interrupted": {"fg": "yellow"},
    "carried": {"fg": "cyan"},
    "quiet": {"dim": True},
}


def say(text: str, mark: Mark = "plain") -> None:
    """A line of the result."""
    style = _COLOURS[mark]
    text = _fitting(text)
    click.echo(click.style(text, **style) if style else text)


def emit(value: Any) -> None:
    """A result as one line of JSON."""
    click.echo(msgspec.json.encode(value, order="deterministic").decode())


def remark(text: str, settings: Settings | None = None) -> None:
    """A line for people that is not part of the result; commands in it look at the same store as this one."""
    if settings is None and (context := click.get_current_context(silent=True)) is not None:
        settings = context.find_object(Settings)
    click.echo(text if settings is None else settings.directed(text), err=True)


def hush() -> None:
    """Whoever read stdout has seen enough (``| head``): what comes goes nowhere, Python's flush at exit included."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def table(header: Sequence[str], rows: Sequence[Sequence[str]], marks: Sequence[Mark] = ()) -> None:
    """Columns as wide as they must be."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    for place, row in enumerate([list(header), *cells]):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        say(line, "quiet" if place == 0 else marks[place - 1] if marks else "plain")


def moment(time: float) -> str:
    """A wall-clock time as text, in UTC."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def ago(time: float | None, now: float) -> str:
    """How long ago a moment was, in its largest unit; `-` for None."""
    if time is None:
        return "-"
    seconds = max(0, round(now - time))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Tell people on a terminal that something takes its time."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


def _fitting(text: str) -> str:
    """`text` as stdout can spell it: a terminal without UTF-8 must not end a verb."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)

"""`journal diff RUN_A RUN_B`, and `journal diff RUN N M`."""

from functools import partial

import click

from journal.cli import exits
from journal.cli.between import between, tell
from journal.cli.numbers import call_number
from journal.cli.output import emit, remark, say
from journal.cli.reading import Found, records, with_found
from journal.cli.settings import Settings, common_options, settings_of
from journal.core.errors import InvalidOptions
from journal.replay.diff import Difference, Parting, Recorded, diff
from journal.replay.timeline import printable

_BLOBS = 64
"""How many large values are fetched at most; of others size and name are shown."""


@click.command
@click.argument("left", metavar="RUN_A")
@click.argument("right", metavar="RUN_B|N")
@click.argument("last", metavar="[M]", type=call_number, required=False)
@click.option("--all", "shows_all", is_flag=True, help="Every difference, not only the first.")
@common_options
@settings_of
def command(settings: Settings, left: str, right: str, last: int | None, shows_all: bool) -> int:
    """Say where two runs part, or what changed in one between two of its calls.

    Each is a run of the store, or the file of an exported one. RUN_A RUN_B: at which call they part, and how, by name,
    input, outcome, documents or files. RUN N M: which calls were made from call N on until call M began, and
    which documents, files and checkpoints call M found otherwise than call N. Exit code 0 if nothing differs, 1 if
    something does.
    """
    if last is not None:
        told = with_found(settings, left, partial(between, first=_number(right), last=last))
        if settings.as_json:
            emit(told)
        else:
            tell(told)
        return exits.FAILED if told.changes else exits.OK
    sides = [(name, with_found(settings, name, _read)) for name in (left, right)]
    found = diff(*(run for _, run in sides))
    if any(run.wanted for _, run in sides):
        for name, run in sides:
            with_found(settings, name, partial(_fetch, run=run))
        found = diff(*(run for _, run in sides))
    if settings.as_json:
        emit(found)
    else:
        _tell(found, left, right, shows_all)
    return exits.FAILED if found.partings else exits.OK


def _number(text: str) -> int:
    if not text.isdecimal() or not (number := int(text)) >= 1:
        raise InvalidOptions(f"{text!r} is no number of a call: write RUN N M, or RUN_A RUN_B")
    return number


async def _read(found: Found) -> Recorded:
    run = Recorded()
    async for record in records(found):
        run.add(record)
    return run


async def _fetch(found: Found, *, run: Recorded) -> None:
    """The large values that are to be shown, so that it is seen where they differ."""
    for blob in sorted(run.wanted)[:_BLOBS]:
        run.blobs[blob] = await found.get_blob(blob)


def _tell(found: Difference, left: str, right: str, shows_all: bool) -> None:
    calls = "1 call" if found.alike == 1 else f"{found.alike:,} calls"
    if not found.partings:
        say(f"alike: {calls}", "good")
        return
    say(f"{calls} alike, then they part", "quiet")
    for parting in found.partings if shows_all else found.partings[:1]:
        say(printable(f"{_place(parting)}: {parting.how}"), "bad")
        for name, number, text in (
            (left, parting.left_call, parting.left),
            (right, parting.right_call, parting.right),
        ):
            call = f" call {number}" if number is not None else ""
            say(printable(f"  {name}{call}: {'nothing' if text is None else text}"))
    if not shows_all and (more := len(found.partings) - 1):
        remark(f"and {more} more after that (--all)")


def _place(parting: Parting) -> str:
    if not parting.turn:
        return "in the end"
    return f"turn {parting.turn}{f', {parting.key}' if parting.key else ''}"

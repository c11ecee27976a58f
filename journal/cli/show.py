"""`journal show RUN`."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import click
import msgspec

from journal.cli.exits import code_of_status
from journal.cli.numbers import call_number, record_number
from journal.cli.output import emit, remark, say
from journal.cli.reading import Found, fill, place, records, with_found
from journal.cli.runs import info_of
from journal.cli.settings import Settings, common_options, settings_of
from journal.core.errors import InvalidOptions, LogError, ways_on
from journal.core.ports import RunInfo
from journal.engine.held import advice, is_held_back
from journal.replay.changes import Content
from journal.replay.fold import RunFold
from journal.replay.state import Kept, RunState, encode, plain
from journal.replay.timeline import marked_lines, rows

_LONGEST = 2000
_Blobs = dict[str, msgspec.Raw]
"""Values by the id of the blob they lie in."""


@click.command
@click.argument("run_id", metavar="RUN")
@click.option(
    "--values", "with_values", is_flag=True, help="Show inputs and outputs too, not only their sizes."
)
@click.option("--upto", type=record_number, metavar="SEQ", help="As it stood after that record.")
@click.option("--at", type=call_number, metavar="N", help="As call N found it.")
@click.option(
    "--exit-status", is_flag=True, help="Exit with the code of the run's status, as `submit --wait` does."
)
@common_options
@settings_of
def command(
    settings: Settings, run_id: str, with_values: bool, upto: int | None, at: int | None, exit_status: bool
) -> int:
    """Draw a run: its attempts, its calls, what was interrupted and what carried on.

    Calls are numbered in the order of their start, and say what they changed: `files: +2 ~1 -1`, `doc todo`. With
    --json one object: the folded state of the run, beside how it stands in the queue.
    """
    if at is not None and upto is not None:
        raise InvalidOptions("--at and --upto say the same in two ways: give one of them")

    async def read(found: Found) -> tuple[Found, RunState, Content, _Blobs | None, LogError | None, bool]:
        last = upto if at is None else await place(found, at)
        fold, content, damage = await _fold(found, last)
        blobs: _Blobs | None = None
        if with_values:
            await fill(found, fold)
            blobs = await _fetch(found, fold.state)
        is_held = damage is None and await is_held_back(found.source, found.info)
        return found, fold.state, content, blobs, damage, is_held

    found, state, content, blobs, damage, held_back = with_found(settings, run_id, read)
    info = found.info
    if settings.as_json:
        emit(_as_json(info, state, blobs, held_back))
    else:
        _draw(state, blobs)
        if holds := str(content):
            say(f"    holds {holds}", "quiet")
        if found.world is None:
            remark(f"exported, as it stood then; journal import {run_id} puts it into a store")
        else:
            _advise(info, state, held_back)
    if damage is not None:
        raise damage
    return code_of_status(info.status) if exit_status else 0


async def _fold(found: Found, upto: int | None) -> tuple[RunFold, Content, LogError | None]:
    """The state, and the damage that kept it from going on: what precedes a damaged record is still shown."""
    fold, content = RunFold(), Content()
    try:
        async for record in records(found, upto=upto):
            fold.add(record)
            content.add(record)
    except LogError as damage:
        if damage.seq <= 1:
            raise
        return fold, content, damage
    return fold, content, None


async def _fetch(found: Found, state: RunState) -> _Blobs:
    """The values that do not lie in their records."""
    return {
        value.blob: msgspec.Raw(await found.get_blob(value.blob))
        for value in _values(plain(state))
        if value.blob is not None
    }


def _values(part: Any) -> Iterator[Kept]:
    if isinstance(part, Kept):
        yield part
    elif isinstance(part, msgspec.Struct):
        for name in part.__struct_fields__:
            yield from _values(getattr(part, name))
    elif isinstance(part, list | dict):
        for item in part.values() if isinstance(part, dict) else part:
            yield from _values(item)


def _as_json(info: RunInfo, state: RunState, blobs: _Blobs | None, held_back: bool) -> dict[str, Any]:
    shown = plain(state)
    for value in _values(shown):
        value.json = None if blobs is None else _json(value, blobs)
    return {"info": info_of(info, held_back=held_back), "state": msgspec.Raw(encode(shown))}


def _draw(state: RunState, blobs: _Blobs | None) -> None:
    show = None if blobs is None else partial(_text, blobs)
    for mark, line in marked_lines(rows(state, show)):
        say(line, mark)


def _advise(info: RunInfo, state: RunState, held_back: bool) -> None:
    if info.moved_to is not None:
        remark(f"moved to {info.moved_to}: it goes on there (--world {info.moved_to})")
        return
    if info.building:
        remark(
            "being copied here, and not complete: if nothing happens, give the same command again "
            "(journal copy, journal fork)"
        )
        return
    if info.head > state.head:
        return  # drawn as it was: what the queue says now is of another time
    if info.status == "pending" and info.turn is not None:
        remark(f"turn {info.turn} waits for a worker: journal worker module:attribute")
    elif held_back:
        remark(f"held back: {advice(info.run)}")
    elif info.status == "blocked":
        reason = next((turn.blocked.reason for turn in state.turns if turn.blocked is not None), "")
        remark(ways_on(info.run, reason) or f"find out why, then: journal retry {info.run}")
    elif info.status == "failed":
        remark(f"once its cause is gone: journal retry {info.run}")


def _json(value: Kept, blobs: _Blobs) -> msgspec.Raw | None:
    return value.json if value.blob is None else blobs[value.blob]


def _text(blobs: _Blobs, value: Kept) -> str:
    json = _json(value, blobs)
    if json is None:
        return f"blob {value.blob}"
    text = bytes(json).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({value.size:,} bytes, whole with --json)"

"""`journal log RUN`."""

from typing import Any

import click
import msgspec

from journal.cli.output import emit, moment, say
from journal.cli.reading import Found, WholeInputs, records, with_found
from journal.cli.settings import Settings, common_options, settings_of
from journal.core import values
from journal.core.codec import open_record
from journal.core.errors import InvalidOptions, LogError
from journal.core.ports import START, Delta, Item, offset_of, parse_offset
from journal.core.records import BlobRef, Packed, Record
from journal.replay.timeline import Mark, printable

_LONGEST = 400
_VALUES = frozenset({"input", "value", "output", "args", "data", "recorded", "asked", "payload"})
"""Fields that hold what users and models said; the rest are facts about it."""
_LEFT_OUT = frozenset({"v", "nonce"})
"""The format's number, and what the idempotency keys of the run are made of."""
_MARKS: dict[str, Mark] = {"turn.blocked": "bad", "turn.retried": "carried", "call.evidence": "interrupted"}


def _read_offset(ctx: click.Context, param: click.Parameter, text: str) -> str:
    """An offset, or the seq of a record: where the reader stands, spelled out."""
    if text.isdecimal() and len(text) <= 16:
        return f"{int(text):016d}_{0:016d}"
    try:
        parse_offset(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    return START if text == "-1" else text


@click.command
@click.argument("run_id", metavar="RUN")
@click.option(
    "-f", "--follow", is_flag=True, help="Go on with what comes, pieces of output too, until Ctrl-C."
)
@click.option(
    "--after",
    callback=_read_offset,
    default=START,
    metavar="OFFSET",
    help="Begin behind that offset, or that seq.",
)
@click.option(
    "--values", "with_values", is_flag=True, help="Show inputs and outputs too, not only their sizes."
)
@common_options
@settings_of
def command(settings: Settings, run_id: str, follow: bool, after: str, with_values: bool) -> None:
    """Print a run's records, and follow them as they come.

    With --json one object a line; its `offset` is what --after takes.
    """

    async def print_all(found: Found) -> None:
        if follow and found.world is None:
            raise InvalidOptions(f"{run_id} is an exported run, to which nothing comes: leave --follow out")
        stream = (
            found.world.follow(run_id, offset=after)
            if follow and found.world is not None
            else records(found, after=parse_offset(after)[0])
        )
        inputs = WholeInputs(found) if with_values else None
        async for item in stream:
            given = None
            if inputs is not None and isinstance(item, Record):
                given = await inputs.of(item)
            seen = _described(item, with_values, given)
            if settings.as_json:
                emit(seen)
            else:
                say(_line(seen), _MARKS.get(seen["type"], "quiet" if isinstance(item, Delta) else "plain"))

    with_found(settings, run_id, print_all)


def _described(item: Item, with_values: bool, given: bytes | None = None) -> dict[str, Any]:
    """`given`: the input as a whole, of an intent that holds only what is new of it."""
    if isinstance(item, Delta):
        return {
            "offset": offset_of(item),
            "type": "delta",
            "seq": item.seq,
            "time": item.time,
            "call": item.call or None,  # of the handler itself
            "try": item.number,
            "data": values.decode(item.data) if with_values else {"size": len(item.data)},
        }
    return {
        "offset": offset_of(item),
        "type": item.type,
        "seq": item.seq,
        "time": item.time,
        "turn": item.turn,
        "call": item.key,
        "epoch": item.epoch,
        "size": item.size,
        "body": _body(item, with_values, given),
    }


def _body(record: Record, with_values: bool, given: bytes | None) -> dict[str, Any]:
    try:
        body = open_record(record)
    except LogError as error:
        return {"unreadable": str(error), **({"body": _unread(record)} if with_values else {})}
    found = _fields(body, with_values)
    if (said := found.pop("difference", None)) is not None:
        new = found.get("input", {"size": 0})
        found["input"] = {"size": said["size"], "builds_on": said["base"], "new": new}
        if given is not None:
            found["input"] = msgspec.Raw(given)
    return found


def _unread(record: Record) -> Any:
    """What stands in a body that this version does not know."""
    try:
        return _spelled(msgspec.msgpack.decode(record.body))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return record.body.hex()


def _spelled(part: Any) -> Any:
    """`part` as JSON: bytes that are JSON as that, others in hexadecimal."""
    match part:
        case bytes():
            try:
                return values.decode(part)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                return part.hex()
        case dict():
            return {str(key): _spelled(value) for key, value in part.items()}
        case list():
            return [_spelled(item) for item in part]
        case msgspec.msgpack.Ext():
            return bytes(part.data).hex()
        case _:
            return part


def _fields(body: Any, with_values: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(body):
        value = getattr(body, field.name)
        if value in (None, {}, ()) or field.name in _LEFT_OUT or field.default == value:
            continue
        found[field.name] = _field(field.name, value, with_values)
    return found


def _field(name: str, value: Any, with_values: bool) -> Any:
    if name in _VALUES and isinstance(value, bytes):
        return msgspec.Raw(value) if with_values else {"size": len(value)}
    if name == "content" and isinstance(value, bytes):
        return {"size": len(value)}  # a file's: no JSON
    if name == "settled":
        return {
            str(seq): "did not run" if told is None else _field("value", told, with_values)
            for seq, told in value.items()
        }
    if isinstance(value, BlobRef):
        return {"blob": value.blob, "size": value.size}
    if name == "lost" and not with_values:
        return {"size": len(value)}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Packed):
        packed = value.data
        size = len(packed) if isinstance(packed, bytes) else packed.size
        return {"kind": value.kind, "size": size}
    if isinstance(value, msgspec.Struct):
        return _fields(value, with_values)
    if isinstance(value, tuple):
        return [_field(name, item, with_values) for item in value]
    if isinstance(value, dict):
        return {key: _field(name, item, with_values) for key, item in value.items()}
    return value


def _line(seen: dict[str, Any]) -> str:
    where = " ".join(part for part in (seen.get("turn"), seen["call"]) if part)
    said = seen["data"] if seen["type"] == "delta" else seen["body"]
    text = msgspec.json.encode(said).decode()
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}…"
    return printable(f"{seen['seq']:>6}  {moment(seen['time'])}  {seen['type']:<16}  {where}  {text}")

"""`journal checkpoints RUN`."""

from typing import Any

import click
import msgspec

from journal.cli.exits import NotThere
from journal.cli.output import emit, moment, remark, say
from journal.cli.reading import Found, as_found, with_found
from journal.cli.settings import Settings, at_option, common_options, settings_of
from journal.core.records import BlobRef
from journal.replay.checkpoints import Checkpoint, Checkpoints
from journal.replay.timeline import printable


@click.command
@click.argument("run_id", metavar="RUN")
@click.argument("name", metavar="[NAME]", required=False)
@at_option
@common_options
@settings_of
def command(settings: Settings, run_id: str, name: str | None, at: int | None) -> int:
    """Print the checkpoints of a run, by name and sequence: as they stand, or as a call found them.

    RUN is one of the store, or the file of an exported one. With NAME those of that name. With --json a list: name,
    sequence, seq and time of the record, bytes, payload.
    """

    async def read(found: Found) -> list[dict[str, Any]]:
        checkpoints = await as_found(found, Checkpoints(), at)
        if name is not None and not checkpoints.all(name):
            raise NotThere(f"checkpoint {name!r}", found.info.run, at, "checkpoints")
        return [await _shown(found, checkpoint) for checkpoint in checkpoints.all(name)]

    found = with_found(settings, run_id, read)
    if settings.as_json:
        emit(found)
        return 0
    for shown in found:
        head = f"{shown['name']} {shown['sequence']}  {moment(shown['time'])}, record {shown['seq']}"
        say(printable(head), "quiet")
        say(msgspec.json.format(msgspec.json.encode(shown["payload"])).decode())
    if not found:
        remark(f"no checkpoint was written{'' if at is None else ' by then'}")
    return 0


async def _shown(found: Found, checkpoint: Checkpoint) -> dict[str, Any]:
    payload = checkpoint.payload
    data = await found.get_blob(payload.blob) if isinstance(payload, BlobRef) else payload
    return {
        "name": checkpoint.name,
        "sequence": checkpoint.sequence,
        "seq": checkpoint.seq,
        "time": checkpoint.time,
        "size": checkpoint.size,
        "payload": msgspec.Raw(data),
    }

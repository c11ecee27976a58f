"""`journal docs RUN`."""

from typing import Any

import click
import msgspec

from journal.cli.exits import NotThere
from journal.cli.output import emit, remark, say
from journal.cli.reading import Found, as_found, with_found
from journal.cli.settings import Settings, at_option, common_options, settings_of
from journal.core.records import BlobRef
from journal.replay.documents import Documents, DocumentVersion
from journal.replay.timeline import printable


@click.command
@click.argument("run_id", metavar="RUN")
@click.argument("kind", metavar="[KIND]", required=False)
@at_option
@common_options
@settings_of
def command(settings: Settings, run_id: str, kind: str | None, at: int | None) -> int:
    """Print the documents of a run: as they stand, or as a call found them.

    RUN is one of the store, or the file of an exported one. With KIND that document alone. With --json one object:
    version, seq of the edit and value of each, by kind.
    """

    async def read(found: Found) -> dict[str, Any]:
        documents = await as_found(found, Documents(), at)
        if kind is not None and not documents.versions.get(kind):
            raise NotThere(f"document {kind!r}", found.info.run, at, "docs")
        chosen = documents.versions if kind is None else {kind: documents.versions[kind]}
        return {
            name: await _shown(found, versions[-1]) for name, versions in sorted(chosen.items()) if versions
        }

    found = with_found(settings, run_id, read)
    if settings.as_json:
        emit(found)
        return 0
    for name, shown in found.items():
        say(printable(f"{name}  version {shown['version']}, since record {shown['seq']}"), "quiet")
        say(msgspec.json.format(msgspec.json.encode(shown["value"])).decode())
    if not found:
        remark(f"no document was written{'' if at is None else ' by then'}")
    return 0


async def _shown(found: Found, version: DocumentVersion) -> dict[str, Any]:
    value = version.value
    data = await found.get_blob(value.blob) if isinstance(value, BlobRef) else value
    return {"version": version.version, "seq": version.seq, "value": msgspec.Raw(data)}

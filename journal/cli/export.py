"""`journal export RUN`."""

import sys

import click
import msgspec

from journal.cli.opening import run
from journal.cli.output import emit, remark
from journal.cli.settings import Settings, common_options, settings_of
from journal.core.ids import check_id
from journal.engine.bundles import export_to, header_of, lines
from journal.engine.journal import Journal


@click.command
@click.argument("run_id", metavar="RUN")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write it there, check what was written, and replace what was there. Default: stdout.",
)
@common_options
@settings_of
def command(settings: Settings, run_id: str, output: str | None) -> None:
    """Write a run to one file of text, which `show`, `log` and `verify` take in place of a run id.

    All of it is in there: what users and models said, inputs and outputs of tools. It is read without a store.
    """

    async def export(journal: Journal) -> None:
        world = (await journal.runtime()).world
        if output is None or output == "-":
            async for piece in lines(world, await header_of(world, check_id(run_id, "run id"))):
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            return
        done = await export_to(world, check_id(run_id, "run id"), output)
        if settings.as_json:
            emit(msgspec.structs.asdict(done) | {"file": output})
        else:
            remark(f"{output}: {done.records:,} records, {done.blobs:,} blobs, read back")

    run(settings, export, only_looks=True)

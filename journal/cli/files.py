"""`journal files RUN`."""

import click

from journal.cli.exits import NotThere
from journal.cli.output import emit, remark, say
from journal.cli.reading import Found, as_found, with_found
from journal.cli.settings import Settings, at_option, common_options, settings_of
from journal.engine.stored_files import stored_files
from journal.replay.timeline import printable
from journal.replay.workspace import File, Tree, Workspace
from journal.tools.workspace import checked


@click.command
@click.argument("run_id", metavar="RUN")
@click.argument("path", metavar="[PATH]", required=False)
@at_option
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False),
    help="Of a directory workspace: where its root is, if not where it was.",
)
@common_options
@settings_of
def command(settings: Settings, run_id: str, path: str | None, at: int | None, root: str | None) -> int:
    """List the files of a run, a stored or an exported one: as they stand, or as call N found them.

    With PATH print that file, byte by byte. With --json the list: path, bytes, digest, seq of the change.
    """

    async def read(found: Found) -> bytes | Tree:
        folded = await as_found(found, Workspace(), at)
        files = await stored_files(found.source, found.info.run, folded, root)
        if path is None:
            return files.tree
        if files.tree.get(path) is None:
            raise NotThere(f"file {checked(path)!r}", found.info.run, at, "files")
        return await files.read(path)

    found = with_found(settings, run_id, read)
    if isinstance(found, bytes):
        click.echo(found, nl=False)
        return 0
    _list(found, settings)
    if not found.count and not settings.as_json:
        remark(f"no file was written{'' if at is None else ' by then'}")
    return 0


def _list(tree: Tree, settings: Settings) -> None:
    rows = [(path, file) for path in tree.under("/") if (file := tree.get(path)) is not None]
    if settings.as_json:
        emit(
            [
                {
                    "path": path,
                    "size": file.size,
                    "digest": file.digest.hex(),
                    "seq": file.seq,
                    "is_executable": file.is_executable,
                    "is_link": file.is_link,
                }
                for path, file in rows
            ]
        )
        return
    for path, file in rows:
        say(printable(f"{file.size:>12,}  {path}{_mark(file)}"))


def _mark(file: File) -> str:
    return "@" if file.is_link else "*" if file.is_executable else ""

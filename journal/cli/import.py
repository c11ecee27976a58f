"""`journal import FILE`."""

import click

from journal.cli.opening import run
from journal.cli.output import emit, remark, say
from journal.cli.reading import check_file
from journal.cli.settings import Settings, common_options, settings_of
from journal.engine.bundles import open_bundle
from journal.engine.importing import Imported, check_bundle, import_bundle
from journal.engine.journal import Journal


@click.command("import")
@click.argument("file", metavar="FILE")
@common_options
@settings_of
def command(settings: Settings, file: str) -> None:
    """Put an exported run into a store, as it is.

    All of the file is checked first, and what was written is read back. An unfinished run is held back: it may go on
    where it was exported; `journal retry` lets it go on here. The same file again is fine, also to finish what was
    interrupted; another run of that id is refused.
    """

    async def bring_in(journal: Journal) -> Imported:
        with open_bundle(file) as bundle:
            return await import_bundle(bundle, (await journal.runtime()).world, lambda _: None)

    check_file(settings, file, lambda journal, bundle: check_bundle(bundle, journal.namespace))
    done = run(settings, bring_in, makes_store=True)
    if settings.as_json:
        emit(done)
    else:
        say(
            f"{done.result:9}{done.run}  {done.records:,} records",
            "good" if done.result == "imported" else "quiet",
        )
    if done.held_back:
        remark(
            f"held back: it may go on where it was exported; journal retry {done.run} if it shall go on here"
        )

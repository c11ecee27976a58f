"""`journal verify RUN|FILE`."""

import click

from journal.cli import exits
from journal.cli.output import emit, remark, say
from journal.cli.reading import Found, with_found
from journal.cli.settings import Settings, common_options, settings_of
from journal.core.errors import RunBuilding
from journal.engine.verifying import Verified
from journal.engine.verifying import verify as verify_run
from journal.replay.timeline import printable


@click.command
@click.argument("run_id", metavar="RUN|FILE")
@common_options
@settings_of
def command(settings: Settings, run_id: str) -> int:
    """Check a run, or an exported one: order, checksums, batches, outcomes, blobs.

    Prints what is wrong, a line each, by record; exit code 6 if anything is. The digest is the same for the same run
    in every store and file.
    """

    async def check(found: Found) -> Verified:
        image = await found.image()
        if image.building:
            raise RunBuilding(run_id=image.run)
        return await verify_run(found.source, image)

    done = with_found(settings, run_id, check)
    if settings.as_json:
        emit(done)
    else:
        for problem in done.problems:
            where = "run" if problem.seq is None else f"record {problem.seq}"
            say(
                printable(
                    f"{where} {done.run if problem.seq is None else f'of run {done.run}'}: {problem.what}"
                ),
                "bad",
            )
        count = len(done.problems)
        whole = "whole" if not count else "1 problem" if count == 1 else f"{count:,} problems"
        say(
            f"run {done.run} · {done.records:,} records · {done.blobs:,} blobs · {whole} · digest {done.digest}",
            "bad" if count else "good",
        )
    if done.problems:
        remark(
            "restore the store from a backup, or get the file again; journal show draws what precedes the damage"
        )
        return exits.WORLD
    return exits.OK

"""`journal migrate`."""

import asyncio

import click

from journal.cli.logs import configure_logs
from journal.cli.opening import open_journal, run
from journal.cli.output import emit, remark, say
from journal.cli.settings import Settings, common_options, settings_of
from journal.engine.journal import Journal
from journal.worlds import pending_sql


@click.command
@click.option("--print", "is_printed", is_flag=True, help="Print the SQL and change nothing.")
@common_options
@settings_of
def command(settings: Settings, is_printed: bool) -> None:
    """Bring a store to the schema of this version, or print the SQL that would.

    Whatever opens a store does the same first. This is for doing it beforehand, and --print for stores in which only
    somebody else may change the schema: what they run leaves nothing to do for those who open it.
    """
    configure_logs("debug" if settings.debug else "warning")
    journal = open_journal(settings)
    sql = None if callable(journal.url) else asyncio.run(pending_sql(journal.url))
    if is_printed:
        _print(settings, sql)
        return
    url = run(settings, _open, makes_store=True)
    if settings.as_json:
        emit({"world": url, "changed": sql is not None and sql != ""})
    else:
        say(f"{url}: {'brought up to date' if sql else 'nothing to do'}")


def _print(settings: Settings, sql: str | None) -> None:
    if settings.as_json:
        emit({"sql": sql})
    elif sql:
        say(sql.rstrip("\n"))
    else:
        remark("nothing to do" if sql is not None else "this store has no SQL to print: nothing to do")


async def _open(journal: Journal) -> str:
    return (await journal.runtime()).world.url

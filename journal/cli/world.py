"""`journal world check URL`."""

import asyncio

import click

from journal.cli import exits
from journal.cli.output import emit, remark, say
from journal.cli.settings import Settings, common_options, settings_of
from journal.replay.timeline import Mark
from journal.worlds import redact_url, resolve_url
from journal.worlds.contract import CaseResult, check_url

_MARKS: dict[str, Mark] = {"passed": "good", "failed": "bad", "skipped": "quiet"}


@click.group(no_args_is_help=False)
def command() -> None:
    """Try a store: does it keep what every store must promise?"""


@command.command
@click.argument("url", metavar="[URL]", required=False)
@click.option("--only", default="", metavar="TEXT", help="Only the cases whose name holds TEXT.")
@common_options
@settings_of
def check(settings: Settings, url: str | None, only: str) -> int:
    """Run the contract suite against the store of URL (default: --world, else $JOURNAL_WORLD, else the project's).

    Works in namespaces of its own and clears them again; other runs are neither seen nor touched. Exit code 1 if a
    promise is broken.
    """
    resolved = resolve_url(url or settings.world)
    if resolved == "memory:":
        resolved = "memory:check"  # private to whoever opens it, and the suite opens it more than once
    results = asyncio.run(_check(settings, resolved, only))
    counts = {status: sum(r.status == status for r in results) for status in _MARKS}
    if not results:
        raise click.UsageError(f"no case has {only!r} in its name")
    remark(
        f"{redact_url(resolved).removesuffix(':')}: "
        + ", ".join(f"{count} {status}" for status, count in counts.items())
    )
    return exits.FAILED if counts["failed"] else exits.OK


async def _check(settings: Settings, url: str, only: str) -> list[CaseResult]:
    results: list[CaseResult] = []
    async for result in check_url(url, only=only):
        results.append(result)
        if settings.as_json:
            emit(result)
            continue
        say(f"{result.status:8}{result.name.removeprefix('test_').replace('_', ' ')}", _MARKS[result.status])
        if result.status != "passed":
            say(f"        promised: {result.promise}")
            say(f"        {'found' if result.status == 'failed' else 'because'}: {result.detail}")
    return results

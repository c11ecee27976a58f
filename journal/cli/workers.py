"""`journal workers`."""

import time

import click

from journal.cli.opening import run
from journal.cli.output import ago, emit, remark, table
from journal.cli.settings import Settings, common_options, settings_of
from journal.core.ports import WorkerInfo
from journal.engine.journal import Journal

_HEADER = ("WORKER", "VERSION", "BUSY", "UP", "SEEN", "AGENTS")


@click.command
@common_options
@settings_of
def command(settings: Settings) -> None:
    """List the workers that were heard of within the last minute: code version, slots in use, agents.

    A worker is named by host, process id and a random part. One that was killed stays listed until its minute is over.
    """

    async def read(journal: Journal) -> tuple[str, list[WorkerInfo]]:
        return (await journal.runtime()).world.url, await journal.workers()

    url, found = run(settings, read, only_looks=True)
    if settings.as_json:
        for info in found:
            emit(info)
        return
    if not found:
        remark(f"no workers on {url}: start one with `journal worker app:journal`")
        return
    now = time.time()
    rows = [
        (
            info.worker,
            info.version or "-",
            f"{info.busy}/{info.slots}",
            ago(info.started, now).removesuffix(" ago"),
            ago(info.seen, now),
            ", ".join(info.agents),
        )
        for info in found
    ]
    table(_HEADER, rows)

"""`journal demo`."""

import os

import click

from journal.cli.settings import Settings, common_options, settings_of
from journal.worlds.opening import VARIABLE


@click.command
@common_options
@settings_of
def command(settings: Settings) -> int:
    """Kill an agent twice and watch it carry on, beside the same script without a journal.

    Everything runs on this machine: a bundled model and a refund service on loopback, no keys. With --world or
    $JOURNAL_WORLD it is played in that store, and its run stays there to be looked at. With --json, one object with
    what was paid and what was run.
    """
    from journal.demo.main import main as play

    return play(url=settings.world or os.environ.get(VARIABLE), as_json=settings.as_json)

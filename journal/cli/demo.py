"""`journal demo`."""

import click

from journal.cli.settings import Settings, common_options, settings_of


@click.command
@common_options
@settings_of
def command(settings: Settings) -> int:
    """Kill an agent twice and watch it carry on, beside the same script without a journal.

    Everything runs on this machine: a bundled model and a refund service on loopback, no keys. With --json, one
    object with what was paid and what was run.
    """
    from journal.demo.main import main as play

    return play(as_json=settings.as_json)

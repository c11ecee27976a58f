"""`journal` itself: its verbs by name, each loaded when it is called, and what becomes of an error.

Nothing heavy is imported here: `journal --help` must not wait for drivers, harnesses or rich.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from journal.cli import exits
from journal.cli.output import emit, hush, remark
from journal.cli.settings import Settings, common_options

VERBS = {
    "demo": "Kill an agent twice and watch it carry on, beside the same script without a journal.",
    "runs": "List runs, newest first.",
    "show": "Draw a run: its attempts, its calls, what was interrupted and what carried on.",
    "log": "Print a run's records, and follow them as they come.",
    "replay": "Run the code again against a run's log: nothing acts, nothing is written.",
    "submit": "Give an agent an input to work on.",
    "worker": "Work on runs: claim, carry on, take over what others left.",
    "workers": "List the workers that were heard of within the last minute: code version, slots in use, agents.",
    "stats": "Count open runs by agent: what is due and since when, what is held, parked, blocked or idle.",
    "retry": "Send a failed or blocked turn on.",
    "fork": "Begin a new run as RUN began, up to a call.",
    "docs": "Print the documents of a run: as they stand, or as a call found them.",
    "files": "List the files of a run, a stored or an exported one: as they stand, or as call N found them.",
    "checkpoints": "Print the checkpoints of a run, by name and sequence: as they stand, or as a call found them.",
    "diff": "Say where two runs part, or what changed in one between two of its calls.",
    "cancel": "Ask for a run's turn to be cancelled.",
    "copy": "Copy runs from the store SRC to the store DST, oldest first, or move them there for good.",
    "export": "Write a run to one file of text, which `show`, `log` and `verify` take in place of a run id.",
    "import": "Put an exported run into a store, as it is.",
    "verify": "Check a run, or an exported one: order, checksums, batches, outcomes, blobs.",
    "archive": "Move runs that are done to another store, and keep only their address.",
    "migrate": "Bring a store to the schema of this version, or print the SQL that would.",
    "check": "Print agents, tools and their replay policies, and what the store offers; runs nothing.",
    "world": "Try a store: does it keep what every store must promise?",
}
"""Each verb and its help; `journal.cli.<verb>` defines it as `command`."""


class Verbs(click.Group):
    """A group whose commands are modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which one needs them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the verb's module."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"journal.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in ``--help``, without importing what it lists."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; a reader of our output that has seen enough (``| head``) is no failure."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            hush()
            return exits.OK
        return code

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a verb; errors become one line on stderr and an exit code."""
        given = list(sys.argv[1:] if args is None else args) or ["--help"]
        settings = extra.setdefault("obj", Settings())
        settings.is_process = args is None and standalone_mode
        if os.environ.get("NO_COLOR"):
            extra.setdefault("color", False)
        try:
            code = super().main(given, prog_name or "journal", complete_var, standalone_mode=False, **extra)
        except BaseException as raised:
            if isinstance(raised, SystemExit | GeneratorExit) or not standalone_mode:
                raise
            code = _tell(exits.innermost(raised), settings, given)
        if not standalone_mode:
            return code
        sys.exit(code if isinstance(code, int) else exits.OK)


def _tell(error: BaseException, settings: Settings, given: Sequence[str]) -> int:
    code = exits.code_of(error)
    if settings.debug:
        traceback.print_exception(error)
    if code != exits.INTERRUPTED:
        remark(f"error: {exits.message_of(error)}", settings)
    if settings.as_json or "--json" in given:
        emit(exits.described(error, settings))
    return code


def _print_version(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked and not ctx.resilient_parsing:
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = version("durable-journal")
        except PackageNotFoundError:
            found = "not installed, run from a checkout"
        click.echo(f"durable-journal {found}")
        ctx.exit()


@click.command(
    name="journal",
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 ok, 1 run failed, 2 usage, 3 blocked, 4 not found, 5 parked, 6 store unavailable or needs "
    "another version, 7 cancelled, 130 interrupted.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version.",
)
@common_options
def main() -> None:
    """The log that makes any AI-agent harness survive a crash."""

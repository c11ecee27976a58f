"""The options that every verb takes, before the verb or after it: which journal, and how to speak."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from journal.cli.numbers import call_number
from journal.core.hints import directed, options
from journal.worlds import redact_url

F = TypeVar("F", bound=Callable[..., Any])


class Settings:
    """What was given. None: not given."""

    def __init__(self) -> None:
        self.app: str | None = None
        self.world: str | None = None
        self.namespace: str | None = None
        self.as_json = False
        self.debug = False
        self.is_process = False
        """Whether the verb is what this process is for, and may end it."""

    def directed(self, text: str) -> str:
        """`text`, with commands in it that look at the same store as this one, if that was named."""
        world = None if self.world is None else redact_url(self.world)
        app = self.app if world is None else None
        return directed(text, options(app=app, world=world, namespace=self.namespace))


settings_of = click.make_pass_decorator(Settings, ensure=True)
"""Hands the verb its `Settings` as first argument."""


def _store(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def store(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value:  # the verb's own must not undo what stood before it
            setattr(ctx.find_root().ensure_object(Settings), name, value)

    return store


_OPTIONS = (
    click.option(
        "--app",
        metavar="MODULE:ATTR",
        expose_value=False,
        callback=_store("app"),
        help="The journal: an attribute of a module, or a module that holds exactly one. Default: $JOURNAL_APP.",
    ),
    click.option(
        "--world",
        metavar="URL",
        expose_value=False,
        callback=_store("world"),
        help="The store. Default: the app's, else $JOURNAL_WORLD, else .journal/journal.db of the project.",
    ),
    click.option(
        "--namespace",
        metavar="NAME",
        expose_value=False,
        callback=_store("namespace"),
        help="Whose runs. Default: the app's, else 'default'.",
    ),
    click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=_store("as_json"),
        help="Machine-readable output on stdout.",
    ),
    click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=_store("debug"),
        help="Show tracebacks, and all of the engine's log lines.",
    ),
)


at_option = click.option(
    "--at", type=call_number, metavar="N", help="As call N found them (numbered as in `journal show`)."
)
"""Of what prints something that stands at a place of the log."""


def common_options(command: F) -> F:
    """Give a verb (or the group) the options of `Settings`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command

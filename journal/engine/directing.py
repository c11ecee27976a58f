"""Commands that errors name (`journal show RUN`), told on which store they are to look, if it is not the default."""

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from journal.core.errors import JournalError
from journal.core.hints import directed, options
from journal.worlds import default_url, redact_url, resolve_url

if TYPE_CHECKING:
    from journal.engine.journal import Journal

P = ParamSpec("P")
R = TypeVar("R")


def command_options(journal: "Journal") -> str:
    """What the command line is to be told to look at this journal's runs; empty if it does so by itself."""
    url = None
    if (
        isinstance(journal.url, str)
        and not journal.url.startswith("memory:")
        and resolve_url(journal.url) != default_url()
    ):
        url = redact_url(resolve_url(journal.url))
    return options(world=url, namespace=None if journal.namespace == "default" else journal.namespace)


def directing(method: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """For a method of `Journal`, or of what has it as `_journal`: commands in what it raises run as printed."""

    @functools.wraps(method)
    async def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await method(*args, **kwargs)
        except JournalError as error:
            journal: Any = getattr(args[0], "_journal", args[0])
            error.args = (directed(str(error), command_options(journal)), *error.args[1:])
            raise

    return checked

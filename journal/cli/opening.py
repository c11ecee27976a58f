"""From the options to a journal: the application's, or a bare one on a store."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from journal.cli.logs import configure_logs
from journal.cli.settings import Settings
from journal.core.errors import RunNotFound, UsageError, WorldUnavailable
from journal.core.ids import check_id
from journal.engine.journal import Journal
from journal.worlds import open_to_read, redact_url, resolve_url, world_exists

T = TypeVar("T")
VARIABLE = "JOURNAL_APP"


class AppNotFound(UsageError):
    """What ``--app`` names is not there, or is no journal."""


def open_journal(settings: Settings) -> Journal:
    """The journal that the options name; nothing is opened yet. Raises `AppNotFound`."""
    app = app_of(settings)
    if app is None:
        return Journal(settings.world, namespace=settings.namespace or "default")
    journal = load_app(app)
    if settings.world is not None:
        journal.url = settings.world
    if settings.namespace is not None:
        journal.namespace = check_id(settings.namespace, "namespace")
    return journal


def app_of(settings: Settings) -> str | None:
    """Which application was named, if one was."""
    return settings.app or os.environ.get(VARIABLE) or None


def needed_journal(settings: Settings) -> Journal:
    """Like `open_journal`, for verbs that are nothing without agents."""
    if app_of(settings) is None:
        raise AppNotFound(
            "no application: name the module and the journal in it, as in --app app:journal, "
            f"or set ${VARIABLE}"
        )
    journal = open_journal(settings)
    if not journal.agents:
        raise AppNotFound(
            f"{app_of(settings)!r} has no agents: register a handler with @journal.agent, "
            "and name a module that imports it"
        )
    return journal


def load_app(spec: str) -> Journal:
    """Import ``module:attribute``; ``module`` alone stands for the one journal in it."""
    name, _, attribute = spec.partition(":")
    if not name or name.endswith(".py") or "/" in name:
        module_name = Path(name).stem or "app"
        raise AppNotFound(f"{spec!r} is no application: write module:attribute, as in {module_name}:journal")
    module = _import(name)
    if not attribute:
        return _only_journal(module)
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise AppNotFound(f"module {name!r} has no {attribute!r}: {_offer(module)}")
        found = getattr(found, part)
    if isinstance(found, ModuleType):
        return _only_journal(found)
    if not isinstance(found, Journal):
        raise AppNotFound(f"{spec!r} is of type {type(found).__name__}, not a Journal: {_offer(module)}")
    return found


def run(
    settings: Settings,
    main: Callable[[Journal], Awaitable[T]],
    *,
    makes_store: bool = False,
    only_looks: bool = False,
    besides: str | None = None,
    check: Callable[[Journal], Awaitable[None]] | None = None,
) -> T:
    """Open the journal, run `main` on it, close it.

    Raises `WorldUnavailable` if there is no store yet, unless the verb `makes_store`. `besides`: what else is not
    there, to be said with it, and with `RunNotFound`. A verb that `only_looks` is shown a store that cannot be
    written, too. `check` is run before anything is opened: what it refuses leaves
    no empty store behind.
    """
    configure_logs("debug" if settings.debug else "warning")
    journal = open_journal(settings)

    async def opened() -> T:
        if not makes_store and not callable(journal.url):
            await check_exists(journal.url, besides)
        if check is not None:
            await check(journal)
        if only_looks and not callable(journal.url):
            journal.url = partial(open_to_read, journal.url, namespace=journal.namespace, clock=journal.clock)
        async with journal:
            try:
                return await main(journal)
            except RunNotFound as error:
                if besides is None:
                    raise
                raise RunNotFound(run_id=error.run_id, world=error.world, besides=besides) from None

    return asyncio.run(opened())


async def check_exists(url: str | None, besides: str | None = None) -> None:
    """Raise `WorldUnavailable` if there is no store at `url`: who only looks shall make none by a typo."""
    if not await world_exists(url):
        advice = "check --world or --app (what submits or works makes one)"
        raise WorldUnavailable(
            f"there is no store here, and none was made: {advice}"
            if besides is None
            else f"{besides}, and there is no store that could have such a run: check the name, or --world",
            world=redact_url(resolve_url(url)),
        )


def _import(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise AppNotFound(
                f"there is no module {error.name!r}: run this where it can be imported, or set PYTHONPATH"
            ) from error
        raise AppNotFound(
            f"module {name!r} needs {error.name!r}, which is not installed; --debug shows where"
        ) from error
    except (Exception, SystemExit) as error:
        raise AppNotFound(
            f"importing {name!r} raised {type(error).__name__}: {error}; --debug shows where"
        ) from error


def _journals(module: ModuleType) -> dict[str, Journal]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Journal)}


def _only_journal(module: ModuleType) -> Journal:
    found = _journals(module)
    if len({id(journal) for journal in found.values()}) != 1:
        raise AppNotFound(f"module {module.__name__!r} does not hold exactly one journal: {_offer(module)}")
    return next(iter(found.values()))


def _offer(module: ModuleType) -> str:
    names = [f"{module.__name__}:{name}" for name in _journals(module)]
    return f"choose {' or '.join(names)}" if names else f"there is no Journal in {module.__name__!r}"

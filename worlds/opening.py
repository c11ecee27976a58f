"""From a URL to an open world: the default, the printed form, and who serves which scheme."""

import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from journal.core.clock import Clock
from journal.core.errors import WorldReadOnly, WorldUnavailable, WorldUnknown
from journal.core.ports import World

GROUP = "journal.worlds"
VARIABLE = "JOURNAL_WORLD"
FOLDER = ".journal"

_BUILT_IN = {
    "memory": "journal.worlds.memory:open_memory",
    "sqlite": "journal.worlds.sqlite:open_sqlite",
    "postgres": "journal.worlds.postgres:open_postgres",
    "postgresql": "journal.worlds.postgres:open_postgres",
    "redis": "journal.worlds.redis:open_redis",
    "rediss": "journal.worlds.redis:open_redis",
    "valkey": "journal.worlds.redis:open_redis",
    "redis+cluster": "journal.worlds.redis:open_redis",
    "rediss+cluster": "journal.worlds.redis:open_redis",
}
"""Ours, which nobody else's package replaces: to look for others reads what is installed, all of it, for 50 ms."""
_others: "dict[str, Opener]" = {}
"""What was found so far."""
_EXTRAS = {"psycopg": "postgres", "psycopg_pool": "postgres", "redis": "redis", "hiredis": "redis"}
"""Which extra of ours brings a driver."""
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*(?=:)")
_SECRET = re.compile(r"pass|pwd|secret|token|key|credential", re.IGNORECASE)

Opener = Callable[..., AbstractAsyncContextManager[World]]
"""`opener(url, *, namespace, clock)`; `clock` None stands for the system's."""


@asynccontextmanager
async def open_world(
    url: str | None = None, *, namespace: str = "default", clock: Clock | None = None
) -> AsyncIterator[World]:
    """Open the world of `url` (None: the default) for one namespace, and close it in the end.

    Raises `WorldUnknown` for a scheme that nothing installed serves, and what the world raises at open.
    """
    resolved = resolve_url(url)
    opener = _find_opener(resolved)
    if resolved == _project_url():
        _prepare_folder(Path(resolved.removeprefix("sqlite:")).parent, world=resolved)
    async with opener(resolved, namespace=namespace, clock=clock) as world:
        yield world


@asynccontextmanager
async def open_to_read(
    url: str | None = None, *, namespace: str = "default", clock: Clock | None = None
) -> AsyncIterator[World]:
    """`open_world` for who only looks: a store that cannot be written is opened all the same, if its world can do that.

    A world may offer it: `open_to_read`, as its opener, in the module of that. Raises as `open_world` does.
    """
    async with AsyncExitStack() as stack:
        try:
            world = await stack.enter_async_context(open_world(url, namespace=namespace, clock=clock))
        except WorldReadOnly as refused:
            resolved = resolve_url(url)
            module = sys.modules.get(getattr(_find_opener(resolved), "__module__", ""))
            offered: Opener | None = getattr(module, "open_to_read", None)
            if offered is None:
                raise
            try:
                world = await stack.enter_async_context(offered(resolved, namespace=namespace, clock=clock))
            except WorldUnavailable:
                raise refused from None
        yield world


async def world_exists(url: str | None = None) -> bool:
    """Whether there is a store; True also where its world cannot tell. Makes none.

    A world may offer it: `async def exists(url) -> bool` in the module of its opener. Raises what the world raises.
    """
    resolved = resolve_url(url)
    module = sys.modules.get(getattr(_find_opener(resolved), "__module__", ""))
    offered: Callable[[str], Awaitable[bool]] | None = getattr(module, "exists", None)
    return offered is None or await offered(resolved)


async def pending_sql(url: str | None = None) -> str | None:
    """The SQL that opening this store would run first, empty if there is none to run; None: it has nothing of the kind.

    A world may offer it: `async def pending_sql(url) -> str` in the module of its opener, which changes nothing.
    """
    resolved = resolve_url(url)
    module = sys.modules.get(getattr(_find_opener(resolved), "__module__", ""))
    offered: Callable[[str], Awaitable[str]] | None = getattr(module, "pending_sql", None)
    return None if offered is None else await offered(resolved)


def default_url() -> str:
    """`$JOURNAL_WORLD`, else SQLite at `.journal/journal.db` of the project; relative paths made absolute.

    The project is the nearest parent that holds a pyproject.toml or a .git, else the working directory.
    """
    return resolve_url(os.environ.get(VARIABLE) or _project_url())


def resolve_url(url: str | None = None) -> str:
    """`url` with its path made absolute, so that it means the same from every directory. Touches no file."""
    if url is None:
        return default_url()
    scheme, _, rest = url.partition(":")
    if scheme != "sqlite" or rest == ":memory:":
        return url
    # sqlite:path, and sqlite:///absolute/path as other tools write it
    path = rest[2:] if rest.startswith("///") else rest
    if not path or path.startswith("//"):
        raise WorldUnknown(
            "a SQLite store is a file here: write sqlite:path/to/file.db", world=redact_url(url)
        )
    return f"sqlite:{Path(os.path.abspath(Path(path).expanduser()))}"


def redact_url(url: str) -> str:
    """`url` as it may be printed: without user, password and secret parameters."""
    scheme, sep, rest = url.partition("://")
    if not sep:
        return url
    rest, question, query = rest.partition("?")
    # A password may hold an unescaped @ or /: everything up to the last @ goes.
    rest = rest.rpartition("@")[2]
    if question:
        pairs = parse_qsl(query, keep_blank_values=True)
        query = urlencode(
            [(name, "***" if _SECRET.search(name) else value) for name, value in pairs], safe="*/"
        )
    return scheme + sep + rest + question + query


def _project_url() -> str:
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "pyproject.toml").exists() or (folder / ".git").exists():
            break
    else:
        folder = here
    return f"sqlite:{folder / FOLDER / 'journal.db'}"


def _prepare_folder(folder: Path, *, world: str) -> None:
    """Make the default's folder, invisible to git."""
    try:
        folder.mkdir(exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
    except OSError as error:
        raise WorldReadOnly(
            f"its folder cannot be made ({error.strerror}): set ${VARIABLE}, or give a store URL", world=world
        ) from error


def _find_opener(url: str) -> Opener:
    found = _SCHEME.match(url)
    if found is None:
        raise WorldUnknown(
            f"this is not a store URL: write sqlite:{url} for a file, postgresql://… or redis://… for a server, "
            "or memory:",
            world=redact_url(url),
        )
    scheme = found[0]
    if scheme not in _BUILT_IN:
        return _others.get(scheme) or _find_other(scheme, url)
    module, _, name = _BUILT_IN[scheme].partition(":")
    try:
        opener: Opener = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "")
        if extra is None:
            raise
        raise WorldUnknown(
            f"its driver {error.name} is not installed: pip install 'durable-journal[{extra}]'",
            world=redact_url(url),
        ) from None
    return opener


def _find_other(scheme: str, url: str) -> Opener:
    from importlib.metadata import entry_points

    installed = {entry.name: entry for entry in entry_points(group=GROUP)}
    if scheme not in installed:
        raise WorldUnknown(
            f"nothing installed serves {scheme}: (installed: {', '.join(sorted({*_BUILT_IN, *installed}))}): "
            f"install the package that provides it (entry-point group {GROUP})",
            world=redact_url(url),
        )
    opener: Opener = installed[scheme].load()
    _others[scheme] = opener
    return opener

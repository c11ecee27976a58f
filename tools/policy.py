"""Replay policies: whether a call that is in doubt after a crash may run again, and who said so.

The order: the agent's map, the journal's map (names and globs), a marker on the tool, what the harness keeps as
metadata, hints of a trusted MCP server, and `never`. Maps come first because they alone always hold: a harness may
copy a tool and lose its marker, or wrap it and hide it. `resolve` decides, and is pure.
"""

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from types import FunctionType, MethodType
from typing import Any, TypeVar, overload
from weakref import WeakSet, ref

import msgspec

from journal.core.errors import InvalidOptions
from journal.core.records import Policy
from journal.tools.probe import ProbeFunction

T = TypeVar("T")

_MARK = "__journal_marker__"


class Marker(msgspec.Struct, frozen=True):
    """What `safe` and `never` leave on a tool."""

    policy: Policy
    probe: ProbeFunction | None = None
    """Asks whether a call in doubt took place."""
    dedupes: bool = False
    """Whether the service honours `io.idempotency_key`, so that asking it twice does it once."""


class Resolved(msgspec.Struct, frozen=True):
    """The policy of a tool, and where it comes from, in words (`journal check` shows them)."""

    policy: Policy
    source: str


def safe(tool: T) -> T:
    """Mark a function or a harness's tool: in doubt after a crash, it may run again. Returns the same object."""
    return _mark(tool, Marker("safe"))


@overload
def never(tool: T, /, *, probe: ProbeFunction | None = None, dedupes: bool = False) -> T: ...
@overload
def never(*, probe: ProbeFunction | None = None, dedupes: bool = False) -> Callable[[T], T]: ...
def never(tool: Any = None, /, *, probe: ProbeFunction | None = None, dedupes: bool = False) -> Any:
    """Mark a function or a harness's tool: it is started at most once. Returns the same object.

    In doubt after a crash it is not started again: `probe` is asked whether it took place, and without one the
    outcome is unknown. `dedupes` says that the service honours `io.idempotency_key`: then a probe's "it did not"
    is enough to run it.
    """
    if probe is not None and not callable(probe):
        raise InvalidOptions(f"never(probe={probe!r}): give a function, `async def probe(input, io)`")
    marker = Marker("never", probe, dedupes)
    return (lambda found: _mark(found, marker)) if tool is None else _mark(tool, marker)


def marker_of(tool: object) -> Marker | None:
    """The marker on `tool`: on itself, on the function in it, or on the tool it is a copy of."""
    seen = 0
    part: Any = tool
    while part is not None and seen < 16:  # wrappers in wrappers; the bound keeps one that wraps itself out
        if marker := _own(part):
            return marker
        part, seen = _inner(part), seen + 1
    return _of_copied(tool)


# Markers set on objects that take no attribute, by id; the weak reference removes its entry.
_aside: dict[int, tuple[ref[Any], Marker]] = {}
# Harnesses copy tools (dataclasses.replace) and lose what is not a field: what a copy keeps finds the marker again.
_by_name: dict[Any, Marker] = {}
# The functions in the tools of that name: another tool around another function is no copy, whatever it is called.
_functions: dict[Any, "WeakSet[Any]"] = {}


def _mark(tool: T, marker: Marker) -> T:
    target: Any = tool.__func__ if isinstance(tool, MethodType) else tool
    if not _takes_attributes(target):
        _set_aside(target, marker)
    else:
        try:
            setattr(target, _MARK, marker)
        except (AttributeError, TypeError):
            _set_aside(target, marker)
    if identity := _identity(tool):
        other = _by_name.setdefault(identity, marker)
        if other != marker:  # two tools that a copy cannot be told apart by: the careful policy for copies
            _by_name[identity] = Marker("never")
        if isinstance(function := _inner(tool), FunctionType):
            _functions.setdefault(identity, WeakSet()).add(function)
    return tool


def _of_copied(tool: Any) -> Marker | None:
    """The marker of the tool that `tool` seems to be a copy of."""
    identity = _identity(tool)
    marker = _by_name.get(identity)
    if marker is None:
        return None
    function = _inner(tool)
    known = _functions.get(identity)
    return (
        None if known is not None and isinstance(function, FunctionType) and function not in known else marker
    )


def _takes_attributes(target: Any) -> bool:
    return not hasattr(type(target), "__pydantic_fields__")  # a model would take it for a field of its own


def _set_aside(target: Any, marker: Marker) -> None:
    number = id(target)
    try:
        _aside[number] = (ref(target, lambda _: _aside.pop(number, None)), marker)
    except TypeError:
        raise InvalidOptions(
            f"a {type(target).__qualname__} cannot be marked: name the tool in Journal(tools={{…}}) instead"
        ) from None


def _own(part: Any) -> Marker | None:
    found = getattr(part, _MARK, None)
    if isinstance(found, Marker):
        return found
    aside = _aside.get(id(part))
    return aside[1] if aside and aside[0]() is part else None


def _inner(part: Any) -> Any:
    for name in ("__wrapped__", "__func__", "func"):  # decorators and Agents tools, methods, partials
        try:
            inner = getattr(part, name, None)
        except Exception:  # noqa: BLE001, S112 - a property of a foreign class
            continue
        if callable(inner):
            return inner
    return None


def _identity(tool: Any) -> tuple[type, str, str] | None:
    """What a copy of a harness's tool still has. None for functions: their names are no tool names."""
    name, text = getattr(tool, "name", None), getattr(tool, "description", None)
    if isinstance(tool, type) or not isinstance(name, str):
        return None
    return type(tool), name, text if isinstance(text, str) else ""


# Deciding ------------------------------------------------------------------------------------------


def resolve(
    name: str,
    *,
    agent: Mapping[str, Policy] | None = None,
    journal: Mapping[str, Policy] | None = None,
    marker: Marker | None = None,
    metadata: Mapping[str, Any] | None = None,
    hints: object = None,
) -> Resolved:
    """The policy of the tool `name`. Pure.

    `agent` and `journal` are maps of names and globs. `metadata`: the harness's, ``{"journal": {"replay": …}}``.
    `hints`: annotations of an MCP tool, given only if its server is trusted.
    """
    for whose, policies in (("agent", agent), ("journal", journal)):
        if policies and (pattern := _best_match(name, policies)) is not None:
            return Resolved(policies[pattern], f"{whose} map ({pattern})")
    if marker is not None:
        return Resolved(marker.policy, "marker")
    if (word := _in_metadata(metadata)) is not None:
        return Resolved(check_policy(word, f"the metadata of tool {name!r}"), "tool metadata")
    if (hint := _trusted_hint(hints)) is not None:
        return Resolved("safe", f"trusted MCP hint ({hint})")
    return Resolved("never", "default")


def check_policies(policies: Mapping[str, Any], *, what: str = "tools=") -> dict[str, Policy]:
    """A copy of the map; raises `InvalidOptions` for words that are no policy."""
    for pattern in policies:
        if not isinstance(pattern, str) or not pattern:
            raise InvalidOptions(f"{what}: {pattern!r} is no tool name or glob")
    return {pattern: check_policy(word, f"{what} {pattern!r}") for pattern, word in policies.items()}


def check_policy(word: object, what: str) -> Policy:
    """`word`, if it is a policy; else `InvalidOptions`, naming `what`."""
    if word not in ("safe", "never"):
        raise InvalidOptions(
            f"{what}: {word!r} is no replay policy; it is 'safe' (may run again after a crash) or 'never'"
        )
    return word


def _best_match(name: str, policies: Mapping[str, Policy]) -> str | None:
    """The key that speaks for `name`: itself, else the glob that spells out most of it; of equals, the careful one."""
    if name in policies:
        return name
    matching = [pattern for pattern in policies if fnmatchcase(name, pattern)]
    return max(matching, key=lambda p: (_spelled_out(p), len(p), policies[p] == "never", p), default=None)


def _spelled_out(pattern: str) -> int:
    return len(re.sub(r"\[[^]]*\]|[*?]", "", pattern))


def _in_metadata(metadata: Mapping[str, Any] | None) -> object:
    ours = metadata.get("journal") if metadata else None
    return ours.get("replay") if isinstance(ours, Mapping) else None


def _trusted_hint(hints: object) -> str | None:
    """Which hint allows it; attributes are snake_case in version 2 of the MCP package and camelCase in version 1."""
    for name, word in (("readOnlyHint", "read_only_hint"), ("idempotentHint", "idempotent_hint")):
        if isinstance(hints, Mapping):
            value = hints.get(word, hints.get(name))
        else:
            # The old spelling only where there is no new one: whoever offers both may warn of it.
            value = getattr(hints, word) if hasattr(hints, word) else getattr(hints, name, None)
        if value is True:
            return name
    return None

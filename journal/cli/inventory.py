"""Which tools an application has, found without running anything: what its modules hold, and what those list.

Found are marked functions, `@tool`s, and tools of harnesses (whatever has a name, a description and a JSON schema),
at the top of a module or in the `tools` of an agent there. A function that is only named in a call of `turn.tool`
is not found: unmarked, it is `never`.
"""

import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import msgspec
from msgspec.structs import replace

from journal.core.records import Policy
from journal.engine.agent import Agent
from journal.engine.journal import Journal
from journal.tools.policy import marker_of, resolve
from journal.tools.tool import Step, Tool


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One tool and what would become of a call of it that is in doubt."""

    name: str
    policy: Policy
    source: str
    """Where the policy comes from."""
    where: str
    """The module it was found in."""
    agent: str | None = None
    """Set where one agent's map says something else than the rest."""
    has_probe: bool = False
    dedupes: bool = False


def tools_of(journal: Journal, modules: list[ModuleType]) -> list[Found]:
    """Every tool in `modules`, with its policy; sorted by name."""
    found: dict[tuple[str, str | None], Found] = {}
    for module in modules:
        for tool in _tools_in(module):
            for row in _rows(journal, tool, module.__name__):
                found.setdefault((row.name, row.agent), row)
    return sorted(found.values(), key=lambda row: (row.name, row.agent or ""))


def modules_of(journal: Journal, extra: str | None = None) -> list[ModuleType]:
    """The module of the application, those of its agents, and what they import from beside them."""
    names = {agent.handler.__module__ for agent in journal.agents.values()}
    if extra is not None:
        names.add(extra)
    modules = [sys.modules[name] for name in sorted(names) if name in sys.modules]
    for module in list(modules):
        for value in list(vars(module).values()):
            home = sys.modules.get(getattr(value, "__module__", None) or "")
            if home is not None and home not in modules and _is_beside(home, modules):
                modules.append(home)
    return modules


def unmatched(journal: Journal, found: list[Found]) -> list[str]:
    """Names and globs of the policy maps that speak for no tool that was found."""
    names = {row.name for row in found}
    maps = [("journal", journal.tools), *((f"agent {a.name}", a.tools) for a in journal.agents.values())]
    return [
        f"{pattern!r} of the {whose} map"
        for whose, policies in maps
        for pattern in policies
        if not any(resolve(name, journal={pattern: policies[pattern]}).source != "default" for name in names)
    ]


def _is_beside(home: ModuleType, modules: list[ModuleType]) -> bool:
    """Whether a module belongs to the application rather than to a package it uses."""
    top = home.__name__.partition(".")[0]
    return top not in ("journal", "builtins") and any(top == m.__name__.partition(".")[0] for m in modules)


def _rows(journal: Journal, tool: Any, where: str) -> Iterator[Found]:
    name = _name_of(tool)
    marker = marker_of(tool)
    metadata = _metadata_of(tool)
    every = resolve(name, journal=journal.tools, marker=marker, metadata=metadata)
    row = Found(
        name=name,
        policy=every.policy,
        source=every.source,
        where=where,
        has_probe=bool(marker and marker.probe),
        dedupes=bool(marker and marker.dedupes),
    )
    yield row
    for agent in journal.agents.values():
        own = resolve(name, agent=agent.tools, journal=journal.tools, marker=marker, metadata=metadata)
        if own != every:
            yield replace(row, policy=own.policy, source=own.source, agent=agent.name)


def _tools_in(module: ModuleType) -> Iterator[Any]:
    for value in list(vars(module).values()):
        if _is_tool(value):
            yield value
        listed = None if isinstance(value, type | ModuleType | Agent | Journal) else _listed(value)
        for item in listed or ():
            if _looks_like_a_tool(item) or marker_of(item) is not None:
                yield item


def _listed(value: Any) -> list[Any] | None:
    """The tools that an agent of a harness lists."""
    try:
        tools = getattr(value, "tools", None)
    except Exception:  # noqa: BLE001 - a property of a foreign class
        return None
    return list(tools) if isinstance(tools, list | tuple) else None


def _is_tool(value: Any) -> bool:
    if isinstance(value, Tool):
        return True
    if isinstance(value, type | ModuleType | Step | Agent):
        return False
    return _looks_like_a_tool(value) or (callable(value) and marker_of(value) is not None)


def _looks_like_a_tool(value: Any) -> bool:
    if isinstance(value, type | ModuleType | Mapping):
        return False
    try:
        name = getattr(value, "name", None)
        schema = getattr(value, "params_json_schema", None) or getattr(value, "input_schema", None)
        return isinstance(name, str) and isinstance(schema, dict)
    except Exception:  # noqa: BLE001 - a property of a foreign class
        return False


def _name_of(tool: Any) -> str:
    name = getattr(tool, "name", None)
    if isinstance(name, str):
        return name
    return str(getattr(tool, "__name__", type(tool).__name__))


def _metadata_of(tool: Any) -> Mapping[str, Any] | None:
    found = getattr(tool, "metadata", None)
    return found if isinstance(found, Mapping) else None

"""What a journal requires, against what its store and the workspaces of its agents offer. Pure.

A capability is a word. A store declares what it was found to do, with notes on what it does not and why; a workspace
says so by its settings. What is required and missing fails at open, with what would provide it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from journal.core.errors import MissingCapability
from journal.core.ports import World

if TYPE_CHECKING:
    from journal.engine.agent import Agent

_SERVED = "postgresql:// and redis:// have it"
PROVIDERS: Mapping[str, str] = {
    "log.persistent": f"sqlite: has it; {_SERVED} where their servers commit to disk",
    "log.survives_failover": f"sqlite: has it; {_SERVED} where commits wait for the standbys",
    "log.encrypted": "no store of this version has it",
    "multi_process": f"sqlite: has it; {_SERVED}",
    "multi_host": _SERVED,
    "retention": "every store of ours has it",
    "stream.deltas": "every store of ours has it",
    "workspace.directory": "DirectoryWorkspace(root) has it",
    "workspace.persistent": "a durable workspace on a log.persistent store has it: workspace=VirtualWorkspace()",
    "workspace.quota": "VirtualWorkspace(max_bytes=, max_files=, max_file_bytes=) has it, and DirectoryWorkspace",
}
"""Every capability there is by name, and who has it."""
_NOTE = re.compile(r"(?:^|: )not ([\w., ]+): (.+)")
_Agents = Mapping[str, "Agent[Any, Any]"]


def missing(requires: Iterable[str], world: World, agents: _Agents) -> dict[str, str]:
    """What is required and not there: why, and what would provide it, by name."""
    absent: dict[str, str] = {}
    for name in sorted(requires):
        if name.startswith("workspace."):
            why = _workspace_lacks(name, world, agents)
        else:
            why = None if name in world.capabilities else _world_lacks(name, world)
        if why is not None:
            absent[name] = why
    return absent


def check_capabilities(requires: Iterable[str], world: World, agents: _Agents) -> None:
    """Raise `MissingCapability` if something that is required is not there."""
    absent = missing(requires, world, agents)
    if absent:
        offered = ", ".join(sorted(world.capabilities)) or "nothing"
        why = "; ".join(f"{name} ({reason})" for name, reason in absent.items())
        raise MissingCapability(
            f"the journal requires what is not there: {why}. The store offers {offered}; choose another store URL, or "
            "drop the requirement",
            world=world.url,
            missing=tuple(absent),
        )


def _world_lacks(name: str, world: World) -> str:
    for note in getattr(world, "notes", ()):  # a world of somebody else's need not have any
        found = _NOTE.search(note)
        if found is not None and name in found[1].split(", "):
            return found[2]
    return _provider(name)


def _workspace_lacks(name: str, world: World, agents: _Agents) -> str | None:
    workspaces = {agent.name: agent.workspace for agent in agents.values() if agent.workspace is not None}
    lacking = sorted(agent for agent, workspace in workspaces.items() if name not in workspace.capabilities)
    if lacking:
        return f"not of {', '.join(lacking)}; {_provider(name)}"
    if not workspaces:
        return f"no agent has a workspace; {_provider(name)}"
    if name == "workspace.persistent" and "log.persistent" not in world.capabilities:
        return f"the log is not log.persistent: {_world_lacks('log.persistent', world)}"
    return None


def _provider(name: str) -> str:
    return PROVIDERS.get(name) or f"nothing is known by that name; there are {', '.join(sorted(PROVIDERS))}"

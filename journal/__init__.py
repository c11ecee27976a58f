"""durable-journal: the log that makes any AI-agent harness survive a crash.

The public names; each is loaded when it is first used, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from journal.core.errors import (
        CallError,
        CallTimeout,
        DidNotHappen,
        JournalError,
        NotAwaited,
        NotInTurn,
        OutcomeUnknown,
        ResultTimeout,
        RunExists,
        RunNotFound,
        TurnBlocked,
        TurnCancelled,
        TurnFailed,
        UsageError,
        ValueLost,
        WorldError,
    )
    from journal.core.failures import register_error
    from journal.core.ports import AgentStats, RunInfo, RunQuery, WorkerInfo
    from journal.engine.agent import Agent
    from journal.engine.handle import Event, Handle
    from journal.engine.journal import Journal
    from journal.engine.turn import Turn
    from journal.engine.worker import Worker
    from journal.tools.directory import DirectoryWorkspace
    from journal.tools.documents import Document, define_doc
    from journal.tools.io import io
    from journal.tools.model_retry import ModelRetry
    from journal.tools.policy import never, safe
    from journal.tools.probe import CannotTell, NotRun, Ran
    from journal.tools.result import ToolResult
    from journal.tools.retry import Retry
    from journal.tools.tool import Step, Tool, step, tool
    from journal.tools.workspace import VirtualWorkspace
    from journal.worlds import open_world

__all__ = [
    "Agent",
    "AgentStats",
    "CallError",
    "CallTimeout",
    "CannotTell",
    "DidNotHappen",
    "DirectoryWorkspace",
    "Document",
    "Event",
    "Handle",
    "Journal",
    "JournalError",
    "ModelRetry",
    "NotAwaited",
    "NotInTurn",
    "NotRun",
    "OutcomeUnknown",
    "Ran",
    "ResultTimeout",
    "Retry",
    "RunExists",
    "RunInfo",
    "RunNotFound",
    "RunQuery",
    "Step",
    "Tool",
    "ToolResult",
    "Turn",
    "TurnBlocked",
    "TurnCancelled",
    "TurnFailed",
    "UsageError",
    "ValueLost",
    "VirtualWorkspace",
    "Worker",
    "WorkerInfo",
    "WorldError",
    "define_doc",
    "io",
    "never",
    "open_world",
    "register_error",
    "safe",
    "step",
    "tool",
]

_HOMES = {
    "journal.core.errors": (
        "CallError",
        "CallTimeout",
        "DidNotHappen",
        "JournalError",
        "NotAwaited",
        "NotInTurn",
        "OutcomeUnknown",
        "ResultTimeout",
        "RunExists",
        "RunNotFound",
        "TurnBlocked",
        "TurnCancelled",
        "TurnFailed",
        "UsageError",
        "ValueLost",
        "WorldError",
    ),
    "journal.core.failures": ("register_error",),
    "journal.core.ports": ("AgentStats", "RunInfo", "RunQuery", "WorkerInfo"),
    "journal.engine.agent": ("Agent",),
    "journal.engine.handle": ("Event", "Handle"),
    "journal.engine.journal": ("Journal",),
    "journal.engine.turn": ("Turn",),
    "journal.engine.worker": ("Worker",),
    "journal.tools.documents": ("Document", "define_doc"),
    "journal.tools.io": ("io",),
    "journal.tools.model_retry": ("ModelRetry",),
    "journal.tools.policy": ("never", "safe"),
    "journal.tools.probe": ("CannotTell", "NotRun", "Ran"),
    "journal.tools.result": ("ToolResult",),
    "journal.tools.retry": ("Retry",),
    "journal.tools.tool": ("Step", "Tool", "step", "tool"),
    "journal.tools.directory": ("DirectoryWorkspace",),
    "journal.tools.workspace": ("VirtualWorkspace",),
    "journal.worlds": ("open_world",),
}
_home = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a public name from its module, once."""
    if name not in _home:
        raise AttributeError(f"module 'journal' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_home[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

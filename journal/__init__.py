"""durable-journal: the log that makes any AI-agent harness survive a crash."""

from journal.core.errors import (
    CallError,
    CallTimeout,
    DidNotHappen,
    JournalError,
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
from journal.core.ports import RunInfo, RunQuery
from journal.engine.agent import Agent
from journal.engine.handle import Event, Handle
from journal.engine.journal import Journal
from journal.engine.turn import Turn
from journal.engine.worker import Worker
from journal.tools.io import io
from journal.tools.policy import never, safe
from journal.tools.probe import CannotTell, NotRun, Ran
from journal.tools.result import ToolResult
from journal.tools.retry import Retry
from journal.tools.tool import Step, Tool, step, tool
from journal.worlds import open_world

__all__ = [
    "Agent",
    "CallError",
    "CallTimeout",
    "CannotTell",
    "DidNotHappen",
    "Event",
    "Handle",
    "Journal",
    "JournalError",
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
    "Worker",
    "WorldError",
    "io",
    "never",
    "open_world",
    "register_error",
    "safe",
    "step",
    "tool",
]

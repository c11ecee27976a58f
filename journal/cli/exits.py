"""Exit codes, and which error gives which. Pure.

0 ok · 1 the run failed · 2 usage · 3 blocked · 4 not found · 5 parked · 6 the store or file is absent, unavailable,
damaged or of another version · 7 cancelled · 70 a bug of ours · 130 interrupted
"""

import errno
from typing import Any

import click

from journal.cli.settings import Settings
from journal.core.errors import (
    BundleError,
    FileMissing,
    JournalError,
    LogError,
    RunGone,
    RunNotFound,
    SnapshotMissing,
    TurnBlocked,
    TurnCancelled,
    TurnFailed,
    TurnNotFound,
    UsageError,
    WorkspaceError,
    WorkspaceFailed,
    WorldError,
)
from journal.core.ports import RunStatus

OK, FAILED, USAGE, BLOCKED, NOT_FOUND, PARKED, WORLD, CANCELLED = range(8)
BUG, INTERRUPTED = 70, 130


class NotThere(click.ClickException):
    """The run has no document, file or checkpoint of the name that was given."""

    def __init__(self, what: str, run_id: str, at: int | None, verb: str) -> None:
        when = "" if at is None else f" by call {at}"
        super().__init__(f"run {run_id!r} has no {what}{when}: journal {verb} {run_id} lists what it has")


_BY_STATUS: dict[str, int] = {
    "failed": FAILED,
    "blocked": BLOCKED,
    "parked": PARKED,
    "cancelled": CANCELLED,
}
_BY_ERROR: tuple[tuple[type[BaseException], int], ...] = (
    (RunNotFound, NOT_FOUND),
    (TurnNotFound, NOT_FOUND),
    (RunGone, NOT_FOUND),
    (FileMissing, NOT_FOUND),
    (NotThere, NOT_FOUND),
    (UsageError, USAGE),
    (TurnFailed, FAILED),
    (TurnBlocked, BLOCKED),
    (TurnCancelled, CANCELLED),
    (SnapshotMissing, WORLD),
    (WorkspaceFailed, WORLD),
    (WorkspaceError, USAGE),
    (WorldError, WORLD),
    (LogError, WORLD),
    (BundleError, WORLD),
    (click.UsageError, USAGE),
    (click.ClickException, USAGE),
    (click.Abort, INTERRUPTED),
    (KeyboardInterrupt, INTERRUPTED),
)


def code_of(error: BaseException) -> int:
    """The exit code for `error`."""
    if _is_full(error):
        return WORLD
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), BUG)


def code_of_status(status: RunStatus) -> int:
    """The exit code for a run that stands there; 0 also while it is pending or running."""
    return _BY_STATUS.get(status, OK)


def message_of(error: BaseException) -> str:
    """One line that says what to do."""
    match error:
        case click.UsageError():
            hint = f" (see {error.ctx.command_path} --help)" if error.ctx is not None else ""
            text = error.format_message() + hint
        case click.ClickException():
            text = error.format_message()
        case JournalError():
            text = str(error)
        case OSError() if _is_full(error):
            text = f"what was to be written does not fit ({error.strerror}): make room, or write it elsewhere"
        case _:
            text = f"{type(error).__qualname__}: {error}: this is a bug; --debug shows where"
    return " ".join(text.split())


def _is_full(error: BaseException) -> bool:
    """Whether it is the disk behind stdout, or another, that cannot take more."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def described(error: BaseException, settings: Settings) -> dict[str, Any]:
    """What `--json` says of `error`."""
    told: dict[str, Any] = {
        "type": type(error).__name__,
        "message": settings.directed(message_of(error)),
        "exit_code": code_of(error),
    }
    if isinstance(error, WorldError) and error.run_id is not None:
        told["run"] = error.run_id
    return {"error": told}


def innermost(error: BaseException) -> BaseException:
    """The one error in a group of one: task groups wrap what a verb should see plain."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error

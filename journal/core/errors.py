"""Every error of this package, split by who must act. One long file on purpose: it is a list, read by looking up.

    JournalError
    ├── UsageError            the caller: the request itself is wrong
    │   ├── InvalidId · InvalidValue · ValueTooLarge · UnknownType · InvalidOptions
    │   ├── UnknownAgent · RunNotFound · TurnNotFound · CallNotFound · RunExists · KeyConflict · RunBusy
    │   ├── RunClosed · RunGone · RunBuilding · RunNotBuilding · RunDiffers · RunTooNew
    │   ├── MissingExtra · NotRetriable · RetryRefused · NotInTurn · NotAwaited
    │   ├── DocumentNotRead · DocumentBusy · CheckpointNotFound
    ├── TurnError             whoever awaits the turn
    │   ├── TurnFailed · TurnCancelled · TurnBlocked · ResultTimeout
    ├── CallFailure           the handler, about one of its calls
    │   ├── CallError · OutcomeUnknown · CallTimeout · ValueLost · ToolArgumentError
    │   ├── DidNotHappen, and of it CommandRefused · CommandNotStarted
    ├── WorkspaceError        whoever asked for the file: a tool, or the application
    │   ├── PathRefused · FileMissing · FileNotText · EditRefused · QuotaExceeded · FilesBusy · ShellStopped
    │   ├── WorkspaceNotFound · WorkspaceAborted · WorkspaceExpired · SnapshotMissing · IdempotencyConflict
    │   ├── InvalidReference · WorkspaceFailed · CleanupPending
    ├── WorldError            the operator: the store
    │   ├── WorldUnavailable · WorldBusy · WorldReadOnly · WorldFull · WorldMissing
    │   ├── WorldCorrupt · WorldTooNew · WorldUnknown · MissingCapability
    ├── LogError              whoever wrote the log, or a newer version of us
    │   ├── CorruptRecord · UnknownRecordType · RecordTooNew
    └── BundleError           whoever handed over the file: an exported run
        ├── NotABundle · BundleTooNew · BundleDamaged

    ControlFlow (BaseException, only inside a handler: harnesses swallow Exception)
    ├── Diverged · ClaimLost · LogUnreadable · HandlerAborted

Errors carry fields; the message is made of them and says what to do next.
One long file on purpose: a tree is read whole.
Long since every error stands here, in one tree.
"""

from typing import Any


class JournalError(Exception):
    """Root of all errors of this package."""


# The caller ---------------------------------------------------------------------------------------


class UsageError(JournalError):
    """The request cannot be carried out as it stands; nothing was written."""


class InvalidId(UsageError):
    """An id holds what ids may not hold."""

    def __init__(self, *, what: str, value: str, reason: str, suggestion: str | None) -> None:
        self.what, self.value, self.reason, self.suggestion = what, value, reason, suggestion
        hint = f"; try {suggestion!r}" if suggestion else ""
        shown = value if len(value) <= 80 else value[:77] + "..."
        super().__init__(
            f"{what} {shown!r} is refused: {reason} (allowed: 1 to 200 of letters, digits and ._:@|+=~/-){hint}"
        )


class InvalidValue(UsageError):
    """A value that canonical JSON cannot say; `path` leads to the part at fault."""

    def __init__(self, *, what: str, path: str, reason: str) -> None:
        self.what, self.path, self.reason = what, path, reason
        super().__init__(f"{what}{f' at {path}' if path else ''}: {reason}")


class ValueTooLarge(UsageError):
    """A value over the size limit."""

    def __init__(self, *, what: str, size: int, limit: int) -> None:
        self.what, self.size, self.limit = what, size, limit
        super().__init__(
            f"{what} takes {size:,} bytes, {limit:,} are allowed: keep it in a file or a bucket and pass its address"
        )


class UnknownType(UsageError):
    """A declared type that values can neither be written from nor read back to."""

    def __init__(self, *, what: str, type_name: str) -> None:
        self.what, self.type_name = what, type_name
        super().__init__(
            f"{what} is declared as {type_name}, which cannot be written to the log and read back: "
            "return JSON values, a dataclass, a msgspec.Struct or a pydantic model, or name one with returns="
        )


class InvalidOptions(UsageError):
    """Options that contradict each other or the function they are for."""


class UnknownAgent(UsageError):
    """No agent of that name is registered here."""

    def __init__(
        self,
        *,
        agent: str,
        known: list[str],
        advice: str = "import the module that defines it, or give --app module:attribute",
    ) -> None:
        self.agent, self.known = agent, known
        have = ", ".join(known) if known else "none"
        super().__init__(f"agent {agent!r} is not registered here (registered: {have}): {advice}")


class MissingExtra(UsageError):
    """What is asked for needs a package that is not installed."""

    def __init__(self, *, what: str, package: str, extra: str) -> None:
        self.what, self.package, self.extra = what, package, extra
        super().__init__(
            f"{what} needs {package}, which is not installed: pip install 'durable-journal[{extra}]'"
        )


class RunNotFound(UsageError):
    """No run of that id in this world and namespace."""

    def __init__(self, *, run_id: str, world: str, besides: str | None = None) -> None:
        self.run_id, self.world = run_id, world
        also = "" if besides is None else f", and {besides}"
        super().__init__(
            f"run {run_id!r} is not in {world.removesuffix(':')}{also}: check the id (journal runs) and the store URL"
        )


class TurnNotFound(UsageError):
    """The run has no turn of that id."""

    def __init__(self, *, run_id: str, turn_id: str) -> None:
        self.run_id, self.turn_id = run_id, turn_id
        super().__init__(f"run {run_id!r} has no turn {turn_id!r}: see journal show {run_id}")


class CallNotFound(UsageError):
    """The run has no call of that number."""

    def __init__(self, *, run_id: str, call: int, calls: int) -> None:
        self.run_id, self.call, self.calls = run_id, call, calls
        super().__init__(
            f"run {run_id!r} has no call {call}; it has {calls}, numbered from 1 (journal show {run_id})"
        )


class RunExists(UsageError):
    """A run of that id was started with another input."""

    def __init__(self, *, run_id: str, advice: str | None = None) -> None:
        self.run_id = run_id
        super().__init__(
            f"run {run_id!r} was started with another input: choose another run_id, "
            "or give key= to add a further turn to that run"
            if advice is None
            else f"run {run_id!r} is there already, and {advice}"
        )


class KeyConflict(UsageError):
    """An idempotency key was used before, with another input."""

    def __init__(self, *, run_id: str, key: str) -> None:
        self.run_id, self.key = run_id, key
        super().__init__(
            f"key {key!r} of run {run_id!r} belongs to another input: a key names one input for ever; choose a new one"
        )


class RunBusy(UsageError):
    """The run is working on another turn, and the caller asked not to queue behind it."""

    def __init__(self, *, run_id: str, advice: str = "wait for it, or submit with if_busy='queue'") -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id!r} is busy with another turn: {advice}")


class RunClosed(UsageError):
    """The run was closed; it takes no further turns."""

    def __init__(self, *, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id!r} is closed and takes nothing more: start a new run")


class RunGone(UsageError):
    """The run was swept and only its tombstone is left; or it was moved, and `to` is the store it lives in."""

    def __init__(self, *, run_id: str, to: str | None = None) -> None:
        self.run_id, self.to = run_id, to
        super().__init__(
            f"run {run_id!r} was swept and its id is not free yet: start a run under another id"
            if to is None
            else f"run {run_id!r} was moved to {to}: it is read and goes on there (Journal({to!r}), --world {to})"
        )


class RunBuilding(UsageError):
    """The run is being copied here and takes nothing yet."""

    def __init__(self, *, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(
            f"run {run_id!r} is being copied here and takes nothing before that is done: wait for it, "
            "or, if the copy was interrupted, run the same command (journal copy, journal fork) again"
        )


class RunNotBuilding(UsageError):
    """A run that is not being copied cannot be written as if it were."""

    def __init__(self, *, run_id: str, world: str) -> None:
        self.run_id, self.world = run_id, world
        super().__init__(
            f"run {run_id!r} is in {world} already, and is not being copied there: nothing of it was changed"
        )


class RunDiffers(UsageError):
    """Two stores hold a run of the same id, and not the same run."""

    def __init__(self, *, run_id: str, world: str, reason: str) -> None:
        self.run_id, self.world, self.reason = run_id, world, reason
        super().__init__(
            f"run {run_id!r} is in {world} too, and differs there ({reason}): nothing of either was changed. "
            "If both went on, keep one and end the other where it is (journal cancel); or copy to another store"
        )


class RunTooNew(UsageError):
    """The run needs a newer reader than this version is."""

    def __init__(self, *, run_id: str, min_reader: int, reads: int) -> None:
        self.run_id, self.min_reader, self.reads = run_id, min_reader, reads
        super().__init__(
            f"run {run_id!r} needs a reader of format {min_reader}, and this version reads up to {reads}: "
            "upgrade durable-journal"
        )


class NotRetriable(UsageError):
    """The turn is in a state that cannot be retried."""

    def __init__(self, *, run_id: str, turn_id: str, status: str) -> None:
        self.run_id, self.turn_id, self.status = run_id, turn_id, status
        advice = {
            "succeeded": f"; journal fork {run_id} --at N has it done otherwise in another run",
            "not finished": f"; wait until it ends, or end it (journal cancel {run_id})",
            "changing right now": "; look again (journal show)",
        }.get(status, "")
        super().__init__(
            f"turn {turn_id!r} of run {run_id!r} is {status}: only a failed or a blocked turn can be retried{advice}"
        )


class RetryRefused(UsageError):
    """What was said of a call along with a retry cannot be; nothing was written."""

    def __init__(self, *, run_id: str, reason: str, calls: tuple[int, ...] = ()) -> None:
        self.run_id, self.reason, self.calls = run_id, reason, calls
        super().__init__(f"run {run_id!r} is not retried like that: {reason}")


class NotInTurn(UsageError):
    """Something that belongs inside a turn, or inside a call, was used outside of one."""

    def __init__(self, *, what: str, where: str = "a turn") -> None:
        self.what, self.where = what, where
        how = "call it from a handler registered with @journal.agent"
        if where == "a call":
            how = "use it in the function of a step or a tool, while that runs"
        super().__init__(f"{what} works only inside {where}: {how}")


class NotAwaited(UsageError):
    """A call asked for something that is to be awaited, and never did await it; `what` is its name."""

    def __init__(self, *, what: str) -> None:
        self.what = what
        super().__init__(
            f"{what}(...) was called and not awaited, so it never ran: say `await {what}(...)` in an `async def`, or, "
            f"in a sync function, anyio.from_thread.run({what}, ...)"
        )


# Whoever awaits the turn ----------------------------------------------------------------------------


class DocumentNotRead(UsageError):
    """A stored document is not what this code takes it for; it stays as it is."""

    def __init__(self, *, kind: str, reason: str) -> None:
        self.kind, self.reason = kind, reason
        super().__init__(f"document {kind!r} cannot be read: {reason}")


class DocumentBusy(UsageError):
    """A document was edited so often meanwhile that this edit found no place; nothing was written."""

    def __init__(self, *, run_id: str, kind: str, seconds: float) -> None:
        self.run_id, self.kind = run_id, kind
        super().__init__(
            f"document {kind!r} of run {run_id!r} kept changing for {seconds:g} s: update it again"
        )


class CheckpointNotFound(UsageError):
    """The run has no such checkpoint."""

    def __init__(self, *, run_id: str, name: str, sequence: int | None) -> None:
        self.run_id, self.name, self.sequence = run_id, name, sequence
        which = "" if sequence is None else f" with sequence {sequence}"
        super().__init__(
            f"run {run_id!r} has no checkpoint {name!r}{which}: list those it has (checkpoints.list)"
        )


class TurnError(JournalError):
    """The turn did not end with a value."""

    def __init__(self, message: str, *, run_id: str, turn_id: str) -> None:
        self.run_id, self.turn_id = run_id, turn_id
        super().__init__(message)


class TurnFailed(TurnError):
    """The handler raised; `type`, `code`, `data` and `text` tell what.

    `text` is what the exception said, where its class is one whose words are kept (builtins, registered ones, ours).
    `__cause__` is the exception itself if the handler ran in this process.
    """

    def __init__(
        self,
        *,
        run_id: str,
        turn_id: str,
        type: str,  # noqa: A002 - the field's name in the log
        code: str | None,
        data: Any,
        text: str | None = None,
    ) -> None:
        self.type, self.code, self.data, self.text = type, code, data, text
        detail = f" ({code})" if code else ""
        said = f": {text}" if text else ""
        # A plain retry keeps what may have happened, and would fail with it again.
        settle = " --settle N=JSON, or N=did-not-run," if type == "journal.OutcomeUnknown" else ""
        super().__init__(
            f"turn {turn_id!r} of run {run_id!r} failed with {type}{detail}{said} "
            f"(journal show {run_id} has its calls; journal retry {run_id}{settle} goes on from there)",
            run_id=run_id,
            turn_id=turn_id,
        )


class TurnCancelled(TurnError):
    """The turn was cancelled on request."""

    def __init__(self, *, run_id: str, turn_id: str) -> None:
        super().__init__(f"turn {turn_id!r} of run {run_id!r} was cancelled", run_id=run_id, turn_id=turn_id)


class TurnBlocked(TurnError):
    """The turn is stopped until someone acts; the message names the ways on that fit its reason.

    `can_accept`: whether what diverges is the outcome of a call, which may be taken as it was recorded.
    """

    def __init__(
        self, *, run_id: str, turn_id: str, reason: str, detail: str, can_accept: bool = True
    ) -> None:
        self.reason, self.detail = reason, detail
        ways = ways_on(run_id, reason, can_accept=can_accept)
        on = f"; {ways}" if ways and "journal retry" not in detail else ""  # old logs say it in the detail
        super().__init__(
            f"turn {turn_id!r} of run {run_id!r} is blocked ({reason}): {detail}{on}",
            run_id=run_id,
            turn_id=turn_id,
        )


def ways_on(run_id: str, reason: str, *, can_accept: bool = True) -> str:
    """What to do about a turn that is blocked for that reason; empty if nothing is known."""
    accept = f"journal retry {run_id} --accept-divergence takes what was recorded; " if can_accept else ""
    ways = {
        "divergence": f"deploy code that asks for what was recorded (journal replay {run_id} shows where it parts), "
        f"then journal retry {run_id}; or {accept}journal retry {run_id} --from N makes call N and all after it anew",
        "crash_loop": f"find out what ends its workers (journal show {run_id}), then journal retry {run_id}",
        "log_error": f"journal verify {run_id} says what is damaged: once it is whole again (a restore, an upgrade), "
        f"journal retry {run_id}; or journal fork {run_id} --at N begins anew before it",
        "unknown_agent": f"start a worker that has its agent, then journal retry {run_id}",
    }.get(reason)
    return "" if ways is None else f"{ways}; journal cancel {run_id} gives up"


class ResultTimeout(TurnError, TimeoutError):
    """The wait for a result ended before the turn did; the turn goes on."""

    def __init__(self, *, run_id: str, turn_id: str, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(
            f"turn {turn_id!r} of run {run_id!r} had not ended after {seconds:g} s; it goes on, ask again",
            run_id=run_id,
            turn_id=turn_id,
        )


# The handler, about one of its calls ---------------------------------------------------------------


class CallFailure(JournalError):
    """A call did not end with a value."""


class CallError(CallFailure):
    """A call raised an exception whose class is not rebuilt on replay; the same on the first run."""

    def __init__(self, *, call: str, type: str, code: str | None = None, data: Any = None) -> None:  # noqa: A002 - the field's name in the log
        self.call, self.type, self.code, self.data = call, type, code, data
        super().__init__(f"call {call!r} failed with {type}{f' ({code})' if code else ''}")


class OutcomeUnknown(CallFailure):
    """The call was started before an interruption and may have happened; it was not repeated."""

    def __init__(self, *, call: str, name: str) -> None:
        self.call, self.name = call, name
        super().__init__(
            f"{name!r} (call {call!r}) was started before an interruption and may have completed; "
            "it was not repeated: check its effect before asking for it again"
        )


class DidNotHappen(CallFailure):
    """Raised by a tool to say that its effect certainly did not take place: an error, not unknown."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason or "the effect did not take place")


class CommandRefused(DidNotHappen):
    """A host command that may not run, or is none; the text is meant for a model to act on. Nothing was run."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(f"the command was not run: {reason}")
        self.reason = reason


class CommandNotStarted(DidNotHappen):
    """The operating system refused to start a host command."""

    def __init__(self, *, program: str, reason: str) -> None:
        super().__init__(f"{program} could not be started: {reason}")
        self.program, self.reason = program, reason


class CallTimeout(CallFailure, TimeoutError):
    """A safe call ran longer than its timeout."""

    def __init__(self, *, call: str, seconds: float) -> None:
        self.call, self.seconds = call, seconds
        super().__init__(f"call {call!r} did not end within {seconds:g} s")


class ValueLost(CallFailure):
    """The call happened, and its result could not be written down; `repr` is what is left of it."""

    def __init__(self, *, call: str, reason: str, repr: str) -> None:  # noqa: A002 - the field's name in the log
        self.call, self.reason, self.repr = call, reason, repr
        advice = "" if "await" in reason else ": return JSON values or declare the result's type"
        super().__init__(
            f"call {call!r} happened, but its result could not be kept ({reason}); it was {repr}{advice}"
        )


class ToolArgumentError(CallFailure):
    """The arguments do not fit the tool; the text is meant for a model to act on. Nothing was run."""

    def __init__(self, *, tool: str, reason: str) -> None:
        self.tool, self.reason = tool, reason
        super().__init__(f"{tool} was not run: {reason}; call it again with corrected arguments")


# Whoever asked for a file --------------------------------------------------------------------------


class WorkspaceError(JournalError):
    """Something about a workspace or a file of it; nothing was changed. `reason` is a word for programs."""

    reason = "invalid_reference"
    is_retriable = False
    """Whether the same request may go through later as it is."""


class PathRefused(WorkspaceError):
    """No file can be there, or what is there is no file."""

    def __init__(self, *, path: str, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"path {_short(path)!r} is refused: {why}")


class FileMissing(WorkspaceError):
    """There is no such file."""

    reason = "not_found"

    def __init__(self, *, path: str) -> None:
        self.path = path
        super().__init__(f"there is no file {_short(path)!r}: list the directory, or glob for its name")


class FileNotText(WorkspaceError):
    """The file was asked for as text and is none."""

    def __init__(self, *, path: str) -> None:
        self.path = path
        super().__init__(f"file {_short(path)!r} is no UTF-8 text: read its bytes")


class EditRefused(WorkspaceError):
    """The text to replace is not there just once; the text is meant for a model to act on."""

    def __init__(self, *, path: str, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"file {_short(path)!r} was not edited: {why}")


class QuotaExceeded(WorkspaceError):
    """The workspace would become larger than it may; `quota` says in what."""

    reason = "quota_exceeded"

    def __init__(self, *, quota: str, limit: int, actual: int) -> None:
        self.quota, self.limit, self.actual = quota, limit, actual
        super().__init__(
            f"the workspace allows {quota}={limit:,}, and this would make it {actual:,}: delete files, or write less"
        )


class FilesBusy(WorkspaceError):
    """Files of the run were changed so often meanwhile that this change found no place."""

    reason = "backend_failure"
    is_retriable = True

    def __init__(self, *, run_id: str, path: str, seconds: float) -> None:
        self.run_id, self.path = run_id, path
        super().__init__(f"run {run_id!r} kept changing for {seconds:g} s: change {_short(path)!r} again")


class ShellStopped(WorkspaceError):
    """A script was not carried out to its end, by a limit or an error of the shell itself."""

    reason = "backend_failure"

    def __init__(self, *, why: str) -> None:
        self.why = why
        super().__init__(f"the script was stopped, and nothing that it changed was saved: {why}")


class WorkspaceNotFound(WorkspaceError):
    """No workspace was started for the run."""

    reason = "not_found"

    def __init__(self, *, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id!r} has no workspace here: start one, or look at the root's path")


class WorkspaceAborted(WorkspaceError):
    """Someone gave the workspace up: nothing more is done in it."""

    reason = "aborted"

    def __init__(self, *, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"the workspace of run {run_id!r} was aborted: clean it up, or begin another run")


class WorkspaceExpired(WorkspaceError):
    """The files are gone, since they were kept no longer, or were cleaned up."""

    reason = "expired"

    def __init__(self, *, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"the files of run {run_id!r} are kept no more: begin another run")


class SnapshotMissing(WorkspaceError):
    """A snapshot that is referred to is not under the root, or is damaged there."""

    reason = "missing_snapshot"

    def __init__(self, *, snapshot: str, root: str, why: str = "it is not there") -> None:
        self.snapshot, self.root = snapshot, root
        super().__init__(
            f"snapshot {snapshot} cannot be read under {root} ({why}): mount the directory it was written to, "
            "or restore that from a backup"
        )


class IdempotencyConflict(WorkspaceError):
    """The key was used for something else before."""

    reason = "idempotency_conflict"

    def __init__(self, *, run_id: str, key: str, before: str) -> None:
        self.run_id, self.key, self.before = run_id, key, before
        super().__init__(f"key {_short(key)!r} of run {run_id!r} was used for {before}: choose another key")


class InvalidReference(WorkspaceError):
    """What is named is of another run, or nothing that can be named."""

    def __init__(self, *, what: str, why: str) -> None:
        self.what, self.why = what, why
        super().__init__(f"{_short(what)!r} is refused: {why}")


class WorkspaceFailed(WorkspaceError):
    """The disk under the workspace failed, or is not there."""

    reason = "backend_failure"
    is_retriable = True

    def __init__(self, *, root: str, why: str) -> None:
        self.root, self.why = root, why
        super().__init__(f"the workspace under {root} failed: {why}")


class CleanupPending(WorkspaceError):
    """Its files are being removed, or a removal was interrupted."""

    reason = "cleanup_pending"
    is_retriable = True

    def __init__(self, *, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"the workspace of run {run_id!r} is being cleaned up: clean up again to finish it")


def _short(path: str) -> str:
    return path if len(path) <= 200 else f"{path[:197]}..."


# The operator --------------------------------------------------------------------------------------


class WorldError(JournalError):
    """The store cannot do what is asked; `world` is its URL without credentials.

    `run_id` is the run that it is about, where there is one: after a submission that nobody answered, the id under
    which it may be stored.
    """

    def __init__(self, message: str, *, world: str, run_id: str | None = None) -> None:
        self.reason, self.world, self.run_id = message, world, run_id
        super().__init__(f"{world.removesuffix(':')}: {message}")


class WorldUnavailable(WorldError):
    """The store does not answer, or answered too late to be sure; what was offered may or may not be stored."""


class WorldBusy(WorldError):
    """Another process held the store for longer than the bound."""


class WorldReadOnly(WorldError):
    """The store cannot be written."""


class WorldFull(WorldError):
    """The disk, or the store's own limit, is full; nothing of the refused batch was stored."""


class WorldMissing(WorldError):
    """The store's file was deleted or replaced while it was in use."""


class WorldCorrupt(WorldError):
    """The store is damaged as a whole."""


class WorldTooNew(WorldError):
    """The store was carried forward by a newer version of this package, and is no longer for ours."""


class WorldUnknown(WorldError):
    """No installed package serves this URL."""


class MissingCapability(WorldError):
    """Something that was required is not offered; `missing` has its names."""

    def __init__(self, message: str, *, world: str, missing: tuple[str, ...] = ()) -> None:
        self.missing = missing
        super().__init__(message, world=world)


# The log -------------------------------------------------------------------------------------------


class LogError(JournalError):
    """One record cannot be used; `run_id` and `seq` say which."""

    def __init__(self, message: str, *, run_id: str, seq: int) -> None:
        self.run_id, self.seq = run_id, seq
        super().__init__(f"record {seq} of run {run_id!r} {message}")


class CorruptRecord(LogError):
    """A record's bytes are not what was written."""

    def __init__(self, *, run_id: str, seq: int, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"is damaged ({reason}): restore the store from a backup, or retire the run",
            run_id=run_id,
            seq=seq,
        )


class UnknownRecordType(LogError):
    """A record of a type that this version does not know."""

    def __init__(self, *, run_id: str, seq: int, type: str) -> None:  # noqa: A002 - the field's name in the log
        self.type = type
        super().__init__(f"has the unknown type {type!r}: upgrade durable-journal", run_id=run_id, seq=seq)


class RecordTooNew(LogError):
    """A record in a newer format than this version reads."""

    def __init__(self, *, run_id: str, seq: int, type: str, version: int, reads: int) -> None:  # noqa: A002 - the field's name in the log
        self.type, self.version, self.reads = type, version, reads
        super().__init__(
            f"is a {type!r} of version {version}, and this version reads up to {reads}: upgrade durable-journal",
            run_id=run_id,
            seq=seq,
        )


# The file ------------------------------------------------------------------------------------------


class BundleError(JournalError):
    """A file cannot be used as an exported run; `line` (from 1) says where, None: all of it."""

    def __init__(self, reason: str, *, path: str, line: int | None = None) -> None:
        self.reason, self.path, self.line = reason, path, line
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {reason}")


class NotABundle(BundleError):
    """The file is something else."""


class BundleTooNew(BundleError):
    """The file is in a newer format than this version reads."""


class BundleDamaged(BundleError):
    """The file is not what was exported: it was cut, changed or put together."""


# Inside a handler ----------------------------------------------------------------------------------


class ControlFlow(BaseException):
    """The engine stops the handler. Never caught by a handler: it is no failure of the call."""


class Diverged(ControlFlow):
    """The handler asked for another call than the log holds; the turn becomes blocked."""

    def __init__(
        self,
        *,
        call: str,
        recorded: dict[str, Any] | None,
        asked: dict[str, Any] | None,
        given: bytes | None = None,
    ) -> None:
        self.call, self.recorded, self.asked = call, recorded, asked
        self.given = given
        """The input that it asks with."""
        super().__init__(f"call {call!r}: the log holds {recorded}, the code asks for {asked}")


class ClaimLost(ControlFlow):
    """Another holder has the run, or the log is behind what this holder was told; it must stop at once."""

    def __init__(self, *, run_id: str, reason: str) -> None:
        self.run_id, self.reason = run_id, reason
        super().__init__(f"the claim on run {run_id!r} is lost: {reason}")


class LogUnreadable(ControlFlow):
    """A recorded value cannot be read back; the turn becomes blocked, and `cause` names the record."""

    def __init__(self, *, run_id: str, cause: LogError) -> None:
        self.run_id, self.cause = run_id, cause
        super().__init__(str(cause))


class HandlerAborted(ControlFlow):
    """The engine cannot go on with this turn (the store failed, the log cannot be read); `cause` says why."""

    def __init__(self, *, run_id: str, cause: BaseException) -> None:
        self.run_id, self.cause = run_id, cause
        super().__init__(f"run {run_id!r} cannot go on here: {cause}")

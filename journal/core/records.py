"""The records: what each says, and the envelope that a world stores around it.

Stored bytes are for ever. A body is a msgpack map; absent fields have their defaults, unknown fields are ignored,
a newer `v` of a known type fails closed. To change a record: raise its `VERSION`, keep reading the old one, add a
golden file. The envelope stays outside the body, so that a world can index it and fill in what only it knows.
Next: `codec.py` (bytes), `ports.py` (how records get in). Long since every record stands here, in one list.
"""

from typing import Any, ClassVar, Literal

import msgspec


class BlobRef(msgspec.Struct, frozen=True, gc=False):
    """Stands for a value that was too large to live in its record; the blob belongs to the run."""

    blob: str
    """Digest of the bytes, in hexadecimal."""
    size: int
    """Bytes."""


Value = bytes | BlobRef
"""Canonical JSON, opaque to every world, or the address of it."""


class Body(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a record says. `TYPE` names it in the envelope; `v` is its format."""

    TYPE: ClassVar[str]
    VERSION: ClassVar[int] = 1
    v: int = 1


CallKind = Literal["model", "tool", "step"]
Policy = Literal["safe", "never"]
OutcomeStatus = Literal["ok", "error", "cancelled", "unknown", "value_lost"]
TurnStatus = Literal["succeeded", "failed", "cancelled"]
BlockReason = Literal["divergence", "crash_loop", "unknown_agent", "log_error", "workspace"]
FinishReason = Literal[
    "stop",
    "length",
    "context_limit",
    "tool_calls",
    "content_filter",
    "refusal",
    "pause",
    "malformed",
    "cancelled",
    "error",
]
"""Why a model ended its reply, whatever its provider calls that."""


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An exception as the log keeps it: never its text, unless its class is on the allow-list."""

    type: str
    """Qualified name of the class; builtins without a module."""
    args: Value | None = None
    """Its arguments, for an allow-listed class only."""
    code: str | None = None
    data: Value | None = None


class Origin(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Where a fork comes from."""

    run: str
    seq: int
    """The origin's last record that was read for it."""
    at: int
    """The first call that is not taken over, as the origin numbers its calls."""
    input_digest: bytes | None = None
    """Of the input that the turn was begun anew with."""


class RunCreated(Body, frozen=True, omit_defaults=True, kw_only=True):
    """The first record of a run."""

    TYPE: ClassVar[str] = "run.created"
    agent: str
    nonce: bytes
    """16 random bytes: idempotency keys of the run's calls are digests over it."""
    namespace: str = "default"
    metadata: dict[str, str] = {}
    subject: str | None = None
    """Whose data this is, as the application names them."""
    versions: dict[str, str] = {}
    min_reader: int = 1
    origin: Origin | None = None
    """For a fork: what it was forked from."""


class TurnSubmitted(Body, frozen=True, omit_defaults=True, kw_only=True):
    """An input waits to be worked through. The turn's id is its idempotency key."""

    TYPE: ClassVar[str] = "turn.submitted"
    input: Value
    input_digest: bytes
    seed: int = 0
    """What the turn's `random` and `uuid` follow from; 0: from the run's nonce."""


class Snapshot(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Where it lies what the records of the run up to one come to.

    A shortcut for readers, and never the truth: whoever cannot read it reads the log. So it is no `BlobRef`: nobody
    misses the blob.
    """

    upto: int
    """Seq of the last record that it covers."""
    blob: str
    """Digest of the bytes, in hexadecimal."""
    size: int
    """Bytes."""
    format: int = 1
    """Of the bytes; see `replay/snapshot.py`."""


class TurnStarted(Body, frozen=True, omit_defaults=True, kw_only=True):
    """A holder begins, or carries on, with the turn."""

    TYPE: ClassVar[str] = "turn.started"
    worker: str
    attempt: int
    version: str | None = None
    """Version of the application's code, where it states one."""
    taken_over: bool = False
    """Whether the holder before died, rather than finished or released."""
    snapshot: Snapshot | None = None
    """The latest that covers nothing of what the turn did."""


class Difference(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """How a model call's input is put together from what the turn recorded before; see `replay/inputs.py`."""

    base: str
    """Key of the call whose input it builds on, as last recorded before this record."""
    outcomes: tuple[str, ...] = ()
    """Keys of the calls whose results, as last recorded before, stand behind it in the source."""
    keep: tuple[int, ...]
    """Three numbers a range: new bytes before it, its start in the source, its length."""
    size: int
    """Bytes of the whole input."""
    crc: int
    """CRC-32 of the whole input."""


class CallIntent(Body, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """A call is about to act. Its key is in the envelope. Version 2 has a `difference`."""

    TYPE: ClassVar[str] = "call.intent"
    VERSION: ClassVar[int] = 2
    kind: CallKind
    name: str
    input: Value | None = None
    input_digest: bytes
    config_digest: bytes | None = None
    policy: Policy
    attempt: int
    """The attempt of the turn in which the call was tried."""
    number: int = 1
    """Which try of the call this is, from 1."""
    difference: Difference | None = None
    """Where there is one, `input` holds only what is new."""
    nonce: bytes = b""
    """In a fork: of the run in which the call was first started, which its idempotency key stays a digest over."""
    task_digest: bytes = b""
    """Of the first call of a task: over what the task was started with."""


class DocumentEdit(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """A document's next value, whole."""

    doc: str
    """Its kind."""
    version: int
    """Of the document's type, as its definition counts."""
    base: bytes | None = None
    """Digest of the value that it was made on; None: nothing was written before."""
    value: Value | None = None
    rejected: str | None = None
    """Why it does not count; there is no value then."""


class FileSnapshot(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """All files of a directory workspace as they were; they lie under its root, not in the log."""

    id: str
    """Digest of the list of all files, in hexadecimal."""
    files: int = 0
    """How many."""
    size: int = 0
    """Bytes of all of them."""
    root: str = ""
    """The directory under which they were put, as its writer named it."""


class FileChange(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """A file of the run's workspace, whole, or that it is gone. Of a directory workspace: all files at once."""

    path: str
    """Absolute, with names that are neither empty nor ``.`` or ``..``; ``/`` stands for all files at once."""
    base: bytes | None = None
    """Digest of the file that it was made on; None: there was none."""
    content: Value | None = None
    """The file's bytes: no JSON here. None: it is deleted."""
    is_executable: bool = False
    source: str | None = None
    """The path that it was moved from: both changes count, or neither."""
    rejected: str | None = None
    """Why it does not count; there is no content then."""
    snapshot: FileSnapshot | None = None
    """Of ``/``: the files from here on. `base` is then the digest that names the snapshot before."""


class CallOutcome(Body, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """How a call ended. Version 2 has edits or files, version 3 a snapshot."""

    TYPE: ClassVar[str] = "call.outcome"
    VERSION: ClassVar[int] = 3
    status: OutcomeStatus
    value: Value | None = None
    error: ErrorInfo | None = None
    lost: str | None = None
    """For `value_lost`: what `repr` gave, capped."""
    usage: dict[str, int] = {}
    finish: FinishReason | None = None
    """For a model call. None: nobody said."""
    raw_finish: str | None = None
    """The same in the provider's word."""
    rate_limits: dict[str, float] = {}
    """What the provider said is left; see `journal.tools.provider.rate_limits`."""
    tries: int = 1
    """How often the act was tried within this attempt (step retries)."""
    evidence: int | None = None
    """Seq of the `call.evidence` this outcome rests on."""
    probed: bool = False
    """Whether a probe, not the act, gave this outcome."""
    cancelled: bool = False
    """Whether the handler saw a cancellation in place of a result; a replay lets it see one again."""
    edits: tuple[DocumentEdit, ...] = ()
    """Of documents: they count from here on."""
    files: tuple[FileChange, ...] = ()
    """Changes of the workspace: they count from here on."""


class CallEvidence(Body, frozen=True, omit_defaults=True, kw_only=True):
    """A result that arrived after its holder had lost the claim. It never changes an outcome."""

    TYPE: ClassVar[str] = "call.evidence"
    outcome: CallOutcome
    epoch: int
    """Of the claim that was lost."""
    nonce: bytes = b""
    """Of the run as its holder knew it: one that was swept and begun anew under the same id has another."""


class Observed(Body, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """What the handler read outside a call, for replay to answer the same. Its key is in the envelope."""

    TYPE: ClassVar[str] = "observed"
    value: bytes
    """Canonical JSON, small."""
    task_digest: bytes = b""
    """Where it says what a task began with: over what the task was started with."""


class TurnFinished(Body, frozen=True, omit_defaults=True, kw_only=True):
    """The turn ended."""

    TYPE: ClassVar[str] = "turn.finished"
    status: TurnStatus
    output: Value | None = None
    error: ErrorInfo | None = None
    cause: str | None = None
    """Key of the call whose error escaped the handler, where there is one."""
    snapshot: Snapshot | None = None
    """That of the attempt's start once more, where the next turn looks for it."""


class TurnBlocked(Body, frozen=True, omit_defaults=True, kw_only=True):
    """The turn is stopped until someone acts. Not terminal. Version 2 may be over its workspace."""

    TYPE: ClassVar[str] = "turn.blocked"
    VERSION: ClassVar[int] = 2
    reason: BlockReason
    detail: str
    recorded: Value | None = None
    asked: Value | None = None
    version: str | None = None


class Accepted(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The call under the key `recorded` stands for what the code asks for in its place."""

    recorded: str
    key: str | None = None
    """Of the call that is asked for; None: none is, and the recorded one may go unasked."""
    kind: CallKind = "step"
    name: str = ""
    input_digest: bytes = b""


class TurnRetried(Body, frozen=True, omit_defaults=True, kw_only=True):
    """Someone sent a failed or blocked turn on; `superseded` outcomes count no more."""

    TYPE: ClassVar[str] = "turn.retried"
    superseded: tuple[int, ...] = ()
    """Seqs of the records set aside."""
    from_seq: int | None = None
    """Calls of the turn that began there or later are set aside too."""
    settled: dict[int, Value | None] = {}
    """What someone says of calls whose outcome is unknown, by the seq of that outcome, or of the last intent where
    there is none: the result, or None for one that did not run."""
    accepted: Accepted | None = None


class CancelRequested(Body, frozen=True, omit_defaults=True, kw_only=True):
    """Someone asked for the turn to be cancelled."""

    TYPE: ClassVar[str] = "cancel.requested"
    reason: str | None = None


class DocumentEdited(Body, frozen=True, omit_defaults=True, kw_only=True):
    """The application edited a document."""

    TYPE: ClassVar[str] = "document.edited"
    edit: DocumentEdit


class FilesChanged(Body, frozen=True, omit_defaults=True, kw_only=True):
    """The application changed files of the workspace. Version 2 has a snapshot."""

    TYPE: ClassVar[str] = "files.changed"
    VERSION: ClassVar[int] = 2
    changes: tuple[FileChange, ...]


class CheckpointWritten(Body, frozen=True, omit_defaults=True, kw_only=True):
    """User code noted something on purpose; the same name and sequence again replaces it."""

    TYPE: ClassVar[str] = "checkpoint.written"
    name: str
    sequence: int
    payload: Value


class CheckpointDeleted(Body, frozen=True, omit_defaults=True, kw_only=True):
    """User code let a checkpoint go."""

    TYPE: ClassVar[str] = "checkpoint.deleted"
    name: str
    sequence: int


class RunClosed(Body, frozen=True, omit_defaults=True, kw_only=True):
    """The run takes nothing more."""

    TYPE: ClassVar[str] = "run.closed"


class Packed(msgspec.Struct, frozen=True, gc=False):
    """A value as a harness's own serializer wrote it; only that reads it."""

    kind: str
    """What the serializer calls its format."""
    data: Value
    """Its bytes: no JSON here."""


class ThreadHolder(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The turn that wrote to a thread."""

    run: str
    turn: str
    scope: str
    """Of the graph's invocation in that turn."""
    claim: bytes
    """Digest of the claim's token: once another was seen of that run, what comes under this one counts no more."""


class ThreadHeld(Body, frozen=True, omit_defaults=True, kw_only=True):
    """A turn goes to work on the thread: whoever held the same run before writes in vain from here on."""

    TYPE: ClassVar[str] = "thread.held"
    holder: ThreadHolder


class ThreadCheckpoint(Body, frozen=True, omit_defaults=True, kw_only=True):
    """A checkpoint of a harness's thread: its values that are new, the rest by version."""

    TYPE: ClassVar[str] = "thread.checkpoint"
    namespace: str = ""
    id: str
    parent: str | None = None
    checkpoint: Packed
    """Without its values and their versions."""
    metadata: Packed
    versions: dict[str, str | int | float] = {}
    """Of all channels."""
    channels: dict[str, Packed | None] = {}
    """Those that are new at the version above; None: empty."""
    holder: ThreadHolder | None = None


class ThreadWrite(msgspec.Struct, frozen=True, gc=False):
    """One write of a task."""

    index: int
    """Its place among the task's writes; negative: of a special channel, where the last one counts."""
    channel: str
    value: Packed


class ThreadWrites(Body, frozen=True, omit_defaults=True, kw_only=True):
    """What a task wrote on top of a checkpoint."""

    TYPE: ClassVar[str] = "thread.writes"
    namespace: str = ""
    checkpoint: str
    task: str
    path: str = ""
    writes: tuple[ThreadWrite, ...] = ()
    holder: ThreadHolder | None = None


class ThreadDropped(Body, frozen=True, omit_defaults=True, kw_only=True):
    """Checkpoints that count no more, with their writes."""

    TYPE: ClassVar[str] = "thread.dropped"
    checkpoints: tuple[tuple[str, str], ...] | None = None
    """(namespace, id) of each; None: all there are."""


class NewRecord(msgspec.Struct, frozen=True, gc=False):
    """A record on its way in: the envelope fields that its writer knows, and the body's bytes."""

    type: str
    turn: str | None
    key: str | None
    body: bytes
    checksum: int
    """CRC-32 over run, type, turn, key, key id and body (`codec.checksum`)."""
    key_id: str | None = None
    """Names the key the values are encrypted with. Reserved: nothing encrypts yet."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record as it lies in the log."""

    run: str
    seq: int
    """Place in its run, dense from 1, allocated by the store."""
    time: float
    """Wall clock of the store, seconds since the Unix epoch. Never orders anything."""
    type: str
    turn: str | None
    key: str | None
    epoch: int
    """Of the claim that wrote it; 0 for authors outside a claim."""
    batch: bytes
    body: bytes
    checksum: int
    key_id: str | None = None

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.body)


BODIES: dict[str, type[Body]] = {
    body.TYPE: body
    for body in (
        RunCreated,
        TurnSubmitted,
        TurnStarted,
        CallIntent,
        CallOutcome,
        CallEvidence,
        Observed,
        TurnFinished,
        TurnBlocked,
        TurnRetried,
        CancelRequested,
        DocumentEdited,
        FilesChanged,
        CheckpointWritten,
        CheckpointDeleted,
        RunClosed,
        ThreadHeld,
        ThreadCheckpoint,
        ThreadWrites,
        ThreadDropped,
    )
}

MIN_READER = 1
"""The record format this version writes; a worker states it as the newest that it reads."""

Json = Any
"""A decoded JSON value."""

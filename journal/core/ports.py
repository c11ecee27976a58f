"""The ports of a world: what the engine asks of a store, in its own words.

The docstrings are promises; the contract suite (`journal.worlds.contract`) quotes and checks them.
A world is bound to one namespace; the same run id in another namespace is another run. One long file on purpose:
whoever writes a world needs all of it, and nothing else.

Everything enters through one door, `Log.append`. Under the run's lock, in this order:
batch id or key known? → claim (equality, both parts) → `prev_batch` in the log? → `at_head` → write all.
Long since the promises to every world stand here, as docstrings.
"""

from collections.abc import AsyncIterator, Awaitable, Collection, Iterable, Sequence
from operator import attrgetter
from typing import Literal, Protocol

import msgspec

from journal.core.codec import Blob
from journal.core.records import NewRecord, Record, TurnStatus

# What is offered to the door -----------------------------------------------------------------------


class Claim(msgspec.Struct, frozen=True, gc=False):
    """The right to append for a run. Compared for equality: epochs repeat after a restore, tokens do not."""

    run: str
    epoch: int
    token: bytes


class Held(msgspec.Struct, frozen=True, gc=False):
    """The batch is offered by whoever holds the run."""

    claim: Claim
    prev_batch: bytes | None
    """Id of this holder's last answered batch, before that of the last record it read. None: not checked."""


class Keyed(msgspec.Struct, frozen=True, gc=False):
    """The batch is offered from outside; the key makes it idempotent within the run."""

    key: str
    digest: bytes
    """Digest of what is asked for: the same key with another digest is a conflict."""


class Create(msgspec.Struct, frozen=True, gc=False):
    """Create the run if it is absent: `record` becomes its first one. Ignored if the run exists."""

    agent: str
    record: NewRecord
    min_reader: int = 1


class Submit(msgspec.Struct, frozen=True, tag=True):
    """A turn was submitted: ready now (or at `due_at`), if no turn is active; else it waits its turn."""

    turn: str
    priority: int = 0
    """Higher goes first."""
    due_at: float | None = None
    """Wall clock; None: at once."""


class Park(msgspec.Struct, frozen=True, tag=True):
    """The holder waits for something: the claim is released, due at the deadline (None: only when woken)."""

    due_at: float | None = None


class Wake(msgspec.Struct, frozen=True, tag=True):
    """Something came from outside. Parked: due now. Claimed: marked woken. Blocked or idle: unchanged."""


class Progress(msgspec.Struct, frozen=True, tag=True):
    """The holder recorded an outcome: the run is no crash loop, takeovers = 0."""


class Finish(msgspec.Struct, frozen=True, tag=True):
    """The turn ended: the claim is released; ready if another turn is pending or the entry was woken, else idle."""

    turn: str
    status: TurnStatus


class Block(msgspec.Struct, frozen=True, tag=True):
    """The turn is stopped until someone acts: the claim is released, not due."""


class Release(msgspec.Struct, frozen=True, tag=True):
    """The holder gives the run back unfinished: due now, takeovers unchanged. No unfinished turn: idle."""

    delay_seconds: float = 0.0
    """Due only after this long (a worker that cannot read the run leaves it to others for a while)."""


class Drain(msgspec.Struct, frozen=True, tag=True):
    """The holder is shutting down with a call under way: whoever takes over does not count it as a crash."""


class Retry(msgspec.Struct, frozen=True, tag=True):
    """The failed or blocked turn is unfinished again: due now, takeovers = 0."""

    turn: str


class Close(msgspec.Struct, frozen=True, tag=True):
    """The run takes nothing more: its queue entry is removed, and with it any claim."""


class Move(msgspec.Struct, frozen=True, tag=True):
    """The run lives at `to` from now on: like `Close` here, on a closed run too, and it may be swept.

    Offered by a `Keyed` author with `at_head` = the head that was copied: what makes it safe, since no holder acts
    (beyond what may be repeated) before the head has moved.
    """

    to: str
    """The other world's `url`."""


QueueChange = Submit | Park | Wake | Progress | Finish | Block | Release | Drain | Retry | Close | Move


class Batch(msgspec.Struct, frozen=True, gc=False):
    """What becomes durable together, or not at all."""

    run: str
    id: bytes
    """128 bits, chosen by the author; the same batch offered again is recognized by it."""
    author: Held | Keyed
    records: tuple[NewRecord, ...] = ()
    create: Create | None = None
    at_head: int | None = None
    """The batch is refused unless this is the last seq of the run, exactly."""
    queue: QueueChange | None = None
    blobs: tuple[Blob, ...] = ()


# What the door answers -----------------------------------------------------------------------------


class Committed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """All of it is durable. `first` to `last` are the seqs of its records, a created run's first one included.

    A batch without records answers the head as `last` and head + 1 as `first`.
    """

    first: int
    last: int
    time: float


class Duplicate(msgspec.Struct, frozen=True, tag=True, gc=False):
    """This batch (or key, with the same digest) is in the log already; nothing was written now."""

    original: Committed
    claim_valid: bool
    """Whether the author's claim holds now. Nobody acts without a claim that holds. True for `Keyed`."""


class KeyConflict(msgspec.Struct, frozen=True, tag=True):
    """The key was used with another digest."""

    original: Committed


class StaleClaim(msgspec.Struct, frozen=True, tag=True):
    """The author does not hold the run. Fatal to the holder."""

    offered: int
    """Epoch of the claim that was offered."""
    current: int
    """Epoch of the run's last claim."""


class LogRegressed(msgspec.Struct, frozen=True, tag=True):
    """`prev_batch` is not in the log: what this holder was told is durable is gone, or has not landed. Fatal."""

    head: int


class HeadMoved(msgspec.Struct, frozen=True, tag=True):
    """`at_head` is not the head: read, and decide again."""

    head: int


class NoRun(msgspec.Struct, frozen=True, tag=True):
    """No such run, and the batch does not create it."""


class Closed(msgspec.Struct, frozen=True, tag=True):
    """The run is closed."""


class Gone(msgspec.Struct, frozen=True, tag=True):
    """The run was swept, and its tombstone holds the id; or it was moved away. Comes before everything else."""

    to: str | None = None
    """Where it lives now, if it was moved."""


class Building(msgspec.Struct, frozen=True, tag=True):
    """The run is being copied here and takes nothing before it is settled."""


class Unknown(msgspec.Struct, frozen=True, tag=True):
    """The store did not answer, so the batch may or may not be durable, or may yet become so.

    Never settled by a read. Offer the same batch again until the door answers.
    """

    reason: str


Answer = (
    Committed
    | Duplicate
    | KeyConflict
    | StaleClaim
    | LogRegressed
    | HeadMoved
    | NoRun
    | Closed
    | Gone
    | Building
    | Unknown
)

# What is read --------------------------------------------------------------------------------------

RunStatus = Literal["pending", "running", "parked", "blocked", "succeeded", "failed", "cancelled"]


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A run as listings show it. Its status is that of its oldest unfinished turn, else of its last."""

    run: str
    agent: str
    namespace: str
    status: RunStatus
    closed: bool
    head: int
    """Last seq."""
    created: float
    """Wall clock, seconds."""
    turn: str | None
    """The oldest unfinished turn, else None."""
    turns: int
    """How many were submitted."""
    epoch: int
    takeovers: int
    due_at: float | None
    position: int
    """Where a page of `runs` may go on."""
    moved_to: str | None = None
    """The world that it was moved to; it is closed here, and may be read until it is swept."""
    building: bool = False
    """Whether it is being copied here, and not settled yet."""


class TurnInfo(msgspec.Struct, frozen=True):
    """A turn: where it was submitted and, once it ended, how and where."""

    turn: str
    submitted: int
    """Seq of its `turn.submitted`."""
    status: TurnStatus | None
    finished: int | None
    """Seq of its `turn.finished`."""


class KeyInfo(msgspec.Struct, frozen=True, gc=False):
    """An idempotency key of an author from outside, and what its batch was answered with."""

    key: str
    digest: bytes
    first: int
    last: int
    time: float


class RunImage(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a run besides its records and the bytes of its blobs: what a copy of it is made from.

    Claims, leases and deltas are no part of it: nobody holds the copy.
    """

    run: str
    agent: str
    created: float
    min_reader: int
    closed: float | None
    """When it was closed."""
    epoch: int
    head: int
    turns: tuple[TurnInfo, ...]
    """By `submitted`."""
    keys: tuple[KeyInfo, ...]
    """By key."""
    blobs: tuple[str, ...]
    """Ids, sorted."""
    status: RunStatus
    """Never `running`: what a holder works on is pending for everybody else."""
    priority: int
    due_at: float | None
    takeovers: int
    held: bool = False
    """Whether somebody holds it, with a lease that has not run out. Not copied."""
    abandoned: bool = False
    """Whether somebody held it and let the lease run out, or died: whoever is given it next takes over."""
    moved_to: str | None = None
    """Not copied."""
    building: bool = False
    """Not copied."""

    @property
    def is_unfinished(self) -> bool:
        """Whether a turn of it has not ended."""
        return any(turn.finished is None for turn in self.turns)


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to list, newest first."""

    status: RunStatus | None = None
    agent: str | None = None
    before: int | None = None
    """`position` of the last run of the page before; runs inserted meanwhile do not shift the pages."""
    limit: int = 100


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that was just given, and where to start reading."""

    claim: Claim
    agent: str
    turn: str | None
    """The oldest unfinished turn. None: there is none (woken without work): release it."""
    submitted: int
    """Seq of that turn's `turn.submitted`; its history starts there."""
    head: int
    takeovers: int
    """Consecutive takeovers without progress, this one included."""
    taken_over: bool
    """Whether the holder before let its lease run out, or died."""
    min_reader: int


class Claims(msgspec.Struct, frozen=True):
    """What a claim brought."""

    claimed: tuple[Claimed, ...]
    next_due_seconds: float | None
    """From now until the next entry of these agents falls due or its lease runs out; None: nothing in sight."""


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of itself."""

    worker: str
    version: str | None = None
    """Of the application's code."""
    slots: int
    """Turns it works on at once, at most."""
    busy: int = 0
    """Turns it works on."""
    agents: tuple[str, ...] = ()
    started: float
    """Wall clock of its host, seconds."""
    seen: float = 0.0
    """Filled in by the store: when it said so last."""


class AgentStats(msgspec.Struct, frozen=True, kw_only=True):
    """Where the runs of an agent stand that are not closed. Each run is counted once."""

    agent: str
    due: int = 0
    """Unclaimed, and may be claimed now."""
    oldest_due: float | None = None
    """Since when the longest of them has been due: wall clock, seconds."""
    later: int = 0
    """Unclaimed, due at a later time."""
    held: int = 0
    """Claimed, whether the lease has run out or not."""
    parked: int = 0
    """Waiting to be woken."""
    blocked: int = 0
    """Stopped until someone acts."""
    idle: int = 0
    """Without an unfinished turn."""


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a call's output while it is still running. Not a record; at most once."""

    call: str
    number: int
    """The try of the call it belongs to."""
    data: bytes
    """Canonical JSON."""
    seq: int = 0
    """Filled in by the store: the head when it was published."""
    sub: int = 0
    """Filled in by the store: counts from 1 above that head."""
    time: float = 0.0


ROSTER_SECONDS = 60.0
"""After how long a worker that has said nothing is not listed any more."""
Item = Record | Delta
START = "0000000000000000_0000000000000000"


def offset_of(item: Item) -> str:
    """The reader's place behind `item`: strictly rising, sortable as text."""
    sub = item.sub if isinstance(item, Delta) else 0
    return f"{item.seq:016d}_{sub:016d}"


def offset_at(seq: int) -> str:
    """The reader's place behind the record of that seq."""
    return f"{seq:016d}_{0:016d}"


def parse_offset(offset: str) -> tuple[int, int]:
    """(seq, sub) of an offset; raises ValueError if it is none."""
    if offset == "-1":
        return 0, 0
    seq, sep, sub = offset.partition("_")
    if not sep or len(seq) != 16 or len(sub) != 16 or not (seq + sub).isdecimal():
        raise ValueError(
            f"{offset!r} is not an offset: give one that was read from this run, or -1 for its start"
        )
    return int(seq), int(sub)


class SweepPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What may leave the world: closed runs, whole, and the deltas of turns that ended.

    A run that was moved away counts as closed since then.
    """

    closed_older_than_seconds: float
    moved: tuple[str, ...] | None = None
    """Only these runs, and of them only those that were moved away, however lately. None: by age."""
    tombstone_seconds: float = 30 * 24 * 3600.0
    """How long the id of a swept run stays taken; that of one that was moved away does for ever."""
    deltas_older_than_seconds: float = 3600.0
    limit: int = 100
    """Runs at most in one call."""


# The ports -----------------------------------------------------------------------------------------


class Log(Protocol):
    """Append-only records, one dense sequence a run."""

    def append(self, batch: Batch) -> Awaitable[Answer]:
        """Offer `batch` to the door.

        Starts at once, awaited or not. Everything of the batch becomes durable together: records, blobs,
        queue change, claim change. The store alone allocates seqs, dense from 1. A batch that is refused
        leaves no trace and never fails a neighbour. Batches of one run that are offered one after the
        other are decided in that order. Cancelling the awaiter does not withdraw the batch.

        Raises a `WorldError` when the batch certainly did not land and offering it again cannot help
        (read-only, full, deleted, corrupt, too new). Answers `Unknown` when it may have landed.
        """
        ...

    async def read(self, run: str, *, after: int = 0, limit: int = 500) -> list[Record]:
        """Up to `limit` records with seq > `after`, in order; fewer only at the end of the log.

        No statement or transaction stays open behind it. Raises `CorruptRecord` for bytes that are not
        what was written, `RunNotFound`, and `RunGone` where only a tombstone is left.
        """
        ...

    async def run(self, run: str) -> RunInfo | None:
        """The run, or None. Raises `RunGone` where only a tombstone is left."""
        ...

    async def turn(self, run: str, turn: str) -> TurnInfo | None:
        """One turn of the run, or None."""
        ...

    async def runs(self, query: RunQuery) -> list[RunInfo]:
        """A page of runs, newest first."""
        ...

    async def get_blob(self, run: str, blob: str) -> bytes:
        """A blob of that run. Raises `CorruptRecord` (seq 0) if it is missing or damaged."""
        ...

    async def sweep(self, policy: SweepPolicy) -> int:
        """Remove what `policy` allows; returns how many runs went. Whole closed runs only, blobs and deltas too."""
        ...


class Transfer(Protocol):
    """Runs on their way from one world to another: read as a whole here, built up there.

    Between the first `build` and `settle` the run is *building*: it may be read, and takes nothing through the
    door; nobody can claim it, and no sweep takes it.
    """

    async def image(self, run: str) -> RunImage:
        """The run at one moment, whatever is written meanwhile. Raises `RunNotFound`, `RunGone` like a read."""
        ...

    async def build(self, image: RunImage, records: Sequence[Record], blobs: Sequence[Blob]) -> int:
        """Create the run, or go on with it; returns its head. All of it or nothing becomes durable.

        Records are taken as they are, every field of them, and must go on densely behind the head; those up to
        the head are there already and are skipped, so that any call may be made again. Everything else is replaced
        by what `image` says. A tombstone with an address gives way: the run comes back. So does a settled copy that
        nobody has touched, if `records` hold the one at its head, the same: it is building again. Touched is what is
        closed or moved, is claimed or due, has an unfinished turn and is not blocked, or has a later epoch than
        `image`. Raises `RunNotBuilding` for any other run that is there and is not building, `RunGone` where another
        tombstone holds its id, `InvalidValue` for a gap.
        """
        ...

    async def settle(self, run: str, *, is_live: bool) -> None:
        """End the building: from now on it is a run like any other, as its last image says.

        Not `is_live`: if it has an unfinished turn it is blocked, and nobody works on it before a `Retry`; and it is
        not due. Raises `RunNotBuilding`, `RunNotFound`, `RunGone`, and `InvalidValue` if records up to the image's
        head are missing.
        """
        ...


class Renewer(Protocol):
    """Renews claims from a thread of its own, with a connection of its own: a busy event loop loses nothing."""

    def renew(self, claims: Sequence[Claim], lease_seconds: float) -> set[Claim]:
        """Extend those that still hold, and return them. Blocking. Raises `WorldError` if the store does not answer."""
        ...

    def close(self) -> None:
        """Let the connection go."""
        ...


class Queue(Protocol):
    """One entry a run: who may work on it, from when, and who holds it."""

    async def claim(
        self,
        *,
        worker: str,
        limit: int,
        lease_seconds: float,
        agents: Collection[str] | None,
        reads: int,
        run: str | None = None,
    ) -> Claims:
        """Claim up to `limit` entries that are due: highest priority first, then the longest due.

        An entry is claimable when it is due and unclaimed, or claimed by a holder whose lease has run out or
        whose process is known to be dead; the latter is a takeover (takeovers + 1 unless it was draining).
        A claim bumps the epoch, draws a new token and clears `woken`. Entries of other agents (`agents` not
        None) and entries that need a newer reader than `reads` are never given. `run` narrows it to one run.
        """
        ...

    def open_renewer(self) -> Renewer:
        """A renewer for this world; the caller closes it."""
        ...

    async def wait_for_work(self, timeout_seconds: float) -> None:
        """Return when an entry may have become claimable, or after the timeout. May return early for no reason."""
        ...

    async def beat(self, info: WorkerInfo) -> None:
        """A worker says that it is there. Need not survive a crash; claims and leases have nothing to do with it."""
        ...

    async def leave(self, worker: str) -> None:
        """The worker is gone: it is not listed any more. No error if it was not there."""
        ...

    async def workers(self) -> list[WorkerInfo]:
        """Those that said within the last `ROSTER_SECONDS` that they are there, by id."""
        ...

    async def stats(self) -> list[AgentStats]:
        """Where the open runs of each agent stand, by agent. May have to look at all of them."""
        ...


class Stream(Protocol):
    """Watching: history from an offset, then live."""

    async def publish(self, claim: Claim, deltas: Sequence[Delta]) -> bool:
        """Store deltas at (head, last sub + 1), under the run's lock; False if the claim does not hold.

        Kept until the turn has ended plus an hour. May be lost in a crash.
        """
        ...

    def follow(self, run: str, *, offset: str = START) -> AsyncIterator[Item]:
        """Everything behind `offset`, in order of offsets: history, then live, without gap or double.

        Records come exactly once, deltas at most once. It does not end by itself while the run is open; it
        ends after `run.closed`. It waits for a run that does not exist yet; raises `RunGone` for a swept one, and
        behind the last record of one that was moved away.
        Leaving it changes nothing for the run. Sees appends of other processes within 50 ms.
        """
        ...


class World(Log, Queue, Stream, Transfer, Protocol):
    """A store. Opened by `open_world(url)` as an async context manager; passive until then."""

    url: str
    """As printed to people: absolute, without credentials."""
    namespace: str
    capabilities: frozenset[str]
    """What it truly offers: see SEMANTICS 11. `log.persistent`, `multi_process`, `stream.deltas`, …"""

    async def aclose(self) -> None:
        """Finish what is under way, then let everything go. Claims are not released by it."""
        ...


_body = attrgetter("body")


def batch_bytes(batch: Batch) -> int:
    """What the batch weighs in a group, in bytes."""
    size = 256 + sum(map(len, map(_body, batch.records)))
    if batch.blobs:
        size += sum(len(blob.data) for blob in batch.blobs)
    return size


def agents_match(agent: str, agents: Iterable[str] | None) -> bool:
    """Whether a worker for `agents` (None: all) may work on `agent`."""
    return agents is None or agent in agents

"""What a world should do, written a second time and plainly, from the table and the door of the design.

Nothing here imports the worlds' own rules: where the two disagree, one of them misread the design. Tokens are
drawn by the worlds, so claims are numbered here, and the driver maps a number to each world's claim.
"""

from dataclasses import dataclass, field
from math import inf

START_WALL = 1_700_000_000.0
SWEEP_AFTER, TOMBSTONE = 500.0, 2000.0


@dataclass
class Turn:
    name: str
    submitted: int
    state: str = "pending"
    """pending, running, parked, blocked; or how it ended."""
    finished: int | None = None

    @property
    def is_over(self) -> bool:
        return self.state in ("succeeded", "failed", "cancelled")


@dataclass
class ModelRun:
    agent: str
    min_reader: int
    created: float
    log: list[tuple[str, str | None, int, bytes, float]] = field(default_factory=list)
    """type, turn, epoch, batch, time"""
    turns: list[Turn] = field(default_factory=list)
    batches: dict[bytes, tuple[int, int, float]] = field(default_factory=dict)
    keys: dict[str, tuple[bytes, tuple[int, int, float]]] = field(default_factory=dict)
    bare: bytes | None = None
    """The last batch that changed the entry without a record."""
    deltas: list[tuple[int, int]] = field(default_factory=list)
    priority: int = 0
    due: float | None = None
    epoch: int = 0
    holder: int | None = None
    lease: float = 0.0
    woken: bool = False
    takeovers: int = 0
    draining: bool = False
    closed_at: float | None = None
    moved: str | None = None

    @property
    def head(self) -> int:
        return len(self.log)

    def open_turns(self) -> list[Turn]:
        return sorted((t for t in self.turns if not t.is_over), key=lambda t: t.submitted)

    def turn(self, name: str) -> Turn | None:
        return next((t for t in self.turns if t.name == name), None)

    def status(self) -> str:
        unfinished = self.open_turns()
        if unfinished:
            return unfinished[0].state
        ended = [t for t in self.turns if t.finished is not None]
        return max(ended, key=lambda t: t.finished or 0).state if ended else "pending"

    def free(self, due: float | None) -> None:
        self.holder, self.woken, self.draining, self.due = None, False, False, due


@dataclass(frozen=True)
class Offer:
    """A batch, in the model's words."""

    run: str
    batch: bytes
    records: tuple[tuple[str, str | None], ...]
    """type, turn"""
    holder: int | None = None
    epoch: int = 0
    prev: bytes | None = None
    key: str | None = None
    digest: bytes = b""
    at_head: int | None = None
    create: tuple[str, int] | None = None
    """agent, min_reader"""
    event: tuple[object, ...] | None = None


class Model:
    """All runs, and both clocks."""

    def __init__(self) -> None:
        self.wall, self.boot = START_WALL, 1000.0
        self.runs: dict[str, ModelRun] = {}
        self.tombstones: dict[str, tuple[float, str | None]] = {}
        """Until when, and where the run was moved to."""
        self.claims: list[str] = []
        """Claim number → run."""

    def offer(self, offer: Offer) -> tuple[object, ...]:
        """The answer: its name, then what it carries."""
        if offer.run in self.tombstones:
            return ("Gone", self.tombstones[offer.run][1])
        run = self.runs.get(offer.run)
        if run is None:
            if offer.create is None:
                return ("NoRun",)
            run = self.runs[offer.run] = ModelRun(*offer.create, created=self.wall)
            run.log.append(("run.created", None, 0, offer.batch, self.wall))
            return self._write(run, offer, first=1)
        if run.moved is not None:
            return ("Gone", run.moved)
        holds = offer.holder is not None and run.holder == offer.holder
        if offer.batch in run.batches or (run.bare is not None and offer.batch == run.bare):
            return ("Duplicate", run.batches.get(offer.batch), holds or offer.key is not None)
        if offer.key is not None and offer.key in run.keys:
            digest, original = run.keys[offer.key]
            return ("Duplicate", original, True) if digest == offer.digest else ("KeyConflict", original)
        if offer.key is None and not holds:
            return ("StaleClaim", offer.epoch, run.epoch)
        if offer.prev is not None and offer.prev not in run.batches and offer.prev != run.bare:
            return ("LogRegressed", run.head)
        if run.closed_at is not None and (offer.event or ("",))[0] != "move":
            return ("Closed",)
        if offer.at_head is not None and offer.at_head != run.head:
            return ("HeadMoved", run.head)
        return self._write(run, offer, first=run.head + 1)

    def _write(self, run: ModelRun, offer: Offer, *, first: int) -> tuple[object, ...]:
        for kind, turn in offer.records:
            run.log.append((kind, turn, offer.epoch, offer.batch, self.wall))
        original = (first, run.head, self.wall)
        if offer.records or first == 1:
            run.batches[offer.batch] = original
        else:
            run.bare = offer.batch
        if offer.key is not None:
            run.keys[offer.key] = (offer.digest, original)
        if offer.event is not None:
            self._event(run, offer.event)
        return ("Committed", *original)

    def _event(self, run: ModelRun, event: tuple[object, ...]) -> None:
        now = self.wall
        match event:
            case ("submit", str(name), int(priority), due):
                active = run.open_turns()
                run.turns.append(Turn(name, run.head))
                if active:
                    return
                if run.holder is not None:
                    run.woken = True
                    return
                run.priority = priority
                run.due = now if due is None else float(str(due))
            case ("wake",):
                if run.holder is not None:
                    run.woken = True
                elif run.open_turns() and run.open_turns()[0].state != "blocked":
                    run.due = now if run.due is None else min(run.due, now)
            case ("progress",):
                run.takeovers = 0
            case ("drain",):
                run.draining = True
            case ("park", due):
                run.open_turns()[0].state = "parked"
                run.takeovers = 0
                run.free(None if due is None else float(str(due)))
            case ("finish", str(name), str(status)):
                turn = run.turn(name)
                assert turn is not None
                turn.state, turn.finished = status, run.head
                run.takeovers = 0
                run.free(now if run.woken or run.open_turns() else None)
            case ("block",):
                run.open_turns()[0].state = "blocked"
                run.free(None)
            case ("release", float(delay)):
                unfinished = run.open_turns()
                if unfinished:
                    unfinished[0].state = "pending"
                run.free(now + delay if unfinished else None)
            case ("retry", str(name)):
                turn = run.turn(name)
                assert turn is not None
                turn.state, turn.finished = "pending", None
                run.due, run.takeovers = now, 0
            case ("move", str(to)):
                run.moved = to
                run.closed_at = now if run.closed_at is None else run.closed_at
                run.free(None)
            case ("close",):
                run.closed_at = now
                run.free(None)
            case _:
                raise AssertionError(event)

    def claim(
        self, *, limit: int, lease: float, agents: frozenset[str] | None, reads: int, run: str | None
    ) -> tuple[list[tuple[object, ...]], float | None]:
        """Each claimed run: (run, epoch, turn, submitted, head, takeovers, taken over); and the next due time."""
        visible = [
            (name, r)
            for name, r in self.runs.items()
            if r.closed_at is None
            and (agents is None or r.agent in agents)
            and r.min_reader <= reads
            and run in (None, name)
        ]
        ready = [
            (name, r)
            for name, r in visible
            if (r.lease <= self.boot if r.holder is not None else r.due is not None and r.due <= self.wall)
        ]
        ready.sort(key=lambda found: (-found[1].priority, found[1].due or 0.0))
        claimed = [self._take(name, r, lease) for name, r in ready[:limit]]
        waits = [
            r.lease - self.boot if r.holder is not None else (r.due or 0.0) - self.wall
            for _, r in visible
            if r.holder is not None or r.due is not None
        ]
        return claimed, max(min(waits), 0.0) if waits else None

    def _take(self, name: str, run: ModelRun, lease: float) -> tuple[object, ...]:
        is_takeover = run.holder is not None
        if is_takeover and not run.draining:
            run.takeovers += 1
        run.epoch += 1
        run.woken = run.draining = False
        run.holder, run.lease = len(self.claims), self.boot + lease
        self.claims.append(name)
        unfinished = run.open_turns()
        if unfinished:
            unfinished[0].state = "running"
        turn, submitted = (unfinished[0].name, unfinished[0].submitted) if unfinished else (None, 0)
        return (name, run.epoch, turn, submitted, run.head, run.takeovers, is_takeover)

    def holds(self, number: int) -> bool:
        run = self.runs.get(self.claims[number])
        return run is not None and run.holder == number

    def renew(self, numbers: list[int], lease: float) -> set[int]:
        renewed = {number for number in numbers if self.holds(number)}
        for number in renewed:
            self.runs[self.claims[number]].lease = self.boot + lease
        return renewed

    def publish(self, number: int, count: int) -> bool:
        if not self.holds(number):
            return False
        run = self.runs[self.claims[number]]
        sub = max((s for seq, s in run.deltas if seq == run.head), default=0)
        run.deltas += [(run.head, sub + n) for n in range(1, count + 1)]
        return True

    def sweep(self) -> int:
        self.tombstones = {name: held for name, held in self.tombstones.items() if held[0] > self.wall}
        old = [
            name
            for name, r in self.runs.items()
            if r.closed_at is not None and r.closed_at <= self.wall - SWEEP_AFTER
        ]
        for name in old:
            to = self.runs.pop(name).moved
            self.tombstones[name] = (self.wall + TOMBSTONE if to is None else inf, to)
        return len(old)

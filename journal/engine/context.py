"""What a running call sees of itself: the object behind ``io``."""

from typing import TYPE_CHECKING, Any

from journal.core import values
from journal.core.ports import Delta
from journal.engine.documents import CallDocs
from journal.engine.files import CallFiles, files_of
from journal.replay.history import asked_key
from journal.tools.facts import NOTHING, Facts
from journal.tools.io import current_call

if TYPE_CHECKING:
    from contextvars import Token

    from journal.engine.attempt import Attempt


class CallContext:
    """One try of one call."""

    has_emitted = False
    has_shown = False
    """Whether somebody saw a piece of its output already: it cannot be tried again unnoticed."""
    facts = NOTHING
    _docs: CallDocs | None = None
    _files: CallFiles | None = None
    _unawaited: dict[object, str] | None = None

    def __init__(self, attempt: "Attempt", key: str, number: int, timeout: float | None) -> None:
        self.attempt = attempt
        self.key = key
        self.number = number
        self.has_more = False
        """Whether it used `io` in a way that its outcome does not tell: there is more to its end."""
        self._deadline = None if timeout is None else attempt.clock.boottime() + timeout

    def enter(self) -> "Token[Any]":
        """Let `io` speak for this call; the caller leaves with ``current_call.reset(token)``."""
        if (on_act := self.attempt.runtime.on_act) is not None:
            on_act(self)
        return current_call.set(self)

    @property
    def idempotency_key(self) -> str:
        """Digest of the run's nonce, the turn and the call key: the same in every try, unlike any other call's."""
        nonce, key = self.attempt.history.nonces.get(self.key, self.attempt.nonce), asked_key(self.key)
        return values.digest(b"\0".join((nonce, self.attempt.turn_id.encode(), key.encode()))).hex()

    @property
    def fence(self) -> int:
        """The claim's epoch: it rises with every holder of the run."""
        return self.attempt.holding.claim.epoch

    @property
    def deadline(self) -> float | None:
        """Seconds left: until the call's timeout or, if that is sooner, until the claim may run out unrenewed."""
        now = self.attempt.clock.boottime()
        trusted = self.attempt.holding.trusted_until - now
        return trusted if self._deadline is None else min(trusted, self._deadline - now)

    @property
    def docs(self) -> CallDocs:
        """The run's documents, as this call sees them."""
        if self._docs is None:
            self.has_more = True
            self._docs = CallDocs(self.attempt.docs)
        return self._docs

    @property
    def files(self) -> CallFiles:
        """The run's workspace, as this call sees it. Raises `InvalidOptions` where the agent has none."""
        if self._files is None:
            self.has_more = True
            self._files = files_of(self.attempt)
        return self._files

    @property
    def unawaited(self) -> dict[object, str]:
        """See `awaiting.py`."""
        if self._unawaited is None:
            self.has_more = True
            self._unawaited = {}
        return self._unawaited

    @property
    def forgotten(self) -> str | None:
        """The name of something that was asked for and never awaited."""
        return next(iter(self._unawaited.values())) if self._unawaited else None

    @property
    def has_edited(self) -> bool:
        """Whether it edited documents, or changed files."""
        return (self._docs is not None and self._docs.has_edits) or (
            self._files is not None and self._files.has_changes
        )

    @property
    def edited_docs(self) -> CallDocs | None:
        """Its documents, if it edited any."""
        return self._docs if self._docs is not None and self._docs.has_edits else None

    @property
    def changed_files(self) -> CallFiles | None:
        """Its files, if it changed any."""
        return self._files if self._files is not None and self._files.has_changes else None

    def begin_again(self) -> None:
        """The act is tried once more: what it edited counts for nothing."""
        self._unawaited = None
        if self._docs is not None:
            self._docs.forget()
        if self._files is not None:
            self._files.forget()

    def end(self) -> None:
        """The act is over: whatever of it still runs edits nothing."""
        if self._docs is not None:
            self._docs.close()
        if self._files is not None:
            self._files.close()

    def let_go(self) -> None:
        """The call is over, its outcome durable or not: others may change files."""
        if self._files is not None:
            self._files.let_go()

    @property
    def deps(self) -> Any:
        """What the journal's `resources` gave this process."""
        return self.attempt.deps

    @property
    def log(self) -> Any:
        """A structlog logger bound to run, turn and call."""
        return self.attempt.log.bind(call=self.key)

    def emit(self, data: Any) -> None:
        """Show a piece of output to whoever watches; it is not recorded, and may be lost."""
        self.has_more = self.has_emitted = self.has_shown = True
        self.attempt.deltas.emit(
            Delta(call=self.key, number=self.number, data=values.encode(data, what="delta"))
        )

    def report(self, facts: Facts) -> None:
        """Keep `facts` with the outcome; of what was reported before, whatever they do not speak of stays."""
        self.has_more = True
        self.facts = self.facts.updated(facts)


def in_call() -> CallContext | None:
    """The call that is running here, if one is."""
    context = current_call.get()
    return context if isinstance(context, CallContext) else None

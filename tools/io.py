"""`io`: what a running call knows of itself.

Bound to the context, never a parameter, since harnesses derive a tool's schema from its signature:
``from journal import io`` and use it inside a tool, a step or a model call, in worker threads too.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from journal.core.errors import NotInTurn
from journal.core.records import FinishReason
from journal.tools.directory import Directory
from journal.tools.documents import Document
from journal.tools.facts import Facts, facts_of
from journal.tools.provider import lower, rate_limits
from journal.tools.workspace import FileInfo, Paths

T = TypeVar("T")


class Docs(Protocol):
    """Documents, as one call sees them."""

    def get(self, doc: Document[T], /) -> T:
        """The value, with the call's own edits. Changing it changes nothing: use `update`."""
        ...

    def update(self, doc: Document[T], fn: Callable[[T], T], /) -> T:
        """Edit: `fn` gets the value and returns the next one. It may run again on a newer value, so it must be pure."""
        ...


class CallFiles(Protocol):
    """The files of the run's workspace, as one call sees them. Errors are `WorkspaceError`."""

    async def read(self, path: str) -> bytes:
        """The file's bytes."""
        ...

    async def read_text(self, path: str) -> str:
        """The file's text, in UTF-8."""
        ...

    async def write(self, path: str, data: bytes | str, *, is_executable: bool | None = None) -> None:
        """Let `data` be the whole file. Others see it once the call has ended well."""
        ...

    async def delete(self, path: str) -> None:
        """Let the file go."""
        ...

    async def exists(self, path: str) -> bool:
        """Whether a file is there."""
        ...

    async def stat(self, path: str) -> FileInfo:
        """How large the file is, and whether it is executable."""
        ...

    async def list(self, path: str = "/") -> list[FileInfo]:
        """What is in the directory itself."""
        ...

    async def glob(self, pattern: str) -> Paths:
        """The paths that match."""
        ...

    async def move(self, path: str, to: str) -> None:
        """Rename a file; what is there already is replaced."""
        ...

    def directory(self) -> AbstractAsyncContextManager[Directory]:
        """A directory of the host with all files in it, for programs to work in; only of a `DirectoryWorkspace`."""
        ...


class CallContext(Protocol):
    """One try of one call, as its code sees it. The engine provides it."""

    @property
    def unawaited(self) -> dict[object, str]:
        """What was asked for and has not begun yet, by name; see `awaiting.py`."""
        ...

    @property
    def idempotency_key(self) -> str:
        """The same in every try of this call and after every crash, and of no other call: give it to the service."""
        ...

    @property
    def fence(self) -> int:
        """Rises with every holder of the run: a service that remembers the highest can refuse a late one."""
        ...

    @property
    def deadline(self) -> float | None:
        """Seconds left until the call must have ended; None: no limit."""
        ...

    @property
    def docs(self) -> "Docs":
        """The run's documents."""
        ...

    @property
    def files(self) -> "CallFiles":
        """The run's workspace."""
        ...

    @property
    def deps(self) -> Any:
        """What the journal's `resources` opened in this process."""
        ...

    @property
    def log(self) -> Any:
        """A structlog logger that carries run, turn and call."""
        ...

    def emit(self, data: Any) -> None:
        """Show `data` (a JSON value) to whoever watches the run, now. It is not recorded."""
        ...

    def report(self, facts: Facts) -> None:
        """Keep `facts` with the outcome of the call."""
        ...


current_call: ContextVar[CallContext | None] = ContextVar("journal_call", default=None)
"""The call that runs in this context; the engine sets it around the act."""


@contextmanager
def enter_call(context: CallContext) -> Iterator[CallContext]:
    """Let `io` speak for `context` inside the block."""
    token = current_call.set(context)
    try:
        yield context
    finally:
        current_call.reset(token)


class _Io:
    """Speaks for the call that runs in this context; outside of one everything raises `NotInTurn`."""

    __slots__ = ()

    @property
    def idempotency_key(self) -> str:
        """The same in every try of this call and after every crash, and of no other call: give it to the service."""
        return _running("io.idempotency_key").idempotency_key

    @property
    def fence(self) -> int:
        """Rises with every holder of the run: a service that remembers the highest can refuse a late one."""
        return _running("io.fence").fence

    @property
    def deadline(self) -> float | None:
        """Seconds left until the call must have ended; None: no limit."""
        return _running("io.deadline").deadline

    @property
    def docs(self) -> "Docs":
        """The run's documents: ``io.docs.get(Todo)``, ``io.docs.update(Todo, fn)``; edits count once it ended well."""
        return _running("io.docs").docs

    @property
    def files(self) -> "CallFiles":
        """The run's workspace: ``await io.files.read("/notes.md")``; changes count once the call has ended well."""
        return _running("io.files").files

    @property
    def deps(self) -> Any:
        """What the journal's `resources` opened in this process."""
        return _running("io.deps").deps

    @property
    def log(self) -> Any:
        """A structlog logger that carries run, turn and call."""
        return _running("io.log").log

    def emit(self, data: Any) -> None:
        """Show `data` (a JSON value) to whoever watches the run, now. It is not recorded, and may be lost."""
        _running("io.emit()").emit(data)

    def report(
        self,
        reply: object = None,
        *,
        finish: FinishReason | None = None,
        raw_finish: str | None = None,
        usage: Mapping[str, int] | None = None,
        headers: object = None,
    ) -> None:
        """Keep with the call's outcome what the provider said beside the reply: for model calls written by hand.

        `reply` is the client's object, or its JSON: OpenAI's (chat completions and responses), Anthropic's, and those
        that look like them are read. `headers` of the response tell the rate limits. What is given by name goes first;
        what nobody says stays absent.
        """
        read = facts_of(reply)
        limits = rate_limits(lower(headers), time.time())
        said = Facts(finish=finish, raw_finish=raw_finish, usage=dict(usage or {}), rate_limits=limits)
        _running("io.report()").report(read.updated(said))


def _running(what: str) -> CallContext:
    context = current_call.get()
    if context is None:
        raise NotInTurn(what=what, where="a call")
    return context


io = _Io()
"""What the running call knows of itself."""

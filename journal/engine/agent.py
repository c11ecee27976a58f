"""`Agent`: a handler that a journal knows by name, and the ways to give it work.

Identity: no `run_id` is a new run · `run_id` alone is start or attach · `run_id` and `key` is one turn of a
conversation. Running a crashed script again never works the same request twice.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar

from journal.core.errors import InvalidOptions
from journal.core.records import Policy
from journal.core.signatures import hints_of
from journal.core.typed import PLAIN, ValueCodec, check_plain, codec_of, result_codec
from journal.engine.handle import Handle
from journal.engine.turn import Turn
from journal.tools.directory import DirectoryWorkspace
from journal.tools.documents import Document, check_document
from journal.tools.model_retry import MODEL_RETRY, ModelRetry, as_model_retry
from journal.tools.policy import Marker, Resolved, resolve
from journal.tools.workspace import VirtualWorkspace

if TYPE_CHECKING:
    from journal.engine.journal import Journal

I = TypeVar("I")  # noqa: E741 - input
O = TypeVar("O")  # noqa: E741 - output
Handler = Callable[[Turn, I], Awaitable[O]]
Drift = Literal["accept", "refuse"]


class Agent(Generic[I, O]):
    """A registered handler. Made by `Journal.agent`."""

    def __init__(
        self,
        journal: "Journal",
        handler: Handler[I, O],
        *,
        name: str,
        tools: Mapping[str, Policy] | None = None,
        model_retry: ModelRetry | bool | None = None,
        drift: Drift = "accept",
        docs: Iterable[Document[Any]] = (),
        workspace: VirtualWorkspace | DirectoryWorkspace | None = None,
    ) -> None:
        self.journal = journal
        self.handler = handler
        self.name = name
        self.tools: Mapping[str, Policy] = dict(tools or {})
        self.model_retry = as_model_retry(model_retry, MODEL_RETRY)
        self.drift: Drift = drift
        self.docs = _checked_docs(docs, name)
        """The documents it may read and edit, by kind."""
        self.workspace = checked_workspace(workspace, f"agent {name!r}")
        """What its files may be."""
        self.input_codec: ValueCodec[I]
        self.input_codec, self._input_type = _input_codec(handler, name)
        self.output_codec: ValueCodec[O] = result_codec(handler)
        self.__doc__ = handler.__doc__

    async def run(
        self,
        input: I,  # noqa: A002 - the field's name everywhere
        *,
        run_id: str | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> O:
        """Work the input through and return the output; resume, attach or return the stored one if it is known.

        Serves as a worker for its own run. Cancelling it only detaches: the run goes on while this process
        lives, and the same call attaches to it again. Raises `TurnFailed`, `TurnCancelled`, `TurnBlocked`;
        `ResultTimeout` after `timeout` seconds, while the turn goes on; `RunExists` if `run_id` was started
        with another input, `InvalidOptions` if by another agent.
        """
        handle = await self.journal.submit_encoded(
            self.name, self.encode_input(input), self.output_codec, run_id=run_id, key=key, serve=True
        )
        return await handle.settle(timeout, serve=True)

    async def submit(
        self,
        input: I,  # noqa: A002 - the field's name everywhere
        *,
        run_id: str | None = None,
        key: str | None = None,
        if_exists: Literal["error", "return"] = "error",
        if_busy: Literal["queue", "reject"] = "queue",
        priority: int = 0,
        delay: float | None = None,
        subject: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Handle[O]:
        """Append the input as a turn, and return at once; a worker carries it out.

        Idempotent: the same run, key and input give the same turn. With another input `if_exists` decides:
        an error, or a handle of the turn that is there. `delay` is in seconds; higher `priority` goes first; both
        are of the run, and a turn that queues behind another is due as soon as that one has ended.
        """
        data = self.encode_input(input)
        return await self.journal.submit_encoded(
            self.name,
            data,
            self.output_codec,
            run_id=run_id,
            key=key,
            if_exists=if_exists,
            if_busy=if_busy,
            priority=priority,
            delay=delay,
            subject=subject,
            metadata=metadata,
        )

    def encode_input(self, input: object) -> bytes:  # noqa: A002 - the field's name everywhere
        """The input's canonical bytes; raises `InvalidValue` if it is not what the handler declares."""
        what = f"the input of agent {self.name!r}"
        data = self.input_codec.encode(input, what=what)
        if self.input_codec is PLAIN and self._input_type is not None:
            check_plain(data, self._input_type, what=what)
        return data

    def run_sync(
        self,
        input: I,  # noqa: A002 - the field's name everywhere
        *,
        run_id: str | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> O:
        """`run`, for code that is not async; opens and closes the journal around it."""

        async def main() -> O:
            async with self.journal:
                return await self.run(input, run_id=run_id, key=key, timeout=timeout)

        return self.journal.run_blocking(main, "run")

    def submit_sync(
        self,
        input: I,  # noqa: A002 - the field's name everywhere
        *,
        run_id: str | None = None,
        key: str | None = None,
    ) -> str:
        """`submit`, for code that is not async; returns the run id."""

        async def main() -> str:
            async with self.journal:
                return (await self.submit(input, run_id=run_id, key=key)).run_id

        return self.journal.run_blocking(main, "submit")

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """An agent is run, not called."""
        raise InvalidOptions(
            f"agent {self.name!r} is not called: await {self.name}.run(input), or .submit(input)"
        )

    @property
    def has_files(self) -> bool:
        """Whether its runs have files in their logs."""
        return self.workspace is not None and self.workspace.durable

    def policy_of(self, name: str, marker: Marker | None = None) -> Resolved:
        """The replay policy of a tool called by this agent, and where it comes from."""
        return resolve(name, agent=self.tools, journal=self.journal.tools, marker=marker)

    def __repr__(self) -> str:
        return f"<Agent {self.name!r}>"


def checked_workspace(workspace: object, what: str) -> VirtualWorkspace | DirectoryWorkspace | None:
    """`workspace`, if it is one or None. Raises `InvalidOptions`, which names `what` it is for."""
    if workspace is None or isinstance(workspace, VirtualWorkspace | DirectoryWorkspace):
        return workspace
    if workspace is VirtualWorkspace:
        raise InvalidOptions(f"{what}: workspace=VirtualWorkspace is the class: say VirtualWorkspace()")
    if workspace is DirectoryWorkspace:
        raise InvalidOptions(
            f"{what}: workspace=DirectoryWorkspace is the class: say DirectoryWorkspace(root)"
        )
    raise InvalidOptions(
        f"{what}: workspace={workspace!r} is none: say VirtualWorkspace(), or DirectoryWorkspace(root)"
    )


def _checked_docs(docs: Iterable[Document[Any]], name: str) -> dict[str, Document[Any]]:
    """The documents by kind."""
    given: object = docs
    if isinstance(given, Document):
        raise InvalidOptions(
            f"agent {name!r}: docs={given!r} is one document: give a list of them, [{given.kind}]"
        )
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidOptions(f"agent {name!r}: docs={given!r}: give a list of what define_doc made")
    found: dict[str, Document[Any]] = {}
    for doc in docs:
        check_document(doc, f"agent {name!r}: docs=[...]")
        if found.setdefault(doc.kind, doc) is not doc:
            raise InvalidOptions(
                f"agent {name!r}: docs=[...] holds {found[doc.kind]!r} and {doc!r}: a kind is one document, so list "
                "the newest version, with migrate= for what older ones wrote"
            )
    return found


def _input_codec(handler: Callable[..., Any], name: str) -> tuple[ValueCodec[Any], Any]:
    """The codec of the handler's input, and its type where that is declared."""
    parameters = list(inspect.signature(handler).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) < 2 or any(p.default is p.empty for p in positional[2:]):
        raise InvalidOptions(
            f"agent {name!r}: a handler takes the turn and one input, as in `async def {name}(turn, input)`; "
            f"this one takes ({', '.join(p.name for p in parameters)})"
        )
    if not asyncio.iscoroutinefunction(handler) and not asyncio.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - the method, not whether it is callable
    ):
        raise InvalidOptions(f"agent {name!r}: a handler is an `async def`")
    hints = hints_of(handler)
    if hints.get(positional[1].name) is Turn:
        raise InvalidOptions(f"agent {name!r}: the turn comes first, as in `async def {name}(turn, input)`")
    annotation = hints.get(positional[1].name)
    if annotation is None:
        return PLAIN, None
    return codec_of(annotation, what=f"the input of agent {name!r}"), annotation

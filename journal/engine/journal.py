"""`Journal`: a store, the agents that work on it, and everything one can ask of its runs.

Passive until the first await: it opens the store once per event loop and process, and closes with the loop, or with
``async with journal:`` where the caller wants to see it close. Long since it is the one object that users hold: most of
it is signatures and their docstrings. What it decides lives elsewhere (`retrial.py`, `runtime.py`).
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncContextDecorator, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from msgspec import UNSET

from journal.core import values
from journal.core.clock import Clock, SystemClock
from journal.core.codec import Blob, pack, seal
from journal.core.errors import (
    InvalidOptions,
    JournalError,
    KeyConflict,
    NotRetriable,
    RunBuilding,
    RunExists,
    RunGone,
    RunNotFound,
    TurnNotFound,
    UnknownAgent,
    WorldUnavailable,
)
from journal.core.ids import check_id, new_batch_id, new_run_id, new_seed, new_token
from journal.core.ports import (
    AgentStats,
    Answer,
    Batch,
    Close,
    Committed,
    Create,
    Duplicate,
    HeadMoved,
    Keyed,
    QueueChange,
    Retry,
    RunInfo,
    RunQuery,
    Submit,
    Wake,
    WorkerInfo,
    World,
)
from journal.core.ports import KeyConflict as KeyConflictAnswer
from journal.core.records import MIN_READER, Body, CancelRequested, Policy, Record, RunCreated, TurnSubmitted
from journal.core.records import RunClosed as RunClosedRecord
from journal.core.typed import PLAIN, ValueCodec
from journal.engine.agent import Agent, Drift, Handler
from journal.engine.bundles import export_to
from journal.engine.checkpoints import RunCheckpoints
from journal.engine.directing import directing
from journal.engine.fork import fork_run
from journal.engine.handle import Handle
from journal.engine.offering import maybe_submitted, offer, offer_turn, written_by
from journal.engine.readonly import refuse_offline
from journal.engine.retrial import plan_retry
from journal.engine.run_docs import RunDocs
from journal.engine.run_files import RunFiles
from journal.engine.runtime import Runtime
from journal.engine.worker import Worker
from journal.tools.directory import DirectoryWorkspace
from journal.tools.documents import Document
from journal.tools.model_retry import ModelRetry
from journal.tools.policy import check_policies
from journal.tools.workspace import VirtualWorkspace
from journal.worlds import open_world
from journal.worlds.opening import FOLDER

if TYPE_CHECKING:
    from journal.engine.local import LocalJournal, LocalWorkspace, Options

I = TypeVar("I")  # noqa: E741 - input
O = TypeVar("O")  # noqa: E741 - output
T = TypeVar("T")
_FILES = VirtualWorkspace()
START_KEY = "start"
"""The key of a turn that is submitted without one."""


class Journal:
    """The entry to everything. See the module's docstring for when it opens.

    `url`: the store, default ``$JOURNAL_WORLD``, else a SQLite file in the project; or a function that opens a
    world. `namespace`: runs of other namespaces are invisible. `resources`: an async context manager function,
    entered once a process; what it gives is `turn.deps`. `tools`: replay policies by tool name or glob.
    `version`: of your code, noted in the log. `requires`: capabilities of the store and of the
    agents' workspaces without which opening fails.
    """

    def __init__(
        self,
        url: str | Callable[[], AbstractAsyncContextManager[World]] | None = None,
        *,
        namespace: str = "default",
        resources: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
        tools: Mapping[str, Policy] | None = None,
        version: str | None = None,
        requires: Iterable[str] = (),
        lease_seconds: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        if url is not None and not isinstance(url, str) and not callable(url):
            raise InvalidOptions(
                f"Journal({url!r}): a store is named by a URL as text, such as 'sqlite:app.db' or 'postgresql://host/db'"
            )
        self.url = url
        self.namespace = check_id(namespace, "namespace")
        if resources is not None and (
            not callable(resources) or isinstance(resources, AsyncContextDecorator)
        ):
            raise InvalidOptions(
                f"resources={resources!r}: give the function under @asynccontextmanager that opens them, uncalled"
            )
        self.resources = resources
        self.tools: Mapping[str, Policy] = check_policies(tools or {})
        self.version = version
        if isinstance(requires, str):
            raise InvalidOptions(f"requires={requires!r}: give a set, {{{requires!r}}}")
        self.requires = frozenset(requires)
        self.lease_seconds = lease_seconds
        self.clock: Clock = clock or SystemClock()
        self.agents: dict[str, Agent[Any, Any]] = {}
        self.workspace: VirtualWorkspace | DirectoryWorkspace | None = None
        """What files agents have that do not say."""
        self._runtimes: dict[tuple[int, int], Runtime] = {}

    @classmethod
    def local(
        cls,
        root: str | os.PathLike[str] = FOLDER,
        *,
        exec: bool | Iterable[str] = False,  # noqa: A002 - what it switches on
        workspace: "LocalWorkspace" = _FILES,
        **options: "Unpack[Options]",
    ) -> "LocalJournal":
        """A journal for one machine: store and workspaces in the directory `root`, which nobody else may read.

        Agents that name no workspace have `workspace`. A SIGTERM gives back what is being worked on, then ends the
        process. `exec`: switches `commands` on, for every program or for those named. **That is no isolation**, and
        off by default: docs/host-commands.md. Nothing is made before it opens. Raises `InvalidOptions`.
        """
        from journal.engine.local import LocalJournal

        return LocalJournal(root, programs=exec, workspace=workspace, options=options)

    # Agents ------------------------------------------------------------------------------------------

    @overload
    def agent(
        self,
        fn: Handler[I, O],
        /,
        *,
        name: str | None = None,
        tools: Mapping[str, Policy] | None = None,
        model_retry: ModelRetry | bool | None = None,
        drift: Drift = "accept",
        docs: Iterable[Document[Any]] = (),
        workspace: VirtualWorkspace | DirectoryWorkspace | None = None,
    ) -> Agent[I, O]: ...
    @overload
    def agent(
        self,
        /,
        *,
        name: str | None = None,
        tools: Mapping[str, Policy] | None = None,
        model_retry: ModelRetry | bool | None = None,
        drift: Drift = "accept",
        docs: Iterable[Document[Any]] = (),
        workspace: VirtualWorkspace | DirectoryWorkspace | None = None,
    ) -> Callable[[Handler[I, O]], Agent[I, O]]: ...
    def agent(
        self,
        fn: Any = None,
        /,
        *,
        name: str | None = None,
        tools: Mapping[str, Policy] | None = None,
        model_retry: ModelRetry | bool | None = None,
        drift: Drift = "accept",
        docs: Iterable[Document[Any]] = (),
        workspace: VirtualWorkspace | DirectoryWorkspace | None = None,
    ) -> Any:
        """Register a handler, ``async def handler(turn: Turn, input)``, under its own name or `name`.

        `tools`: replay policies by tool name or glob, before those of the journal. `model_retry`: of model calls that
        do not say so themselves; False for none. `drift`: what becomes of a turn whose recorded model calls were made
        with another prompt, other tools or settings than the code has now: ``"accept"`` carries it on and notes so in
        its log, ``"refuse"`` blocks it. `docs`: the documents that it and its tools read and edit (`define_doc`).
        `workspace`: what files its tools may have.
        """

        def register(handler: Handler[Any, Any] | Agent[Any, Any]) -> Agent[Any, Any]:
            if isinstance(handler, Agent):
                raise InvalidOptions(
                    f"{handler.name!r} is an agent of a journal already: register its handler, "
                    f"journal.agent({handler.name}.handler)"
                )
            if not callable(handler):
                raise InvalidOptions(
                    f"@journal.agent({handler!r}): it registers a handler; options have names, as in name="
                )
            chosen = check_id(name or handler.__name__, "agent name")
            if chosen in self.agents:
                raise InvalidOptions(f"agent {chosen!r} is registered twice: give one of them another name=")
            if drift not in ("accept", "refuse"):
                raise InvalidOptions(f"drift is 'accept' or 'refuse', not {drift!r}")
            agent = Agent(
                self,
                handler,
                name=chosen,
                tools=check_policies(tools or {}),
                model_retry=model_retry,
                drift=drift,
                docs=docs,
                workspace=self.workspace if workspace is None else workspace,
            )
            self.agents[chosen] = agent
            return agent

        return register if fn is None else register(fn)

    # Opening -----------------------------------------------------------------------------------------

    def open_world(self) -> AbstractAsyncContextManager[World]:
        """Open this journal's store; the caller closes it."""
        if callable(self.url):
            return self.url()
        return open_world(self.url, namespace=self.namespace, clock=self.clock)

    async def runtime(self) -> Runtime:
        """The open store and what runs on it, in this loop of this process."""
        refuse_offline()
        place = (os.getpid(), id(asyncio.get_running_loop()))
        runtime = self._runtimes.get(place)
        if runtime is None or runtime.is_closing:
            runtime = self._runtimes[place] = Runtime(self, self.clock)
        await runtime.open()
        return runtime

    def forget(self, runtime: Runtime) -> None:
        """The runtime has closed."""
        for place, known in list(self._runtimes.items()):
            if known is runtime:
                del self._runtimes[place]

    async def __aenter__(self) -> Self:
        await self.runtime()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Give back the runs that are being worked on in this loop, and close the store."""
        runtime = self._runtimes.get((os.getpid(), id(asyncio.get_running_loop())))
        if runtime is not None:
            await runtime.close()

    def run_blocking(self, main: Callable[[], Awaitable[T]], verb: str) -> T:
        """Run `main` in an event loop of its own; refused inside a running one."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass  # none is running, as it should be
        else:
            raise InvalidOptions(
                f"{verb}_sync would block the running event loop: use `await {verb}(...)` here"
            )
        return asyncio.run(_as_coroutine(main))

    def lifespan(
        self, *, worker: bool = False, concurrency: int = 10
    ) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """For ``FastAPI(lifespan=journal.lifespan(worker=True))``: open with the application, and work in it."""

        @asynccontextmanager
        async def lifespan(_app: Any) -> AsyncIterator[None]:
            async with self:
                if not worker:
                    yield
                    return
                async with self.worker(concurrency=concurrency).running():
                    yield

        return lifespan

    def worker(
        self, *, concurrency: int = 10, agents: Iterable[str] | None = None, grace_seconds: float = 25.0
    ) -> Worker:
        """A worker for this journal's agents, or for those named."""
        chosen = None if agents is None else set(agents)
        for name in sorted((chosen or set()) - set(self.agents)):
            raise UnknownAgent(agent=name, known=sorted(self.agents))
        return Worker(self, concurrency=concurrency, agents=chosen, grace_seconds=grace_seconds)

    # Runs --------------------------------------------------------------------------------------------

    async def submit(
        self,
        agent_name: str,
        input: Any,  # noqa: A002 - the field's name everywhere
        *,
        run_id: str | None = None,
        key: str | None = None,
        if_exists: Literal["error", "return"] = "error",
        if_busy: Literal["queue", "reject"] = "queue",
        priority: int = 0,
        delay: float | None = None,
        subject: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Handle[Any]:
        """`Agent.submit` by name, for processes that do not import the agent. The input is plain JSON."""
        agent = self.agents.get(agent_name)
        codec: ValueCodec[Any] = PLAIN if agent is None else agent.output_codec
        what = f"the input of agent {agent_name!r}"
        data = PLAIN.encode(input, what=what) if agent is None else agent.encode_input(input)
        return await self.submit_encoded(
            check_id(agent_name, "agent name"),
            data,
            codec,
            run_id=run_id,
            key=key,
            if_exists=if_exists,
            if_busy=if_busy,
            priority=priority,
            delay=delay,
            subject=subject,
            metadata=metadata,
        )

    @directing
    async def submit_encoded(
        self,
        agent: str,
        data: bytes,
        codec: ValueCodec[O],
        *,
        run_id: str | None,
        key: str | None,
        if_exists: Literal["error", "return"] = "error",
        if_busy: Literal["queue", "reject"] = "queue",
        priority: int = 0,
        delay: float | None = None,
        subject: str | None = None,
        metadata: Mapping[str, str] | None = None,
        serve: bool = False,
    ) -> Handle[O]:
        """Submit canonical bytes; what `Agent.run`, `Agent.submit` and `submit` come down to.

        `serve`: the turn is waited for next, and worked on here; also if the caller is cancelled while it is stored.
        """
        if if_exists not in ("error", "return") or if_busy not in ("queue", "reject"):
            raise InvalidOptions("if_exists is 'error' or 'return', if_busy is 'queue' or 'reject'")
        run = new_run_id() if run_id is None else check_id(run_id, "run id")
        turn = START_KEY if key is None else check_id(key, "key")
        runtime = await self.runtime()
        value, blob = pack(data)
        digest = values.digest(data)
        created = RunCreated(
            agent=agent,
            nonce=new_token(),
            namespace=self.namespace,
            metadata=dict(metadata or {}),
            subject=subject,
            versions={} if self.version is None else {"app": self.version},
            min_reader=MIN_READER,
        )
        due_at = None if delay is None else self.clock.time() + delay
        batch = Batch(
            run,
            new_batch_id(),
            Keyed(f"turn:{turn}", digest),
            (seal(run, TurnSubmitted(input=value, input_digest=digest, seed=new_seed()), turn=turn),),
            create=Create(agent, seal(run, created), MIN_READER),
            queue=Submit(turn, priority, due_at),
            blobs=(blob,) if blob else (),
        )
        try:
            answer = await offer_turn(
                runtime.world, batch, self.clock, is_new=run_id is None, reject_busy=if_busy == "reject"
            )
        except WorldUnavailable as error:
            raise maybe_submitted(error, run, key, is_new=run_id is None) from error
        except asyncio.CancelledError:
            if serve and not runtime.is_closing:
                runtime.spawn(_serve_stored, runtime, batch, turn)
            raise
        if isinstance(answer, KeyConflictAnswer) and if_exists == "error":
            raise RunExists(run_id=run) if key is None else KeyConflict(run_id=run, key=turn)
        written = written_by(batch, answer) if isinstance(answer, Committed) else None
        return Handle(self, run, turn, codec, begun=(runtime, written) if serve else None)

    @property
    def checkpoints(self) -> RunCheckpoints:
        """The checkpoints of its runs: ``await journal.checkpoints.list(run_id)``, ``read(run_id, name)``."""
        return RunCheckpoints(self)

    @property
    def docs(self) -> RunDocs:
        """The documents of its runs: ``await journal.docs.get(run_id, Todo)``, ``update``, ``watch``."""
        return RunDocs(self)

    @property
    def files(self) -> RunFiles:
        """The workspaces of its runs: ``await journal.files.read(run_id, "/notes.md")``, `write`, `delete`, `list`."""
        return RunFiles(self)

    @directing
    async def get(self, run_id: str) -> RunInfo:
        """The run as it stands. Raises `RunNotFound`."""
        runtime = await self.runtime()
        info = await runtime.world.run(check_id(run_id, "run id"))
        if info is None:
            raise RunNotFound(run_id=run_id, world=runtime.world.url)
        return info

    async def runs(self, query: RunQuery | None = None) -> list[RunInfo]:
        """A page of runs, newest first."""
        return await (await self.runtime()).world.runs(query or RunQuery())

    async def stats(self) -> list[AgentStats]:
        """Where the open runs of each agent stand, by agent."""
        return await (await self.runtime()).world.stats()

    async def workers(self) -> list[WorkerInfo]:
        """The workers that were heard of within the last minute."""
        return await (await self.runtime()).world.workers()

    async def read(self, run_id: str, *, after: int = 0, limit: int = 500) -> list[Record]:
        """A page of the run's log."""
        await self.get(run_id)
        return await (await self.runtime()).world.read(run_id, after=after, limit=limit)

    async def export(self, run_id: str, path: str | os.PathLike[str]) -> None:
        """Write the run to one file, which `journal show`, `log` and `verify` read without a store.

        All that users and models said is in it. It replaces what was there, once it is whole. Raises `RunNotFound`,
        and a `BundleError` if the file cannot be written.
        """
        await export_to((await self.runtime()).world, check_id(run_id, "run id"), path)

    @directing
    async def handle(self, run_id: str, turn_id: str | None = None) -> Handle[Any]:
        """A handle of one of the run's turns: the named one, else its unfinished one, else `start`."""
        info = await self.get(run_id)
        agent = self.agents.get(info.agent)
        codec: ValueCodec[Any] = PLAIN if agent is None else agent.output_codec
        return Handle(self, run_id, turn_id or info.turn or await self._last_turn(info), codec)

    @directing
    async def cancel(self, run_id: str, *, turn_id: str | None = None, reason: str | None = None) -> None:
        """Ask for a turn (the unfinished one) to be cancelled; heard within a second, or at the next claim."""
        turn: str | None = turn_id
        while True:
            info = await self._changeable(run_id)
            turn = turn or info.turn
            if turn is None:
                return
            known = await (await self.runtime()).world.turn(run_id, turn)
            if known is None:
                raise TurnNotFound(run_id=run_id, turn_id=turn)
            if known.finished is not None:
                return
            # Nobody works on a blocked turn: it is made due once more, and found cancelled by whoever claims it.
            is_blocked = info.status == "blocked" and info.turn == turn
            answer = await self._tell(
                run_id,
                f"cancel:{turn}:{info.head}",
                CancelRequested(reason=reason),
                Retry(turn) if is_blocked else Wake(),
                turn=turn,
                at_head=info.head if is_blocked else None,
            )
            if not isinstance(answer, HeadMoved):
                break
        for attempt in (await self.runtime()).attempts:
            if attempt.holding.run == run_id and attempt.turn_id == turn:
                attempt.cancellation.ask()

    @directing
    async def retry(
        self,
        run_id: str,
        *,
        turn_id: str | None = None,
        from_call: int | None = None,
        settle: Mapping[int, Any] | None = None,
        accept_divergence: bool = False,
    ) -> Handle[Any]:
        """Send a failed or blocked turn on: the error outcome that escaped the handler is set aside.

        Recorded results are kept, and so is whatever may have happened: an error of a `never` call stays,
        unless it was `DidNotHappen`. Calls are named by their number in `journal show`. `from_call`: that one and
        all that began after it are set aside too. `settle`: what unknown calls gave, a JSON value each, or
        `NotRun()` for one that did not run and shall. `accept_divergence`: the outcome that was recorded is taken
        for the call that the code asks for in its place. A `never` call that was started is set aside only where
        `settle` says that it did not run. Raises `NotRetriable`, `RetryRefused`, `CallNotFound`, `RunBusy`.
        """
        runtime = await self.runtime()
        info = await self._changeable(run_id)
        turn = turn_id or info.turn or await self._last_turn(info)
        planned = await plan_retry(
            runtime.world,
            info,
            turn,
            from_call=from_call,
            settle=settle,
            accept_divergence=accept_divergence,
        )
        answer = await self._tell(
            run_id,
            f"retry:{turn}:{planned.head}",
            planned.retried,
            Retry(turn),
            turn=turn,
            at_head=planned.head,
            blobs=planned.blobs,
            is_told_whole=True,
        )
        if not isinstance(answer, Committed | Duplicate):
            raise NotRetriable(run_id=run_id, turn_id=turn, status="changing right now")
        return await self.handle(run_id, turn)

    @directing
    async def fork(
        self,
        run_id: str,
        *,
        at: int,
        new_id: str | None = None,
        input: Any = UNSET,  # noqa: A002 - the field's name everywhere
    ) -> Handle[Any]:
        """A new run that took over everything before call `at` (numbered as `journal show` does), and is due.

        What is in doubt there is unknown here. From that call on it is a run like any other, and acts for real.
        With `input` the turn of that call begins anew with it, and only the turns before are taken over. The same
        fork is made once: under `new_id`, else under an id made of the arguments. Raises `CallNotFound`, `RunExists`.
        """
        forked = await fork_run(self, run_id, at=at, new_id=new_id, input=input)
        return await self.handle(forked.run, forked.turn)

    @directing
    async def close(self, run_id: str) -> None:
        """Close the run: it takes nothing more, and whoever holds it loses it."""
        info = await self._changeable(run_id)
        if not info.closed:
            await self._tell(run_id, "close", RunClosedRecord(), Close())

    async def _changeable(self, run_id: str) -> RunInfo:
        """The run, unless it lives elsewhere, or is on its way here: what it is found to be counts for nothing then."""
        info = await self.get(run_id)
        if info.moved_to is not None:
            raise RunGone(run_id=run_id, to=info.moved_to)
        if info.building:
            raise RunBuilding(run_id=run_id)
        return info

    async def _last_turn(self, info: RunInfo) -> str:
        world = (await self.runtime()).world
        after, last = 0, START_KEY
        while page := await world.read(info.run, after=after, limit=500):
            last = next((r.turn for r in reversed(page) if r.type == "turn.submitted" and r.turn), last)
            after = page[-1].seq
        return last

    async def _tell(
        self,
        run: str,
        key: str,
        body: Body,
        queue: QueueChange,
        *,
        turn: str | None = None,
        at_head: int | None = None,
        blobs: tuple[Blob, ...] = (),
        is_told_whole: bool = False,
    ) -> Answer:
        """`is_told_whole`: the key with another body is a conflict, not the same thing told twice."""
        record = seal(run, body, turn=turn)
        author = Keyed(key, values.digest(record.body if is_told_whole else key.encode()))
        batch = Batch(run, new_batch_id(), author, (record,), at_head=at_head, queue=queue, blobs=blobs)
        world = (await self.runtime()).world
        try:
            return await offer(world, batch, self.clock)
        except WorldUnavailable as error:
            raise WorldUnavailable(
                f"{error.reason}; do the same again, which has no effect if it has been done",
                world=error.world,
                run_id=run,
            ) from error


async def _as_coroutine(main: Callable[[], Awaitable[T]]) -> T:
    return await main()


async def _serve_stored(runtime: Runtime, batch: Batch, turn: str) -> None:
    """Whoever offered the batch has gone before the answer came: offer it once more, which stores it once."""
    try:
        answer = await offer_turn(runtime.world, batch, runtime.clock)
    except JournalError as error:
        told = type(error).__qualname__
        runtime.log.warning("turn is not worked on here", run=batch.run, turn=turn, error=told)
    else:
        if isinstance(answer, Committed | Duplicate):
            runtime.serve(batch.run, turn)

"""`durable(graph)`: a compiled graph to be run inside a turn.

After a crash the handler runs again from its top, and asks for the same graph again. What it finished with is in the
log then; else it goes on from the thread's last checkpoint, and calls recorded behind that are served from the log.
Next: `calls.py` (model and tool calls), `saver.py` (the thread), `place.py` (how calls are named).
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig, ensure_config
from langchain_core.runnables.config import merge_configs
from langgraph.types import Command

from journal.adapters.langgraph import messages
from journal.adapters.langgraph.place import Place, Tracker, place_here, running_at
from journal.adapters.langgraph.saver import JournalSaver
from journal.core import values
from journal.core.errors import InvalidOptions
from journal.engine.adapting import excuse, scope_here
from journal.engine.calls import Call, settle
from journal.engine.turn import failure_of

_END = object()


def durable(graph: Any) -> "DurableGraph":
    """`graph`, which is compiled, for use inside a turn. It is not changed."""
    return graph if isinstance(graph, DurableGraph) else DurableGraph(graph)


class DurableGraph:
    """A graph whose invocations are part of the turn. Everything but running it is the graph's own."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Any:  # noqa: A002 - the interface's name
        """As the graph's own. Without a ``thread_id`` the thread is that of the turn's run.

        Raises `NotInTurn` outside of a handler, `InvalidOptions` for what cannot be carried on after a crash.
        """
        began = await self._begin("ainvoke", input, config, options)
        if began.is_over:
            return began.output
        with running_at(began.place):
            result = await self._graph.ainvoke(began.input, began.config, **options)
        return await began.end(result)

    async def astream(
        self,
        input: Any,  # noqa: A002 - the interface's name
        config: RunnableConfig | None = None,
        *,
        stream_mode: str | Sequence[str] | None = None,
        subgraphs: bool = False,
        **options: Any,
    ) -> AsyncIterator[Any]:
        """As the graph's own. Once it ended, a replay shows its last values alone (mode ``values``)."""
        began = await self._begin("astream", input, config, options)
        asked = stream_mode or self._graph.stream_mode
        modes = [asked] if isinstance(asked, str) else list(asked)

        def shaped(namespace: tuple[str, ...], mode: str, chunk: Any) -> Any:
            parts = (*([namespace] if subgraphs else []), *([] if isinstance(asked, str) else [mode]), chunk)
            return chunk if len(parts) == 1 else parts

        if began.is_over:
            if "values" in modes:
                yield shaped((), "values", began.output)
            return
        events: asyncio.Queue[Any] = asyncio.Queue(1)
        last: Any = None

        async def work() -> None:
            with running_at(began.place):
                stream = self._graph.astream(
                    began.input,
                    began.config,
                    stream_mode=[*modes, *([] if "values" in modes else ["values"])],
                    subgraphs=True,
                    **options,
                )
                async for event in stream:
                    await events.put(event)

        working = asyncio.create_task(work(), name=f"journal {began.place.path}")
        try:
            async for namespace, mode, chunk in _until_done(working, events):
                if mode == "values" and not namespace:
                    last = chunk
                if mode in modes and (subgraphs or not namespace or mode == "messages"):
                    yield shaped(namespace, mode, chunk)
            await began.end(last)
        finally:
            working.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait({working})
            if not working.cancelled():
                working.exception()  # told to whoever still listens

    def invoke(self, *_: Any, **__: Any) -> Any:
        """Refused: it would block the turn."""
        raise InvalidOptions("durable(graph).invoke would block the turn's event loop: await .ainvoke(...)")

    stream = invoke

    async def _begin(
        self,
        verb: str,
        input: Any,  # noqa: A002 - the interface's name
        config: RunnableConfig | None,
        options: dict[str, Any],
    ) -> "_Invocation":
        self._check(verb, options)
        scope = scope_here(f"durable(graph).{verb}")
        path = scope.next_key("graph")
        given = ensure_config(config)
        saver = given.get("configurable", {}).get("__pregel_checkpointer") or self._graph.checkpointer
        thread = None
        if saver:
            if not isinstance(saver, JournalSaver):
                raise InvalidOptions(
                    f"{type(saver).__name__} does not keep to the turn's claim: "
                    "compile the graph with checkpointer=JournalSaver(journal), or without a checkpointer"
                )
            thread = str(given.get("configurable", {}).get("thread_id") or scope.attempt.holding.run)
        place = Place(scope, path, thread)
        extra: RunnableConfig = {"callbacks": [Tracker(place)]}
        if thread is not None:
            extra["configurable"] = {"thread_id": thread}
        began = _Invocation(place, merge_configs(given, extra), input, self._graph.name)
        await began.start(saver if isinstance(saver, JournalSaver) else None)
        return began

    def _check(self, verb: str, options: dict[str, Any]) -> None:
        if place_here() is not None:
            raise InvalidOptions(
                f"durable(graph).{verb} was used inside a durable graph: the inner graph is part of it as it is"
            )
        if options.get("version", "v1") != "v1":
            raise InvalidOptions(f"version={options['version']!r} is not covered: leave it at 'v1'")
        for when in ("interrupt_before", "interrupt_after"):
            if options.get(when) or getattr(self._graph, f"{when}_nodes", None):
                raise InvalidOptions(
                    f"{when} is not covered, since a crash would go on past it: "
                    "call interrupt() in a node or a tool, or use HumanInTheLoopMiddleware"
                )


class _Invocation:
    """One run of a graph in a turn: where it begins, and what it ends with."""

    def __init__(self, place: Place, config: RunnableConfig, given: Any, name: str) -> None:
        self.place = place
        self.config = config
        self.input = given
        self.is_over = False
        self.output: Any = None
        self._name = name

    async def start(self, saver: JournalSaver | None) -> None:
        """Say that it begins, and find out how far an earlier attempt came."""
        place = self.place
        attempt = place.attempt
        asked = values.encode(_plain(self.input), what="the input of a graph")
        await self._step("start", asked, None)
        end = attempt.history.calls.get(f"{place.path}/end")
        recorded = [key for key in attempt.history.calls if key.startswith(f"{place.path}/")]
        if end is not None and end.outcome is not None:
            excuse(attempt, [key for key in recorded if key != end.key])
            self.output = await self._step("end", None, None)
            self.is_over = True
            return
        done = -2
        if saver is not None and place.thread is not None:
            begun, step = await saver.take(place.thread, place.holder)
            if begun:
                self.input, done = None, step
                self.config.get("configurable", {}).pop("checkpoint_id", None)
        await self._catch_up(recorded, done)

    async def _catch_up(self, recorded: list[str], done: int) -> None:
        """Make recorded calls known to the place: the checkpoint has what came of the steps up to `done`."""
        place, history = self.place, self.place.attempt.history
        for key in recorded:
            call = history.calls[key]
            if call.intent is None or call.outcome is None or call.intent.kind != "model":
                continue
            data = await place.attempt.load(call.outcome.value)
            if data is not None:
                place.note_reply(key, messages.calls_in(data))
        calls = [key for key in recorded if key.count("/") > place.path.count("/") + 1]
        # Of the step behind the checkpoint too: its tasks that ended and were written down do not run again.
        settled = [
            key for key in calls if place.step_of(key) <= done + 1 and history.calls[key].outcome is not None
        ]
        excuse(place.attempt, settled)
        place.expect(set(calls).difference(settled))

    async def end(self, output: Any) -> Any:
        """Record what the graph gave, and return it as a replay will see it."""
        if self.place.attempt.fatal is not None:
            raise self.place.attempt.fatal
        return await self._step("end", None, output)

    async def _step(self, name: str, asked: bytes | None, output: Any) -> Any:
        async def act() -> Any:
            return output

        digest = values.digest(asked or b"")
        call = Call(
            key=f"{self.place.path}/{name}",
            kind="step",
            name=f"{self._name}.{name}",
            act=act,
            input=asked,
            input_digest=digest,
            encode=_encode,
            policy="safe",
            is_counted=False,
            is_lazy=True,
        )
        settled = await settle(self.place.attempt, call)
        if settled.data is None:
            raise failure_of(settled)
        return messages.unpack(values.decode(settled.data))


def _encode(output: Any) -> bytes:
    return values.encode(messages.pack(output), what="what the graph gave")


def _plain(given: Any) -> Any:
    """A graph's input as the log shows it and tells it from another."""
    if isinstance(given, BaseMessage):
        return messages.said([given])[0]
    if isinstance(given, Command):
        parts = {"update": given.update, "resume": given.resume, "goto": given.goto}
        return {"command": {name: _plain(part) for name, part in parts.items() if part}}
    if isinstance(given, dict):
        return {str(key): _plain(part) for key, part in given.items()}
    if isinstance(given, list | tuple):
        return [_plain(part) for part in given]
    return messages.plain(given)


async def _until_done(working: "asyncio.Task[None]", events: "asyncio.Queue[Any]") -> AsyncIterator[Any]:
    """The events as they come; raises what `working` ended with."""
    while True:
        getting = asyncio.ensure_future(events.get())
        try:
            await asyncio.wait({working, getting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not getting.done():
                getting.cancel()
        if getting.done() and not getting.cancelled():
            yield getting.result()
            continue
        if events.empty():
            await working
            return

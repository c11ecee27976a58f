"""Where in a turn a graph works: the scope of one invocation, and the names of its tasks in the log.

LangGraph names a task by a hash over its checkpoint's id, which is another one when a step is done again after a crash.
So keys are made of what stays the same: the nodes' names and the steps they run in, ``graph#1/research@2/model@0``.
LangGraph tells callbacks both of every task, and the `Tracker` notes them.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import quote
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler

from journal.core import values
from journal.core.errors import NotInTurn
from journal.core.records import ThreadHolder
from journal.engine.context import in_call
from journal.engine.scope import Scope

_KEY_CHARACTERS = 96
_SEPARATOR, _INVOCATION = "|", ":"
"""LangGraph's, in a checkpoint namespace: between tasks, and between a task's node and its id."""


class Task:
    """A graph's task as the log names it."""

    def __init__(self, parent: str, node: str, step: int, branches: Sequence[int]) -> None:
        self.parent = parent
        """Path of the graph that it is part of."""
        self.node = node
        self.step = step
        branch = "".join(f".{number}" for number in branches)
        self.path = f"{parent}/{in_key(node)}@{step}{branch}"


class Start:
    """A call that was started in this attempt."""

    def __init__(self, key: str, visit: tuple[object, ...], digest: bytes) -> None:
        self.key = key
        self.visit = visit
        self.digest = digest
        self.has_failed = False

    def serves(self, visit: tuple[object, ...], digest: bytes) -> bool:
        """Whether another visit may take it for its own."""
        return visit != self.visit and digest == self.digest and not self.has_failed


class Place:
    """One invocation of a graph in one attempt of a turn."""

    def __init__(self, scope: Scope, path: str, thread: str | None) -> None:
        attempt = scope.attempt
        self.attempt = attempt
        self.loop = asyncio.get_running_loop()
        self.path = path
        self.thread = thread
        self.holder = ThreadHolder(
            run=attempt.holding.run,
            turn=attempt.turn_id,
            scope=path,
            claim=values.digest(attempt.holding.claim.token),
        )
        self._tasks: dict[str, Task] = {}
        self._asked: list[tuple[str, int, str, str]] = []
        self._starts: dict[str, list[Start]] = {}
        self._next: dict[tuple[str, tuple[object, ...]], int] = {}
        self._expected: set[str] = set()

    def expect(self, keys: Iterable[str]) -> None:
        """Recorded calls, what came of which is in no checkpoint: they are to be asked for again."""
        self._expected.update(keys)

    def overtaken(self, key: str) -> str | None:
        """`key` is asked for: a call of an earlier step that is still to be asked for, if that is a new call."""
        self._expected.discard(key)
        if key in self.attempt.history.calls:
            return None
        step = self.step_of(key)
        return next((missing for missing in self._expected if self.step_of(missing) < step), None)

    def step_of(self, key: str) -> int:
        """The step of the graph itself that a call belongs to; of a tool call, that of the reply which asked for it."""
        return _step_in(key[len(self.path) + 1 :].partition("/")[0])

    def note_task(self, metadata: Mapping[str, Any]) -> Task | None:
        """The task that LangGraph describes so; None: it is none."""
        namespace, node = metadata.get("langgraph_checkpoint_ns"), metadata.get("langgraph_node")
        if not isinstance(namespace, str) or not isinstance(node, str):
            return None
        known = self._tasks.get(namespace)
        if known is None:
            parent = self._path_of(namespace.rpartition(_SEPARATOR)[0])
            step = int(metadata.get("langgraph_step") or 0)
            branches = list(_branches(metadata.get("langgraph_path") or ()))
            known = self._tasks[namespace] = Task(parent, node, step, branches)
        return known

    def _path_of(self, namespace: str) -> str:
        if not namespace:
            return self.path
        if (task := self._tasks.get(namespace)) is not None:
            return task.path
        # A number LangGraph puts behind the second and later graph that one task runs.
        outer, _, last = namespace.rpartition(_SEPARATOR)
        return f"{self._path_of(outer)}/{in_key(last.partition(_INVOCATION)[0])}"

    def task_of(self, config: Mapping[str, Any], what: str) -> Task:
        """The task that runs under `config`. Raises `NotInTurn` if that is none."""
        task = self.note_task(config.get("metadata") or {})
        if task is None:
            raise NotInTurn(what=what)
        return task

    def start(self, key: str, visit: tuple[object, ...], digest: bytes) -> "Start":
        """The next start of that call in this visit to its task: asked for again there, it is another call.

        A task that LangGraph tries again is visited again. What it had done by then is served, what failed is not.
        """
        starts = self._starts.setdefault(key, [])
        number = self._next.get((key, visit), 0)
        while number < len(starts) and not starts[number].serves(visit, digest):
            number += 1
        if number == len(starts):
            starts.append(Start(key if number == 0 else f"{key}~{number + 1}", visit, digest))
        self._next[key, visit] = number + 1
        return starts[number]

    def note_reply(self, model_key: str, call_ids: Sequence[str]) -> None:
        """The reply to `model_key` asks for these tool calls, in this order."""
        parent, _, node = model_key.rpartition("/")[0].rpartition("/")
        step = _step_in(node)
        for position, call_id in enumerate(call_ids):
            self._asked.append((parent, step, call_id, f"{model_key}/{position}:{in_key(call_id)}"))

    def tool_key(self, task: Task, call_id: str) -> str:
        """The key of a tool call: that of the latest reply before `task` which asks for it, and else of the task.

        Ids alone would not do: weak models give the same ones again and again.
        """
        found = [
            (step, key)
            for parent, step, id_, key in self._asked
            if id_ == call_id and parent == task.parent and step < task.step
        ]
        return max(found)[1] if found else f"{task.path}/{in_key(call_id)}"


def _step_in(node: str) -> int:
    """The step in the name of a task."""
    number = node.rpartition("@")[2].partition(".")[0]
    return int(number) if number.lstrip("-").isdecimal() else 0


def _branches(path: Any) -> Iterator[int]:
    """The numbers in a task's path: which of several that one step starts on the same node."""
    for part in path:
        if isinstance(part, bool):
            continue
        if isinstance(part, int):
            yield part
        elif isinstance(part, list | tuple):
            yield from _branches(part)


def in_key(text: str) -> str:
    """`text` without the characters that structure keys, and not too long."""
    plain = quote(text, safe=":._-|=+")
    return plain if len(plain) <= _KEY_CHARACTERS else values.digest(text.encode()).hex()


class Tracker(BaseCallbackHandler):
    """Notes tasks as they start, what tools raised, and passes a streaming model's text on to whoever watches."""

    run_inline = True
    raise_error = True

    def __init__(self, place: Place) -> None:
        self._place = place

    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._place.note_task(metadata or {})

    def on_tool_error(
        self, error: BaseException, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        if (raised := tool_errors.get()) is not None:
            raised.append(error)

    def on_llm_new_token(
        self, token: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        if (context := in_call()) is None:
            return
        context.has_shown = True  # whoever streams the graph sees it
        if token and isinstance(token, str):
            context.emit({"type": "text-delta", "delta": token})


tool_errors: ContextVar[list[BaseException] | None] = ContextVar("journal_langgraph_errors", default=None)
"""What the tool that runs here raised, before LangGraph made words of it."""
_current: ContextVar[Place | None] = ContextVar("journal_langgraph_place", default=None)


def place_here() -> Place | None:
    """The place that the graph runs at, if it runs at one."""
    place = _current.get()
    return None if place is None or place.attempt.is_over else place


def current_place(what: str) -> Place:
    """The place that the graph runs at. Raises `NotInTurn`."""
    if (place := place_here()) is None:
        raise NotInTurn(what=f"{what} (run the graph with durable(graph).ainvoke(...))")
    return place


def holder_here(thread: str) -> ThreadHolder | None:
    """The turn that `thread` is written by; None: it is used without one."""
    place = _current.get()  # one that is over, too: what it still writes must not count
    return None if place is None or place.thread != thread else place.holder


@contextmanager
def running_at(place: Place) -> Iterator[Place]:
    """Let the graph, started in the block, work at `place`; tasks that it starts keep to it."""
    token = _current.set(place)
    try:
        yield place
    finally:
        _current.reset(token)

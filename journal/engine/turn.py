"""`Turn`: what a handler is given. Each call made through it is recorded before and after it acts.

Code between calls runs again on resume, so clocks, randomness and I/O belong in a step.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload
from uuid import UUID

from msgspec.structs import replace

from journal.core import values
from journal.core.errors import InvalidOptions, OutcomeUnknown, ValueLost
from journal.core.failures import rebuild
from journal.core.ports import Delta
from journal.core.typed import ValueCodec
from journal.engine import outside
from journal.engine.calls import Call, Settled, settle
from journal.engine.checkpoints import TurnCheckpoints
from journal.engine.plan import Plan, plan_of
from journal.engine.scope import current_scope, open_scope
from journal.engine.threads import on_thread
from journal.engine.turn_docs import TurnDocs
from journal.engine.turn_files import TurnFiles
from journal.tools.awaiting import awaited
from journal.tools.model_retry import as_model_retry
from journal.tools.result import ToolResult, rejected_of, rejected_text

if TYPE_CHECKING:
    from journal.engine.attempt import Attempt

P = ParamSpec("P")
R = TypeVar("R")


class Turn:
    """One input being worked through. Made by the engine, one an attempt."""

    def __init__(self, attempt: "Attempt") -> None:
        self._attempt = attempt

    @property
    def run_id(self) -> str:
        """The run this turn belongs to."""
        return self._attempt.holding.run

    @property
    def id(self) -> str:
        """The turn's id: the idempotency key under which it was submitted."""
        return self._attempt.turn_id

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._attempt.number

    @property
    def deps(self) -> Any:
        """What the journal's `resources` gave this process."""
        return self._attempt.deps

    @property
    def replaying(self) -> bool:
        """Whether recorded calls are still to be asked for."""
        return self._attempt.history.unclaimed() is not None

    @property
    def log(self) -> Any:
        """A structlog logger bound to run, turn and attempt."""
        return self._attempt.log

    @property
    def docs(self) -> TurnDocs:
        """The documents of the run: ``turn.docs.get(Todo)``, ``await turn.docs.update(Todo, fn)``."""
        return TurnDocs(self)

    @property
    def files(self) -> TurnFiles:
        """The workspace of the run: ``await turn.files.read("/notes.md")``, as the calls that have ended left it."""
        return TurnFiles(self._attempt)

    @awaited("turn.checkpoint")
    async def checkpoint(self, name: str, payload: Any, *, sequence: int | None = None) -> int:
        """Write JSON on purpose, and return its sequence once it is durable: the given one, else the next of that name.

        The same name and sequence again replaces it. See `checkpoints` for the rest.
        """
        return await TurnCheckpoints(self._attempt).write(name, payload, sequence=sequence)

    @property
    def checkpoints(self) -> TurnCheckpoints:
        """The run's checkpoints: `list`, `read`, `delete`."""
        return TurnCheckpoints(self._attempt)

    # What is observed: the same on replay ----------------------------------------------------------

    def now(self) -> datetime:
        """The wall clock, in UTC. Recorded: a replay sees the time of then."""
        return outside.now(self._attempt)

    def uuid(self) -> UUID:
        """A version 4 UUID that is the same on replay."""
        return outside.uuid(self._attempt)

    def random(self) -> float:
        """A number from 0 to 1 (less than 1) that is the same on replay. Not for secrets."""
        return outside.chance(self._attempt, "turn.random").random()

    def is_cancel_requested(self) -> bool:
        """Whether somebody asked for this turn to be cancelled. Recorded: a replay sees what was so then."""
        return outside.is_cancel_requested(self._attempt)

    def patched(self, name: str) -> bool:
        """Whether to go the new way of changed code: true for turns that had not come this far when it was deployed.

        Keep the old way behind it for as long as older turns are under way::

            if turn.patched("ask twice"):
                await turn.step(second_opinion, order)
        """
        return outside.patched(self._attempt, name)

    @awaited("turn.race")
    async def race(self, *branches: Awaitable[R]) -> tuple[int, R]:
        """Run the branches side by side; (place, result) of the first to end, or what it raises.

        The others are cancelled. The winner is recorded, so a replay takes the same branch.
        """
        return await outside.race(self._attempt, branches)

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[None]:
        """Cancel the block after so many seconds and raise `TimeoutError`: ``async with turn.timeout(5): ...``

        That it ran out is recorded, so a replay need not wait for it, and takes the same branch.
        """
        return outside.timeout(self._attempt, seconds)

    def emit(self, data: Any) -> None:
        """Show a piece of output to whoever watches the run; it is not recorded, and may be lost."""
        self._attempt.deltas.emit(
            Delta(call="", number=self._attempt.number, data=values.encode(data, what="delta"))
        )

    @overload
    async def step(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def step(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def step(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run `fn` once and remember its result; after a crash inside it, it runs again.

        `fn` may be sync (it then runs on a thread) or async. Arguments and result are values. What it raises
        is recorded and raised again on replay. A function marked `never` is refused: it is a tool.
        """
        plan = plan_of(fn)
        if plan.policy == "never":
            raise InvalidOptions(
                f"{plan.name!r} is marked never, and steps may run again: use turn.tool({plan.name}, ...)"
            )
        settled = await settle(self._attempt, self._call(plan.step, plan, args, kwargs))
        if settled.data is None:
            raise failure_of(settled)
        return plan.codec.decode(settled.data)

    @overload
    async def model(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def model(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def model(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Like `step`, for a call that is paid for: its intent is durable before it is sent.

        Sent again after a crash inside it, unless `fn` is marked `never` (the provider itself acts): then it
        raises `OutcomeUnknown`. Tried again as `ModelRetry` says, unless ``retry=`` of `fn` or of the agent says else.
        """
        plan = plan_of(fn)
        call = replace(
            plan.step,
            kind="model",
            policy=plan.policy or "safe",
            is_lazy=False,
            retry=as_model_retry(plan.retry_option, self._attempt.agent.model_retry),
        )
        settled = await settle(self._attempt, self._call(call, plan, args, kwargs))
        if settled.data is None:
            raise failure_of(settled)
        return plan.codec.decode(settled.data)

    @overload
    async def tool(
        self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> ToolResult[R]: ...
    @overload
    async def tool(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> ToolResult[R]: ...
    async def tool(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> ToolResult[Any]:
        """Run a tool under its replay policy. In doubt after a crash, a `never` tool is not run again.

        The result's `status` is `ok`, `error` or `unknown`; `.value` raises what is not ok, `.text` is what a
        model should read. Undeclared tools are `never`.
        """
        plan = plan_of(fn)
        policy = self._attempt.agent.policy_of(plan.name, plan.marked).policy
        call = replace(plan.step, kind="tool", policy=policy, is_lazy=policy == "safe")
        return _tool_result(await settle(self._attempt, self._call(call, plan, args, kwargs)), plan.codec)

    def _call(self, like: Call, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        attempt = self._attempt
        data, digest = plan.encode_arguments(args, kwargs)
        scope, begins_task = open_scope(attempt), False
        if scope is None:
            if plan.key is None:
                scope = current_scope(f"turn.{like.kind}", attempt, (plan.name, digest))
            else:  # its key does not tell the scope
                scope = current_scope(f"turn.{like.kind} {plan.key}", attempt)
            begins_task, scope.is_new = scope.is_new, False
        act: Callable[[], Any] = functools.partial(plan.fn, *args, **kwargs)
        return replace(
            like,
            key=scope.next_key(plan.name) if plan.key is None else plan.key,
            act=act if plan.is_async else functools.partial(on_thread, attempt.threads, act),
            input=data,
            input_digest=digest,
            scope=scope.path,
            begins_task=begins_task,
        )


def failure_of(settled: Settled) -> BaseException:
    """The exception that stands for a call without a value; the same on the first run and on replay."""
    call, outcome = settled.call, settled.outcome
    failure: Any
    match outcome.status:
        case "unknown":
            failure = OutcomeUnknown(call=call.key, name=call.name)
        case "value_lost":
            reason = "it could not be written as JSON"
            if outcome.error is not None and isinstance(outcome.error.data, bytes):
                reason = values.decode(outcome.error.data)
            failure = ValueLost(call=call.key, reason=reason, repr=outcome.lost or "")
        case "cancelled":
            failure = asyncio.CancelledError()
        case _:
            assert outcome.error is not None
            failure = rebuild(outcome.error, call.key)
    failure.__journal_call__ = call.key  # read when it escapes the handler
    failure.__cause__ = settled.cause
    return cast("BaseException", failure)


def _tool_result(settled: Settled, codec: ValueCodec[Any]) -> ToolResult[Any]:
    outcome = settled.outcome
    if settled.data is not None:
        result = codec.decode(settled.data)
        return ToolResult(
            name=settled.call.name,
            status="ok",
            result=result,
            rejected=rejected_of(outcome),
            note=rejected_text(outcome),
        )
    failure = failure_of(settled)
    if not isinstance(failure, Exception):
        raise failure
    if outcome.status == "unknown":
        return ToolResult(name=settled.call.name, status="unknown", failure=failure)
    return ToolResult(name=settled.call.name, status="error", failure=failure)

"""What the engine needs to know of a function that is called through a turn, worked out once a function."""

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import msgspec

from journal.core import values
from journal.core.arguments import encode_arguments
from journal.core.errors import InvalidOptions, UsageError
from journal.core.records import Policy
from journal.core.typed import ValueCodec, result_codec
from journal.tools.policy import Marker, marker_of
from journal.tools.probe import ProbeFunction
from journal.tools.retry import Retry
from journal.tools.tool import Step


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How to call `fn`, and what to write down about it."""

    source: Any
    """What was handed to the turn: the function, or the `Step` around it."""
    name: str
    fn: Callable[..., Any]
    is_async: bool
    codec: ValueCodec[Any]
    marked: Marker | None
    key: str | None = None
    retry: Retry | None = None
    timeout: float | None = None
    own_marker: Marker | None = None
    """What was on the function itself when the plan was made."""

    policy: Policy | None = None
    """What the marker says, if there is one."""
    names: tuple[str, ...] | None = None
    """Of the arguments, where a call takes just these, by position or by name; None: it is not so simple."""

    def encode_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The canonical bytes of the arguments by name; see `journal.core.arguments`."""
        names = self.names
        if names is not None and not kwargs and len(args) == len(names):
            try:
                return values.encode(dict(zip(names, args, strict=True)))
            except UsageError:
                pass  # said better below, by the argument's name; or it has a type that is declared
        return encode_arguments(self.fn, args, kwargs)

    @property
    def probe(self) -> ProbeFunction | None:
        return None if self.marked is None else self.marked.probe

    @property
    def dedupes(self) -> bool:
        return self.marked is not None and self.marked.dedupes


_PLAN = "__journal_plan__"


def plan_of(fn: Callable[..., Any]) -> Plan:
    """The plan for `fn`: a function, or one that `step` or `tool` has made something of.

    Kept on the function itself, so that it goes when the function goes; a method, which is made anew for each look,
    is worked out each time.
    """
    is_kept = type(fn) is FunctionType or isinstance(fn, Step)
    if is_kept:
        plan: Plan | None = getattr(fn, _PLAN, None)
        # A copied __dict__ (wraps, options) brings another's plan; a marker may have been set since.
        if (
            plan is not None
            and plan.source is fn
            and getattr(fn, "__journal_marker__", None) is plan.own_marker
        ):
            return plan
    plan = _make(fn)
    if is_kept:
        setattr(fn, _PLAN, plan)
    return plan


def _make(fn: Callable[..., Any]) -> Plan:
    if not callable(fn):
        raise InvalidOptions(
            f"a function is called through a turn, not {fn!r}: pass the function, then its arguments"
        )
    own = getattr(fn, "__journal_marker__", None)
    marked = marker_of(fn)
    if isinstance(fn, Step):
        return Plan(
            source=fn,
            name=fn.name,
            fn=fn.fn,
            is_async=_is_async(fn.fn),
            codec=result_codec(fn.fn, fn.returns),
            marked=marked,
            policy=None if marked is None else marked.policy,
            names=_names(fn.fn),
            own_marker=own,
            key=fn.key,
            retry=fn.retry,
            timeout=fn.timeout,
        )
    return Plan(
        source=fn,
        name=_name(fn),
        fn=fn,
        is_async=_is_async(fn),
        codec=result_codec(fn),
        marked=marked,
        policy=None if marked is None else marked.policy,
        names=_names(fn),
        own_marker=own,
    )


def _names(fn: Callable[..., Any]) -> tuple[str, ...] | None:
    if type(fn) is not FunctionType:
        return None
    parameters = inspect.signature(fn).parameters.values()
    is_simple = all(p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty for p in parameters)
    return tuple(p.name for p in parameters) if is_simple else None


def _name(fn: Callable[..., Any]) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__name__", type(fn).__name__).strip("<>")


def _is_async(fn: Callable[..., Any]) -> bool:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004 - the method itself

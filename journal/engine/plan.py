"""What the engine needs to know of a function that is called through a turn, worked out once a function."""

import functools
import inspect
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from journal.core.errors import InvalidOptions
from journal.core.records import Policy
from journal.core.typed import ValueCodec, result_codec
from journal.tools.policy import Marker, marker_of
from journal.tools.probe import ProbeFunction
from journal.tools.retry import Retry
from journal.tools.tool import Step


class Plan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How to call `fn`, and what to write down about it."""

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

    @property
    def policy(self) -> Policy | None:
        """What the marker says, if there is one."""
        return None if self.marked is None else self.marked.policy

    @property
    def probe(self) -> ProbeFunction | None:
        return None if self.marked is None else self.marked.probe

    @property
    def dedupes(self) -> bool:
        return self.marked is not None and self.marked.dedupes


_plans: WeakKeyDictionary[Any, Plan] = WeakKeyDictionary()


def plan_of(fn: Callable[..., Any]) -> Plan:
    """The plan for `fn`: a function, or one that `step` or `tool` has made something of."""
    try:
        plan = _plans.get(fn)
    except TypeError:  # not hashable, or no weak reference: worked out each time
        return _make(fn)
    if plan is None or getattr(fn, "__journal_marker__", None) is not plan.own_marker:  # marked since
        plan = _make(fn)
        try:
            _plans[fn] = plan
        except TypeError:
            pass
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
            name=fn.name,
            fn=fn.fn,
            is_async=_is_async(fn.fn),
            codec=result_codec(fn.fn, fn.returns),
            marked=marked,
            own_marker=own,
            key=fn.key,
            retry=fn.retry,
            timeout=fn.timeout,
        )
    return Plan(
        name=_name(fn), fn=fn, is_async=_is_async(fn), codec=result_codec(fn), marked=marked, own_marker=own
    )


def _name(fn: Callable[..., Any]) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__name__", type(fn).__name__).strip("<>")


def _is_async(fn: Callable[..., Any]) -> bool:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004 - the method itself

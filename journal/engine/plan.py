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
from journal.engine.calls import Call
from journal.replay.history import is_again, is_counted
from journal.tools.policy import Marker, marker_of
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
    step: Call
    """A step of it, but for what is each call's own: its key, act, input and scope."""
    key: str | None = None
    retry_option: Retry | bool | None = None
    own_marker: Marker | None = None
    """What was on the function itself when the plan was made."""

    policy: Policy | None = None
    """What the marker says, if there is one."""
    names: tuple[str, ...] | None = None
    """Of the arguments, where a call takes just these, by position or by name; None: it is not so simple."""

    def encode_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bytes, bytes]:
        """The canonical bytes of the arguments by name, and their digest; see `journal.core.arguments`."""
        names = self.names
        if names is not None and not kwargs and len(args) == len(names):
            if not names:
                return _NO_ARGUMENTS
            try:
                data = values.encode(dict(zip(names, args, strict=True)))
                return data, values.digest(data)
            except UsageError:
                pass  # said better below, by the argument's name; or it has a type that is declared
        try:
            data = encode_arguments(self.fn, args, kwargs)
        except TypeError as error:
            self._hint_at_options(kwargs, error)
            raise
        return data, values.digest(data)

    def _hint_at_options(self, kwargs: dict[str, Any], error: TypeError) -> None:
        """Raise `InvalidOptions` where the argument that the function does not take is an option of ours."""
        for name in _OPTIONS & kwargs.keys():
            if f"unexpected keyword argument {name!r}" in str(error):
                raise InvalidOptions(
                    f"{error}: what is handed to a call goes to the function; options belong to the function, as in "
                    f"@step({name}=…), @tool({name}=…) or .options({name}=…)"
                ) from error


_OPTIONS = frozenset({"key", "name", "retry", "timeout"})
_NO_ARGUMENTS = (b"{}", values.digest(b"{}"))


_PLAN, _MARKER = "__journal_plan__", "__journal_marker__"


def plan_of(fn: Callable[..., Any]) -> Plan:
    """The plan for `fn`: a function, or one that `step` or `tool` has made something of.

    Kept on the function itself, so that it goes when the function goes; a method, which is made anew for each look,
    is worked out each time.
    """
    plan = getattr(fn, _PLAN, None)
    # A copied __dict__ (wraps, options) brings another's plan, as a method does; a marker may have been set since.
    if type(plan) is Plan and plan.source is fn and plan.own_marker is getattr(fn, _MARKER, None):
        return plan
    plan = _make(fn)
    if type(fn) is FunctionType or isinstance(fn, Step):
        setattr(fn, _PLAN, plan)
    return plan


def _make(fn: Callable[..., Any]) -> Plan:
    if not callable(fn):
        raise InvalidOptions(
            f"a function is called through a turn, not {fn!r}: pass the function, then its arguments"
        )
    marked = marker_of(fn)
    step = fn if isinstance(fn, Step) else None
    plain = fn if step is None else step.fn
    codec = result_codec(plain, None if step is None else step.returns)
    name = _name(fn) if step is None else step.name
    key = None if step is None else _explicit(step.key)
    return Plan(
        source=fn,
        name=name,
        fn=plain,
        is_async=_is_async(plain),
        codec=codec,
        own_marker=getattr(fn, _MARKER, None),
        marked=marked,
        policy=None if marked is None else marked.policy,
        names=_names(plain),
        key=key,
        retry_option=None if step is None else step.retry_option,
        step=Call(
            key="",
            kind="step",
            name=name,
            act=plain,
            input=None,
            input_digest=b"",
            encode=codec.encode,
            policy="safe",
            is_counted=key is None,
            is_lazy=True,
            retry=None if step is None else step.retry,
            timeout=None if step is None else step.timeout,
            probe=None if marked is None else marked.probe,
            dedupes=marked is not None and marked.dedupes,
        ),
    )


def _explicit(key: str | None) -> str | None:
    """A key given by the caller; raises `InvalidOptions` if it could be one that is counted."""
    if key is not None and (is_counted(key) or is_again(key)):
        raise InvalidOptions(
            f"key={key!r}: names that end in # or @again and a number are given by counting; choose another"
        )
    return key


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

"""`@tool` and `@step`: functions that know how they are to be called through a turn.

Both stay what they were: called directly, they run the function. `turn.step(f, …)` takes undecorated functions as
well; the decorators are for options. Types are kept by ParamSpec, so a checker sees the arguments and the result.
Next: `policy.py` (what `replay=` means), `retry.py`, `schema.py` (what a model is shown).
"""

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

from journal.core.errors import InvalidOptions
from journal.core.records import Policy
from journal.core.signatures import label_of
from journal.tools.policy import Marker, check_policy, marker_of
from journal.tools.probe import ProbeFunction
from journal.tools.retry import Retry, as_retry
from journal.tools.schema import Arguments, summary

P = ParamSpec("P")
R = TypeVar("R")


class _Unset:
    """Stands for an option that was not given, where None means something."""


_UNSET = _Unset()


class Step(Generic[P, R]):
    """A function with the options of a call. Made by `step`; steps are always safe."""

    def __init__(
        self,
        fn: Callable[P, R],
        *,
        name: str | None = None,
        key: str | None = None,
        retry: Retry | bool | None = None,
        timeout: float | None = None,
        returns: Any = None,
    ) -> None:
        if not callable(fn):
            raise InvalidOptions(
                f"@{type(self).__name__.lower()}({fn!r}): what is called is a function; options have names, as in name="
            )
        functools.update_wrapper(self, fn, updated=())
        self.fn = fn
        self.name = _check_name(name) if name is not None else _name_of(fn)
        self.key = key
        self.retry = as_retry(retry)
        self.retry_option = retry
        """As it was given: for a model call True, False and nothing are three different things."""
        self.timeout = _check_timeout(timeout, self.name)
        self.returns = returns
        self.check()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        bound = copy.copy(self)
        function: Any = self.fn
        bound.fn = function.__get__(instance, owner)
        functools.update_wrapper(bound, bound.fn, updated=())
        return bound

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def options(
        self,
        *,
        key: str | _Unset | None = _UNSET,
        retry: Retry | bool | _Unset | None = _UNSET,
        timeout: float | _Unset | None = _UNSET,
        name: str | _Unset = _UNSET,
    ) -> Self:
        """A copy with these options changed; `timeout` in seconds. The original stays as it is."""
        changed = copy.copy(self)
        if not isinstance(key, _Unset):
            changed.key = key
        if not isinstance(retry, _Unset):
            changed.retry = as_retry(retry)
            changed.retry_option = retry
        if not isinstance(timeout, _Unset):
            changed.timeout = _check_timeout(timeout, self.name)
        if not isinstance(name, _Unset):
            changed.name = _check_name(name)
        changed.check()
        return changed

    def check(self) -> None:
        """Raise `InvalidOptions` if the options contradict each other or the function."""
        marker = marker_of(self.fn)
        if marker is not None and marker.policy == "never":
            raise InvalidOptions(
                f"{self.name!r} is marked never, and steps are run again after a crash: "
                "make it a @tool and call it with turn.tool"
            )


class Tool(Step[P, R]):
    """A function that a model may call. Made by `tool`."""

    def __init__(
        self,
        fn: Callable[P, R],
        *,
        marker: Marker,
        name: str | None = None,
        description: str | None = None,
        key: str | None = None,
        retry: Retry | bool | None = None,
        timeout: float | None = None,
        returns: Any = None,
    ) -> None:
        self.description = description if description is not None else summary(inspect.getdoc(fn) or "")
        self._arguments: Arguments | None = None
        self.__journal_marker__ = marker
        super().__init__(fn, name=name, key=key, retry=retry, timeout=timeout, returns=returns)

    @property
    def marker(self) -> Marker:
        """What the tool itself says of its replay; maps of the agent and the journal may overrule it."""
        return self.__journal_marker__

    @property
    def policy(self) -> Policy:
        """The marker's policy."""
        return self.__journal_marker__.policy

    @property
    def probe(self) -> ProbeFunction | None:
        """Asks whether a call in doubt took place."""
        return self.__journal_marker__.probe

    @property
    def dedupes(self) -> bool:
        """Whether the service honours `io.idempotency_key`."""
        return self.__journal_marker__.dedupes

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments. Raises `InvalidOptions` for a signature that a model cannot call."""
        return self._read().schema

    def parse(self, arguments: str | bytes | Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments for the function, of what a model gave; arguments left out stay out.

        Raises `ToolArgumentError`, whose text tells the model all that is wrong.
        """
        return self._read().parse(arguments)

    def _read(self) -> Arguments:
        if (
            self._arguments is None or self._arguments.tool != self.name
        ):  # late, since annotations may name what is defined further down
            self._arguments = Arguments(self.name, self.fn)
        return self._arguments

    def check(self) -> None:
        """Raise `InvalidOptions` if the options contradict each other or the function."""
        if self.retry is not None and self.policy == "never":
            raise InvalidOptions(
                f"tool {self.name!r}: retry= would start a never tool more than once; "
                "raise DidNotHappen where it may be asked again, or declare replay='safe'"
            )


@overload
def tool(
    fn: Callable[P, R],
    /,
    *,
    replay: Policy | None = None,
    probe: ProbeFunction | None = None,
    dedupes: bool = False,
    name: str | None = None,
    description: str | None = None,
    retry: Retry | bool | None = None,
    timeout: float | None = None,
    returns: Any = None,
    key: str | None = None,
) -> Tool[P, R]: ...
@overload
def tool(
    *,
    replay: Policy | None = None,
    probe: ProbeFunction | None = None,
    dedupes: bool = False,
    name: str | None = None,
    description: str | None = None,
    retry: Retry | bool | None = None,
    timeout: float | None = None,
    returns: Any = None,
    key: str | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    replay: Policy | None = None,
    probe: ProbeFunction | None = None,
    dedupes: bool = False,
    **options: Any,
) -> Any:
    """Make a function a tool; called directly it stays the function.

    `replay`: ``"never"`` (the default, unless the function is marked) is started at most once; ``"safe"`` may run
    again after a crash. `probe` and `dedupes`: see `never`. `name` and `description` are what a model sees, the
    function's name and the first paragraph of its docstring by default. `timeout` in seconds. `returns`: the type of
    the result, where the annotation does not tell. `key` names the call in its scope. Raises `InvalidOptions`.
    """

    def make(found: Callable[..., Any]) -> Tool[..., Any]:
        return Tool(found, marker=_marker(found, replay, probe, dedupes), **options)

    return make if fn is None else make(fn)


@overload
def step(
    fn: Callable[P, R],
    /,
    *,
    name: str | None = None,
    retry: Retry | bool | None = None,
    timeout: float | None = None,
    returns: Any = None,
) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: Retry | bool | None = None,
    timeout: float | None = None,
    returns: Any = None,
) -> Callable[[Callable[P, R]], Step[P, R]]: ...
def step(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Give a function the options of a step; called directly it stays the function.

    A step is safe: in doubt after a crash it runs again. `retry`: True is three tries, see `Retry`. `timeout`, of each
    try, in seconds. `returns`: the type of the result, where the annotation does not tell. Raises `InvalidOptions`.
    """

    def make(found: Callable[..., Any]) -> Step[..., Any]:
        return Step(found, **options)

    return make if fn is None else make(fn)


def _marker(
    fn: Callable[..., Any], replay: Policy | None, probe: ProbeFunction | None, dedupes: bool
) -> Marker:
    name = _name_of(fn)
    marked = marker_of(fn)
    if marked and not probe and not dedupes and (replay is None or replay == marked.policy):
        return marked
    policy: Policy = "never" if replay is None else check_policy(replay, f"tool {name!r}, replay=")
    if marked and marked.policy != policy:
        raise InvalidOptions(
            f"tool {name!r}: its function is marked {marked.policy} and the tool says {policy}: say it once"
        )
    if policy == "safe" and (probe or dedupes):
        raise InvalidOptions(
            f"tool {name!r}: probe= and dedupes= are for never tools; a safe one just runs again"
        )
    return Marker(policy, probe, dedupes)


def _name_of(fn: Callable[..., Any]) -> str:
    name = getattr(fn, "__name__", None)
    return name if isinstance(name, str) else label_of(fn).rpartition(".")[2]


def _check_name(name: object) -> str:
    if not isinstance(name, str) or not name.strip():
        raise InvalidOptions(f"name={name!r}: a name with something in it is needed")
    return name


def _check_timeout(timeout: float | None, name: str) -> float | None:
    if timeout is not None and (type(timeout) not in (int, float) or not isfinite(timeout) or timeout <= 0):
        raise InvalidOptions(f"{name!r}: timeout={timeout!r}: a number of seconds above 0 is needed")
    return timeout

"""What a callable asks for: its parameters' names, its resolved annotations, and a call's arguments by name.

`bind` stands before every recorded call, so it is quick for the usual case (positional arguments that fit), and
refuses wrong arguments with the very `TypeError` that calling would have given, before anything is recorded.
Next: `typed.py` (results to bytes), `arguments.py` (arguments to bytes).
"""

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import Parameter
from types import FunctionType, MethodType
from typing import Any
from weakref import ref

import msgspec

_ABSENT = object()
_READ_AS_THEY_ARE = (FunctionType, MethodType, functools.partial, type)
_PASS_THROUGH = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


class Unresolved(msgspec.Struct, frozen=True):
    """An annotation that names something which cannot be found from the function it stands on."""

    text: str


class Shape(msgspec.Struct, frozen=True):
    """How arguments find their names."""

    names: tuple[str, ...]
    """Of the parameters that positional arguments fill, in order."""
    least: int
    most: int
    """So many positional arguments, and no others, need no closer look; -1: every call does."""
    kinds: dict[str, Any]
    """Kind of each parameter (`inspect.Parameter.kind`)."""
    by_name: Callable[..., dict[str, Any]]
    """Takes what the function takes, and gives it back by name."""
    lenient: bool
    """The names are those behind a wrapper that takes anything, and may give more or fewer arguments on."""


def function_of(fn: Callable[..., Any]) -> Any:
    """The plain function behind a bound method, a partial, a wrapper or a callable object; else `fn` itself."""
    while type(fn) is not FunctionType:
        if isinstance(fn, MethodType):
            fn = fn.__func__
        elif isinstance(fn, functools.partial):
            fn = fn.func
        elif callable(inner := getattr(fn, "__wrapped__", None)):
            fn = inner
        elif not isinstance(fn, type) and isinstance(type(fn).__call__, FunctionType):
            fn = type(fn).__call__
        else:
            break
    return fn


def label_of(fn: Callable[..., Any]) -> str:
    """How messages name the callable."""
    function = function_of(fn)
    name: str = getattr(function, "__qualname__", None) or type(function).__qualname__
    return name.replace("<locals>.", "")


def hints_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """Annotations of the callable by parameter name, and of its result as `return`; strings are looked up.

    One that cannot be found is `Unresolved`, and leaves the others as they are.
    """
    function = function_of(fn)
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - whatever an annotation raises when it is evaluated, the others still count
        return {name: _look_up(function, name, hint) for name, hint in _raw_hints(function).items()}


def _raw_hints(function: Any) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return dict(annotationlib.get_annotations(function, format=annotationlib.Format.FORWARDREF))
    return dict(getattr(function, "__annotations__", {}))


def _look_up(function: Any, name: str, hint: Any) -> Any:
    def holder() -> None: ...

    holder.__annotations__ = {name: hint}
    inner = inspect.unwrap(function)
    cells = zip(getattr(inner.__code__, "co_freevars", ()), inner.__closure__ or (), strict=False)
    try:
        local = {free: cell.cell_contents for free, cell in cells}
        return typing.get_type_hints(holder, inner.__globals__, local, include_extras=True)[name]
    except Exception:  # noqa: BLE001 - as above; an empty cell raises ValueError
        return Unresolved(f"{hint} (a name that cannot be found from there)")


def bind(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by parameter name, those left to their defaults left out.

    ``*args`` stand as a tuple under their own name, ``**kwargs`` as a dict; empty ones are left out. Arguments that a
    partial holds already belong to it, as to a closure, and are not listed. Raises the `TypeError` that calling would.
    """
    shape = _shapes.get(ref(fn)) if type(fn) is FunctionType else None
    if shape is None:
        shape = shape_of(fn)
    if not kwargs and shape.least <= len(args) <= shape.most:
        if len(args) == 1:
            return {shape.names[0]: args[0]}
        return dict(zip(shape.names, args, strict=False))
    try:
        bound = shape.by_name(*args, **kwargs)
    except TypeError:
        if not shape.lenient:
            raise
        return _unnamed(*args, **kwargs)
    return {name: value for name, value in bound.items() if not _is_absent(value, shape.kinds.get(name))}


def unbind(fn: Callable[..., Any], bound: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What to call `fn` with for the arguments that `bind` named."""
    kinds = shape_of(fn).kinds
    variadic = any(kinds.get(name) is Parameter.VAR_POSITIONAL for name in bound)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name in sorted(bound, key=list(kinds).index) if bound.keys() <= kinds.keys() else bound:
        kind, value = kinds.get(name, Parameter.KEYWORD_ONLY), bound[name]
        if kind is Parameter.VAR_POSITIONAL:
            args.extend(value)
        elif kind is Parameter.VAR_KEYWORD:
            kwargs.update(value)
        elif kind is Parameter.POSITIONAL_ONLY or (variadic and kind is Parameter.POSITIONAL_OR_KEYWORD):
            args.append(value)
        else:
            kwargs[name] = value
    return tuple(args), kwargs


def _is_absent(value: Any, kind: Any) -> bool:
    return value is _ABSENT or (not value and kind in _PASS_THROUGH)


# By weak reference, as WeakKeyDictionary does it, without its layer of Python.
_shapes: dict[ref[Any], Shape] = {}
_method_shapes: dict[ref[Any], Shape] = {}


def shape_of(fn: Callable[..., Any]) -> Shape:
    """The shape of `fn`; remembered for as long as the function lives."""
    while not isinstance(fn, _READ_AS_THEY_ARE) and callable(inner := getattr(fn, "__wrapped__", None)):
        fn = inner  # a wrapper object: a Step, a cache
    known, key, bound = _shapes, fn, False
    if not isinstance(fn, FunctionType | functools.partial | type):
        behind: Any = fn.__func__ if isinstance(fn, MethodType) else type(fn).__call__
        if isinstance(behind, FunctionType):
            known, key, bound = _method_shapes, behind, True
    try:
        found = known.get(ref(key))
    except TypeError:  # an object that cannot be referred to weakly, or has no hash
        return _read_shape(key, bound)
    if found is None:
        found = known[ref(key, known.pop)] = _read_shape(key, bound)
    return found


def _read_shape(fn: Any, bound: bool) -> Shape:
    """`bound`: the first parameter is the instance, given by the method and not by the caller."""
    try:
        outer = list(inspect.signature(fn, follow_wrapped=False).parameters.values())
    except (ValueError, TypeError):  # a builtin that does not tell
        kinds = {"args": Parameter.VAR_POSITIONAL}
        return Shape((), 0, -1, kinds, _unnamed, False)
    lenient = tuple(p.kind for p in outer) == _PASS_THROUGH and hasattr(fn, "__wrapped__")
    parameters = list(inspect.signature(fn).parameters.values()) if lenient else outer
    by_name = _compile(getattr(fn, "__qualname__", type(fn).__qualname__), parameters)
    if bound and parameters and parameters[0].kind is not Parameter.VAR_POSITIONAL:
        by_name = functools.partial(_without_first, by_name, parameters[0].name)
        parameters = parameters[1:]
    fills = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    names = tuple(p.name for p in parameters if p.kind in fills)
    required = [p for p in parameters if p.default is Parameter.empty and p.kind not in _PASS_THROUGH]
    least = sum(p.kind in fills for p in required)
    most = len(names) if least == len(required) else -1  # a keyword is required: always look closer
    return Shape(names, least, most, {p.name: p.kind for p in parameters}, by_name, lenient)


def _unnamed(*args: Any, **kwargs: Any) -> dict[str, Any]:
    return ({"args": args} if args else {}) | kwargs


def _without_first(
    by_name: Callable[..., dict[str, Any]], first: str, /, *args: Any, **kwargs: Any
) -> dict[str, Any]:
    bound = by_name(_ABSENT, *args, **kwargs)
    del bound[first]
    return bound


def _compile(qualname: str, parameters: list[Parameter]) -> Callable[..., dict[str, Any]]:
    """A function with these parameters that returns its arguments by name; the interpreter does the checking."""
    names = ", ".join(f"{p.name!r}: {p.name}" for p in parameters)
    source = f"def by_name({', '.join(_spelled(parameters))}): return {{{names}}}"
    space: dict[str, Any] = {"__builtins__": {}, "ABSENT": _ABSENT}
    exec(source, space)  # noqa: S102 - made of identifiers only: inspect.Parameter refuses any other name
    by_name: Callable[..., dict[str, Any]] = space["by_name"]
    by_name.__qualname__ = qualname
    return by_name


def _spelled(parameters: list[Parameter]) -> Iterator[str]:
    """The parameters as a def spells them, with / and * where they belong."""
    before: Any = None
    for p in parameters:
        if before is Parameter.POSITIONAL_ONLY and p.kind is not before:
            yield "/"
        if p.kind is Parameter.KEYWORD_ONLY and before not in (Parameter.VAR_POSITIONAL, p.kind):
            yield "*"
        star = "*" if p.kind is Parameter.VAR_POSITIONAL else "**" if p.kind is Parameter.VAR_KEYWORD else ""
        yield f"{star}{p.name}{'' if p.default is Parameter.empty else '=ABSENT'}"
        before = p.kind
    if before is Parameter.POSITIONAL_ONLY:
        yield "/"

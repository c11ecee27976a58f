"""The arguments of a call as one recorded value, ``{name: value}``, and back.

Arguments are values. A dataclass, a pydantic model, a date are written by what they are and read back by what the
parameter is annotated with; what cannot be written (a client, an open file) is refused by the argument's name.
Its neighbours: `signatures.py` (names), `typed.py` (codecs).
"""

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from types import GenericAlias
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from journal.core import values
from journal.core.errors import InvalidValue, UnknownType, ValueTooLarge
from journal.core.signatures import bind, function_of, hints_of, label_of, shape_of
from journal.core.typed import PLAIN, ValueCodec, codec_of, is_pydantic


def encode_arguments(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """The canonical bytes of the arguments by name.

    Raises the `TypeError` that calling would give, `InvalidValue` naming the argument, or `ValueTooLarge`.
    """
    bound = bind(fn, args, kwargs)
    try:
        return values.encode(bound)
    except InvalidValue:
        return encode_bound(fn, bound)
    except ValueTooLarge as error:
        raise _of(fn, error) from None


def encode_bound(fn: Callable[..., Any], bound: Mapping[str, Any]) -> bytes:
    """As `encode_arguments`, for arguments that `bind` has named already."""
    label, codecs = label_of(fn), _codecs_of(fn)
    plain = {
        name: _plain(value, codecs.get(name, PLAIN), f"argument {name!r} of {label}")
        for name, value in bound.items()
    }
    try:
        return values.encode(plain, what=f"the arguments of {label}")
    except ValueTooLarge as error:
        raise _of(fn, error) from None


def decode_arguments(fn: Callable[..., Any], data: bytes) -> dict[str, Any]:
    """The arguments behind the bytes, each as its parameter is annotated; `signatures.unbind` makes a call of them.

    Raises `InvalidValue` if one does not fit its annotation (it has changed since it was recorded).
    """
    bound: dict[str, Any] = values.decode(data)
    for name, codec in _codecs_of(fn).items():
        if name in bound:
            bound[name] = codec.decode(values.encode(bound[name]))
    return bound


def _of(fn: Callable[..., Any], error: ValueTooLarge) -> ValueTooLarge:
    return ValueTooLarge(what=f"the arguments of {label_of(fn)}", size=error.size, limit=error.limit)


_codecs: WeakKeyDictionary[Any, dict[str, ValueCodec[Any]]] = WeakKeyDictionary()


def _codecs_of(fn: Callable[..., Any]) -> dict[str, ValueCodec[Any]]:
    """The codecs of parameters whose annotation is more than JSON and can be read back."""
    function = function_of(fn)
    try:
        return _codecs[function]
    except (KeyError, TypeError):
        pass  # new, or a builtin that cannot be referred to weakly
    found = {}
    kinds = shape_of(fn).kinds
    for name, hint in hints_of(function).items():
        if name not in kinds:
            continue
        try:
            codec = codec_of(_of_all(hint, kinds[name]), what=name)
        except UnknownType:
            continue  # what is given for it decides
        if codec is not PLAIN:
            found[name] = codec
    try:
        _codecs[function] = found
    except TypeError:
        pass
    return found


def _of_all(hint: Any, kind: Any) -> Any:
    """The type of what stands under the parameter's name: ``*args: int`` is a tuple of them."""
    if kind is Parameter.VAR_POSITIONAL:
        return GenericAlias(tuple, (hint, ...))
    return GenericAlias(dict, (str, hint)) if kind is Parameter.VAR_KEYWORD else hint


def _plain(value: Any, codec: ValueCodec[Any], what: str) -> Any:
    if codec is not PLAIN:
        try:
            return values.decode(codec.encode(value, what=what))
        except InvalidValue:
            pass  # it is not what the annotation says: written by what it is, or refused with a better reason
    try:
        plain = _builtins(value, "", what)
    except RecursionError:
        raise InvalidValue(
            what=what, path="", reason=f"it is nested deeper than {values.MAX_DEPTH}"
        ) from None
    return values.keep(plain, what=what)[1]


def _builtins(value: Any, path: str, what: str) -> Any:
    """`value` in JSON's own types, by what its parts are."""
    if isinstance(value, dict):
        return {k: _builtins(v, f"{path}.{k}" if path else str(k), what) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_builtins(v, f"{path}[{i}]", what) for i, v in enumerate(value)]

    def by_pydantic(part: Any) -> Any:
        if not is_pydantic(type(part)):
            raise _no_value(part, path, what)
        return values.decode(codec_of(type(part), what=what).encode(part, what=what))

    try:
        return msgspec.to_builtins(value, order="deterministic", enc_hook=by_pydantic)
    except InvalidValue:
        raise
    except (TypeError, ValueError, RecursionError, UnknownType):
        raise _no_value(value, path, what) from None


def _no_value(part: object, path: str, what: str) -> InvalidValue:
    kind = type(part)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    reason = (
        f"{name} is not a value, and arguments are recorded: pass clients and open files through turn.deps "
        "or a closure, and give the call ids, text or data"
    )
    return InvalidValue(what=what, path=path, reason=reason)

"""Exceptions as the log keeps them, and back: the handler sees the same thing the first time and on replay.

Rebuilt are the classes on the allow-list: builtin exceptions whose arguments are JSON values, the errors of this
package, and those registered with `register_error`. Of anything else only the class's name and a short code are
kept, since exceptions of providers carry prompts, and it is a `CallError` on the first run too: raise
``rebuild(describe(error), call)``, never the original.
"""

import builtins
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from journal.core import errors, values
from journal.core.errors import CallError, InvalidOptions, InvalidValue, JournalError, ValueTooLarge
from journal.core.records import ErrorInfo

E = TypeVar("E", bound=Exception)

_CODE_CHARACTERS = 64


class _Registered(msgspec.Struct, frozen=True):
    cls: type[Exception]
    to_data: Callable[[Any], Any] | None
    from_data: Callable[[Any], Exception] | None


_registered: dict[str, _Registered] = {}

# A coroutine cannot let StopIteration through: Python makes a RuntimeError of it, on the first run only.
_NOT_RAISED = (StopIteration, StopAsyncIteration)
_BUILTIN: dict[str, type[Exception]] = {
    name: cls
    for name, cls in vars(builtins).items()
    if isinstance(cls, type) and issubclass(cls, Exception) and not issubclass(cls, _NOT_RAISED)
}
_OURS: dict[str, type[Exception]] = {
    f"journal.{name}": cls
    for name, cls in vars(errors).items()
    if isinstance(cls, type) and issubclass(cls, JournalError)
}


def register_error(
    cls: type[E],
    *,
    to_data: Callable[[E], Any] | None = None,
    from_data: Callable[[Any], E] | None = None,
) -> type[E]:
    """Let `cls` be raised again as itself on replay; returns `cls`, so that it serves as a decorator.

    `to_data` gives the JSON value that is recorded, `from_data` makes the exception of it; without them it is rebuilt
    as ``cls(*error.args)``, whose arguments must be JSON values. Subclasses are registered one by one. Register at
    import, in every process that works on runs: where a class is not registered, its errors are `CallError`.
    """
    if not (isinstance(cls, type) and issubclass(cls, Exception)):
        raise InvalidOptions(f"register_error takes a subclass of Exception, not {cls!r}")
    if (to_data is None) != (from_data is None):
        raise InvalidOptions(
            f"register_error({cls.__qualname__}): to_data and from_data go together, or neither is given"
        )
    _registered[_name_of(cls)] = _Registered(cls, to_data, from_data)
    return cls


def describe(error: Exception) -> ErrorInfo:
    """What the log keeps of `error`. Never raises; never keeps the text of a class that is not on the allow-list."""
    name = _name_of(type(error))
    code = _code_of(error)
    try:
        info = _allowed(error, name, code)
        if info is not None and type(_rebuilt(info)) is type(error):
            return info
    except Exception:  # noqa: BLE001, S110 - whatever a class or its to_data does: it cannot be rebuilt, that is all
        pass
    return ErrorInfo(type=name, code=code)


def rebuild(info: ErrorInfo, call: str) -> Exception:
    """The exception that `info` tells of; a `CallError` naming `call` where it is not rebuilt. Never raises."""
    try:
        error = _rebuilt(info)
        if error is not None:
            return error
        data = None if info.data is None else values.decode(_bytes(info.data))
    except Exception:  # noqa: BLE001 - the class has changed since, or is hostile: what it was is still told
        data = None
    return CallError(call=call, type=info.type, code=info.code, data=data)


def words_of(info: ErrorInfo) -> str | None:
    """What the exception said, where the log keeps it."""
    rebuilt = rebuild(info, "")
    is_standin = isinstance(rebuilt, CallError) and rebuilt.type == info.type
    return None if is_standin else str(rebuilt)


def _allowed(error: Exception, name: str, code: str | None) -> ErrorInfo | None:
    """The full description, for an error on the allow-list."""
    registered = _registered.get(name)
    if registered is not None and registered.cls is type(error):
        if registered.to_data is not None:
            return ErrorInfo(type=name, code=code, data=_inline(registered.to_data(error)))
        return ErrorInfo(type=name, code=code, args=_inline(error.args))
    if _OURS.get(name) is type(error):
        fields = {key: value for key, value in vars(error).items() if not key.startswith("_")}
        return ErrorInfo(type=name, code=code, args=_inline(error.args), data=_inline(fields))
    if _BUILTIN.get(name) is type(error):
        return ErrorInfo(type=name, code=code, args=_inline(_builtin_args(error)))
    return None


def _rebuilt(info: ErrorInfo) -> Exception | None:
    if registered := _registered.get(info.type):
        if registered.from_data is None:
            return registered.cls(*_args(info))
        error = registered.from_data(values.decode(_bytes(info.data)))
        return error if isinstance(error, registered.cls) else None
    if ours := _OURS.get(info.type):
        # Field by field, not through __init__: the text stays the recorded one, and signatures may grow.
        rebuilt = ours.__new__(ours)
        rebuilt.args = tuple(_args(info))
        vars(rebuilt).update(values.decode(_bytes(info.data)))
        return rebuilt
    if (builtin := _BUILTIN.get(info.type)) and info.args is not None:
        return builtin(*_args(info))
    return None


def _builtin_args(error: Exception) -> tuple[Any, ...]:
    if isinstance(error, OSError) and len(error.args) == 2 and error.filename is not None:
        second = getattr(error, "filename2", None)  # OSError keeps its file names out of args
        return (
            (*error.args, error.filename) if second is None else (*error.args, error.filename, None, second)
        )
    return error.args


def _args(info: ErrorInfo) -> list[Any]:
    args: list[Any] = values.decode(_bytes(info.args))
    return args


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("not kept inline")
    return value


def _inline(value: object) -> bytes:
    """Raises where `value` is no JSON, or too large to stay in its record: errors have no blobs."""
    try:
        return values.encode(value, limit=values.INLINE_BYTES)
    except (InvalidValue, ValueTooLarge) as error:
        raise ValueError("not a small JSON value") from error


def _name_of(cls: type[BaseException]) -> str:
    if cls.__module__ == "builtins":
        return cls.__qualname__
    if cls.__module__ == errors.__name__:
        return f"journal.{cls.__qualname__}"
    return f"{cls.__module__}.{cls.__qualname__}"


def _code_of(error: Exception) -> str | None:
    """A short code that the exception carries: never more, since texts of providers quote prompts."""
    for attribute in ("code", "status_code"):
        try:
            code = getattr(error, attribute, None)
        except Exception:  # noqa: BLE001, S112 - a property of a foreign class
            continue
        if type(code) is int and abs(code) < 10**9:
            return str(code)
        if (
            type(code) is str
            and len(code) <= _CODE_CHARACTERS
            and code.isascii()
            and code.isprintable()
            and " " not in code
            and code
        ):
            return code
    return None

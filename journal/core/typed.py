"""Rich types to canonical JSON and back: what a function's annotation says about its result.

A codec is found before anything acts: a type that cannot be read back is refused by name (`UnknownType`), never
discovered when the money is spent. Annotations that are plain JSON add nothing, so `PLAIN` serves them and a
function that strays from its annotation is not punished; rich ones (dataclasses, structs, enums, dates, pydantic
models, tuples, sets) are read back into what was declared, on the first run as on a replay.
pydantic is imported only where an annotation comes from it, and then it is loaded already.
"""

import collections.abc
import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from msgspec import inspect as shapes

from journal.core import values
from journal.core.errors import InvalidValue, UnknownType
from journal.core.signatures import Unresolved, function_of, hints_of, label_of

T_co = TypeVar("T_co", covariant=True)


class ValueCodec(Protocol[T_co]):
    """Values of one declared type, to canonical bytes and back."""

    def encode(self, value: object, *, what: str = "value") -> bytes:
        """The canonical bytes. Raises `InvalidValue` naming the path, or `ValueTooLarge`.

        What is encoded can be read back: a value that does not fit its type is refused here.
        """
        ...

    def keep(self, value: object, *, what: str = "value") -> tuple[bytes, T_co]:
        """The canonical bytes, and what `decode` makes of them, for the price of one: hand out that one."""
        ...

    def decode(self, data: bytes) -> T_co:
        """The value behind the bytes. Raises `InvalidValue` if they do not fit the type (it has changed since)."""
        ...


class _Plain:
    """Untyped JSON: `values` as it stands."""

    encode = staticmethod(values.encode)
    keep = staticmethod(values.keep)
    decode = staticmethod(values.decode)


class _Rich:
    """A type that JSON alone does not give back."""

    def __init__(self, to_plain: Callable[[Any], Any], read: Callable[[bytes], Any]) -> None:
        self._to_plain, self._read = to_plain, read

    def encode(self, value: object, *, what: str = "value") -> bytes:
        return self.keep(value, what=what)[0]

    def keep(self, value: object, *, what: str = "value") -> tuple[bytes, Any]:
        try:
            plain = self._to_plain(value)
        except (TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
            if isinstance(value, collections.abc.Awaitable):
                values.encode(value, what=what)  # says what is to be done
            raise InvalidValue(what=what, path="", reason=_without_input(error)) from None
        data = values.encode(plain, what=what)
        return data, self._read_back(data, what)

    def decode(self, data: bytes) -> Any:
        return self._read_back(data, "the recorded value")

    def _read_back(self, data: bytes, what: str) -> Any:
        try:
            return self._read(data)
        except (ValueError, TypeError, RecursionError) as error:  # msgspec's and pydantic's are ValueErrors
            path, reason = where(error)
            raise InvalidValue(what=what, path=path, reason=f"it does not fit its type: {reason}") from None


PLAIN: ValueCodec[Any] = _Plain()
"""Of untyped JSON values, and of types that are nothing else."""

_SAYS_NOTHING = (None, Any, object, inspect.Parameter.empty, typing.NoReturn, typing.Never)


class _NotReadBack(Exception):
    """The type has no codec."""


def codec_of(annotation: Any, *, what: str) -> ValueCodec[Any]:
    """The codec of a declared type; `what` names whose it is. Raises `UnknownType` if it cannot be read back."""
    try:
        return _cached(annotation)
    except _NotReadBack:
        raise UnknownType(what=what, type_name=_spelled(annotation)) from None
    except TypeError:
        pass  # unhashable: Annotated with a dict in it
    try:
        return _find(annotation)
    except _NotReadBack:
        raise UnknownType(what=what, type_name=_spelled(annotation)) from None


_results: WeakKeyDictionary[Any, ValueCodec[Any]] = WeakKeyDictionary()


def result_codec(fn: Callable[..., Any], returns: Any = None) -> ValueCodec[Any]:
    """The codec of what `fn` returns, or its awaitable gives; `returns`, where given, overrules the annotation.

    Remembered for as long as the function lives. Raises `UnknownType`, also for generator functions.
    """
    if returns is not None:
        return codec_of(returns, what=f"the result of {label_of(fn)}")
    function = function_of(fn)
    try:
        return _results[function]
    except (KeyError, TypeError):
        pass  # new, or a builtin that cannot be referred to weakly
    codec = codec_of(_result_hint(function), what=f"the result of {label_of(fn)}")
    try:
        _results[function] = codec
    except TypeError:
        pass
    return codec


def check_result(fn: Callable[..., Any], returns: Any, data: bytes, *, what: str) -> None:
    """Raise `InvalidValue` unless these bytes are what `fn` says that it returns, plain types included."""
    codec = result_codec(fn, returns)
    if codec is PLAIN:
        check_plain(data, _result_hint(function_of(fn)) if returns is None else returns, what=what)
        return
    try:
        codec.decode(data)
    except InvalidValue as error:
        raise InvalidValue(what=what, path=error.path, reason=error.reason) from None


def check_plain(data: bytes, annotation: Any, *, what: str) -> None:
    """Raise `InvalidValue` unless these bytes are JSON of that type, which `PLAIN` does not ask for."""
    if annotation in _SAYS_NOTHING:
        return
    try:
        msgspec.json.decode(data, type=annotation)
    except msgspec.ValidationError as error:
        path, reason = where(error)
        raise InvalidValue(what=what, path=path, reason=reason) from None


def _result_hint(function: Any) -> Any:
    if isinstance(function, type):
        return function
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return Unresolved("a generator")
    hint = hints_of(function).get("return")
    if typing.get_origin(hint) in (collections.abc.Awaitable, collections.abc.Coroutine):
        return typing.get_args(hint)[-1]
    return hint


@lru_cache(maxsize=1024)
def _cached(annotation: Any) -> ValueCodec[Any]:
    return _find(annotation)


def _find(annotation: Any) -> ValueCodec[Any]:
    if annotation in _SAYS_NOTHING:
        return PLAIN
    if isinstance(annotation, Unresolved):
        raise _NotReadBack
    if uses_pydantic(annotation):
        return _pydantic_codec(annotation)
    try:
        parts = list(_parts(shapes.type_info(annotation)))
    except (TypeError, ValueError, NameError, AttributeError, RecursionError):
        raise _NotReadBack from None
    if any(isinstance(part, shapes.CustomType) and part.cls is not object for part in parts):
        raise _NotReadBack
    if any(isinstance(part, shapes.DictType) and isinstance(part.key_type, _NO_KEYS) for part in parts):
        raise _NotReadBack
    if not any(_is_rich(part) for part in parts):
        return PLAIN
    try:
        return _Rich(_builtins, msgspec.json.Decoder(annotation).decode)
    except (TypeError, ValueError):
        raise _NotReadBack from None


def _parts(root: shapes.Type) -> Iterator[shapes.Type]:
    """The type and all types within it, each once (types may be recursive)."""
    seen: set[int] = set()
    stack: list[Any] = [root]
    while stack:
        part = stack.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, shapes.Type):
            yield part
        for name in part.__struct_fields__:
            inner = getattr(part, name)
            found = inner if isinstance(inner, tuple) else (inner,)
            stack.extend(i for i in found if isinstance(i, shapes.Type | shapes.Field))


_JSON = (
    shapes.AnyType, shapes.NoneType, shapes.BoolType, shapes.IntType, shapes.FloatType, shapes.StrType,
    shapes.ListType, shapes.LiteralType, shapes.TypedDictType, shapes.UnionType, shapes.CustomType, shapes.Metadata,
)  # fmt: skip
_NO_KEYS = (
    shapes.DataclassType, shapes.StructType, shapes.NamedTupleType, shapes.TypedDictType, shapes.CollectionType,
    shapes.TupleType, shapes.DictType, shapes.BytesType, shapes.CustomType,
)  # fmt: skip


def _is_rich(part: shapes.Type) -> bool:
    if isinstance(part, shapes.DictType):
        return not isinstance(part.key_type, shapes.AnyType | shapes.StrType | shapes.LiteralType)
    return not isinstance(part, _JSON)


def _builtins(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True, order="deterministic")


def _spelled(annotation: Any) -> str:
    if isinstance(annotation, Unresolved):
        return annotation.text
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return f"{annotation.__module__}.{annotation.__qualname__}"
    return str(annotation)


def where(error: Exception) -> tuple[str, str]:
    """Path and reason of what msgspec or pydantic found; never the value itself."""
    if callable(found := getattr(error, "errors", None)):
        first = found(include_url=False, include_context=False, include_input=False)[0]
        path = "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in first["loc"])
        return path.lstrip("."), first["msg"]
    reason, _, path = str(error).partition(" - at `$")
    return path.rstrip("`").lstrip("."), reason


def _without_input(error: Exception) -> str:
    text = str(error).partition(" [input_value=")[0]
    return text.replace("Pydantic serializer warnings:\n", "").strip() or type(error).__name__


# pydantic ------------------------------------------------------------------------------------------


def _leaves(annotation: Any) -> Iterator[Any]:
    inner = typing.get_args(annotation)
    if not inner:
        yield annotation
    for part in inner:
        yield from _leaves(part)


def uses_pydantic(annotation: Any) -> bool:
    """Whether something of pydantic's stands in the type."""
    try:
        classes = [getattr(part, "cls", None) for part in _parts(shapes.type_info(annotation))]
    except (TypeError, ValueError, NameError, AttributeError, RecursionError):
        classes = list(_leaves(annotation))
    return any(is_pydantic(cls) for cls in classes)


def is_pydantic(cls: Any) -> bool:
    """Whether pydantic knows how to write and read instances of `cls`."""
    return "pydantic" in sys.modules and (
        hasattr(cls, "__pydantic_core_schema__") or hasattr(cls, "__get_pydantic_core_schema__")
    )


def _pydantic_codec(annotation: Any) -> ValueCodec[Any]:
    """By field names, whatever aliases say: an alias for one direction only would not read back."""
    import pydantic
    from pydantic.json_schema import GenerateJsonSchema

    class Quiet(GenerateJsonSchema):
        ignored_warning_kinds = {"skipped-choice", "non-serializable-default", "skipped-discriminator"}

    if any(typing.get_origin(part) is type for part in (annotation, *typing.get_args(annotation))):
        raise _NotReadBack
    try:
        adapter = pydantic.TypeAdapter(annotation)
        # What has no JSON Schema (an arbitrary class, a callable) has no JSON either: learned before acting.
        schema = adapter.json_schema(mode="serialization", schema_generator=Quiet)
    except (pydantic.errors.PydanticUserError, TypeError, NameError):
        raise _NotReadBack from None
    has_sets = "'uniqueItems': True" in str(schema)

    def to_plain(value: Any) -> Any:
        plain = adapter.dump_python(value, mode="json", by_alias=False, round_trip=True, warnings="error")
        if has_sets:
            try:
                beside = adapter.dump_python(value, by_alias=False, round_trip=True, warnings=False)
            except TypeError:  # a set of models, whose dicts no set can hold: it stays in the order it has
                return plain
            plain = _with_sorted_sets(beside, plain)
        return plain

    def read(data: bytes) -> Any:
        return adapter.validate_json(data, by_alias=False, by_name=True)

    return _Rich(to_plain, read)


def _with_sorted_sets(value: Any, plain: Any) -> Any:
    """`plain`, with what came from sets in order: pydantic leaves that to the hash, which varies by process."""
    if isinstance(value, dict) and isinstance(plain, dict):
        pairs = zip(value.values(), plain.items(), strict=False)
        return {key: _with_sorted_sets(inner, beside) for inner, (key, beside) in pairs}
    if isinstance(value, set | frozenset) and isinstance(plain, list):
        return sorted(plain, key=values.encode)
    if isinstance(value, list | tuple) and isinstance(plain, list):
        return [_with_sorted_sets(inner, beside) for inner, beside in zip(value, plain, strict=False)]
    return plain

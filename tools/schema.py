"""The arguments of a tool: the JSON Schema that a model is shown, and reading what the model gives.

Both come from the signature. Types are msgspec's (builtins, dataclasses, structs, `msgspec.Meta`) or, where an
annotation comes from it, pydantic's; descriptions from either, from ``Annotated[str, "…"]`` and the docstring.
What does not fit is refused with a text that a model can act on: every argument at fault, what was expected of it
and what was given.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any

import msgspec

from journal.core import values
from journal.core.errors import InvalidOptions, InvalidValue, ToolArgumentError, UnknownType
from journal.core.signatures import hints_of
from journal.core.typed import codec_of, uses_pydantic, where

_SHOWN = 80


class _Argument(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    annotation: Any
    kind: Any
    default: Any
    description: str | None
    is_pydantic: bool
    read: Callable[[bytes], Any]

    @property
    def is_required(self) -> bool:
        return self.default is Parameter.empty and self.kind is not Parameter.VAR_KEYWORD


class Arguments:
    """What a tool takes. Raises `InvalidOptions` for a signature that a model cannot call."""

    def __init__(self, tool: str, fn: Callable[..., Any]) -> None:
        self.tool = tool
        described = described_arguments(inspect.getdoc(fn) or "")
        hints = hints_of(fn)
        self._named: dict[str, _Argument] = {}
        self._others: _Argument | None = None
        for p in inspect.signature(fn).parameters.values():
            if p.kind in (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL):
                raise InvalidOptions(
                    f"tool {tool!r}: argument {p.name!r} cannot be given by name, as models do: "
                    "use an ordinary parameter (a list for several)"
                )
            argument = _argument(tool, p, hints.get(p.name, Any), described.get(p.name))
            if p.kind is Parameter.VAR_KEYWORD:
                self._others = argument
            else:
                self._named[p.name] = argument
        self.schema = self._schema()

    def parse(self, given: str | bytes | Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments for the function; raises `ToolArgumentError` naming all that is wrong."""
        arguments = self._object(given)
        problems: list[str] = []
        found: dict[str, Any] = {}
        for name, argument in self._named.items():
            if name not in arguments and argument.is_required:
                problems.append(f"{name} is missing ({_expected(self.schema['properties'][name])})")
        for name, value in arguments.items():
            reader = self._named.get(name, self._others)
            if reader is None:
                problems.append(f"there is no argument {name} ({self._known()})")
                continue
            try:
                found[name] = reader.read(values.encode(value))
            except InvalidValue as error:
                problems.append(f"{name}{_at(error.path)}: {error.reason}")
            except ValueError as error:  # msgspec's and pydantic's are ValueErrors
                path, reason = where(error)
                problems.append(f"{name}{_at(path)}: {_lower(reason)} (given: {_shown(value)})")
        if problems:
            raise ToolArgumentError(tool=self.tool, reason="; ".join(problems))
        return found

    def _object(self, given: str | bytes | Mapping[str, Any]) -> Mapping[str, Any]:
        if isinstance(given, Mapping):
            return given
        if not given.strip():
            return {}  # models send nothing at all for a tool without arguments
        try:
            value = values.parse(given, what="the arguments")
        except InvalidValue as error:
            raise ToolArgumentError(tool=self.tool, reason=str(error)) from None
        if not isinstance(value, dict):
            reason = f"the arguments must be a JSON object, not {_shown(value)} ({self._known()})"
            raise ToolArgumentError(tool=self.tool, reason=reason)
        return value

    def _known(self) -> str:
        return f"known: {', '.join(self._named)}" if self._named else "the tool takes none"

    def _schema(self) -> dict[str, Any]:
        every = [*self._named.values(), *([self._others] if self._others else [])]
        schemas, definitions = _schemas(self.tool, every)
        properties = {name: schemas[name] for name in self._named}
        for name, argument in self._named.items():
            if argument.description:
                properties[name].setdefault("description", argument.description)
            if argument.default not in (Parameter.empty, None):
                try:
                    properties[name].setdefault("default", msgspec.to_builtins(argument.default))
                except TypeError:
                    pass  # JSON does not say it; that the argument may be left out is said by `required`
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if required := [name for name, argument in self._named.items() if argument.is_required]:
            schema["required"] = required
        schema["additionalProperties"] = schemas[self._others.name] if self._others else False
        return schema | ({"$defs": definitions} if definitions else {})


def summary(doc: str) -> str:
    """The first paragraph of a docstring, on one line."""
    first = re.split(
        r"\n\s*\n|^\s*(?:Args|Arguments|Parameters):", doc.strip(), maxsplit=1, flags=re.MULTILINE
    )[0]
    return " ".join(first.split())


def described_arguments(doc: str) -> dict[str, str]:
    """What an ``Args:`` section, or ``:param name:`` lines, say of each argument."""
    found = {
        name: " ".join(text.split())
        for name, text in re.findall(r"^:param (\w+):(.*)$", doc, flags=re.MULTILINE)
    }
    section = re.search(
        r"^(?:Args|Arguments|Parameters):[ \t]*\n((?:[ \t]+.*\n?|\n)+)", doc, flags=re.MULTILINE
    )
    name, indent = "", 0
    for line in section[1].splitlines() if section else ():
        depth = len(line) - len(line.lstrip())
        entry = re.match(r"\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)", line)
        if entry and (not name or depth <= indent):
            name, indent = entry[1], depth
            found[name] = entry[2].strip()
        elif name and line.strip():
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found


def _argument(tool: str, p: Parameter, annotation: Any, described: str | None) -> _Argument:
    if annotation is object or annotation is Parameter.empty:
        annotation = Any
    metadata = getattr(annotation, "__metadata__", ())
    try:
        codec_of(annotation, what=p.name)
        is_pydantic = uses_pydantic(annotation) or any(
            type(m).__module__.startswith("pydantic.") for m in metadata
        )
        read = _pydantic_reader(annotation) if is_pydantic else msgspec.json.Decoder(annotation).decode
    except UnknownType as error:
        raise InvalidOptions(
            f"tool {tool!r}: argument {p.name!r} is declared as {error.type_name}, which a model cannot give: "
            "use JSON types, a dataclass, a msgspec.Struct or a pydantic model, and reach clients through io.deps"
        ) from None
    told = next((m for m in metadata if isinstance(m, str)), None)  # Annotated[str, "what it is"]
    return _Argument(
        name=p.name,
        annotation=annotation,
        kind=p.kind,
        default=p.default,
        description=told or described,
        is_pydantic=is_pydantic,
        read=read,
    )


def _pydantic_reader(annotation: Any) -> Callable[[bytes], Any]:
    import pydantic

    return pydantic.TypeAdapter(annotation).validate_json


def _schemas(tool: str, arguments: list[_Argument]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """The schema of each argument, and the definitions they share."""
    plain = [a for a in arguments if not a.is_pydantic]
    parts, definitions = msgspec.json.schema_components(
        [a.annotation for a in plain], ref_template="#/$defs/{name}"
    )
    schemas = {a.name: dict(part) for a, part in zip(plain, parts, strict=True)}
    if len(plain) < len(arguments):
        import pydantic

        adapters = [(a.name, pydantic.TypeAdapter(a.annotation)) for a in arguments if a.is_pydantic]
        inputs: Any = [(name, "validation", adapter) for name, adapter in adapters]
        more, shared = pydantic.TypeAdapter.json_schemas(inputs, ref_template="#/$defs/{model}")
        schemas |= {name: dict(more[(name, "validation")]) for name, _ in adapters}
        named: dict[str, Any] = shared.get("$defs", {})
        if both := sorted(definitions.keys() & named.keys()):
            raise InvalidOptions(f"tool {tool!r}: two of its argument types are named {both[0]}: rename one")
        definitions |= named
    return schemas, definitions


def _expected(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type") or schema.get("enum") or schema.get("$ref", "any JSON value")
    said = schema.get("description")
    spelled = str(kind).rpartition("/")[2]
    return f"expected: {spelled}, {said}" if said else f"expected: {spelled}"


def _at(path: str) -> str:
    return path if path.startswith("[") or not path else f".{path}"


def _lower(reason: str) -> str:
    return (reason[:1].lower() + reason[1:]).replace("`", "")


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode(errors="replace")
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"

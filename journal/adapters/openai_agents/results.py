"""What a tool gave, as the log keeps it, and back: the SDK is handed the same thing the first time and on a replay.

JSON stays as it is. The SDK's output models become the dictionaries that it takes in their place; what a function's
annotation declares (a dataclass, a pydantic model) is read back as that; of anything else the SDK would show the model
its text, so its text is kept.
"""

from typing import Any

from agents import FunctionTool
from agents.tool import ToolOutputFileContent, ToolOutputImage, ToolOutputText

from journal.core import values
from journal.core.errors import InvalidValue, UnknownType
from journal.core.typed import PLAIN, ValueCodec, result_codec

_TYPED = "$journal.typed"


class ResultCodec:
    """Results of one tool to canonical bytes, and back."""

    def __init__(self, tool: FunctionTool) -> None:
        self._declared = _declared(tool)

    def encode(self, result: Any) -> bytes:
        """Raises `ValueTooLarge`, or `InvalidValue` for text that is none."""
        result = _without_models(result)
        if self._declared is not None:
            try:
                declared = values.decode(self._declared.encode(result))
                return values.encode({_TYPED: declared}, what="the tool's result")
            except InvalidValue:
                pass  # it is not what the annotation says
        try:
            return values.encode(result, what="the tool's result")
        except InvalidValue:
            return values.encode(str(result), what="the tool's result")

    def decode(self, data: bytes) -> Any:
        """What `encode` was given, or what stands for it."""
        value = values.decode(data)
        if isinstance(value, dict) and value.keys() == {_TYPED}:
            inner = value[_TYPED]
            return inner if self._declared is None else self._declared.decode(values.encode(inner))
        return value


def _declared(tool: FunctionTool) -> ValueCodec[Any] | None:
    """The codec of the function's annotation, where it says more than JSON."""
    function = getattr(tool, "__wrapped__", None)
    if function is None:
        return None
    try:
        codec: ValueCodec[Any] = result_codec(function)
    except (UnknownType, TypeError):
        return None
    return None if codec is PLAIN else codec


def _without_models(result: Any) -> Any:
    if isinstance(result, ToolOutputText | ToolOutputImage | ToolOutputFileContent):
        return result.model_dump(mode="json", exclude_none=True)
    if isinstance(result, list) and any(type(part) is not dict for part in result):
        return [_without_models(part) for part in result]
    return result

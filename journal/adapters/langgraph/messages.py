"""What models and tools are asked and give, as the log keeps it, and back.

Messages are kept as JSON, as long as they come back from it as they were. Anything else (artifacts, commands, a typed
answer) is kept as LangGraph's serializer writes it, which does not pickle.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from time import time
from typing import Any

from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, message_to_dict, messages_from_dict
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.errors import GraphBubbleUp, GraphInterrupt, ParentCommand

from journal.core import values
from journal.core.errors import InvalidValue, ValueTooLarge
from journal.tools.facts import NOTHING, Facts, facts_of, usage_of
from journal.tools.provider import lower, rate_limits

_serializer = JsonPlusSerializer()
_NO_LIMIT = 1 << 40
_SAID = ("type", "content", "name", "tool_calls", "invalid_tool_calls", "tool_call_id", "status")
"""What tells two messages apart: not their ids, nor what a provider notes beside them."""


class Suspended:
    """Control flow that a tool raised in LangGraph's way: an interrupt, or a command for an outer graph."""

    def __init__(self, error: GraphBubbleUp) -> None:
        self.error = error


def pack(value: Any) -> dict[str, str]:
    """`value` by LangGraph's serializer. Raises `InvalidValue`."""
    try:
        kind, data = _serializer.dumps_typed(value)
    except Exception as error:
        raise InvalidValue(what=type(value).__qualname__, path="", reason=str(error)) from error
    if kind == "pickle":
        raise InvalidValue(what=type(value).__qualname__, path="", reason="only a pickle could keep it")
    return {"kind": kind, "base64": base64.b64encode(data).decode()}


def unpack(kept: Mapping[str, str]) -> Any:
    """What `pack` was given."""
    return _serializer.loads_typed((kept["kind"], base64.b64decode(kept["base64"])))


def _messages(messages: Sequence[BaseMessage]) -> dict[str, Any]:
    plain = [message_to_dict(message) for message in messages]
    try:
        back = messages_from_dict(values.decode(values.encode(plain, what="a message")))
        if back == list(messages):
            return {"messages": plain}
    except InvalidValue:
        pass
    return {"packed": pack(list(messages))}


def _messages_in(kept: Mapping[str, Any]) -> list[BaseMessage]:
    if "packed" in kept:
        found: list[BaseMessage] = unpack(kept["packed"])
        return found
    return messages_from_dict(kept["messages"])


# Model calls ---------------------------------------------------------------------------------------


def encode_reply(result: Any) -> bytes:
    """Canonical bytes of what a model call gave."""
    command = None
    if isinstance(result, ExtendedModelResponse):
        command, result = result.command, result.model_response
    if isinstance(result, AIMessage):
        result = ModelResponse(result=[result])
    kept = _messages(result.result)
    if result.structured_response is not None:
        kept["structured"] = pack(result.structured_response)
    if command is not None:
        kept["command"] = pack(command)
    return values.encode(kept, what="the reply of a model")


def decode_reply(data: bytes) -> Any:
    """What `encode_reply` was given."""
    kept = values.decode(data)
    structured = unpack(kept["structured"]) if "structured" in kept else None
    response: Any = ModelResponse(result=_messages_in(kept), structured_response=structured)
    return ExtendedModelResponse(response, unpack(kept["command"])) if "command" in kept else response


def calls_in(data: bytes) -> list[str]:
    """Ids of the tool calls that a recorded reply asks for, in order."""
    kept = values.decode(data)
    replies = (message for message in _messages_in(kept) if isinstance(message, AIMessage))
    return [call["id"] or "" for reply in replies for call in reply.tool_calls]


def facts_of_reply(result: Any) -> Facts:
    """What the provider said beside the reply, as far as the chat model hands it on."""
    response = result.model_response if isinstance(result, ExtendedModelResponse) else result
    messages = [response] if isinstance(response, AIMessage) else response.result
    found = NOTHING
    for message in messages:
        if isinstance(message, AIMessage):
            said = facts_of(message.response_metadata)
            asks = said.finish == "stop" and message.tool_calls
            found = found.updated(
                Facts(
                    finish="tool_calls" if asks else said.finish,
                    raw_finish=said.raw_finish,
                    usage=usage_of(message.usage_metadata),
                    rate_limits=rate_limits(lower(message.response_metadata.get("headers")), time()),
                )
            )
    return found


def said(messages: Sequence[BaseMessage]) -> list[Any]:
    """What the conversation says, as plain JSON."""
    return [
        {
            name: plain(value)
            for name in _SAID
            if (value := getattr(message, name, None)) not in (None, [], "")
        }
        for message in messages
    ]


def input_digest(asked: Sequence[Any]) -> bytes:
    """Digest of what is said in the conversation."""
    return values.digest(values.encode(list(asked), what="the input of a model call", limit=_NO_LIMIT))


def recorded_input(system: BaseMessage | None, asked: list[Any]) -> bytes | None:
    """What the intent keeps. None if it is too large for the log; the digest stands for it then."""
    kept: dict[str, Any] = {"messages": asked}
    if system is not None:
        kept["system"] = plain(system.content)
    try:
        return values.encode(kept, what="the input of a model call")
    except ValueTooLarge:
        return None


def config_digest(request: ModelRequest[Any]) -> bytes:
    """Digest of what shapes the reply beside the conversation."""
    model = request.model
    config = {
        "model": getattr(model, "model_name", None) or getattr(model, "model", None) or type(model).__name__,
        "system": None if request.system_message is None else plain(request.system_message.content),
        "settings": plain(request.model_settings),
        "tools": [_tool(tool) for tool in request.tools],
        "tool_choice": plain(request.tool_choice),
        "response_format": plain(request.response_format),
    }
    return values.digest(json.dumps(config, sort_keys=True).encode())


def _tool(tool: BaseTool | dict[str, Any]) -> Any:
    if isinstance(tool, dict):
        return plain(tool)
    try:
        return plain(convert_to_openai_tool(tool))
    except Exception:  # noqa: BLE001 - a schema that cannot be told is told by the name
        return tool.name


def plain(value: Any) -> Any:
    """`value` in JSON's own types; anything foreign by its class's name."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, str | int | bool):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else repr(value)
    kind = value if isinstance(value, type) else type(value)
    return f"<{kind.__qualname__}>"


# Tool calls ----------------------------------------------------------------------------------------


def encode_result(result: Any) -> bytes:
    """Canonical bytes of what a tool call gave: a message, a command, several of them, or a suspension."""
    kept: dict[str, Any]
    if isinstance(result, Suspended):
        kept = _suspended(result.error)
    elif isinstance(result, BaseMessage):
        kept = _messages([result])
    else:
        kept = {"result": pack(result)}
    return values.encode(kept, what="the tool's result")


def _suspended(error: GraphBubbleUp) -> dict[str, Any]:
    if isinstance(error, GraphInterrupt):
        return {"interrupts": pack(list(error.args[0]))}
    if isinstance(error, ParentCommand):
        return {"parent_command": pack(error.args[0])}
    raise InvalidValue(what="the tool's result", path="", reason=f"{type(error).__name__} is not known")


def decode_result(data: bytes) -> Any:
    """What `encode_result` was given. Raises the control flow that was."""
    kept = values.decode(data)
    if "interrupts" in kept:
        raise GraphInterrupt(unpack(kept["interrupts"]))
    if "parent_command" in kept:
        raise ParentCommand(unpack(kept["parent_command"]))
    return unpack(kept["result"]) if "result" in kept else _messages_in(kept)[0]

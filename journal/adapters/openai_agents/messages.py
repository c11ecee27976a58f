"""Model calls as values: what is asked, what tells two asks apart, what comes back, and the event that ends a stream.

The digest of a model call's input covers its items without the ids and states that providers put on them. The system
prompt, tool schemas and settings are its configuration: they may differ on a replay (a date in the prompt), which is
drift and not divergence.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agents import ModelResponse, Tool
from agents.agent_output import AgentOutputSchemaBase
from agents.handoffs import Handoff
from agents.usage import _attach_normalized_usage, _attach_raw_usage_snapshot
from openai.types.responses import Response, ResponseCompletedEvent, ResponseUsage
from pydantic import BaseModel, TypeAdapter

from journal.core import values
from journal.core.errors import InvalidValue, ValueTooLarge

_VOLATILE = frozenset({"id", "status", "provider_data", "created_by"})
_GENERATED = frozenset({"prompt_cache_key"})
_response = TypeAdapter(ModelResponse)


@dataclasses.dataclass
class Streamed:
    """A reply that came as a stream, with what its terminal event says beside it."""

    reply: ModelResponse
    model: str
    created_at: float


def plain(value: Any) -> Any:
    """`value` in JSON's own types: pydantic models by their set fields, anything foreign by its class's name."""
    if isinstance(value, BaseModel):
        return plain(value.model_dump(mode="json", exclude_unset=True, warnings=False))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    kind = value if isinstance(value, type) else type(value)
    return f"<{kind.__qualname__}>"


# What is asked -------------------------------------------------------------------------------------


def items_of(asked: str | Sequence[Any]) -> list[Any]:
    """The input items as plain JSON."""
    if isinstance(asked, str):
        return [{"role": "user", "content": asked}]
    return [plain(item) for item in asked]


def input_digest(items: Sequence[Any]) -> bytes:
    """Digest of what is said in the conversation."""
    said = [
        {key: value for key, value in item.items() if key not in _VOLATILE}
        if isinstance(item, dict)
        else item
        for item in items
    ]
    return values.digest(values.encode(said, what="the input of a model call", limit=_NO_LIMIT))


_NO_LIMIT = 1 << 40


def recorded_input(instructions: str | None, items: list[Any]) -> bytes | None:
    """What the intent keeps of the input. None if it is too large for the log; the digest stands for it then."""
    kept: dict[str, Any] = {"items": items}
    if instructions is not None:
        kept["instructions"] = instructions
    try:
        return values.encode(kept, what="the input of a model call")
    except ValueTooLarge:
        return None


def config_digest(
    *,
    model: str,
    instructions: str | None,
    settings: Any,
    tools: Sequence[Tool],
    output_schema: AgentOutputSchemaBase | None,
    handoffs: Sequence[Handoff[Any, Any]],
    prompt: Any,
) -> bytes:
    """Digest of what shapes the reply beside the conversation. A generated cache key is left out."""
    chosen = {k: v for k, v in plain(settings).items() if v is not None and k not in _GENERATED}
    if isinstance(extra := chosen.get("extra_args"), dict):
        chosen["extra_args"] = {k: v for k, v in extra.items() if k not in _GENERATED}
        if not chosen["extra_args"]:
            del chosen["extra_args"]  # whether the SDK generates one depends on the provider's address
    config = {
        "model": model,
        "instructions": instructions,
        "settings": chosen,
        "tools": [_tool(tool) for tool in tools],
        "output": None if output_schema is None else _schema(output_schema),
        "handoffs": [[h.tool_name, h.tool_description, plain(h.input_json_schema)] for h in handoffs],
        "prompt": plain(prompt),
    }
    return values.digest(json.dumps(config, sort_keys=True, ensure_ascii=True).encode())


def _tool(tool: Tool) -> list[Any]:
    schema = getattr(tool, "params_json_schema", None)
    return [type(tool).__name__, tool.name, getattr(tool, "description", None), plain(schema)]


def _schema(output_schema: AgentOutputSchemaBase) -> Any:
    return [
        output_schema.name(),
        None if output_schema.is_plain_text() else plain(output_schema.json_schema()),
    ]


# What comes back -----------------------------------------------------------------------------------


def encode_reply(result: ModelResponse | Streamed) -> bytes:
    """Canonical bytes of a reply; refused if it could not be read back."""
    reply = result.reply if isinstance(result, Streamed) else result
    kept = _response.dump_python(reply, mode="json", exclude_unset=True, warnings=False)
    if isinstance(result, Streamed):
        kept["streamed"] = {"model": result.model, "created_at": result.created_at}
    data = values.encode(kept, what="the reply of a model")
    try:
        decode_reply(data)
    except ValueError as error:
        raise InvalidValue(what="the reply of a model", path="", reason=type(error).__name__) from error
    return data


def decode_reply(data: bytes) -> Streamed:
    """The reply behind the bytes. The terminal event's part is made up where the reply did not come as a stream."""
    kept = values.decode(data)
    about = kept.pop("streamed", None) or {"model": "", "created_at": 0}
    return Streamed(_response.validate_python(kept), about["model"], about["created_at"])


def calls_in(reply: ModelResponse) -> list[tuple[str, str]]:
    """(id, name) of each tool call that the reply asks for, in order; handoffs are among them."""
    found = []
    for item in reply.output:
        said: Any = plain(item)  # some models give dictionaries
        if said.get("type") == "function_call" and isinstance(said.get("call_id"), str):
            found.append((said["call_id"], str(said.get("name"))))
    return found


def terminal_event(result: Streamed) -> ResponseCompletedEvent:
    """The event that ends the stream: all that the runner needs of one."""
    reply = result.reply
    usage = ResponseUsage.model_construct(
        input_tokens=reply.usage.input_tokens,
        input_tokens_details=reply.usage.input_tokens_details,
        output_tokens=reply.usage.output_tokens,
        output_tokens_details=reply.usage.output_tokens_details,
        total_tokens=reply.usage.total_tokens,
    )
    _attach_normalized_usage(usage, reply.usage)
    response = Response.model_construct(
        id=reply.response_id,
        created_at=result.created_at,
        model=result.model,
        object="response",
        output=reply.output,
        parallel_tool_calls=True,
        status="completed",
        tool_choice="auto",
        tools=[],
        usage=usage,
    )
    if reply.request_id is not None:
        object.__setattr__(response, "_request_id", reply.request_id)
    if reply.raw_usage is not None:
        _attach_raw_usage_snapshot(response, reply.raw_usage)
    return ResponseCompletedEvent.model_construct(
        type="response.completed", response=response, sequence_number=0
    )

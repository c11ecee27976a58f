"""A third dialect of the model: Anthropic's Messages API, streamed or whole.

As `model_wire.py`: pure and deterministic.
"""

import json
from collections.abc import Iterator

from journal.demo.clerk import Ask, Conversation, Say
from journal.demo.model_wire import Json, Names, Reader, output_tokens, pieces


def read_messages(body: Json) -> Conversation:
    """The conversation in a Messages request."""
    reader = Reader()
    for message in body.get("messages") or ():
        content = message.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        texts = [part for part in parts if part.get("type") == "text"]
        if message.get("role") == "user" and texts:
            reader.user(texts)
        for part in parts:
            if part.get("type") == "tool_use":
                reader.asked(part["id"], part["name"], json.dumps(part["input"]))
            elif part.get("type") == "tool_result":
                reader.answered(part["tool_use_id"], part.get("content"))
    return reader.conversation(tool.get("name", "") for tool in body.get("tools") or ())


def messages_json(names: Names, move: Ask | Say) -> Json:
    """A whole Messages reply."""
    content = [_block(names, move)]
    return {**_message(names), "content": content, "stop_reason": _stop(move), "usage": _usage(names, move)}


def messages_events(names: Names, move: Ask | Say) -> Iterator[str]:
    """The same reply as a stream of frames."""
    at: Json = {"index": 0}
    block = _block(names, move)
    usage = {**_usage(names, move), "output_tokens": 1}
    started = {**_message(names), "content": [], "stop_reason": None, "usage": usage}
    deltas: list[Json]
    if isinstance(move, Say):
        empty: Json = {**block, "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces(move.text)]
    else:
        empty = {**block, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(move.arguments)}]
    ended = {"stop_reason": _stop(move), "stop_sequence": None}
    events: list[Json] = [
        {"type": "message_start", "message": started},
        {"type": "content_block_start", **at, "content_block": empty},
        *({"type": "content_block_delta", **at, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", **at},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": output_tokens(move)}},
        {"type": "message_stop"},
    ]
    for event in events:
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


def _message(names: Names) -> Json:
    return {
        "id": f"msg_{names.reply}",
        "type": "message",
        "role": "assistant",
        "model": names.model,
        "stop_sequence": None,
    }


def _block(names: Names, move: Ask | Say) -> Json:
    if isinstance(move, Say):
        return {"type": "text", "text": move.text}
    return {"type": "tool_use", "id": names.call, "name": move.name, "input": move.arguments}


def _stop(move: Ask | Say) -> str:
    return "end_turn" if isinstance(move, Say) else "tool_use"


def _usage(names: Names, move: Ask | Say) -> Json:
    return {"input_tokens": names.input_tokens, "output_tokens": output_tokens(move)}

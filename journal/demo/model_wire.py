"""Two dialects of one model: OpenAI's Responses API and its Chat Completions, streamed or whole.

Reading a request gives a `Conversation`, writing gives the JSON and the events that the real client accepts.
Pure, and deterministic: ids are digests of the request, so the same request always gets the same bytes.
"""

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from journal.demo.clerk import Ask, Call, Conversation, Say, as_arguments
from journal.demo.loopback import BadRequest

Json = dict[str, Any]

# Reading --------------------------------------------------------------------------------------------


def read_responses(body: Json) -> Conversation:
    """The conversation in a Responses request."""
    items = body.get("input", "")
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    reader = Reader()
    for item in items:
        kind = item.get("type", "message")
        if kind == "message" and item.get("role") == "user":
            reader.user(item.get("content"))
        elif kind == "function_call":
            reader.asked(item["call_id"], item["name"], item["arguments"])
        elif kind == "function_call_output":
            reader.answered(item["call_id"], item["output"])
    return reader.conversation(tool.get("name", "") for tool in body.get("tools") or ())


def read_chat(body: Json) -> Conversation:
    """The conversation in a Chat Completions request."""
    reader = Reader()
    for message in body.get("messages") or ():
        match message.get("role"):
            case "user":
                reader.user(message.get("content"))
            case "assistant":
                for call in message.get("tool_calls") or ():
                    reader.asked(call["id"], call["function"]["name"], call["function"]["arguments"])
            case "tool":
                reader.answered(message["tool_call_id"], message.get("content"))
    return reader.conversation(tool.get("function", {}).get("name", "") for tool in body.get("tools") or ())


class Reader:
    """Collects a conversation item by item."""

    def __init__(self) -> None:
        self._message = ""
        self._calls: dict[str, Call] = {}
        self._earlier = 0

    def user(self, content: Any) -> None:
        self._message = _text(content)
        self._earlier += len(self._calls)
        self._calls = {}

    def asked(self, call_id: str, name: str, arguments: str) -> None:
        self._calls[call_id] = Call(name, as_arguments(arguments))

    def answered(self, call_id: str, output: Any) -> None:
        call = self._calls.get(call_id)
        if call is None:
            raise BadRequest(f"No tool call found for the output of {call_id!r}.")
        self._calls[call_id] = Call(call.name, call.arguments, _text(output))

    def conversation(self, tools: Iterator[str]) -> Conversation:
        for call_id, call in self._calls.items():
            if call.output is None:  # the real API refuses it too, and a broken replay must not pass unseen
                raise BadRequest(f"No tool output found for function call {call_id}.")
        return Conversation(self._message, tuple(self._calls.values()), self._earlier, frozenset(tools))


def _text(content: Any) -> str:
    """Text of a content that is a string or a list of parts."""
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content or () if isinstance(part, dict))


# Writing --------------------------------------------------------------------------------------------


class Names:
    """The ids of one reply."""

    def __init__(self, body: Json, conversation: Conversation) -> None:
        stable = {k: v for k, v in body.items() if k != "stream"}
        digest = blake2b(json.dumps(stable, sort_keys=True).encode(), digest_size=8).hexdigest()
        self.reply = digest
        self.call = f"call_{conversation.earlier + len(conversation.calls) + 1}_{digest[:6]}"
        self.model = str(body.get("model", "loopback"))
        self.input_tokens = len(json.dumps(body.get("input") or body.get("messages") or "")) // 4 + 1


def responses_json(names: Names, move: Ask | Say) -> Json:
    """A whole Responses reply."""
    return _response(names, "completed", [_responses_item(names, move)], move)


def responses_events(names: Names, move: Ask | Say) -> Iterator[str]:
    """The same reply as a stream of frames."""
    item = _responses_item(names, move)
    at: Json = {"item_id": item["id"], "output_index": 0}
    events: list[Json] = [
        {"type": "response.created", "response": _response(names, "in_progress", [], move)},
        {"type": "response.in_progress", "response": _response(names, "in_progress", [], move)},
    ]
    if isinstance(move, Say):
        part = {**at, "content_index": 0}
        empty = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        started = {**item, "status": "in_progress", "content": []}
        events += [
            {"type": "response.output_item.added", "output_index": 0, "item": started},
            {"type": "response.content_part.added", **part, "part": empty},
            *(
                {"type": "response.output_text.delta", **part, "delta": p, "logprobs": []}
                for p in pieces(move.text)
            ),
            {"type": "response.output_text.done", **part, "text": move.text, "logprobs": []},
            {"type": "response.content_part.done", **part, "part": item["content"][0]},
        ]
    else:
        started = {**item, "status": "in_progress", "arguments": ""}
        done = {**at, "name": item["name"], "arguments": item["arguments"]}
        events += [
            {"type": "response.output_item.added", "output_index": 0, "item": started},
            {"type": "response.function_call_arguments.delta", **at, "delta": item["arguments"]},
            {"type": "response.function_call_arguments.done", **done},
        ]
    events += [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": responses_json(names, move)},
    ]
    for number, event in enumerate(events):
        yield f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n"


def _response(names: Names, status: str, output: list[Json], move: Ask | Say) -> Json:
    spent = output_tokens(move)
    usage = {
        "input_tokens": names.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": spent,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": names.input_tokens + spent,
    }
    return {
        "id": f"resp_{names.reply}",
        "object": "response",
        "created_at": 0,
        "status": status,
        "model": names.model,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage if status == "completed" else None,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "temperature": 1.0,
        "top_p": 1.0,
    }


def _responses_item(names: Names, move: Ask | Say) -> Json:
    if isinstance(move, Say):
        text = {"type": "output_text", "text": move.text, "annotations": [], "logprobs": []}
        return {
            "type": "message",
            "id": f"msg_{names.reply}",
            "role": "assistant",
            "status": "completed",
            "content": [text],
        }
    return {
        "type": "function_call",
        "id": f"fc_{names.reply}",
        "call_id": names.call,
        "name": move.name,
        "arguments": json.dumps(move.arguments),
        "status": "completed",
    }


def chat_json(names: Names, move: Ask | Say) -> Json:
    """A whole Chat Completions reply."""
    message: Json = {"role": "assistant", "content": None, "refusal": None}
    if isinstance(move, Say):
        message["content"] = move.text
    else:
        message["tool_calls"] = [_chat_call(names, move)]
    choice = {"index": 0, "finish_reason": _finish(move), "message": message, "logprobs": None}
    return _chat(names, "chat.completion", [choice], _chat_usage(names, move))


def chat_events(names: Names, move: Ask | Say) -> Iterator[str]:
    """The same reply as a stream of frames."""
    deltas: list[tuple[Json, str | None]] = [({"role": "assistant", "content": ""}, None)]
    if isinstance(move, Say):
        deltas += [({"content": piece}, None) for piece in pieces(move.text)]
    else:
        deltas.append(({"tool_calls": [{"index": 0, **_chat_call(names, move)}]}, None))
    deltas.append(({}, _finish(move)))
    for delta, finish in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        yield _frame(_chat(names, "chat.completion.chunk", [choice], None))
    yield _frame(_chat(names, "chat.completion.chunk", [], _chat_usage(names, move)))
    yield "data: [DONE]\n\n"


def _chat(names: Names, kind: str, choices: list[Json], usage: Json | None) -> Json:
    return {
        "id": f"chatcmpl-{names.reply}",
        "object": kind,
        "created": 0,
        "model": names.model,
        "choices": choices,
        "usage": usage,
    }


def _chat_call(names: Names, move: Ask) -> Json:
    function = {"name": move.name, "arguments": json.dumps(move.arguments)}
    return {"id": names.call, "type": "function", "function": function}


def _chat_usage(names: Names, move: Ask | Say) -> Json:
    spent = output_tokens(move)
    return {
        "prompt_tokens": names.input_tokens,
        "completion_tokens": spent,
        "total_tokens": names.input_tokens + spent,
    }


def _finish(move: Ask | Say) -> str:
    return "stop" if isinstance(move, Say) else "tool_calls"


def _frame(event: Json) -> str:
    return f"data: {json.dumps(event)}\n\n"


def pieces(text: str) -> list[str]:
    """A text in the pieces that a model would stream: word by word, nothing lost."""
    words = text.split(" ")
    return [word if i == 0 else f" {word}" for i, word in enumerate(words)]


def output_tokens(move: Ask | Say) -> int:
    text = move.text if isinstance(move, Say) else move.name + json.dumps(move.arguments)
    return len(text) // 4 + 1

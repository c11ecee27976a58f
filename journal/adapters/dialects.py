"""What requests to model providers say: pure, and the one place that knows the APIs of OpenAI and Anthropic.

The conversation tells two requests apart; system prompt, tool schemas and settings are configuration, which may differ
on a replay (drift). What is not a model request is known by its whole body. Next: `transport.py`, which sends them.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from time import time
from typing import Any
from urllib.parse import quote

import msgspec

from journal.core import values
from journal.core.errors import InvalidValue, ValueTooLarge
from journal.core.records import CallKind, Policy
from journal.tools.facts import NOTHING, Facts, facts_of
from journal.tools.provider import rate_limits

Json = dict[str, Any]
PolicyOf = Callable[[str], Policy]
"""The replay policy of a hosted tool, by name."""

_CONVERSATIONS = {"chat.completions": "messages", "responses": "input", "messages": "messages"}
"""Requests that carry a conversation, and under which name."""
_INFERENCE = frozenset(
    {
        "audio.speech",
        "audio.transcriptions",
        "audio.translations",
        "completions",
        "embeddings",
        "images.edits",
        "images.generations",
        "images.variations",
        "messages.count_tokens",
        "moderations",
        "responses.compact",
        "responses.input_tokens",
    }
)
"""Requests that compute an answer and change nothing at the provider, beside those with a conversation."""
_INSTRUCTING = frozenset({"system", "developer"})
_SERVER_SIDE = frozenset(
    {"previous_response_id", "conversation", "background", "prompt", "mcp_servers", "container"}
)
"""With these the provider goes on with something of its own, or does more than to answer."""
_CLIENT_SIDE = re.compile(
    r"(function|custom|local_shell|apply_patch|computer|computer_use_preview|tool_search)$"
    r"|(bash|text_editor|computer|memory|tool_search_tool)_"
)
"""Types of tools that the client runs, or that only look for tools."""
_NAME_CHARACTERS = 64
_NO_LIMIT = 1 << 40


class Asked(msgspec.Struct, frozen=True):
    """One request, as a call."""

    name: str
    """The path after the API's version, with points for slashes: ``chat.completions``."""
    kind: CallKind
    policy: Policy
    digest: bytes
    """Of what is asked: method, name, conversation, and whether it is streamed."""
    config_digest: bytes | None = None
    settings: Json | None = None
    """What the log keeps beside the conversation; None: nothing but the digest."""
    items: list[Any] = []
    """The conversation."""
    is_stream: bool = False


def read_request(method: str, path: str, content_type: str, content: bytes, policy_of: PolicyOf) -> Asked:
    """What a request asks for. `content_type` may name a boundary that is made up anew each time."""
    name = _name_of(path)
    is_model = method == "POST" and (name in _CONVERSATIONS or name in _INFERENCE)
    body = _json_object(content)
    if not is_model or body is None:
        policy: Policy = "safe" if is_model or method in ("GET", "HEAD") else "never"
        kind: CallKind = "model" if is_model else "step" if policy == "safe" else "tool"
        whole = values.digest(_without_boundary(content, content_type)).hex()
        return Asked(name=name, kind=kind, policy=policy, digest=_digest([method, name, whole]))
    is_stream = body.get("stream") is True
    field = _CONVERSATIONS.get(name)
    if field is None:
        digest = _digest([method, name, body])
        return Asked(
            name=name, kind="model", policy="safe", digest=digest, settings=body, is_stream=is_stream
        )
    items = _items_of(body.get(field))
    said = [method, name, is_stream, [item for item in items if not _is_instructing(item)]]
    config = {key: value for key, value in body.items() if key not in (field, "stream", "prompt_cache_key")}
    config["instructing"] = [item for item in items if _is_instructing(item)]
    acts = any(body.get(key) for key in _SERVER_SIDE) or any(
        policy_of(tool) == "never" for tool in _hosted_tools(body.get("tools"))
    )
    return Asked(
        name=name,
        kind="model",
        policy="never" if acts else "safe",
        digest=_digest(said),
        config_digest=_digest(config),
        settings=_settings(body),
        items=items,
        is_stream=is_stream,
    )


def recorded_input(asked: Asked) -> bytes | None:
    """What the intent keeps. None where the request is to be known by its digest alone, or is too large for the log."""
    if asked.settings is None:
        return None
    kept: Json = {"request": asked.settings}
    if asked.items:
        kept["items"] = asked.items
    try:
        return values.encode(kept, what="the input of a model call")
    except (ValueTooLarge, InvalidValue):
        return None


def _name_of(path: str) -> str:
    parts = [part for part in path.split("/") if part]
    for length in (2, 1):
        known = ".".join(parts[-length:])
        if known in _CONVERSATIONS or known in _INFERENCE:
            return known
    version = next((n for n, part in enumerate(parts) if re.fullmatch(r"v\d\w*", part)), -1)
    return quote(".".join(parts[version + 1 :]) or "root", safe="._-")[:_NAME_CHARACTERS]


def _json_object(content: bytes) -> Json | None:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _items_of(said: Any) -> list[Any]:
    if isinstance(said, str):
        return [{"role": "user", "content": said}]
    return said if isinstance(said, list) else []


def _is_instructing(item: Any) -> bool:
    return isinstance(item, dict) and item.get("role") in _INSTRUCTING


def _hosted_tools(tools: Any) -> Iterator[str]:
    """Tools that the provider runs, by what a policy may call them."""
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, dict):
            continue
        kind = tool.get("type")
        if kind == "namespace":
            yield from _hosted_tools(tool.get("tools"))
        elif kind == "shell":
            environment = tool.get("environment")
            if isinstance(environment, dict) and environment.get("type") != "local":
                yield "shell"
        elif isinstance(kind, str) and not _CLIENT_SIDE.match(kind):
            yield str(tool.get("server_label") or tool.get("name") or kind)


def _settings(body: Json) -> Json:
    """What is worth reading later, and certainly no secret: numbers, the model, the instructions, names of tools."""
    kept: Json = {key: value for key, value in body.items() if isinstance(value, bool | int | float)}
    kept |= {key: body[key] for key in ("model", "instructions", "system") if key in body}
    tools = body.get("tools")
    if isinstance(tools, list):
        kept["tools"] = [_tool_name(tool) for tool in tools]
    return kept


def _tool_name(tool: Any) -> str:
    function = tool.get("function") if isinstance(tool, dict) else None
    said = function if isinstance(function, dict) else tool
    return str(said.get("name") or said.get("type")) if isinstance(said, dict) else "?"


def _digest(said: Any) -> bytes:
    try:
        return values.digest(values.encode(said, what="a request", limit=_NO_LIMIT))
    except InvalidValue:  # numbers that the log cannot hold; they still tell requests apart
        return values.digest(json.dumps(said, sort_keys=True).encode())


def _without_boundary(content: bytes, content_type: str) -> bytes:
    found = re.search(r'boundary="?([^";]+)', content_type)
    return content.replace(found[1].encode(), b"boundary") if found else content


# What comes back -----------------------------------------------------------------------------------


class Reading:
    """What a reply says, read as it comes: its text for those who watch, the facts, and whether it has ended."""

    def __init__(self, name: str, *, is_events: bool) -> None:
        self._name = name
        self._is_events = is_events
        self._rest = b""
        self._facts = NOTHING
        self.error: Json | None = None
        """Type and code of an error that came inside a stream."""
        self.has_ended = name not in _CONVERSATIONS or not is_events
        """Whether the last event was seen, where there are events."""

    def feed(self, chunk: bytes) -> str:
        """Take in the next bytes; gives the text in them."""
        if not self._is_events:
            self._rest += chunk
            return ""
        *frames, self._rest = (self._rest + chunk).replace(b"\r\n", b"\n").split(b"\n\n")
        return "".join(self._event(frame) for frame in frames)

    def end(self) -> None:
        """There are no more bytes."""
        if self._is_events:
            self._event(self._rest)
        elif (body := _json_object(self._rest)) is not None:
            self._note(body)

    def _event(self, frame: bytes) -> str:
        data = b"\n".join(
            line[5:].removeprefix(b" ") for line in frame.split(b"\n") if line.startswith(b"data:")
        )
        if data.startswith(b"[DONE]"):
            self.has_ended = True
            return ""
        event = _json_object(data)
        if event is None:
            return ""
        kind = event.get("type")
        if kind == "error" or event.get("error"):
            error = event.get("error")
            self.error = error_detail(error if isinstance(error, dict) else event)
            self.has_ended = True
            return ""
        for holder in (event, event.get("message"), event.get("response"), event.get("delta")):
            self._note(holder)
        if kind in ("message_stop", "response.completed", "response.failed", "response.incomplete"):
            self.has_ended = True
        choices = event.get("choices")
        if isinstance(choices, list):
            first = choices[0] if choices and isinstance(choices[0], dict) else {}
            if first.get("finish_reason") is not None:
                self.has_ended = True
            return _text(first.get("delta"), "content")
        if kind == "response.output_text.delta":
            return _text(event, "delta")
        return _text(event.get("delta"), "text") if kind == "content_block_delta" else ""

    def facts(self, headers: Mapping[str, str]) -> Facts:
        """Why it ended and what it used, as far as it was said; what is left, by the headers of the response."""
        return self._facts.updated(Facts(rate_limits=rate_limits(headers, time())))

    def _note(self, part: Any) -> None:
        if isinstance(part, dict):
            said = facts_of(part)
            counts = {**self._facts.usage, **said.usage}  # a stream tells them bit by bit
            self._facts = self._facts.updated(msgspec.structs.replace(said, usage=counts))


def _text(holder: Any, key: str) -> str:
    text = holder.get(key) if isinstance(holder, dict) else None
    return text if isinstance(text, str) else ""


def error_detail(error: Mapping[str, Any]) -> Json:
    """Type and code of a provider's error; never its text, which may quote the prompt or a credential."""
    return {key: error[key] for key in ("type", "code", "param") if _is_short(error.get(key))}


def detail_of(body: bytes) -> Json:
    """The same of the body of an answer."""
    answer = _json_object(body) or {}
    error = answer.get("error")
    return error_detail(error if isinstance(error, dict) else answer)


def _is_short(word: Any) -> bool:
    return (isinstance(word, str) and len(word) <= _NAME_CHARACTERS) or type(word) is int


def error_body(name: str, detail: Json, words: str) -> Json:
    """An error body with `words` for its text, such as the client library of that API reads."""
    error = {"type": detail.get("type", "error"), "message": words}
    if name.startswith("messages"):
        return {"type": "error", "error": error}
    return {"error": {**error, "code": detail.get("code"), "param": detail.get("param")}}


def error_event(name: str, detail: Json, words: str) -> bytes:
    """The same as the one event of a stream."""
    return f"event: error\ndata: {json.dumps(error_body(name, detail, words))}\n\n".encode()

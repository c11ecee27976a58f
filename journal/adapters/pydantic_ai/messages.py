"""Model calls as values: what is asked, and what tells two asks apart.

The digest of a model call's input covers what is said in the conversation: without times, ids of runs and what
providers note beside it. Instructions, system prompts, tool definitions and settings are its configuration: they may
differ on a replay (a date in the prompt), which is drift and not divergence.
"""

import json
from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_core import to_jsonable_python

from journal.core import values
from journal.core.errors import InvalidValue, ValueTooLarge
from journal.tools.facts import Facts, facts_of, normalized

_NO_LIMIT = 1 << 40
_SAID = {
    "part_kind", "content", "args", "tool_name", "tool_call_id", "tool_kind", "outcome", "state", "signature"
}  # fmt: skip


def said(messages: Sequence[ModelMessage]) -> list[Any]:
    """The conversation, as it is told apart: per message its kind, and its parts without system prompts."""
    found = []
    for message in ModelMessagesTypeAdapter.dump_python(list(messages), mode="json"):
        parts = [_part(part) for part in message["parts"] if part["part_kind"] != "system-prompt"]
        found.append({"kind": message["kind"], "parts": parts})
    return found


def _part(part: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in part.items() if key in _SAID and value is not None}
    if isinstance(content := kept.get("content"), list):
        kept["content"] = [_without_time(item) for item in content]
    return kept


def _without_time(item: Any) -> Any:
    return {k: v for k, v in item.items() if k != "timestamp"} if isinstance(item, dict) else item


def digest_of(value: Any) -> bytes:
    """Digest of `value`, whatever is in it; things that JSON cannot say count by their class's name."""
    return values.digest(json.dumps(jsonable(value), sort_keys=True, ensure_ascii=True).encode())


def jsonable(value: Any) -> Any:
    """`value` in JSON's own types."""
    return to_jsonable_python(value, fallback=lambda other: f"<{type(other).__qualname__}>")


def system_prompts(messages: Sequence[ModelMessage]) -> list[str]:
    """What the system says in `messages`: configuration, not conversation."""
    return [
        str(part.content)
        for message in messages
        for part in message.parts
        if part.part_kind == "system-prompt"
    ]


def instructions_of(messages: Sequence[ModelMessage]) -> str | None:
    """The instructions that go with the latest request."""
    for message in reversed(messages):
        if message.kind == "request":
            return message.instructions
    return None


def recorded(value: Any) -> bytes | None:
    """`value` for the log, or None where it cannot be kept."""
    try:
        return values.encode(value, what="the input of a call")
    except (InvalidValue, ValueTooLarge):
        return None


def conversation_digest(conversation: list[Any]) -> bytes:
    """Digest of what `said` gave."""
    return digest_of(conversation)


def facts_of_reply(reply: Any) -> Facts:
    """What a reply (as JSON) says of itself: the provider's own word goes before Pydantic AI's, which knows fewer.

    Headers are not handed on, so rate limits are known of errors alone.
    """
    raw = (reply.get("provider_details") or {}).get("finish_reason") or reply.get("finish_reason")
    said = facts_of({"finish_reason": raw, "usage": reply.get("usage")})
    finish = said.finish or normalized(reply.get("finish_reason"))
    if finish == "stop" and calls_in(reply):
        finish = "tool_calls"
    counts = {name: count for name, count in said.usage.items() if count}  # 0 stands for what was not said
    return Facts(finish=finish, raw_finish=said.raw_finish, usage=counts)


def asked_in(reply: Any) -> list[tuple[str, str]]:
    """Id and name of each tool call that a reply (as JSON) asks for, in order."""
    calls = (part for part in reply["parts"] if part.get("part_kind") == "tool-call")
    return [(call["tool_call_id"], call["tool_name"]) for call in calls]


def calls_in(reply: Any) -> list[str]:
    """The ids alone."""
    return [call_id for call_id, _ in asked_in(reply)]

"""What a provider says of a reply beside the reply: why it ended, what it used, what is left.

Read off the objects of any client, or their JSON, by their attributes. Nothing is made up: what is not said, or is said
in a word that nobody knows, has no normalized form; the provider's own word is kept beside it.
"""

from collections.abc import Mapping
from time import time
from typing import Any

import msgspec

from journal.core.records import CallKind, CallOutcome, FinishReason
from journal.tools.provider import headers_of, rate_limits

_REASONS: dict[str, FinishReason] = {
    "stop": "stop",  # OpenAI chat completions
    "length": "length",
    "tool_calls": "tool_calls",
    "tool_call": "tool_calls",  # Pydantic AI
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "completed": "stop",  # OpenAI responses; one that asks for tools is told apart below
    "max_output_tokens": "length",
    "failed": "error",
    "cancelled": "cancelled",
    "end_turn": "stop",  # Anthropic, Bedrock
    "stop_sequence": "stop",
    "max_tokens": "length",  # Gemini too
    "tool_use": "tool_calls",
    "refusal": "refusal",
    "pause_turn": "pause",
    "model_context_window_exceeded": "context_limit",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
    "model_length": "context_limit",  # Mistral
    "safety": "content_filter",  # Gemini
    "recitation": "content_filter",
    "blocklist": "content_filter",
    "prohibited_content": "content_filter",
    "spii": "content_filter",
    "malformed_function_call": "malformed",
    "context_length_exceeded": "context_limit",  # as the code of an error
    "string_above_max_length": "context_limit",
}
_ERRORS: dict[str, FinishReason] = {
    "LengthFinishReasonError": "length",  # openai
    "ContentFilterFinishReasonError": "content_filter",
    "APIResponseValidationError": "malformed",  # openai, anthropic
    "ModelBehaviorError": "malformed",  # OpenAI Agents
    "ModelRefusalError": "refusal",
    "ContentFilterError": "content_filter",  # Pydantic AI
    "UnexpectedModelBehavior": "malformed",
}
_USAGE: dict[str, tuple[str, ...]] = {
    "input_tokens": ("input_tokens", "prompt_tokens"),
    "output_tokens": ("output_tokens", "completion_tokens"),
    "total_tokens": ("total_tokens",),
    "cached_tokens": (
        "cache_read_input_tokens",
        "cache_read_tokens",  # Pydantic AI
        "input_token_details.cache_read",  # LangChain
        "input_tokens_details.cached_tokens",
        "prompt_tokens_details.cached_tokens",
    ),
    "cache_write_tokens": (
        "cache_creation_input_tokens",
        "cache_write_tokens",
        "input_token_details.cache_creation",
    ),
    "reasoning_tokens": (
        "output_tokens_details.reasoning_tokens",
        "completion_tokens_details.reasoning_tokens",
        "details.reasoning_tokens",
        "output_token_details.reasoning",
    ),
}
_LONGEST_WORD = 64


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept with the outcome of a model call. Empty: not said."""

    finish: FinishReason | None = None
    raw_finish: str | None = None
    usage: dict[str, int] = {}
    rate_limits: dict[str, float] = {}

    def updated(self, later: "Facts") -> "Facts":
        """These, and what `later` says in place of them; a reason and its raw word go together."""
        says_why = later.finish is not None or later.raw_finish is not None
        why = later if says_why else self
        return Facts(
            finish=why.finish if why.finish is not None else normalized(why.raw_finish),
            raw_finish=why.raw_finish,
            usage=later.usage or self.usage,
            rate_limits=later.rate_limits or self.rate_limits,
        )


NOTHING = Facts()


def normalized(word: str | None) -> FinishReason | None:
    """A provider's word for why it ended; None for one that is not known."""
    return None if word is None else _REASONS.get(word.lower())


def facts_of(reply: object) -> Facts:
    """What a client's reply object, or its JSON, says of itself."""
    word = _text(_at(reply, "stop_reason")) or _text(_at(reply, "finish_reason"))
    if word is None and isinstance(choices := _at(reply, "choices"), list | tuple) and choices:
        word = _text(_at(choices[0], "finish_reason"))
    if word is None and _at(reply, "object") == "response":
        word = _text(_at(reply, "incomplete_details.reason")) or _text(_at(reply, "status"))
    finish = normalized(word)
    if word == "completed":
        finish = _of_items(_at(reply, "output"))
    return Facts(finish=finish, raw_finish=word, usage=usage_of(_at(reply, "usage")))


def _of_items(items: object) -> FinishReason:
    """Why a response that is complete ended: OpenAI says so by what it holds."""
    found = items if isinstance(items, list | tuple) else ()
    if any(str(_at(item, "type")).endswith("_call") and _at(item, "call_id") for item in found):
        return "tool_calls"
    return "refusal" if any(is_refusal(item) for item in found) else "stop"


def is_refusal(item: object) -> bool:
    """Whether an output item of a response is the model's refusal."""
    parts = _at(item, "content")
    return isinstance(parts, list | tuple) and any(_at(part, "type") == "refusal" for part in parts)


def usage_of(usage: object) -> dict[str, int]:
    """Token counts under our names, of a client's usage object or its JSON."""
    found: dict[str, int] = {}
    for ours, places in _USAGE.items():
        count = next((value for place in places if type(value := _at(usage, place)) is int), None)
        if count is not None:
            found[ours] = count
    return found


def facts_of_error(error: BaseException) -> Facts:
    """Why the call failed, and what the response said is left."""
    for cls in type(error).__mro__:
        if (reason := _ERRORS.get(cls.__name__)) is not None:
            break
    else:
        reason = normalized(_text(_at(error, "code"))) or "error"
    return Facts(finish=reason, rate_limits=rate_limits(headers_of(error), time()))


def with_facts(
    outcome: CallOutcome, kind: CallKind, facts: Facts, cause: BaseException | None
) -> CallOutcome:
    """`outcome` of a call with what was reported of it, and what the error that ended it says."""
    if facts is NOTHING and (kind != "model" or outcome.status == "ok"):
        return outcome
    if outcome.status == "error" and kind == "model" and cause is not None:
        facts = facts.updated(facts_of_error(cause))
    elif outcome.status == "cancelled" and kind == "model":
        facts = facts.updated(Facts(finish="cancelled"))
    if facts == NOTHING:
        return outcome
    return msgspec.structs.replace(
        outcome,
        finish=facts.finish,
        raw_finish=facts.raw_finish,
        usage=facts.usage,
        rate_limits=facts.rate_limits,
    )


def _at(holder: object, path: str) -> Any:
    """What lies at a dotted path of keys or attributes; None where there is nothing."""
    for name in path.split("."):
        try:
            holder = holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
        except Exception:  # noqa: BLE001 - a property of a foreign class
            return None
    return holder


def _text(value: object) -> str | None:
    """A word: what an enumeration stands for, too; never a text."""
    word = getattr(value, "value", value)
    return word if isinstance(word, str) and 0 < len(word) <= _LONGEST_WORD else None

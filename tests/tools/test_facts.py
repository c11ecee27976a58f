"""What a reply says of itself, by the shapes in the providers' documentation; and what it does not say."""

from types import SimpleNamespace as Object
from typing import Any

import pytest

from journal.core.records import CallOutcome, FinishReason
from journal.tools.facts import Facts, facts_of, facts_of_error, normalized, with_facts
from tests.tools.test_provider import StatusError, named


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", "stop"), ("length", "length"), ("tool_calls", "tool_calls"), ("content_filter", "content_filter"),
        ("end_turn", "stop"), ("stop_sequence", "stop"), ("max_tokens", "length"), ("tool_use", "tool_calls"),
        ("pause_turn", "pause"), ("refusal", "refusal"), ("model_context_window_exceeded", "context_limit"),
        ("STOP", "stop"), ("MAX_TOKENS", "length"), ("SAFETY", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "malformed"),
        ("something new", None), (None, None),
    ],
)  # fmt: skip
def test_reasons(word: str | None, reason: FinishReason | None) -> None:
    assert normalized(word) == reason


def test_a_chat_completion() -> None:
    reply = {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "tool_calls"}],
        "usage": {
            "prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29,
            "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 4},
        },
    }  # fmt: skip
    usage = {
        "input_tokens": 19,
        "output_tokens": 10,
        "total_tokens": 29,
        "cached_tokens": 0,
        "reasoning_tokens": 4,
    }
    assert facts_of(reply) == Facts(finish="tool_calls", raw_finish="tool_calls", usage=usage)


def test_a_message_of_anthropic_as_its_client_gives_it() -> None:
    usage = Object(
        input_tokens=12, output_tokens=6, cache_read_input_tokens=100, cache_creation_input_tokens=None
    )
    assert facts_of(Object(type="message", stop_reason="max_tokens", usage=usage)) == Facts(
        finish="length",
        raw_finish="max_tokens",
        usage={"input_tokens": 12, "output_tokens": 6, "cached_tokens": 100},  # no total: nobody said one
    )


@pytest.mark.parametrize(
    ("about", "finish", "raw"),
    [
        ({"status": "completed", "output": [{"content": [{"type": "output_text"}]}]}, "stop", "completed"),
        ({"status": "completed", "output": [{"type": "function_call", "call_id": "c"}]}, "tool_calls", "completed"),
        ({"status": "completed", "output": [{"content": [{"type": "refusal"}]}]}, "refusal", "completed"),
        ({"status": "x", "incomplete_details": {"reason": "max_output_tokens"}}, "length", "max_output_tokens"),
        ({"status": "incomplete", "incomplete_details": None}, None, "incomplete"),
        ({"status": "failed"}, "error", "failed"),
    ],
)  # fmt: skip
def test_a_response_of_openai(about: dict[str, Any], finish: str | None, raw: str) -> None:
    found = facts_of({"object": "response", **about})
    assert (found.finish, found.raw_finish) == (finish, raw)


@pytest.mark.parametrize(
    "reply", [None, "text", 3, {"choices": []}, {"usage": {"prompt_tokens": "many"}}, object()]
)
def test_what_says_nothing_is_said_to_say_nothing(reply: object) -> None:
    assert facts_of(reply) == Facts()


def test_of_an_error_its_code_class_and_headers() -> None:
    too_long = StatusError(400)
    too_long.code = "context_length_exceeded"  # type: ignore[attr-defined]  # as the client sets it
    assert facts_of_error(too_long) == Facts(finish="context_limit")
    limited = StatusError(429, retry_after="3", x_ratelimit_remaining_requests="0")
    assert facts_of_error(limited) == Facts(
        finish="error", rate_limits={"retry_after_seconds": 3.0, "requests_remaining": 0.0}
    )
    assert facts_of_error(named("ModelBehaviorError")).finish == "malformed"
    assert facts_of_error(named("ModelRefusalError")).finish == "refusal"


def test_outcomes_have_what_was_said_and_nothing_else() -> None:
    plain = CallOutcome(status="ok", value=b"1")
    assert with_facts(plain, "model", Facts(), None) is plain
    said = with_facts(
        plain, "model", Facts(finish="stop", raw_finish="end_turn", usage={"input_tokens": 1}), None
    )
    assert (said.finish, said.raw_finish, said.usage, said.rate_limits) == (
        "stop",
        "end_turn",
        {"input_tokens": 1},
        {},
    )
    failed = CallOutcome(status="error")
    assert with_facts(failed, "model", Facts(usage={"input_tokens": 1}), ValueError()).finish == "error"
    assert with_facts(failed, "tool", Facts(), ValueError()) is failed
    assert with_facts(CallOutcome(status="cancelled"), "model", Facts(), None).finish == "cancelled"
    assert with_facts(CallOutcome(status="unknown"), "model", Facts(), None).finish is None

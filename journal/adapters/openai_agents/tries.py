"""How often a model is asked within one call, and what the log keeps of each reply beside the reply.

The engine tries again (`ModelRetry`), or the SDK's runner where `ModelSettings(retry=…)` says so, and then each try
is a call of its own. The client underneath never does: its tries would be counted by nobody.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agents import ModelResponse, ModelSettings
from agents.models._retry_runtime import (
    provider_managed_retries_disabled,
    websocket_pre_event_retries_disabled,
)
from agents.models.fake_id import FAKE_RESPONSES_ID

from journal.adapters.openai_agents.messages import Streamed, calls_in, plain
from journal.core.records import FinishReason
from journal.engine.context import in_call
from journal.tools.facts import Facts, is_refusal
from journal.tools.retry import Retry


@contextmanager
def only_our_tries() -> Iterator[None]:
    """Let the models of the SDK ask once: no retries of the client's, for what runs in the block."""
    with provider_managed_retries_disabled(True), websocket_pre_event_retries_disabled(True):
        yield


def retry_of(settings: ModelSettings, otherwise: Retry | None) -> Retry | None:
    """Our rule for a call with these settings: none where they say that the runner repeats it, or that nobody does."""
    said = settings.retry
    if said is None or said.max_retries is None or (said.max_retries > 0 and said.policy is None):
        return otherwise
    return None


def report(facts: Facts) -> None:
    """Keep `facts` with the outcome of the call that runs here."""
    if (context := in_call()) is not None:
        context.report(facts)


def facts_of(result: ModelResponse | Streamed) -> Facts:
    """Usage as the provider gave it, and why the reply ended where the SDK still knows.

    Of a chat completion it keeps no reason, and makes up a state for each item, which is not repeated here.
    """
    reply = result.reply if isinstance(result, Streamed) else result
    finish: FinishReason | None = None
    raw: str | None = None
    items: list[Any] = [plain(item) for item in reply.output]
    last = items[-1] if items else {}
    is_own = reply.response_id is not None and last.get("id") != FAKE_RESPONSES_ID
    if is_own and last.get("status") == "completed":
        finish, raw = "stop", "completed"
    if calls_in(reply):
        finish = "tool_calls"
    elif any(is_refusal(item) for item in items):
        finish = "refusal"
    return Facts(finish=finish, raw_finish=raw, usage=_usage(reply))


def _usage(reply: ModelResponse) -> dict[str, int]:
    usage = reply.usage
    counts = {
        "requests": usage.requests,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "cached_tokens": usage.input_tokens_details.cached_tokens,
        "reasoning_tokens": usage.output_tokens_details.reasoning_tokens,
    }
    return {name: count for name, count in counts.items() if count}  # the SDK has 0 for what was not said

"""What the bundled model "thinks": a support clerk who refunds an order, decided from the conversation alone.

Pure: the same conversation always gives the same reply, in any process, which is what makes the demo and the crash
tests repeatable. Look the order up, refund it, post a note, say so. When a call's result says that it may have
completed and was not repeated, the clerk looks before it leaps, and never asks for the refund again.
"""

import json
import re
from typing import Any

import msgspec


class Call(msgspec.Struct, frozen=True):
    """A tool call that the clerk asked for, and what came of it."""

    name: str
    arguments: dict[str, Any]
    output: str | None = None
    """None: no result in the conversation yet."""


class Conversation(msgspec.Struct, frozen=True):
    """What a request says, whatever API it came through."""

    message: str
    """The last thing that the user said."""
    calls: tuple[Call, ...]
    """Calls since then, in order."""
    earlier: int
    """How many calls came before that message."""
    tools: frozenset[str]
    """Names of the tools on offer."""


class Ask(msgspec.Struct, frozen=True):
    """The clerk wants a tool called."""

    name: str
    arguments: dict[str, Any]


class Say(msgspec.Struct, frozen=True):
    """The clerk is done."""

    text: str


_ORDER = re.compile(r"order[\s#:-]*(?:no\.?|number|id)?[\s#:-]*((?=[\w-]*\d)\w[\w-]*)", re.IGNORECASE)
_ANY_NUMBER = re.compile(r"(?=[\w-]*\d)\w[\w-]*")
_AMOUNT = re.compile(
    r'(?:amount|total|price)"?\s*[:=]?\s*(\d+)|(\d+)(?:\.\d+)?\s*(?:EUR|USD|GBP|€|\$)', re.IGNORECASE
)
_IN_DOUBT = re.compile(r"may have completed|not repeated|unknown", re.IGNORECASE)
_REFUSED = re.compile(r"error|failed|refused", re.IGNORECASE)
_REFUNDED = re.compile(r'refunded"?\s*[:=]?\s*(?:true|[1-9])|already refunded', re.IGNORECASE)
_LOOKS = 3  # an order that cannot be read is not asked for endlessly


def decide(conversation: Conversation) -> Ask | Say:
    """The clerk's next move."""
    order = order_id(conversation.message)
    amount = _amount(conversation.calls)
    looks = [c for c in conversation.calls if c.name == "get_order"]
    refunds = [c for c in conversation.calls if c.name == "refund"]
    has = conversation.tools.__contains__
    if has("get_order") and not any(_is_clear(c) for c in looks) and len(looks) < _LOOKS:
        return Ask("get_order", {"order_id": order})
    if has("refund") and not refunds:
        return Ask("refund", {"order_id": order, "amount": amount})
    is_in_doubt = bool(refunds) and not _is_clear(refunds[-1])
    if is_in_doubt and has("get_order") and conversation.calls[-1] is refunds[-1]:
        return Ask("get_order", {"order_id": order})
    verdict = _verdict(order, amount, refunds, looks, is_in_doubt)
    if has("post_note") and not any(c.name == "post_note" for c in conversation.calls):
        return Ask("post_note", {"order_id": order, "text": verdict})
    return Say(verdict)


def order_id(message: str) -> str:
    """The order that a message is about; "1" where it names none."""
    found = _ORDER.search(message)
    if found:
        return found.group(1).rstrip("-")
    number = _ANY_NUMBER.search(message)
    return number.group(0).rstrip("-") if number else "1"


def _verdict(order: str, amount: int, refunds: list[Call], looks: list[Call], is_in_doubt: bool) -> str:
    if not refunds:
        return f"Order {order} was looked up; there is no tool to refund it with."
    if is_in_doubt:
        if _REFUNDED.search(looks[-1].output or "" if looks else ""):
            return f"Order {order}: the refund of {amount} went through before an interruption (verified)."
        return f"Order {order}: the refund of {amount} was interrupted and is to be verified by hand."
    if _REFUSED.search(refunds[-1].output or ""):
        return f"Order {order}: the refund of {amount} did not go through."
    return f"Order {order}: {amount} refunded."


def _is_clear(call: Call) -> bool:
    """Whether the call's result says what happened."""
    return call.output is not None and not _IN_DOUBT.search(call.output)


def _amount(calls: tuple[Call, ...]) -> int:
    """What the order cost, as its look-up says; 30 where it does not."""
    for call in calls:
        if call.name == "get_order" and call.output:
            found = _AMOUNT.search(call.output)
            if found:
                return int(found.group(1) or found.group(2))
    return 30


def as_arguments(text: str) -> dict[str, Any]:
    """The arguments of a call as they stand on the wire."""
    value = json.loads(text or "{}")
    return value if isinstance(value, dict) else {}

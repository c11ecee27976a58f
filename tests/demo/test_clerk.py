"""What the bundled model decides, move by move."""

import pytest

from journal.demo.clerk import Ask, Call, Conversation, Say, decide, order_id

TOOLS = frozenset({"get_order", "refund", "post_note"})
LOOK = Call("get_order", {}, '{"order_id": "42", "amount": 30, "refunded": 0}')
LOOK_AFTER = Call("get_order", {}, '{"order_id": "42", "amount": 30, "refunded": 30}')
DONE = Call("refund", {}, '{"refunded": 30}')
IN_DOUBT = Call("refund", {}, "refund may have completed; it was not repeated")
FAILED = Call("refund", {}, "error: card expired")
NOTED = Call("post_note", {}, "posted")


def move(*calls: Call, tools: frozenset[str] = TOOLS) -> Ask | Say:
    return decide(Conversation("Order 42 arrived broken", calls, 0, tools))


def test_the_plain_course() -> None:
    assert move() == Ask("get_order", {"order_id": "42"})
    assert move(LOOK) == Ask("refund", {"order_id": "42", "amount": 30})
    assert move(LOOK, DONE) == Ask("post_note", {"order_id": "42", "text": "Order 42: 30 refunded."})
    assert move(LOOK, DONE, NOTED) == Say("Order 42: 30 refunded.")


def test_a_refund_in_doubt_is_checked_once_and_told() -> None:
    assert move(LOOK, IN_DOUBT) == Ask("get_order", {"order_id": "42"})
    went_through = move(LOOK, IN_DOUBT, LOOK_AFTER)
    assert isinstance(went_through, Ask)
    assert went_through.name == "post_note"
    assert "went through before an interruption (verified)" in went_through.arguments["text"]
    unclear = move(LOOK, IN_DOUBT, LOOK)
    assert isinstance(unclear, Ask)
    assert "is to be verified by hand" in unclear.arguments["text"]
    assert isinstance(move(LOOK, IN_DOUBT, LOOK_AFTER, NOTED), Say)


def test_a_failed_refund_is_not_called_a_refund() -> None:
    ask = move(LOOK, FAILED)
    assert isinstance(ask, Ask)
    assert "did not go through" in ask.arguments["text"]


def test_an_order_that_cannot_be_read_is_not_asked_for_endlessly() -> None:
    in_doubt = Call("get_order", {}, "may have completed")
    assert move(in_doubt, in_doubt, in_doubt) == Ask("refund", {"order_id": "42", "amount": 30})


def test_without_tools_it_says_so() -> None:
    assert isinstance(move(tools=frozenset()), Say)


def test_the_amount_is_read_from_plain_text_too() -> None:
    assert move(Call("get_order", {}, "order 42: 1 vase, 55 EUR")) == Ask(
        "refund", {"order_id": "42", "amount": 55}
    )


@pytest.mark.parametrize(
    ("message", "order"),
    [
        ("Order 42 arrived broken", "42"),
        ("please refund order #A-17.", "A-17"),
        ("my order no. 9 is late", "9"),
        ("order-42", "42"),
        ("my order arrived broken, it was 1234", "1234"),
        ("hello", "1"),
    ],
)
def test_the_order_comes_from_the_message(message: str, order: str) -> None:
    assert order_id(message) == order

"""Arguments are recorded by name, as values; what is no value is refused by the argument's name."""

import io
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import pydantic
import pytest

from journal.core.arguments import decode_arguments, encode_arguments
from journal.core.errors import InvalidValue, ValueTooLarge
from journal.core.signatures import unbind


@dataclass
class Item:
    name: str
    day: date


class Order(pydantic.BaseModel):
    id: int
    labels: set[str] = set()


class Client: ...


def buy(order_id: Any, amount: Any = 1) -> None: ...


def rich(
    item: Item,
    order: Order,
    *rest: Item,
    codes: dict[int, str] | None = None,
    extra: Any = None,
    **more: Order,
) -> Any:
    return item, order, rest, codes, extra, more


DAY = date(2020, 1, 2)
ITEM, ORDER = Item("x", DAY), Order(id=1, labels={"b", "a"})


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        (("42",), {}, b'{"order_id":"42"}'),
        (("42", 3), {}, b'{"amount":3,"order_id":"42"}'),
        (((1, 2),), {"amount": None}, b'{"amount":null,"order_id":[1,2]}'),
        ((datetime(2020, 1, 2),), {}, b'{"order_id":"2020-01-02T00:00:00"}'),
        (([ITEM, {"o": ORDER}],), {},
         b'{"order_id":[{"day":"2020-01-02","name":"x"},{"o":{"id":1,"labels":["a","b"]}}]}'),
        (({3, 1, 2},), {}, b'{"order_id":[1,2,3]}'),
    ],
)  # fmt: skip
def test_recorded_by_name_and_by_what_they_are(
    args: tuple[Any, ...], kwargs: dict[str, Any], expected: bytes
) -> None:
    assert encode_arguments(buy, args, kwargs) == expected


def test_annotated_arguments_come_back_as_annotated() -> None:
    args = (ITEM, ORDER, Item("y", DAY))
    kwargs: dict[str, Any] = {"codes": {1: "a"}, "other": Order(id=2)}
    data = encode_arguments(rich, args, kwargs)
    assert data == (
        b'{"codes":{"1":"a"},"item":{"day":"2020-01-02","name":"x"},"more":{"other":{"id":2,"labels":[]}},'
        b'"order":{"id":1,"labels":["a","b"]},"rest":[{"day":"2020-01-02","name":"y"}]}'
    )
    again, named = unbind(rich, decode_arguments(rich, data))
    assert rich(*again, **named) == rich(*args, **kwargs)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (Client(), ""),
        ({"tools": [1, Client()]}, "tools[1]"),
        (io.StringIO(), ""),
        ((n for n in "abc"), ""),
        (lambda: 1, ""),
        ({Client()}, ""),
    ],
)
def test_what_is_no_value_is_refused_by_argument_with_the_way_out(value: Any, path: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        encode_arguments(buy, ("42", value), {})
    assert caught.value.what == "argument 'amount' of buy"
    assert caught.value.path == path
    assert "turn.deps or a closure" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        (float("nan"), "", "nan is not JSON"),
        ([1, float("inf")], "[1]", "inf is not JSON"),
        ({1: 2}, "", "the key 1 is an int"),
        (2**64, "", "outside -2**63"),
        ("\ud800", "", "lone surrogate"),
    ],
)
def test_values_that_json_cannot_say_are_refused_by_argument(value: Any, path: str, reason: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        encode_arguments(buy, (), {"order_id": "1", "amount": value})
    assert (caught.value.what, caught.value.path) == ("argument 'amount' of buy", path)
    assert reason in caught.value.reason


def test_wrong_arguments_are_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"buy\(\) missing 1 required positional argument: 'order_id'"):
        encode_arguments(buy, (), {})


def test_too_large_arguments_are_refused_by_function() -> None:
    for value in ("x" * 9_000_000, [ITEM, "x" * 9_000_000]):
        with pytest.raises(ValueTooLarge, match="of buy takes 9,000,0"):
            encode_arguments(buy, (value,), {})
    with pytest.raises(ValueTooLarge, match="the arguments of buy takes"):
        encode_arguments(buy, ("x" * 5_000_000, "x" * 5_000_000), {})


def test_a_value_that_strays_from_its_annotation_is_written_by_what_it_is() -> None:
    assert encode_arguments(rich, ("plain", {"id": 1}), {}) == b'{"item":"plain","order":{"id":1}}'

"""What a model is shown of a tool's arguments, and what it is told when they do not fit."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from journal.core.errors import InvalidOptions, ToolArgumentError
from journal.tools.schema import described_arguments, summary
from journal.tools.tool import tool


@dataclass
class Address:
    """Where to."""

    street: str
    number: int = 1


class Line(msgspec.Struct):
    sku: Annotated[str, msgspec.Meta(description="Stock number", min_length=3)]
    count: int = 1


class Voucher(pydantic.BaseModel):
    code: str = pydantic.Field(description="As printed", min_length=4)
    percent: int = 10


@tool
def order(  # type: ignore[no-untyped-def]  # one argument says nothing
    customer: str,
    lines: list[Line],
    to: Address | None = None,
    voucher: Voucher | None = None,
    *,
    day: date,
    speed: Literal["slow", "fast"] = "slow",
    copies: Annotated[int, pydantic.Field(ge=1, description="How many copies")] = 1,
    note: Annotated[str, "A note for the driver"] = "",
    anything=None,  # says nothing
) -> str:
    """Order goods.
    One order a call.

    Nothing a model needs.

    Args:
        customer: Who orders,
            by id.
        day (date): When to deliver
        missing: not there
    """
    return customer


def test_the_schema_of_a_signature() -> None:
    assert order.description == "Order goods. One order a call."
    assert order.schema == {
        "type": "object",
        "properties": {
            "customer": {"type": "string", "description": "Who orders, by id."},
            "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
            "to": {"anyOf": [{"$ref": "#/$defs/Address"}, {"type": "null"}]},
            "voucher": {"anyOf": [{"$ref": "#/$defs/Voucher"}, {"type": "null"}]},
            "day": {"type": "string", "format": "date", "description": "When to deliver"},
            "speed": {"enum": ["fast", "slow"], "default": "slow"},
            "copies": {"type": "integer", "minimum": 1, "description": "How many copies", "default": 1},
            "note": {"type": "string", "description": "A note for the driver", "default": ""},
            "anything": {},
        },
        "required": ["customer", "lines", "day"],
        "additionalProperties": False,
        "$defs": {
            "Line": {
                "title": "Line",
                "type": "object",
                "properties": {
                    "sku": {"type": "string", "description": "Stock number", "minLength": 3},
                    "count": {"type": "integer", "default": 1},
                },
                "required": ["sku"],
            },
            "Address": {
                "title": "Address",
                "description": "Where to.",
                "type": "object",
                "properties": {"street": {"type": "string"}, "number": {"type": "integer", "default": 1}},
                "required": ["street"],
            },
            "Voucher": {
                "title": "Voucher",
                "type": "object",
                "properties": {
                    "code": {"title": "Code", "description": "As printed", "minLength": 4, "type": "string"},
                    "percent": {"title": "Percent", "default": 10, "type": "integer"},
                },
                "required": ["code"],
            },
        },
    }


def test_arguments_are_read_as_annotated() -> None:
    text = (
        '{"customer":"c","lines":[{"sku":"abc"}],"to":{"street":"s"},"voucher":{"code":"1234"},'
        '"day":"2020-01-02","speed":"fast","anything":[1]}'
    )
    expected = {
        "customer": "c",
        "lines": [Line("abc")],
        "to": Address("s"),
        "voucher": Voucher(code="1234"),
        "day": date(2020, 1, 2),
        "speed": "fast",
        "anything": [1],
    }
    assert order.parse(text) == expected
    assert order.parse(text.encode()) == expected
    assert order.parse(msgspec.json.decode(text)) == expected
    assert order(**order.parse(text)) == "c"


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ToolArgumentError) as caught:
        order.parse(
            '{"lines":[{"sku":"abc"},{"sku":1}],"to":{},"voucher":{"code":"1"},"day":"soon",'
            '"speed":"warp","copies":0,"sped":1}'
        )
    text = str(caught.value)
    assert caught.value.tool == "order"
    assert text.startswith("order was not run: ")
    assert text.endswith("; call it again with corrected arguments")
    for said in (
        "customer is missing (expected: string, Who orders, by id.)",
        'lines[1].sku: expected str, got int (given: [{"sku":"abc"},{"sku":1}])',
        "to: object missing required field street (given: {})",
        'voucher.code: string should have at least 4 characters (given: {"code":"1"})',
        'day: invalid RFC3339 encoded date (given: "soon")',
        "speed: invalid enum value 'warp' (given: \"warp\")",
        "copies: input should be greater than or equal to 1 (given: 0)",
        "there is no argument sped (known: customer, lines, to, voucher, day, speed, copies, note, anything)",
    ):
        assert said in text


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("{", "it is not JSON"),
        ('{"customer": NaN}', "NaN is not JSON"),
        ('{"customer":"a","customer":"b"}', "the key 'customer' stands twice"),
        ('["a"]', 'must be a JSON object, not ["a"]'),
        ('"a"', "must be a JSON object"),
        ("null", "must be a JSON object"),
        ({"customer": float("nan")}, "customer: nan is not JSON"),
        ("[" * 100_000, "nested deeper"),
    ],
)
def test_what_is_no_object_of_arguments_is_refused(given: Any, reason: str) -> None:
    with pytest.raises(ToolArgumentError) as caught:
        order.parse(given)
    assert reason in caught.value.reason


def test_a_long_value_is_shown_in_part() -> None:
    with pytest.raises(ToolArgumentError) as caught:
        order.parse({"customer": ["x" * 10_000]})
    assert len(str(caught.value)) < 500


def test_a_tool_without_arguments_takes_nothing() -> None:
    @tool
    def ping() -> None: ...

    assert ping.schema == {"type": "object", "properties": {}, "additionalProperties": False}
    nothing: Any
    for nothing in ("", " ", "{}", {}):
        assert ping.parse(nothing) == {}
    with pytest.raises(ToolArgumentError, match=r"there is no argument a \(the tool takes none\)"):
        ping.parse('{"a":1}')


def test_keywords_of_any_name() -> None:
    @tool
    def tag(name: str, **tags: int) -> Any:
        return name, tags

    assert tag.schema["additionalProperties"] == {"type": "integer"}
    assert tag(**tag.parse('{"name":"a","x":1}')) == ("a", {"x": 1})
    with pytest.raises(ToolArgumentError, match="x: expected int, got str"):
        tag.parse('{"name":"a","x":"1"}')


def variadic(*numbers: int) -> None: ...
def positional(a: int, /) -> None: ...
def clientful(client: Iterator[int]) -> None: ...


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (variadic, "argument 'numbers' cannot be given by name"),
        (positional, "argument 'a' cannot be given by name"),
        (clientful, r"argument 'client' is declared as .*Iterator\[int\], which a model cannot give"),
    ],
)
def test_signatures_that_a_model_cannot_call_are_refused(fn: Callable[..., Any], reason: str) -> None:
    made = tool(fn)
    with pytest.raises(InvalidOptions, match=reason):
        _ = made.schema


def test_annotations_may_name_what_is_defined_later() -> None:
    @tool
    def later(x: "Later") -> None: ...

    assert later.schema["properties"] == {"x": {"$ref": "#/$defs/Later"}}


class Later(msgspec.Struct):
    a: int


def test_messages_follow_the_tools_name() -> None:
    renamed = order.options(name="buy")
    with pytest.raises(ToolArgumentError, match=r"^order was not run"):
        order.parse("[]")
    with pytest.raises(ToolArgumentError, match=r"^buy was not run"):
        renamed.parse("[]")


@pytest.mark.parametrize(
    ("doc", "expected"),
    [
        ("", ""),
        ("One line.", "One line."),
        ("One\n  sentence.\n\nMore.", "One sentence."),
        ("\n\nFirst.\nArgs:\n  x: y", "First."),
        ("Args:\n  x: y", ""),
    ],
)
def test_the_summary_is_the_first_paragraph(doc: str, expected: str) -> None:
    assert summary(doc) == expected


def test_argument_sections() -> None:
    doc = """Do.

    Args:
        a: one
        b (int, optional): two
            and more: with a colon

            after a gap
        *rest: others

    Returns:
        c: not an argument
    """
    import inspect

    assert described_arguments(inspect.cleandoc(doc)) == {
        "a": "one",
        "b": "two and more: with a colon after a gap",
        "rest": "others",
    }
    assert described_arguments("Do.\n\n:param a: one\n:param b:  two\n:returns: c") == {
        "a": "one",
        "b": "two",
    }
    assert described_arguments("Do.") == {}

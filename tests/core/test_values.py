"""SEMANTICS 9, line by line. Expected bytes are written out by hand."""

import enum
import math
from collections import OrderedDict, defaultdict
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from journal.core import values
from journal.core.errors import InvalidValue, ValueTooLarge

MIB = 1024 * 1024


class Word(enum.StrEnum):
    YES = "yes"


class Number(enum.IntEnum):
    ONE = 1


class Point(NamedTuple):
    x: int


def nested(depth: int, *, kind: str = "list") -> Any:
    value: Any = [] if kind == "list" else {}
    for _ in range(depth - 1):
        value = [value] if kind == "list" else {"a": value}
    return value


def refused(value: Any, **options: Any) -> InvalidValue:
    with pytest.raises(InvalidValue) as caught:
        values.encode(value, **options)
    return caught.value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, b"null"),
        (True, b"true"),
        (False, b"false"),
        (0, b"0"),
        (-1, b"-1"),
        (2**63, b"9223372036854775808"),
        (2**64 - 1, b"18446744073709551615"),
        (-(2**63), b"-9223372036854775808"),
        (0.0, b"0.0"),
        (-0.0, b"-0.0"),
        (1.0, b"1.0"),
        (0.1, b"0.1"),
        (1.5e300, b"1.5e300"),
        (5e-324, b"5e-324"),
        ("", b'""'),
        ("a", b'"a"'),
        ("\x00", b'"\\u0000"'),
        ("é", b'"\xc3\xa9"'),
        ("\U0001f600", b'"\xf0\x9f\x98\x80"'),
        ("\u2028", b'"\xe2\x80\xa8"'),
        ('"\\/', b'"\\"\\\\/"'),
        ("\n\t\x1f", b'"\\n\\t\\u001f"'),
        ([], b"[]"),
        ({}, b"{}"),
        ([[], {}, ""], b'[[],{},""]'),
        ({"a": 1, "b": [1, 2.0, None]}, b'{"a":1,"b":[1,2.0,null]}'),
        ({"": 0}, b'{"":0}'),
    ],
)
def test_canonical_bytes(value: Any, expected: bytes) -> None:
    assert values.encode(value) == expected
    back = values.decode(expected)
    assert back == value
    assert type(back) is type(value)


def test_minus_zero_comes_back_negative() -> None:
    assert math.copysign(1, values.decode(values.encode(-0.0))) == -1


def test_keys_stand_in_code_point_order() -> None:
    # U+FFFF comes before U+10000, although its UTF-16 code units come after.
    keys = ["\U00010000", "\uffff", "é", "z", "a\x00", "a", "B", ""]
    expected = b'{"":7,"B":6,"a":5,"a\\u0000":4,"z":3,"\xc3\xa9":2,"\xef\xbf\xbf":1,"\xf0\x90\x80\x80":0}'
    assert values.encode({key: i for i, key in enumerate(keys)}) == expected


def test_null_and_absent_are_different() -> None:
    assert values.encode({"a": None}) == b'{"a":null}'
    assert values.encode({}) == b"{}"
    assert values.decode(b'{"a":null}') == {"a": None}


def test_a_tuple_comes_back_as_a_list() -> None:
    data, back = values.keep({"a": (1, ("x",)), "b": [()]})
    assert data == b'{"a":[1,["x"]],"b":[[]]}'
    assert back == {"a": [1, ["x"]], "b": [[]]}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (OrderedDict(b=1, a=2), b'{"a":2,"b":1}'),
        (defaultdict(int, a=1), b'{"a":1}'),
        ([Word.YES, Number.ONE], b'["yes",1]'),
        ({Word.YES: 1}, b'{"yes":1}'),
    ],
)
def test_what_equals_its_json_is_accepted(value: Any, expected: bytes) -> None:
    data, back = values.keep(value)
    assert data == expected
    assert back == value
    assert type(back) in (dict, list)


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        (math.nan, "", "nan is not JSON"),
        ({"a": [1, math.inf]}, "a[1]", "inf is not JSON"),
        ({"a": {"b": -math.inf}}, "a.b", "-inf is not JSON"),
        (2**64, "", "outside -2**63 to 2**64 - 1"),
        ([0, -(2**63) - 1], "[1]", "outside -2**63 to 2**64 - 1"),
        ({"n": 10**400}, "n", "outside -2**63 to 2**64 - 1"),
        ({"s": "ok\ud800"}, "s", "lone surrogate"),
        ([{"x\udfff": 1}], "[0]", "lone surrogate"),
        ({"a": {1: 2}}, "a", "the key 1 is an int"),
        ({None: 1}, "", "the key None is a NoneType"),
        ({"a": [{(1, 2): 3}]}, "a[0]", "is a tuple, and keys are text"),
        ({"when": datetime(2020, 1, 1)}, "when", "a datetime is not JSON"),
        ([b"raw"], "[0]", "a bytes is not JSON"),
        ([{1, 2}], "[0]", "a set is not JSON"),
        ({"a": Decimal(1)}, "a", "a Decimal is not JSON"),
        ([Point(1)], "[0]", "a Point is not JSON"),
        ({"a": (1, object())}, "a[1]", "an object is not JSON"),
        ({"ok": Word.YES, "z": {"deep": [complex(1)]}}, "z.deep[0]", "a complex is not JSON"),
    ],
)
def test_what_json_cannot_say_is_refused_by_path(value: Any, path: str, reason: str) -> None:
    error = refused(value, what="the input")
    assert (error.what, error.path) == ("the input", path)
    assert reason in error.reason
    assert str(error).startswith("the input")


@pytest.mark.parametrize("kind", ["list", "dict"])
def test_200_levels_are_allowed(kind: str) -> None:
    data, back = values.keep(nested(200, kind=kind))
    assert values.decode(data) == back
    assert len(data) == (400 if kind == "list" else 199 * 6 + 2)


@pytest.mark.parametrize("kind", ["list", "dict"])
@pytest.mark.parametrize("depth", [201, 1000, 100_000])
def test_201_levels_are_not(depth: int, kind: str) -> None:
    value = nested(depth, kind=kind)
    assert "nested deeper than 200" in refused(value).reason
    while value:  # taken apart by hand: freeing it in one go is deep as well
        value = value[0] if kind == "list" else value["a"]


def test_many_containers_side_by_side_are_not_deep() -> None:
    value: Any = [[{"a": []}] for _ in range(5000)]
    assert values.keep(value)[1] == value


def test_brackets_in_text_are_not_depth() -> None:
    value = {"text": "[{" * 500}
    assert values.keep(value)[1] == value


def test_a_value_in_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.extend([ring, ring])
    assert "nested deeper than 200" in refused(ring).reason


def test_the_limit_is_8_mib_to_the_byte() -> None:
    assert len(values.encode("x" * (8 * MIB - 2))) == 8 * MIB
    with pytest.raises(ValueTooLarge) as caught:
        values.encode("x" * (8 * MIB - 1), what="the result of fetch")
    assert (caught.value.size, caught.value.limit) == (8 * MIB + 1, 8 * MIB)
    assert str(caught.value).startswith("the result of fetch takes 8,388,609 bytes, 8,388,608 are allowed")


def test_200_mib_are_refused() -> None:
    with pytest.raises(ValueTooLarge):
        values.encode("x" * (200 * MIB))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a":1,"a":2}', "'a' stands twice"),
        ('[{"b":{"a":1,"c":2,"a":3}}]', "'a' stands twice"),
        ("NaN", "NaN is not JSON"),
        ("[Infinity]", "Infinity is not JSON"),
        ("1e999", "inf is not JSON"),
        ("18446744073709551616", "outside -2**63"),
        ('"\\ud800"', "lone surrogate"),
        ("", "it is not JSON"),
        ("{'a': 1}", "it is not JSON"),
        ("[1] 2", "it is not JSON"),
        (b'"\xff"', "it is not JSON"),
        ("[" * 201 + "]" * 201, "nested deeper than 200"),
        ("[" * 100_000 + "]" * 100_000, "nested deeper than 200"),
    ],
)
def test_json_that_others_wrote_is_checked(text: str | bytes, reason: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        values.parse(text, what="--input")
    assert reason in str(caught.value)


def test_json_that_others_wrote_is_read() -> None:
    assert values.parse(b' {"b": [1.0, "\\u0000"],\n "a": null} ') == {"b": [1.0, "\0"], "a": None}


def test_digest_is_blake2b_of_16_bytes() -> None:
    # printf abc | b2sum -l 128
    assert values.digest(b"abc").hex() == "cf4ab791c62b8d2b2109c90275287816"


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None)
@given(json_values)
def test_every_value_comes_back_and_is_spelled_one_way(value: Any) -> None:
    data, back = values.keep(value)
    assert back == value
    assert repr(back) == repr(value) or isinstance(value, dict | list)  # -0.0, 1.0 and 1 stay what they are
    assert values.encode(back) == data
    assert values.parse(data) == value

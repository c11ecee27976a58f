"""Declared types to canonical bytes and back; what cannot be read back is refused before anything acts."""

import enum
import functools
import gc
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, NotRequired, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pytest

from journal.core.errors import InvalidValue, UnknownType, ValueTooLarge
from journal.core.typed import PLAIN, codec_of, result_codec

T = TypeVar("T")


@dataclass
class Item:
    name: str
    cents: int = 0
    when: datetime | None = None
    weight: float | None = None
    tags: set[str] = field(default_factory=set)


class Tree(msgspec.Struct):
    label: str
    leaves: list["Tree"] = []


class Colour(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    label: str


class Plain(TypedDict):
    a: int
    b: NotRequired[list[str]]


class Dated(TypedDict):
    day: date


class Order(pydantic.BaseModel):
    id: int
    total: float = 0.0
    labels: set[str] = set()
    placed: datetime | None = None


class Aliased(pydantic.BaseModel):
    one: int = pydantic.Field(alias="One")
    two: int = pydantic.Field(serialization_alias="Two", default=2)
    three: int = pydantic.Field(validation_alias=pydantic.AliasPath("deep", 0), default=3)

    @pydantic.computed_field  # type: ignore[prop-decorator]  # pydantic's documented order
    @property
    def total(self) -> int:
        return self.one + self.two + self.three


@pydantic.dataclasses.dataclass
class Parcel:
    order: Order
    grams: int


@dataclass
class Mixed:
    order: Order
    items: list[Item]


class Client:
    """Nothing that could be written down."""


class Holder(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    client: Client


NOON = datetime(2020, 1, 2, 12, 30, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    "annotation",
    [
        None, Any, object, type(None), NoReturn, int, str, float, bool, list, dict, list[int], dict[str, Any],
        dict[str, list[Any]], int | None, int | str | None, Literal["a", 1], Plain, Sequence[int],
        Mapping[str, float], T, Annotated[int, {"unhashable": 1}], list[object],
    ],
)  # fmt: skip
def test_plain_json_needs_no_codec(annotation: Any) -> None:
    assert codec_of(annotation, what="x") is PLAIN


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (tuple[int, str], (1, "a"), b'[1,"a"]'),
        (tuple[int, ...], (1, 2), b"[1,2]"),
        (set[str], {"b", "a", "c"}, b'["a","b","c"]'),
        (dict[int, str], {2: "b", 1: "a"}, b'{"1":"a","2":"b"}'),
        (Point, Point(1, "a"), b'[1,"a"]'),
        (Dated, {"day": date(2020, 1, 2)}, b'{"day":"2020-01-02"}'),
        (Item, Item("x"), b'{"cents":0,"name":"x","tags":[],"weight":null,"when":null}'),
        (list[Item], [Item("x", 1, NOON, 0.5, {"b", "a"})],
         b'[{"cents":1,"name":"x","tags":["a","b"],"weight":0.5,"when":"2020-01-02T12:30:00.000005Z"}]'),
        (Item | None, None, b"null"),
        (dict[str, Item], {"k": Item("x")},
         b'{"k":{"cents":0,"name":"x","tags":[],"weight":null,"when":null}}'),
        (Tree, Tree("a", [Tree("b")]), b'{"label":"a","leaves":[{"label":"b","leaves":[]}]}'),
        (Colour, Colour.RED, b'"red"'),
        (datetime, datetime(2020, 1, 2), b'"2020-01-02T00:00:00"'),
        (timedelta, timedelta(seconds=90), b'"PT90S"'),
        (Decimal, Decimal("1.10"), b'"1.10"'),
        (UUID, UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
        (bytes, b"\xff\x00", b'"/wA="'),
        (Order, Order(id=1, labels={"b", "a", "c"}),
         b'{"id":1,"labels":["a","b","c"],"placed":null,"total":0.0}'),
        (list[Order], [Order(id=1)], b'[{"id":1,"labels":[],"placed":null,"total":0.0}]'),
        (Order | int, 5, b"5"),
        (Order | None, None, b"null"),
        (tuple[Order, int], (Order(id=1, placed=NOON), 2),
         b'[{"id":1,"labels":[],"placed":"2020-01-02T12:30:00.000005Z","total":0.0},2]'),
        (Aliased, Aliased.model_validate({"One": 1, "two": 5, "deep": [9]}), b'{"one":1,"three":9,"two":5}'),
        (Parcel, Parcel(Order(id=1), 7), b'{"grams":7,"order":{"id":1,"labels":[],"placed":null,"total":0.0}}'),
        (Mixed, Mixed(Order(id=1), []), b'{"items":[],"order":{"id":1,"labels":[],"placed":null,"total":0.0}}'),
        (pydantic.HttpUrl, pydantic.HttpUrl("https://a.b/c"), b'"https://a.b/c"'),
    ],
)  # fmt: skip
def test_rich_types_come_back_as_declared(annotation: Any, value: Any, expected: bytes) -> None:
    codec = codec_of(annotation, what="x")
    data, kept = codec.keep(value)
    assert data == expected
    assert codec.encode(value) == expected
    assert codec.decode(data) == kept == value
    assert type(kept) is type(value)


def test_what_is_handed_out_is_never_the_original() -> None:
    value = [Item("x")]
    _, kept = codec_of(list[Item], what="x").keep(value)
    kept[0].cents = 5
    assert value[0].cents == 0


@pytest.mark.parametrize(
    "annotation",
    [
        Client, list[Client], int | Client, Order | Client, dict[str, Client | None], Callable[[], int],
        AsyncIterator[Order], Iterator[int], type[Order], type, complex, Exception, Holder, list[Holder],
        dict[Item, int], dict[tuple[int, int], str], Tree | Item, "Unheard", Awaitable[int],
    ],
)  # fmt: skip
def test_types_that_cannot_be_read_back_are_refused_by_name(annotation: Any) -> None:
    with pytest.raises(UnknownType) as caught:
        codec_of(annotation, what="the result of ask")
    assert str(caught.value).startswith("the result of ask is declared as ")
    assert "returns=" in str(caught.value)


@pytest.mark.parametrize(
    ("annotation", "value", "path", "reason"),
    [
        (Item, Item("x", weight=float("nan")), "weight", "nan is not JSON"),
        (Order, Order(id=1, total=float("inf")), "total", "inf is not JSON"),
        (list[Item], [Item("ok"), Item("x", cents=2**64)], "[1].cents", "outside -2**63"),
        (Item, Item("\ud800"), "name", "lone surrogate"),
        (Item, {"cents": 1}, "", "missing required field"),
        (Tree, {"label": "a", "leaves": [{"label": 1}]}, "leaves[0].label", "Expected `str`, got `int`"),
        (Item, None, "", "Expected `object`, got `null`"),
        (Order, None, "", "it does not fit its type"),
        (Colour, "blue", "", "Invalid enum value"),
        (Item, Client(), "", "Client is unsupported"),
        (int, Client(), "", "a Client is not JSON"),
    ],
)
def test_values_that_cannot_be_written_or_read_back_are_refused_by_path(
    annotation: Any, value: Any, path: str, reason: str
) -> None:
    with pytest.raises(InvalidValue) as caught:
        codec_of(annotation, what="x").encode(value, what="the result of ask")
    assert caught.value.what == "the result of ask"
    assert caught.value.path == path
    assert reason in caught.value.reason


def test_refusals_of_pydantic_do_not_quote_the_value() -> None:
    codec = codec_of(Order, what="x")
    for value in ({"id": "sesame"}, ["sesame"], "sesame"):
        with pytest.raises(InvalidValue) as caught:
            codec.encode(value)
        assert "sesame" not in str(caught.value)


def test_a_record_that_no_longer_fits_is_refused() -> None:
    for annotation in (Item, Order):
        with pytest.raises(InvalidValue, match="does not fit its type"):
            codec_of(annotation, what="x").decode(b'{"renamed":1}')


def test_rich_values_have_the_limit_of_all_values() -> None:
    with pytest.raises(ValueTooLarge):
        codec_of(bytes, what="x").encode(b"x" * 7_000_000)


# Results of functions ------------------------------------------------------------------------------


def plain(x: int) -> dict[str, int]:
    return {"x": x}


async def later() -> Item:
    return Item("later")


def awaiting() -> Awaitable[Item]:
    return later()


def coroutine() -> Coroutine[Any, Any, Item]:
    return later()


class Shop:
    def item(self) -> Item:
        return Item("x")

    @classmethod
    def first(cls) -> Item:
        return Item("x")

    def __call__(self) -> Item:
        return Item("x")


@functools.wraps(later)
async def wrapped(*args: Any, **kwargs: Any) -> Any:
    return await later(*args, **kwargs)


@pytest.mark.parametrize(
    "fn",
    [
        later, awaiting, coroutine, Shop().item, Shop.item, Shop.first, Shop(), functools.partial(later), wrapped,
        functools.partial(Shop().item), Item, functools.lru_cache(Shop().item),
    ],
)  # fmt: skip
def test_the_result_type_is_found(fn: Any) -> None:
    kept = result_codec(fn).keep(Item("x", when=NOON))[1]
    assert kept == Item("x", when=NOON)


@pytest.mark.parametrize("fn", [plain, lambda x: x, len, print, Shop.__init__, functools.partial(plain, 1)])
def test_functions_that_say_nothing_or_json_return_plain_values(fn: Any) -> None:
    assert result_codec(fn) is PLAIN


def test_generators_are_refused() -> None:
    def numbers():  # type: ignore[no-untyped-def]
        yield 1

    async def events() -> AsyncIterator[int]:
        yield 1

    for fn in (numbers, events):
        with pytest.raises(UnknownType, match=fn.__name__):
            result_codec(fn)


def test_returns_overrules_the_annotation() -> None:
    def ask() -> Client:
        return Client()

    with pytest.raises(UnknownType, match=r"the result of .*ask is declared as .*Client"):
        result_codec(ask)
    assert result_codec(ask, Item).decode(b'{"name":"x"}') == Item("x")


def test_string_annotations_find_globals_and_what_the_function_closes_over() -> None:
    @dataclass
    class Local:
        a: int

    def by_global(unknown: "Missing") -> "Item":  # type: ignore[name-defined]  # noqa: F821 - what is tested
        return Item("x")

    def by_closure() -> "Local":
        return Local(1)

    def by_nothing() -> "Missing":  # type: ignore[name-defined]  # noqa: F821 - what is tested
        return 1

    assert result_codec(by_global).decode(b'{"name":"x"}') == Item("x")
    assert result_codec(by_closure).decode(b'{"a":1}') == Local(1)
    with pytest.raises(UnknownType, match=r"Missing \(a name that cannot be found from there\)"):
        result_codec(by_nothing)


def test_functions_are_not_kept_alive() -> None:
    def short() -> dict[int, int]:
        return {}

    assert result_codec(short) is result_codec(short)
    gone = weakref.ref(short)
    del short
    gc.collect()
    assert gone() is None


def test_pydantic_is_not_imported_for_others() -> None:
    script = """
import sys, dataclasses, journal.core.arguments, journal.core.typed as typed
@dataclasses.dataclass
class Item: name: str
assert typed.codec_of(list[Item], what="x").decode(b'[{"name":"a"}]') == [Item("a")]
journal.core.arguments.encode_arguments(lambda a: a, (Item("a"),), {})
assert "pydantic" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_sets_are_written_alike_in_every_process() -> None:
    script = """
import pydantic
from journal.core.typed import codec_of
class M(pydantic.BaseModel):
    words: list[set[str]]
    deep: dict[str, frozenset[str]]
words = {"a", "b", "c", "d", "e"}
print(codec_of(M, what="x").encode(M(words=[words], deep={"k": words})).decode())
"""
    expected = '{"deep":{"k":["a","b","c","d","e"]},"words":[["a","b","c","d","e"]]}\n'
    for seed in ("1", "2"):
        command = [sys.executable, "-c", script]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": seed}
        )
        assert done.stdout == expected

"""Whose word counts when a call is in doubt, and how the word is found on a tool."""

import dataclasses
import functools
import gc
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import agents
import pydantic
import pytest
from mcp.types import ToolAnnotations

from journal.core.errors import InvalidOptions
from journal.core.records import Policy
from journal.tools.policy import Marker, Resolved, check_policies, marker_of, never, resolve, safe
from journal.tools.probe import CannotTell

SAFE, NEVER = Marker("safe"), Marker("never")


async def probe(input: Any, io: Any) -> CannotTell:  # noqa: A002 - the field's name
    return CannotTell()


# Deciding ------------------------------------------------------------------------------------------


def test_nobody_said_anything_is_never() -> None:
    assert resolve("refund") == Resolved("never", "default")


def test_the_first_who_speaks_is_heard() -> None:
    said: dict[str, Any] = {
        "agent": {"refund": "safe"},
        "journal": {"refund": "never"},
        "marker": SAFE,
        "metadata": {"journal": {"replay": "never"}},
        "hints": {"readOnlyHint": True},
    }
    expected = [
        Resolved("safe", "agent map (refund)"),
        Resolved("never", "journal map (refund)"),
        Resolved("safe", "marker"),
        Resolved("never", "tool metadata"),
        Resolved("safe", "trusted MCP hint (readOnlyHint)"),
        Resolved("never", "default"),
    ]
    for result in expected:
        assert resolve("refund", **said) == result
        if said:
            said.pop(next(iter(said)))


@pytest.mark.parametrize(
    ("policies", "source"),
    [
        ({"*": "safe", "refund_order": "never"}, "refund_order"),
        ({"*": "safe", "refund_*": "never"}, "refund_*"),
        ({"refund_*": "safe", "refund_ord*": "never", "*": "safe"}, "refund_ord*"),
        ({"*_order": "safe", "refund_*": "never"}, "refund_*"),  # 6 characters against 7
        ({"*order": "safe", "refun*": "never"}, "refun*"),  # 5 against 5: the careful one
        ({"refund_orde?": "never", "refund_*": "safe"}, "refund_orde?"),
        ({"refund_[a-o]*": "never", "refund*": "safe"}, "refund_[a-o]*"),
    ],
)
def test_of_globs_the_one_that_spells_out_most_speaks(policies: dict[str, Policy], source: str) -> None:
    for order in (policies, dict(reversed(policies.items()))):
        assert resolve("refund_order", journal=order) == Resolved("never", f"journal map ({source})")


def test_a_map_that_does_not_match_leaves_the_word_to_the_next() -> None:
    assert resolve("refund", agent={"Refund": "safe", "refund_*": "safe"}, marker=NEVER).source == "marker"


def test_an_exact_name_goes_before_its_reading_as_a_glob() -> None:
    assert resolve("a[1]", journal={"a[1]": "safe", "a*": "never"}).policy == "safe"


def test_the_old_spelling_is_not_asked_for_where_there_is_the_new_one() -> None:
    """FastMCP gives objects of version 2 the old names too, and each use of them warns."""

    class Both:
        read_only_hint = False
        idempotent_hint = True

        @property
        def readOnlyHint(self) -> bool:
            raise DeprecationWarning

    assert resolve("list", hints=Both()).policy == "safe"


@pytest.mark.parametrize(
    "hints",
    [
        {"readOnlyHint": True},
        {"idempotentHint": True, "readOnlyHint": False},
        {"read_only_hint": True},
        ToolAnnotations(read_only_hint=True),
        ToolAnnotations(idempotent_hint=True),
        SimpleNamespace(readOnlyHint=True),  # version 1 of the MCP package
        SimpleNamespace(idempotentHint=True, readOnlyHint=None),
    ],
)
def test_trusted_hints_in_both_spellings(hints: object) -> None:
    assert resolve("list", hints=hints).policy == "safe"


@pytest.mark.parametrize(
    "hints", [None, {}, {"readOnlyHint": "true"}, {"readOnlyHint": 1}, ToolAnnotations()]
)
def test_hints_that_do_not_say_it_say_nothing(hints: object) -> None:
    assert resolve("list", hints=hints) == Resolved("never", "default")


@pytest.mark.parametrize(
    "metadata", [None, {}, {"journal": None}, {"journal": {}}, {"other": {"replay": "safe"}}]
)
def test_metadata_without_our_word_says_nothing(metadata: Any) -> None:
    assert resolve("list", metadata=metadata).source == "default"


def test_words_that_are_no_policy_are_refused_with_the_right_ones() -> None:
    with pytest.raises(
        InvalidOptions, match=r"'refund_\*': 'once' is no replay policy; it is 'safe' .* or 'never'"
    ):
        check_policies({"refund_*": "once"})
    with pytest.raises(InvalidOptions, match="the metadata of tool 'a': True is no replay policy"):
        resolve("a", metadata={"journal": {"replay": True}})
    for pattern in ("", 3):
        with pytest.raises(InvalidOptions, match="is no tool name or glob"):
            check_policies({pattern: "safe"})  # type: ignore[dict-item]  # what is tested


def test_a_checked_map_is_a_copy() -> None:
    policies: dict[str, Policy] = {"a": "safe"}
    copy = check_policies(policies)
    policies["a"] = "never"
    assert copy == {"a": "safe"}


# Marking -------------------------------------------------------------------------------------------


def function() -> None: ...


class Slotted:
    __slots__ = ("__weakref__", "name")

    def __init__(self, name: str) -> None:
        self.name = name


@dataclasses.dataclass(frozen=True)
class Frozen:
    name: str


class Model(pydantic.BaseModel):
    name: str


class Plain:
    def method(self) -> None: ...


class Marked:
    def method(self) -> None: ...


@pytest.mark.parametrize("make", [lambda: (lambda: 1), lambda: Slotted("a"), lambda: Frozen("b"),
                                  lambda: Model(name="c"), Plain, lambda: Marked().method, lambda: type("T", (), {}),
                                  lambda: functools.partial(function)])  # fmt: skip
def test_marking_returns_the_same_object(make: Callable[[], Any]) -> None:
    tool = make()
    assert safe(tool) is tool
    assert marker_of(tool) == SAFE
    assert never(tool) is tool
    assert marker_of(tool) == NEVER
    assert never(probe=probe, dedupes=True)(tool) is tool
    assert marker_of(tool) == Marker("never", probe, True)


def test_a_model_keeps_its_fields_to_itself() -> None:
    model = safe(Model(name="x"))
    assert model.model_dump() == {"name": "x"}
    assert model == Model(name="x")


def test_marked_objects_are_not_kept_alive() -> None:
    tool = safe(Slotted("short"))
    gone = weakref.ref(tool)
    del tool
    gc.collect()
    assert gone() is None


def test_what_cannot_be_marked_is_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidOptions, match="name the tool in Journal"):
        safe("refund")


def test_the_marker_is_found_through_decorators_partials_and_methods() -> None:
    @safe
    def inner(x: int) -> int:
        return x

    @functools.wraps(inner)
    def outer(x: int) -> int:
        return inner(x)

    class Shop:
        @never
        def buy(self) -> None: ...

    assert marker_of(outer) == SAFE
    assert marker_of(functools.partial(inner, 1)) == SAFE
    assert marker_of(functools.lru_cache(inner)) == SAFE
    assert marker_of(Shop().buy) == NEVER


def test_the_outer_marker_counts() -> None:
    @safe
    def inner() -> None: ...

    @functools.wraps(inner, updated=())
    def outer() -> None:
        inner()

    assert marker_of(never(outer)) == NEVER
    assert marker_of(inner) == SAFE


def test_unmarked_things_have_no_marker() -> None:
    for thing in (
        function,
        Plain(),
        Plain().method,
        None,
        "text",
        3,
        Model(name="unmarked"),
        SimpleNamespace(name=3),
    ):
        assert marker_of(thing) is None


# A real harness ------------------------------------------------------------------------------------


def make_tool(name: str) -> agents.FunctionTool:
    async def run(amount: int) -> str:
        """Move money."""
        return str(amount)

    return agents.function_tool(run, name_override=name)


def test_a_copy_of_a_tool_finds_its_marker_again() -> None:
    tool = never(dedupes=True)(make_tool("pay"))
    copy = dataclasses.replace(tool)
    copy.on_invoke_tool = functools.partial(tool.on_invoke_tool)  # as an adapter puts its own in front
    del tool
    gc.collect()
    assert marker_of(copy) == Marker("never", None, True)


def test_an_inner_marker_is_found_through_the_tool() -> None:
    @agents.function_tool
    @safe
    async def look(a: int) -> str:
        """Look."""
        return str(a)

    assert marker_of(look) == SAFE
    assert marker_of(dataclasses.replace(look)) == SAFE


def test_another_tool_does_not_inherit_a_marker() -> None:
    safe(make_tool("look_up"))
    assert marker_of(make_tool("delete")) is None
    assert marker_of(SimpleNamespace(name="look_up", description="Move money.")) is None


def test_a_tool_of_the_same_name_around_another_function_is_no_copy() -> None:
    safe(make_tool("same"))
    assert marker_of(make_tool("same")) is None
    never(dedupes=True)(make_tool("lent"))
    assert marker_of(make_tool("lent")) is None, "somebody else's probe must not speak for it"


def test_copies_that_two_marked_tools_could_be_the_origin_of_get_the_careful_marker() -> None:
    first, second = safe(make_tool("twin")), never(dedupes=True)(make_tool("twin"))
    assert marker_of(first) == SAFE
    assert marker_of(second) == Marker("never", None, True)
    assert marker_of(dataclasses.replace(first)) == NEVER

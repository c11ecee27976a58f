"""`@tool` and `@step`: still the function, with options; contradictions are refused when they are written down."""

import asyncio
from typing import Any, Literal

import pytest

from journal.core.arguments import encode_arguments
from journal.core.errors import InvalidOptions
from journal.core.records import Policy
from journal.core.signatures import bind
from journal.core.typed import result_codec
from journal.tools.policy import Marker, marker_of, never, safe
from journal.tools.probe import CannotTell, NotRun, Ran
from journal.tools.retry import Retry
from journal.tools.tool import Step, Tool, step, tool


async def probe(input: Any, io: Any) -> Ran | NotRun | CannotTell:  # noqa: A002 - the field's name
    return CannotTell()


def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    And nothing else.
    """
    return a + b


def test_called_directly_they_are_the_function() -> None:
    assert tool(add)(1, b=2) == 3
    assert step(add)(1) == 2

    @tool(replay="safe")
    async def later(x: str) -> str:
        return x

    assert asyncio.run(later("a")) == "a"


def test_they_are_named_after_the_function() -> None:
    for made in (tool(add), step(add)):
        assert (made.name, made.__name__, made.__doc__) == ("add", "add", add.__doc__)  # type: ignore[attr-defined]  # by update_wrapper
    assert tool(add).description == "Add two numbers."
    assert repr(tool(add)) == "<Tool add>"
    named = tool(name="sum", description="Sums.")(add)
    assert (named.name, named.description) == ("sum", "Sums.")
    assert step(name="sum")(add).name == "sum"


def test_a_tool_is_never_unless_it_says_so() -> None:
    assert tool(add).policy == "never"
    assert tool(replay="safe")(add).policy == "safe"
    full = tool(probe=probe, dedupes=True)(add)
    assert (full.policy, full.probe, full.dedupes) == ("never", probe, True)
    assert marker_of(full) == full.marker == Marker("never", probe, True)


def test_a_marked_function_keeps_its_marker_as_a_tool() -> None:
    def inner() -> None: ...

    assert tool(safe(inner)).policy == "safe"
    assert tool(never(probe=probe)(inner)).probe is probe
    assert tool(replay="never")(inner).probe is probe


def test_a_tool_can_be_marked_afterwards() -> None:
    marked = safe(tool(add))
    assert isinstance(marked, Tool)
    assert marked.policy == "safe"
    assert marked.options(retry=True).retry == Retry()


def test_two_words_that_differ_are_refused() -> None:
    @safe
    def inner() -> None: ...

    with pytest.raises(InvalidOptions, match="marked safe and the tool says never: say it once"):
        tool(replay="never")(inner)


@pytest.mark.parametrize("options", [{"probe": probe}, {"dedupes": True}])
def test_a_safe_tool_has_nothing_to_probe(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptions, match="are for never tools"):
        tool(replay="safe", **options)(add)


def test_a_never_tool_is_not_retried() -> None:
    with pytest.raises(InvalidOptions, match="retry= would start a never tool more than once"):
        tool(retry=True)(add)
    with pytest.raises(InvalidOptions, match="DidNotHappen"):
        tool(add).options(retry=Retry())
    assert tool(replay="safe", retry=True)(add).retry == Retry()


def test_a_never_function_is_no_step() -> None:
    @never
    def pay() -> None: ...

    for made in (pay, tool(add)):
        with pytest.raises(InvalidOptions, match="steps are run again after a crash"):
            step(made)
    assert step(tool(replay="safe")(add))(1) == 2


@pytest.mark.parametrize("made", [tool(replay="safe")(add), step(add)])
def test_options_make_a_changed_copy(made: Step[Any, Any]) -> None:
    changed = made.options(key="k", retry=Retry(tries=5), timeout=2.5, name="plus")
    assert type(changed) is type(made)
    assert (changed.key, changed.retry, changed.timeout, changed.name) == ("k", Retry(tries=5), 2.5, "plus")
    assert (made.key, made.retry, made.timeout, made.name) == (None, None, None, "add")
    assert changed(1) == 2
    back = changed.options(key=None, retry=None, timeout=None)
    assert (back.key, back.retry, back.timeout, back.name) == (None, None, None, "plus")
    assert changed.options().timeout == 2.5


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan"), "1", True])
def test_a_timeout_is_a_number_of_seconds(timeout: Any) -> None:
    for make in (tool, step):
        with pytest.raises(InvalidOptions, match=r"timeout=.*: a number of seconds above 0"):
            make(timeout=timeout)(add)
    with pytest.raises(InvalidOptions):
        step(add).options(timeout=timeout)


@pytest.mark.parametrize("name", ["", "  ", 3])
def test_a_name_has_something_in_it(name: Any) -> None:
    for make in (tool, step):
        with pytest.raises(InvalidOptions, match="a name with something in it"):
            make(name=name)(add)


def test_a_word_that_is_no_policy_is_refused() -> None:
    word: Any = "once"
    with pytest.raises(InvalidOptions, match="tool 'add', replay=: 'once' is no replay policy"):
        tool(replay=word)(add)


@pytest.mark.parametrize("replay", ["safe", "never"])
def test_arguments_and_result_are_the_functions(replay: Policy) -> None:
    def pick(kind: Literal["a"]) -> tuple[int, str]:
        return 1, kind

    made = tool(replay=replay)(pick)
    assert bind(made, ("a",), {}) == {"kind": "a"}
    assert encode_arguments(made, (), {"kind": "a"}) == b'{"kind":"a"}'
    assert result_codec(made).keep((1, "a"))[1] == (1, "a")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'kind'"):
        bind(made, (), {})


class Shop:
    def __init__(self, stock: int) -> None:
        self.stock = stock

    @step(retry=True)
    def count(self, plus: int) -> int:
        """Count."""
        return self.stock + plus

    @tool
    def sell(self, number: int) -> tuple[int, int]:
        """Sell some."""
        return number, self.stock


def test_methods_are_bound_to_their_object() -> None:
    shop, other = Shop(5), Shop(7)
    assert shop.count(1) == 6
    assert other.count(plus=1) == 8
    assert shop.count.retry == Retry()
    assert bind(shop.count, (1,), {}) == {"plus": 1}
    assert result_codec(shop.sell).keep((1, 2))[1] == (1, 2)
    assert list(shop.sell.schema["properties"]) == ["number"]
    assert shop.sell.options(key="k")(2) == (2, 5)
    assert isinstance(Shop.sell, Tool)

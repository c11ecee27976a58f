"""A result is what its function declares, plain types too; that is checked when it is recorded, and never again."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pytest

from journal import Journal, Turn, TurnFailed, ValueLost, never, step
from journal.core.errors import InvalidValue
from journal.core.typed import PLAIN, result_encoder
from journal.engine.offline import replay
from journal.engine.reading import read_run

pytestmark = pytest.mark.anyio


class Colour(StrEnum):
    RED = "red"


class Receipt(TypedDict):
    id: str
    amount: NotRequired[int]


def returning(annotation: Any) -> Any:
    def fn() -> Any: ...

    fn.__annotations__["return"] = annotation
    return fn


@pytest.mark.parametrize(
    ("annotation", "result", "path", "says"),
    [
        (int, "7", "", "Expected `int`, got `str`"),
        (int, 7.5, "", "Expected `int`, got `float`"),
        (str, None, "", "Expected `str`, got `null`"),
        (str, {"id": "re_1"}, "", "Expected `str`, got `object`"),
        (bool, 1, "", "Expected `bool`, got `int`"),
        (type(None), "done", "", "Expected `null`, got `str`"),
        (dict, ["a"], "", "Expected `object`, got `array`"),
        (dict[str, Any], ["a"], "", "Expected `object`, got `array`"),
        (list[Any], {"a": 1}, "", "Expected `array`, got `object`"),
        (dict[str, int], {"a": "x"}, "[...]", "Expected `int`, got `str`"),
        (list[int], [1, "x"], "[1]", "Expected `int`, got `str`"),
        (str | None, 7, "", "Expected `str | null`, got `int`"),
        (Literal["a", "b"], "c", "", "Invalid enum value 'c'"),
        (Receipt, {"amount": 3}, "", "missing required field `id`"),
        (Annotated[int, msgspec.Meta(gt=0)], 0, "", "Expected `int` >= 1"),
    ],
)
def test_what_a_function_does_not_declare_is_refused_by_path(
    annotation: Any, result: Any, path: str, says: str
) -> None:
    encode = result_encoder(returning(annotation))
    with pytest.raises(InvalidValue) as refused:
        encode(result, what="the result")
    assert refused.value.path == path
    assert "it does not fit its type: " in refused.value.reason
    assert says in refused.value.reason


@pytest.mark.parametrize(
    ("annotation", "result"),
    [
        (int, True), (float, 3), (float, True), (str, Colour.RED), (int | None, True), (list[int], [True, 2]),
        (Sequence[int], (1, 2)), (list[int], (1, 2)), (list, (1, 2)), (Mapping[str, int], {"a": 1}), (dict, {}),
        (Receipt, {"id": "a", "more": 1}), (type(None), None), (object, 7), (Any, 7), (list[Any], []), (float, 0.5),
    ],
)  # fmt: skip
def test_what_a_type_checker_lets_pass_is_recorded_as_it_is(annotation: Any, result: Any) -> None:
    assert result_encoder(returning(annotation))(result) == PLAIN.encode(result)


def test_what_declares_nothing_is_not_looked_at() -> None:
    def silent():  # type: ignore[no-untyped-def]  # that is the point
        ...

    assert result_encoder(silent) is PLAIN.encode
    assert result_encoder(returning(Any)) is PLAIN.encode
    assert result_encoder(returning(Any), returns=int) is not PLAIN.encode


def count() -> int:
    return "seven"  # type: ignore[return-value]  # that is the point


@never
def pay() -> int:
    return {"id": "re_1"}  # type: ignore[return-value]  # that is the point


@step(returns=int)
def told() -> Any:
    return "seven"


async def test_a_step_that_returns_something_else_says_so_on_the_first_run_and_on_replay() -> None:
    journal, seen = Journal("memory:"), []

    @journal.agent
    async def work(turn: Turn, _: None) -> None:
        for fn in (count, told):
            with pytest.raises(ValueLost) as lost:
                await turn.step(fn)
            seen.append(str(lost.value))
        if len(seen) == 2:
            raise RuntimeError("once more")

    async with journal:
        with pytest.raises(TurnFailed):
            await work.run(None, run_id="r")
        await (await journal.retry("r")).settle(5, serve=True)
    assert seen[:2] == seen[2:]
    assert "it does not fit its type: Expected `int`, got `str`); it was 'seven'" in seen[0]


async def test_a_never_tool_that_returns_something_else_has_happened() -> None:
    journal = Journal("memory:")

    @journal.agent
    async def work(turn: Turn, _: None) -> str:
        paid = await turn.tool(pay)
        assert isinstance(paid.failure, ValueLost)
        return paid.text

    async with journal:
        text = await work.run(None)
    assert "happened, but its result could not be kept" in text
    assert "it was {'id': 're_1'}" in text


async def test_an_output_that_is_something_else_fails_the_turn_and_is_retried_once_it_is_mended() -> None:
    journal, outputs = Journal("memory:"), ["seven", 7]

    @journal.agent
    async def work(turn: Turn, _: None) -> int:
        return outputs.pop(0)  # type: ignore[return-value]  # that is the point

    async with journal:
        with pytest.raises(
            TurnFailed, match="the output of agent 'work': it does not fit its type: Expected `int`"
        ):
            await work.run(None, run_id="r")
        assert await (await journal.retry("r")).settle(5, serve=True) == 7


async def test_what_was_recorded_before_is_handed_out_whatever_is_declared_now() -> None:
    """A log of before, or of code that declared otherwise."""
    journal = Journal("memory:")
    number: Any = lambda: "seven"  # noqa: E731 - it is given its annotation below
    number.__name__ = "number"

    @journal.agent
    async def work(turn: Turn, _: None) -> Any:
        return await turn.step(number)

    async with journal:
        assert await work.run(None, run_id="r") == "seven"
        run = await read_run((await journal.runtime()).world, "r")
        number.__annotations__["return"] = int
        del number.__journal_plan__
        told_again = await replay(work, run)
        assert told_again.verdict == "same"

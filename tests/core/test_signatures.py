"""Arguments by name: exactly what calling would take, and exactly its TypeError otherwise."""

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from journal.core.signatures import bind, shape_of, unbind


def two(a: Any, b: Any = 2) -> Any:
    return {"a": a, "b": b}


def everything(a: Any, /, b: Any, *rest: Any, c: Any, d: Any = 4, **others: Any) -> Any:
    return (a, b, rest, c, d, others)


def positional(a: Any, b: Any = 2, /) -> Any:
    return (a, b)


def keyword(*, a: Any, b: Any = 2) -> Any:
    return (a, b)


def nothing() -> None: ...


def shadowing(locals: Any, ABSENT: Any = 1, by_name: Any = 2) -> Any:  # noqa: A002 - names that a generated function might use
    return (locals, ABSENT, by_name)


class Thing:
    def method(self, x: Any) -> Any:
        return x

    @classmethod
    def made(cls, x: Any) -> Any:
        return x

    @staticmethod
    def free(x: Any) -> Any:
        return x

    def __call__(self, y: Any) -> Any:
        return y


class Made:
    def __init__(self, x: Any) -> None: ...


@pytest.mark.parametrize(
    ("fn", "args", "kwargs", "expected"),
    [
        (two, (1,), {}, {"a": 1}),
        (two, (1, 5), {}, {"a": 1, "b": 5}),
        (two, (1,), {"b": 5}, {"a": 1, "b": 5}),
        (two, (), {"b": 5, "a": 1}, {"a": 1, "b": 5}),
        (two, (None,), {"b": None}, {"a": None, "b": None}),
        (everything, (1, 2), {"c": 3}, {"a": 1, "b": 2, "c": 3}),
        (everything, (1, 2, 3, 4), {"c": 5, "z": 6, "a": 7},
         {"a": 1, "b": 2, "rest": (3, 4), "c": 5, "others": {"z": 6, "a": 7}}),
        (everything, (1,), {"b": 2, "c": 3, "d": 0}, {"a": 1, "b": 2, "c": 3, "d": 0}),
        (positional, (1, 2), {}, {"a": 1, "b": 2}),
        (keyword, (), {"a": ()}, {"a": ()}),
        (nothing, (), {}, {}),
        (shadowing, (1,), {"by_name": 2}, {"locals": 1, "by_name": 2}),
        (Thing().method, (1,), {}, {"x": 1}),
        (Thing().method, (), {"x": 1}, {"x": 1}),
        (Thing.made, (1,), {}, {"x": 1}),
        (Thing.free, (1,), {}, {"x": 1}),
        (Thing(), (1,), {}, {"y": 1}),
        (Made, (1,), {}, {"x": 1}),
        (functools.partial(two, 1), (), {"b": 3}, {"b": 3}),
        (functools.partial(two, b=1), (7,), {}, {"a": 7}),
        (functools.lru_cache(two), (1,), {}, {"a": 1}),
        (len, ([],), {}, {"obj": []}),
        (max, (1, 2), {"default": 0}, {"args": (1, 2), "default": 0}),
        (lambda x: x, (1,), {}, {"x": 1}),
    ],
)  # fmt: skip
def test_arguments_by_name(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert bind(fn, args, kwargs) == expected


@pytest.mark.parametrize(
    ("fn", "args", "kwargs"),
    [
        (two, (), {}),
        (two, (1, 2, 3), {}),
        (two, (1,), {"a": 1}),
        (two, (1,), {"z": 1}),
        (everything, (1, 2), {}),
        (everything, (), {"a": 1, "b": 2, "c": 3}),
        (positional, (), {"a": 1}),
        (keyword, (1,), {"a": 1}),
        (nothing, (1,), {}),
        (Thing().method, (), {}),
        (Thing().method, (1, 2), {}),
        (Thing.made, (), {}),
        (Thing(), (), {}),
        (Thing(), (1,), {"x": 1}),
    ],
)
def test_wrong_arguments_are_refused_in_the_words_of_python(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(TypeError) as called:
        fn(*args, **kwargs)
    with pytest.raises(TypeError) as bound:
        bind(fn, args, kwargs)
    assert str(bound.value) == str(called.value)


@pytest.mark.parametrize(
    ("fn", "args", "kwargs"),
    [
        (two, (1,), {"b": 3}),
        (everything, (1, 2, 3, 4), {"c": 5, "z": 6}),
        (everything, (1,), {"b": 2, "c": 3}),
        (positional, (1,), {}),
        (keyword, (), {"a": 1}),
        (Thing().method, (1,), {}),
        (max, (3, 7), {}),
    ],
)
def test_a_call_can_be_made_of_the_names_in_any_order(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    bound = bind(fn, args, kwargs)
    for names in (list(bound), sorted(bound), sorted(bound, reverse=True)):
        again, named = unbind(fn, {name: bound[name] for name in names})
        assert fn(*again, **named) == fn(*args, **kwargs)


def test_a_transparent_wrapper_has_the_names_of_what_it_wraps() -> None:
    @functools.wraps(two)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return two(*args, **kwargs)

    assert bind(wrapper, (1,), {"b": 2}) == {"a": 1, "b": 2}


def test_a_wrapper_that_gives_more_arguments_is_not_refused() -> None:
    @functools.wraps(two)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return two("given", *args, **kwargs)

    assert bind(wrapper, (1,), {}) == {"a": 1}
    assert bind(wrapper, (), {}) == {}


def test_a_wrapper_with_a_signature_of_its_own_has_its_names() -> None:
    @functools.wraps(two)
    def wrapper(mine: Any) -> Any:
        return two(mine, mine)

    assert bind(wrapper, (1,), {}) == {"mine": 1}


def test_methods_of_one_class_share_a_shape() -> None:
    assert shape_of(Thing().method) is shape_of(Thing().method)


def test_functions_are_not_kept_alive() -> None:
    def short(a: Any) -> Any:
        return a

    bind(short, (1,), {})
    gone = weakref.ref(short)
    del short
    gc.collect()
    assert gone() is None
